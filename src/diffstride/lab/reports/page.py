"""One page of all that runs, sweeps and searches have to show; it needs nothing but itself."""

import base64
import hashlib
import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from diffstride import files
from diffstride.lab.reports import (
    learned_strides,
    plots,
    resolution,
    restored,
    results,
    robust,
    searches,
    trade_offs,
)
from diffstride.lab.reports.chapters import Chapter, Section, collect
from diffstride.lab.reports.formats import TEMPLATES, environment, number, percent, plus_minus
from diffstride.lab.reports.panel import for_panel

SECTIONS = (
    results.summary,
    results.paper_comparison,
    restored.before_and_after,
    learned_strides.strides_while_training,
    learned_strides.strides_by_setting,
    resolution.resolution_needed,
    robust.changed_examples,
    trade_offs.what_strides_buy,
    results.score_costs,
    learned_strides.windows_on_data,
    learned_strides.what_layers_let_pass,
    results.training_curves,
    results.every_run,
    results.data_and_environment,
)
"""What makes the sections of a chapter, in the order of a paper."""
OF_SEARCHES = (
    searches.answer,
    searches.plan_table,
    searches.trials,
    searches.trajectory,
    searches.scores,
    restored.before_and_after,
    resolution.resolution_needed,
    robust.changed_examples,
    trade_offs.what_strides_buy,
    learned_strides.windows_on_data,
    learned_strides.what_layers_let_pass,
    results.training_curves,
    results.every_run,
    results.data_and_environment,
)
"""The same of a search: first what was found, then how its runs went."""


def write(paths: Iterable[str | Path], output: str | Path | None = None) -> Path:
    """Write the report of runs, sweeps and searches, or of folders with some of them.

    Returns the file, which is written completely or not at all: ``output``, or ``report.html`` in
    the first folder. A folder that is none of them, and has none in it, is a ValueError.
    """
    folders = [Path(path) for path in paths]
    if not folders:
        raise ValueError("a report needs the folder of a run, a sweep or a search at least")
    path = folders[0] / "report.html" if output is None else Path(output)
    files.write(path, render(folders))
    return path


def render(paths: Iterable[Path]) -> str:
    """The report as the text of an HTML page."""
    chapters, numbers = collect(paths), itertools.count(1)

    def labelled(svg: str, label: str) -> Markup:
        """A figure of ours as an image with a name, for those who do not see it."""
        start = Markup('<svg role="img" aria-label="{}"').format(label)
        return Markup(plots.numbered(svg, next(numbers)).replace("<svg", start, 1))

    return _page(
        "report.html.jinja",
        ("page", "panel"),
        {"svg": labelled, "percent": percent},
        title=" and ".join(chapter.title for chapter in chapters),
        chapters=[(chapter.title, _sections(chapter)) for chapter in chapters],
        panel=for_panel([run for chapter in chapters for run in chapter.runs]),
    )


def render_panel(panel: dict[str, Any]) -> str:
    """The interactive panel alone, as the text of an HTML page: see `panel.of_images`."""
    return _page("panel_page.html.jinja", ("panel",), {}, panel=panel)


def _page(template: str, scripts: Sequence[str], filters: dict[str, Any], **content: Any) -> str:
    """The text of a page that needs nothing but itself: its scripts and its styles are in it."""
    filters = {"number": number, "plus_minus": plus_minus, "short": "{:.4g}".format} | filters
    texts = {name: Markup((TEMPLATES / f"{name}.js").read_text("utf-8")) for name in scripts}
    # Everything that is not made here is escaped: names, labels and settings are words of others.
    return (
        environment(filters, autoescape=True, lstrip_blocks=True)
        .get_template(template)
        .render(
            css=Markup((TEMPLATES / "report.css").read_text("utf-8")),
            scripts=texts,
            # Nothing is fetched, and no scripts run but these.
            policy="default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src "
            + " ".join(map(_hash, texts.values())),
            **content,
        )
    )


def _sections(chapter: Chapter) -> list[Section]:
    makers = SECTIONS if chapter.search is None else OF_SEARCHES
    return [section for make in makers if (section := make(chapter)).blocks]


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
