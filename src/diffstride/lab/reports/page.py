"""One page of everything that runs and sweeps have to show; it needs nothing but itself."""

import base64
import hashlib
import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from diffstride.files import write as write_whole

TEMPLATES = Path(__file__).parent / "templates"


def write(paths: Iterable[str | Path], output: str | Path | None = None) -> Path:
    """Write the report of runs, of sweeps, or of folders with some in them.

    Args:
        paths: the folders.
        output: the file to write; without one, ``report.html`` in the first folder.

    Returns:
        The file, which is there whole or not at all.

    Raises:
        ValueError: for a folder that is no run, no sweep, and has none in it.
    """
    folders = [Path(path) for path in paths]
    if not folders:
        raise ValueError("a report needs the folder of a run or of a sweep at least")
    text = render(folders)
    path = folders[0] / "report.html" if output is None else Path(output)
    write_whole(path, text)
    return path


def render(paths: Iterable[Path]) -> str:
    """The report as the text of an HTML page."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    from diffstride.lab.reports import conditions, learned, pictures, plots, results
    from diffstride.lab.reports.sections import collect

    parts = collect(paths)
    # In the order of a paper. A section is left out where there is nothing to show in it.
    makers = (
        results.summary,
        results.results,
        learned.strides,
        learned.distributions,
        results.prices,
        learned.passed,
        learned.cutoffs,
        conditions.training,
        results.every_run,
        conditions.conditions,
    )
    # All that is not made here is escaped: names, labels and settings are what somebody wrote.
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    numbers = itertools.count(1)
    environment.filters["svg"] = lambda svg, label: _labelled(
        plots.numbered(svg, next(numbers)), label
    )
    scripts = {name: _template(f"{name}.js") for name in ("theme", "panel")}
    return environment.get_template("report.html.jinja").render(
        title=" and ".join(part.title for part in parts),
        parts=[(part.title, [s for make in makers if (s := make(part))]) for part in parts],
        css=Markup(_template("report.css")),
        scripts={name: Markup(text) for name, text in scripts.items()},
        # Nothing is fetched, and no script runs but these two.
        policy="default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src {' '.join(map(_hash, scripts.values()))}",
        panel=pictures.for_panel([run for part in parts for run in part.runs]),
    )


def _template(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _labelled(svg: str, label: str) -> Any:
    """A figure of ours as an image with a name, for those who do not see it."""
    from markupsafe import Markup, escape

    return Markup(svg.replace("<svg", f'<svg role="img" aria-label="{escape(label)}"', 1))
