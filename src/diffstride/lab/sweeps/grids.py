"""A sweep over every combination of some settings, which a TOML file lists."""

import itertools
import math
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from diffstride.lab.sweeps import plan
from diffstride.lab.sweeps.paper_tables import PAPER, toml
from diffstride.lab.sweeps.plan import Cell, SweepPlan, as_words
from diffstride.lab.training import recipes

NAMES = ("recipe", "title", "seeds", "settings", "grid")
"""What a file may have."""


def plan_grid(path: Path, seeds: int | None = None, words: Sequence[str] = ()) -> SweepPlan:
    """Return the plan of a grid: methods of downsampling are columns, other settings make rows.

    ``path`` is a TOML file with ``recipe``, ``seeds``, ``[settings]`` and ``[grid]``.

    Raises:
        ValueError: if the file can't be read, there are more than 5,000 runs, or an option is one
            that the grid varies.
    """
    program = f"diffstride sweep {path}"
    content = _read(path)
    recipe = recipes.find(content.get("recipe", "digits"))
    if recipe is None:
        raise ValueError(f"{path}: no recipe {content['recipe']!r}, nor such a file")
    grid = content.get("grid", {})
    numbers = content.get("seeds", [0, 1, 2])
    if seeds is not None:
        numbers = list(range(min(seeds, plan.MOST_RUNS)))
    if not (isinstance(numbers, list) and numbers and all(type(n) is int for n in numbers)):
        raise ValueError(f"{path}: seeds must be one at least, such as [0, 1], got {numbers!r}")
    combinations = math.prod(len(values) for values in grid.values())
    plan.check_number(combinations, seeds or len(numbers), str(path))
    config = plan.common_config(recipe[1], content.get("settings", {}), words, grid, program)
    cells = []
    for values in itertools.product(*grid.values()):
        chosen = dict(zip(grid, values, strict=True))
        cell_config = recipes.override(config, as_words(chosen), program)
        column = cell_config.model.downsampling
        chosen.pop("model.downsampling", None)
        row = ", ".join(_in_row(*setting) for setting in chosen.items()) or "all"
        name = "-".join([column, *(_in_name(*setting) for setting in chosen.items())])
        cells.append(Cell(name, row, column, cell_config))
    sweep = SweepPlan(
        path.stem,
        content.get("title", path.stem),
        tuple(numbers),
        "own",
        tuple(dict.fromkeys(cell.row for cell in cells)),
        {cell.column: PAPER["columns"].get(cell.column, cell.column) for cell in cells},
        tuple(cells),
        config,
    )
    name, number = Counter(run.name for run in sweep.runs).most_common(1)[0]
    if number > 1:
        raise ValueError(f"{path}: two combinations of the grid would be named {name}")
    return sweep


def _read(path: Path) -> dict[str, Any]:
    """Return the content of a file, if all in it has the form it must have."""
    try:
        content: dict[str, Any] = toml.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} can't be read as TOML: {error}") from error
    if unknown := sorted(set(content) - set(NAMES)):
        raise ValueError(f"{path} has {', '.join(unknown)}; it may have {', '.join(NAMES)}")
    for name in ("grid", "settings"):
        if not isinstance(table := content.get(name, {}), dict):
            raise ValueError(f"{path}: [{name}] must be a table of options, got {table!r}")
    for name, values in content.get("grid", {}).items():
        if name in ("seed", "name", "out"):
            raise ValueError(f"{path}: {name} is chosen for each run; seeds = [0, 1] is for seeds")
        if not (isinstance(values, list) and values):
            raise ValueError(f"{path}: {name} must be a list of what to try, got {values!r}")
        if name == "model.strides" and not all(isinstance(value, list) for value in values):
            raise ValueError(f"{path}: {name} must be a list of lists, got {values!r}")
    return content


def _in_row(name: str, value: Any) -> str:
    """Return a setting as the title of a row has it."""
    return plan.label(value) if name == "model.strides" else f"{name.rpartition('.')[2]} {value}"


def _in_name(name: str, value: Any) -> str:
    """Return a setting as the name of a folder has it."""
    if name == "model.strides":
        return plan.dashed(value)
    return re.sub(r"[^\w.+-]+", "_", f"{name.rpartition('.')[2]}{value}")
