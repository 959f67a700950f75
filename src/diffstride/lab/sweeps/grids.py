"""A grid of one's own, from a TOML file: a list of runs."""

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from diffstride.lab.sweeps.paper_tables import PAPER, toml
from diffstride.lab.sweeps.plan import (
    MOST_RUNS,
    Plan,
    Planned,
    as_words,
    by_seed,
    check_number,
    check_varied,
    flat,
    label,
)
from diffstride.lab.training import recipes


def plan(path: Path, seeds: int | None = None, words: Sequence[str] = ()) -> Plan:
    """Every combination of a grid; methods of downsampling are columns, all else makes rows.

    Args:
        path: a TOML file with ``recipe``, ``seeds``, ``[settings]`` and ``[grid]``.
        seeds: how many, from 0, instead of those in the file.
        words: other options of ``diffstride train``, for all runs.

    Raises:
        ValueError: if the file can't be read, there are more than 5,000 runs, or an option is one
            that the grid varies.
    """
    program = f"diffstride sweep {path}"
    try:
        told = toml.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} can't be read as TOML: {error}") from error
    names = ("recipe", "title", "seeds", "settings", "grid")
    if unknown := sorted(set(told) - set(names)):
        raise ValueError(f"{path} has {', '.join(unknown)}; it may have {', '.join(names)}")
    found = recipes.find(told.get("recipe", "digits"))
    if found is None:
        raise ValueError(f"{path}: no recipe {told['recipe']!r}, nor such a file")
    grid, settings = told.get("grid", {}), told.get("settings", {})
    for name, table in (("grid", grid), ("settings", settings)):
        if not isinstance(table, dict):
            raise ValueError(f"{path}: [{name}] must be a table of options, got {table!r}")
    for name, values in grid.items():
        if name in ("seed", "name", "out"):
            raise ValueError(f"{path}: {name} is chosen for each run; seeds = [0, 1] is for seeds")
        if not (isinstance(values, list) and values):
            raise ValueError(f"{path}: {name} must be a list of what to try, got {values!r}")
        if name == "model.strides" and not all(isinstance(value, list) for value in values):
            raise ValueError(f"{path}: {name} must be a list of lists, got {values!r}")
    numbers = told.get("seeds", [0, 1, 2]) if seeds is None else list(range(min(seeds, MOST_RUNS)))
    if not (isinstance(numbers, list) and numbers and all(type(n) is int for n in numbers)):
        raise ValueError(f"{path}: seeds must be one at least, such as [0, 1], got {numbers!r}")
    cells = math.prod(len(values) for values in grid.values())
    check_number(cells, seeds or len(numbers), str(path))
    given = recipes.override(found[1], as_words(settings), program)
    config = recipes.override(given, words, program)
    check_varied(
        given, config, ("seed", "name", "out", *(n for n in grid if n in flat(config))), program
    )
    runs = []
    for values in itertools.product(*grid.values()):
        chosen = dict(zip(grid, values, strict=True))
        own = recipes.override(config, as_words(chosen), program)
        column = own.model.downsampling
        parts = {n: v for n, v in chosen.items() if n != "model.downsampling"}
        row = ", ".join(_told(n, v) for n, v in parts.items()) or "all"
        marks = [column, *(_mark(n, v) for n, v in parts.items())]
        for seed in numbers:
            name = "-".join([*marks, f"s{seed}"])
            runs.append(Planned(name, row, column, seed, replace(own, seed=seed)))
    names_of_runs = [run.name for run in runs]
    if len(set(names_of_runs)) < len(runs):
        twice = next(name for name in names_of_runs if names_of_runs.count(name) > 1)
        raise ValueError(f"{path}: two combinations of the grid would be named {twice}")
    columns = dict.fromkeys(run.column for run in runs)
    return Plan(
        path.stem,
        told.get("title", path.stem),
        "own",
        tuple(numbers),
        tuple(dict.fromkeys(run.row for run in runs)),
        {name: PAPER["columns"].get(name, name) for name in columns},
        tuple(by_seed(runs)),
        config,
    )


def _told(name: str, value: Any) -> str:
    if name == "model.strides":
        return label(value)
    return f"{name.rpartition('.')[2]} {value}"


def _mark(name: str, value: Any) -> str:
    """A setting in the name of a folder."""
    if name == "model.strides":
        return "-".join(f"{stride:g}" for stride in value)
    return re.sub(r"[^\w.+-]+", "_", f"{name.rpartition('.')[2]}{value}")
