"""A sweep before it starts: the cells of its table, the runs that fill them, their settings."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

from diffstride.lab.runs.config import LEARNING, Config
from diffstride.lab.runs.config_file import flat
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

    def placed(self, is_there: Callable[[str], bool] = lambda name: False) -> tuple[Cell, ...]:
        """Return all runs, each with the name of the one that is trained for its place.

        Runs that learn the same are trained once, and have the name of the first of them, or of one
        that ``is_there`` already. What is there keeps its own name: a sweep of an earlier version
        trained them all.
        """
        trained: dict[Config, str] = {}
        for run in sorted(self.runs, key=lambda run: not is_there(run.name)):
            trained.setdefault(effective(run.config), run.name)
        return tuple(
            run if is_there(run.name) else replace(run, name=trained[effective(run.config)])
            for run in self.runs
        )

    def document(self, placed: Sequence[Cell]) -> dict[str, Any]:
        """Return the content of sweep.json for runs that are placed like this."""
        runs = []
        for run in placed:
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


OF_LEARNED_STRIDES = (
    "smoothness",
    "smoothness_end",
    "convention",
    "shared_stride",
    "size_multiple",
)
"""Settings of a network that mean nothing to one without learnable strides."""


def effective(config: Config) -> Config:
    """Return a config in which everything has its default that makes no difference to the result.

    Two runs of configs that come out equal learn the same, number for number.

    >>> strided = with_model(Config(), downsampling="strided")
    >>> effective(with_model(strided, smoothness=1.0)) == effective(strided)
    True
    >>> effective(with_model(Config(), smoothness=1.0)) == effective(Config())
    False
    """
    default = Config()
    model, optim = config.model, config.optim
    changed: dict[str, Any] = {"name": default.name, "out": default.out}
    if model.downsampling not in LEARNING:
        model = replace(model, **{n: getattr(default.model, n) for n in OF_LEARNED_STRIDES})
        of_strides = ("stride_lr", "strides_by")
        optim = replace(optim, **{n: getattr(default.optim, n) for n in of_strides})
        changed["stride_penalty"] = default.stride_penalty
    if optim.name != "sgd":
        optim = replace(optim, momentum=default.optim.momentum)
    if config.ms_budget is None:
        changed |= {"ms_of": default.ms_of, "timings": default.timings}
    data = replace(config.data, cache=default.data.cache)
    return replace(config, model=model, optim=optim, data=data, **changed)


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
