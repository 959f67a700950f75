"""How numbers and tables are written: means with deviations; text, Markdown and LaTeX."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from diffstride.text import aligned

TEMPLATES = Path(__file__).parent / "templates"
UNKNOWN = "–"
LATEX = {sign: "\\" + sign for sign in "&%$#_{}"}
LATEX |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
LATEX |= {"±": r"$\pm$", "×": r"$\times$", "λ": r"$\lambda$", "–": "--", "−": "$-$"}

Figures: TypeAlias = Sequence[float]
"""A mean and a standard deviation, a mean alone, or nothing; the paper's figures have this form."""
Lines: TypeAlias = list[list[str]]
"""A heading and rows; a first cell that begins with two blanks continues the row above."""


def mean_sd(values: Sequence[float]) -> Figures:
    """The mean and the standard deviation; of one value the mean alone, of none nothing."""
    several = len(values) > 1
    return (statistics.mean(values), statistics.stdev(values)) if several else tuple(values)


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of the known values, if there are any."""
    known = [value for value in values if value is not None]
    return statistics.mean(known) if known else None


def plus_minus(figures: Figures, digits: int) -> str:
    """Figures with so many digits after the point.

    >>> plus_minus((91.42, 0.25), 1), plus_minus((91.42,), 1), plus_minus((), 1)
    ('91.4 ± 0.2', '91.4', '–')
    """
    return " ± ".join(f"{value:.{digits}f}" for value in figures) or UNKNOWN


def or_dash(value: float | None, form: str = ".3g") -> str:
    """A number in a format such as ".1f", or a dash if it is not known."""
    return UNKNOWN if value is None else format(value, form)


def percent(value: float | None) -> str:
    """A fraction in percent."""
    return UNKNOWN if value is None else f"{100 * value:.1f} %"


def number(value: float | None) -> str:
    """A number with three digits, or with all digits before the point if they are more."""
    return or_dash(value, ".3g" if abs(value or 0.0) < 1000 else ",.0f")


def plain_text(tables: Sequence[tuple[str, Lines]], notes: Sequence[str]) -> str:
    """The titled tables for a terminal: the first note is their heading, the others follow."""
    lines = [notes[0]]
    for title, rows in tables:
        lines += ["", *([title] if title else []), *aligned(rows)]
    return "\n".join([*lines, "", *notes[1:]])


def document(template: str, tables: Sequence[tuple[str, Lines]], notes: Sequence[str]) -> str:
    """The tables by a template: that of Markdown or that of LaTeX."""
    filters = {"markdown": _markdown, "latex": _latex}
    made = environment(filters, keep_trailing_newline=True).get_template(template)
    return made.render(tables=tables, notes=notes)


def environment(filters: Mapping[str, Any], **options: Any) -> Environment:
    """What makes text of our templates, in which everything that they name must be given."""
    loader = FileSystemLoader(TEMPLATES)
    made = Environment(loader=loader, undefined=StrictUndefined, trim_blocks=True, **options)
    made.filters |= filters
    return made


def _markdown(cell: str) -> str:
    text = cell.replace("|", "\\|").replace("<", "&lt;")
    return "&emsp;" + text.strip() if cell.startswith("  ") else text


def _latex(cell: str) -> str:
    text = "".join(LATEX.get(sign, sign) for sign in cell.strip())
    return r"\quad " + text if cell.startswith("  ") else text
