"""A sweep before it starts: the cells of its table, the runs that fill them, their settings."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

from diffstride.lab.runs.config import Config, flat
from diffstride.lab.training import recipes

Settings: TypeAlias = Mapping[str, Any]
MOST_RUNS = 5_000  # of a sweep; each run leaves a folder with checkpoints


@dataclass(frozen=True)
class Cell:
    """A cell of the table of a sweep, or one of its runs, which differ in their seeds alone."""

    name: str
    """That of the run, or how the names of the runs begin."""
    row: str
    column: str
    config: Config
    tasks: Mapping[str, str] = field(default_factory=dict)
    """For a network with several tasks: the rows it fills, and their columns of metrics.csv."""
    penalty: float | None = None
    """The regulariser of fixed strides, which a run does not write down."""

    @property
    def seed(self) -> int:
        return self.config.seed


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
    def runs(self) -> tuple[Cell, ...]:
        """Every cell with one seed, then with the next: an early look shows the full table."""
        return tuple(
            replace(cell, name=f"{cell.name}-s{seed}", config=replace(cell.config, seed=seed))
            for seed in sorted(self.seeds)
            for cell in self.cells
        )

    def document(self) -> dict[str, Any]:
        """Return the content of sweep.json."""
        runs = []
        for run in self.runs:
            entry = {"name": run.name, "row": run.row, "column": run.column, "seed": run.seed}
            more = {"tasks": dict(run.tasks) or None, "penalty": run.penalty}
            runs.append(entry | {name: value for name, value in more.items() if value is not None})
        return {
            "table": self.table,
            "title": self.title,
            "scale": self.scale,
            "seeds": list(self.seeds),
            "rows": list(self.rows),
            "columns": list(self.columns),
            "column_titles": dict(self.columns),
            "runs": runs,
            "paper": self.paper,
            **self.more,
        }


def as_words(settings: Settings) -> list[str]:
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
        much = f"{cells:,} combinations with {seeds:,} seeds each would be {cells * seeds:,} runs"
        raise ValueError(f"{where}: {much}, and {MOST_RUNS:,} is the most: vary less at once")


def common_config(
    recipe: Config, settings: Settings, words: Sequence[str], varied: Iterable[str], program: str
) -> Config:
    """Return a recipe with settings and words, or a ValueError if the words change what varies."""
    before = recipes.override(recipe, as_words(settings), program)
    config = recipes.override(before, words, program)
    values, changed = flat(before), flat(config)
    for name in (*varied, "seed", "name", "out"):
        if name in values and values[name] != changed[name]:
            raise ValueError(f"--{name} is not for `{program}`, which chooses it for each run")
    return config
