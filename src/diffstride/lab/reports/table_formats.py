"""Tables as text, Markdown and LaTeX."""

from collections.abc import Sequence
from typing import TypeAlias

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from diffstride.lab.reports.blocks import TEMPLATES
from diffstride.text import aligned

Lines: TypeAlias = list[list[str]]
"""A heading and rows; a first cell that begins with two blanks continues the row above."""
Tables: TypeAlias = Sequence[tuple[str, Lines]]
"""Titles, which may be empty, and what is below them."""
LATEX = {sign: "\\" + sign for sign in "&%$#_{}"}
LATEX |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
LATEX |= {"±": r"$\pm$", "×": r"$\times$", "λ": r"$\lambda$", "–": "--", "−": "$-$"}


def text(tables: Tables, notes: Sequence[str]) -> str:
    """The tables for a terminal: the first note is their heading, the others follow them."""
    lines = [notes[0]]
    for title, rows in tables:
        lines += ["", *([title] if title else []), *aligned(rows)]
    return "\n".join([*lines, "", *notes[1:]])


def document(template: str, tables: Tables, notes: Sequence[str]) -> str:
    """The same by a template: that of Markdown or that of LaTeX."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"markdown": _markdown, "latex": _latex}
    return environment.get_template(template).render(tables=tables, notes=notes)


def _markdown(cell: str) -> str:
    text = cell.replace("|", "\\|").replace("<", "&lt;")
    return "&emsp;" + text.strip() if cell.startswith("  ") else text


def _latex(cell: str) -> str:
    text = "".join(LATEX.get(sign, sign) for sign in cell.strip())
    return r"\quad " + text if cell.startswith("  ") else text
