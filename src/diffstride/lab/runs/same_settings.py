"""Which settings of two runs differ, of those that make a difference to what is learned."""

import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

# Where a run is and where its data are cached makes no difference to what it learns.
APART = ("name", "out", "data.cache")
BUDGET_ACCURACY = 1e-3  # a budget is met about so well


def differing(
    existing: Mapping[str, Any], wanted: Mapping[str, Any], apart: Collection[str] = APART
) -> list[str]:
    """Return the names of settings that mean something else to a run; both are of ``flat``."""
    names = (name for name in wanted if name not in apart)
    return [name for name in names if not same_setting(name, existing[name], wanted[name])]


def same_setting(name: str, one: Any, other: Any) -> bool:
    """Return whether two values of a setting mean the same to a run."""
    if one is None or other is None:
        return one is other
    if name == "macs_budget":
        return math.isclose(one, other, rel_tol=BUDGET_ACCURACY)
    if name == "data.path":
        return _resolved(one) == _resolved(other)
    if name == "data.task":
        return [*map(_resolved, one)] == [*map(_resolved, other)]
    return bool(one == other)


def _resolved(text: str) -> str:
    """Return a path, or a task NAME=PATH:LABEL, in full; the name of a dataset stays as it is."""
    name, sign, path = text.rpartition("=")
    path, colon, label = path.partition(":")
    place = Path(path).expanduser()
    return f"{name}{sign}{place.resolve() if place.exists() else path}{colon}{label}"
