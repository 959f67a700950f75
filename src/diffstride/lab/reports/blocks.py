"""The blocks of a section: mappings that the template shows by their ``kind``."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

TEMPLATES = Path(__file__).parent / "templates"
PageBlock: TypeAlias = dict[str, Any]
Legend: TypeAlias = list[tuple[int | None, int, str]]
"""Of each line its colour, or None where colours mean nothing, its dash and its label."""


def table(caption: str, head: list[str], rows: Sequence[Any], folded: bool = False) -> PageBlock:
    """A table; a folded one is opened by the reader."""
    return {"kind": "table", "caption": caption, "head": head, "rows": rows, "folded": folded}


def figures(legend: Legend, items: Sequence[tuple[str, str]]) -> PageBlock:
    """Figures, each an SVG and its title, below the legend of all."""
    return {"kind": "figures", "legend": legend, "items": items}


def colour_legend(labels: Iterable[str]) -> Legend:
    """A legend with a colour for each label."""
    return [(i, 0, label) for i, label in enumerate(labels)]
