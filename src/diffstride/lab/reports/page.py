"""One page of all that runs, sweeps and searches have to show; it needs nothing but itself."""

import base64
import hashlib
import itertools
from collections.abc import Iterable
from pathlib import Path

from markupsafe import Markup

from diffstride import files
from diffstride.lab.reports import (
    learned_strides,
    plots,
    resolution,
    restored,
    results,
    searches,
    trade_offs,
)
from diffstride.lab.reports.chapters import Chapter, Section, collect
from diffstride.lab.reports.formats import TEMPLATES, environment, number, plus_minus
from diffstride.lab.reports.panel import for_panel

SECTIONS = (
    results.summary,
    results.paper_comparison,
    restored.before_and_after,
    learned_strides.strides_while_training,
    learned_strides.strides_by_setting,
    resolution.resolution_needed,
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

    filters = {"number": number, "plus_minus": plus_minus, "svg": labelled}
    filters["short"] = "{:.4g}".format
    files_in_page = ("page.js", "panel.js", "report.css")
    page, panel, css = (Markup((TEMPLATES / name).read_text("utf-8")) for name in files_in_page)
    # Everything that is not made here is escaped: names, labels and settings are words of others.
    template = environment(filters, autoescape=True, lstrip_blocks=True)
    return template.get_template("report.html.jinja").render(
        title=" and ".join(chapter.title for chapter in chapters),
        chapters=[(chapter.title, _sections(chapter)) for chapter in chapters],
        css=css,
        scripts={"page": page, "panel": panel},
        # Nothing is fetched, and no script runs but these two.
        policy="default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src {_hash(page)} {_hash(panel)}",
        panel=for_panel([run for chapter in chapters for run in chapter.runs]),
    )


def _sections(chapter: Chapter) -> list[Section]:
    makers = SECTIONS if chapter.search is None else OF_SEARCHES
    return [section for make in makers if (section := make(chapter)).blocks]


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
