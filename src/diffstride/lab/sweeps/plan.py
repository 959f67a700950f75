"""A sweep before it starts: the cells of its table, the runs that fill them, their settings."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from diffstride.lab.runs.config import Config, flat
from diffstride.lab.training import recipes

MOST_RUNS = 5_000
"""Of a sweep; each run leaves a folder with checkpoints."""


@dataclass(frozen=True)
class Cell:
    """A cell of the table of a sweep. Its runs differ in nothing but their seed."""

    name: str
    """How the names of its runs begin."""
    row: str
    column: str
    config: Config
    tasks: Mapping[str, str] = field(default_factory=dict)
    """For a network with several tasks: the rows it fills, and their columns of metrics.csv."""
    penalty: float | None = None
    """The regulariser of fixed strides, which a run does not write down."""


@dataclass(frozen=True)
class PlannedRun(Cell):
    """One run of a sweep: a cell with one of the seeds."""

    seed: int = 0

    def entry(self) -> dict[str, Any]:
        """Return what sweep.json says about the run."""
        entry = {"name": self.name, "row": self.row, "column": self.column, "seed": self.seed}
        more = {"tasks": dict(self.tasks) or None, "penalty": self.penalty}
        return entry | {name: value for name, value in more.items() if value is not None}


@dataclass(frozen=True)
class SweepPlan:
    """A table to be filled: its rows and columns, its cells, and the paper's figures."""

    table: str
    title: str
    seeds: tuple[int, ...]
    scale: str
    """``"small"``, ``"paper"``, or ``"own"`` for a grid."""
    rows: tuple[str, ...]
    columns: Mapping[str, str]
    """Methods, with their titles."""
    cells: tuple[Cell, ...]
    config: Config
    """The settings that all runs have in common."""
    paper: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    """Other figures of the paper."""
    size: tuple[int, ...] | None = None
    """The size of an example that budgets were computed for."""

    @cached_property
    def runs(self) -> tuple[PlannedRun, ...]:
        """Every cell with one seed, then with the next: an early look shows the full table."""
        return tuple(
            PlannedRun(
                **vars(cell) | {"name": f"{cell.name}-s{seed}", "config": config, "seed": seed}
            )
            for seed in sorted(self.seeds)
            for cell in self.cells
            for config in [replace(cell.config, seed=seed)]
        )

    def document(self) -> dict[str, Any]:
        """Return the content of sweep.json."""
        return {
            "table": self.table,
            "title": self.title,
            "scale": self.scale,
            "seeds": list(self.seeds),
            "rows": list(self.rows),
            "columns": list(self.columns),
            "column_titles": dict(self.columns),
            "runs": [run.entry() for run in self.runs],
            "paper": self.paper,
            **self.more,
        }


def as_words(settings: Mapping[str, Any]) -> list[str]:
    """Return settings as they are written on the command line of ``diffstride train``.

    >>> as_words({"model.strides": [2, 3], "data.flip": False, "data.task": ["a=x", "b=y"]})
    ['--model.strides', '2', '3', '--data.no_flip', '--data.task', 'a=x', '--data.task', 'b=y']
    """
    words = []
    for name, value in settings.items():
        if isinstance(value, bool):
            section, point, option = name.rpartition(".")
            words.append(f"--{name}" if value else f"--{section}{point}no_{option}")
        elif name == "data.task":
            words += [word for task in value for word in ("--data.task", str(task))]
        else:
            words += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
    return words


def label(strides: Iterable[float]) -> str:
    """Return strides as the paper writes them.

    >>> label([2, 2.0, 1.5])
    '(2, 2, 1.5)'
    """
    return f"({', '.join(f'{stride:g}' for stride in strides)})"


def dashed(strides: Iterable[float]) -> str:
    """Return strides as the name of a run has them."""
    return "-".join(f"{stride:g}" for stride in strides)


def with_model(config: Config, **settings: Any) -> Config:
    """Return a config with other settings of its network."""
    return replace(config, model=replace(config.model, **settings))


def check_number(cells: int, seeds: int, where: str) -> None:
    """Raise a ValueError if a table with this many cells is too much for one sweep."""
    if cells * seeds > MOST_RUNS:
        raise ValueError(
            f"{where}: {cells:,} combinations with {seeds:,} seeds each would be "
            f"{cells * seeds:,} runs, and {MOST_RUNS:,} is the most: vary less at once"
        )


def common_config(
    recipe: Config,
    settings: Mapping[str, Any],
    words: Sequence[str],
    varied: Iterable[str],
    program: str,
) -> Config:
    """Return a recipe with the settings of a sweep and the words of the command line.

    Raises:
        ValueError: if the words change what the sweep varies, or seed, name or out.
    """
    before = recipes.override(recipe, as_words(settings), program)
    config = recipes.override(before, words, program)
    values, changed = flat(before), flat(config)
    for name in (*varied, "seed", "name", "out"):
        if name in values and values[name] != changed[name]:
            raise ValueError(f"--{name} is not for `{program}`, which chooses it for each run")
    return config
