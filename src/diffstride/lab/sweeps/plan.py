"""A sweep before it runs: its runs, the table they fill, and how settings are written."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from diffstride.lab.runs.config import Config

MOST_RUNS = 5_000
"""Of a sweep; each leaves a folder with checkpoints."""


@dataclass(frozen=True)
class Planned:
    """One run of a sweep, and the cell of the table that it belongs to."""

    name: str
    row: str
    column: str
    seed: int
    config: Config
    tasks: Mapping[str, str] = field(default_factory=dict)
    """Of a network for several tasks: the rows that it fills, with their columns of metrics.csv."""
    penalty: float | None = None
    """The regulariser of strides that are fixed, which a run does not write down."""

    def entry(self) -> dict[str, Any]:
        """What sweep.json has of it."""
        told = {"name": self.name, "row": self.row, "column": self.column, "seed": self.seed}
        if self.tasks:
            told["tasks"] = dict(self.tasks)
        return told if self.penalty is None else {**told, "penalty": self.penalty}


@dataclass(frozen=True)
class Plan:
    """A table that is to be: its rows and columns, its runs, the paper's figures."""

    table: str
    title: str
    scale: str
    seeds: tuple[int, ...]
    rows: tuple[str, ...]
    columns: Mapping[str, str]
    """Methods, with their titles."""
    runs: tuple[Planned, ...]
    config: Config
    """What all runs have in common."""
    paper: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    """Other figures of the paper."""
    size: tuple[int, ...] | None = None
    """Of one example, as budgets were computed for."""

    def document(self) -> dict[str, Any]:
        """What sweep.json says."""
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
    """Settings as on the command line of ``diffstride train``.

    >>> as_words({"model.strides": [2, 3], "data.flip": False, "data.task": ["a=x", "b=y"]})
    ['--model.strides', '2', '3', '--data.no_flip', '--data.task', 'a=x', '--data.task', 'b=y']
    """
    words = []
    for name, value in settings.items():
        if isinstance(value, bool):
            section, point, own = name.rpartition(".")
            words.append(f"--{name}" if value else f"--{section}{point}no_{own}")
        elif name == "data.task":
            words += [word for task in value for word in ("--data.task", str(task))]
        else:
            words += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
    return words


def label(strides: Iterable[float]) -> str:
    """Strides as the paper writes them.

    >>> label([2, 2.0, 1.5])
    '(2, 2, 1.5)'
    """
    return f"({', '.join(f'{stride:g}' for stride in strides)})"


def with_model(config: Config, **model: Any) -> Config:
    """The same, but for these settings of its network."""
    return replace(config, model=replace(config.model, **model))


def check_number(cells: int, seeds: int, where: str) -> None:
    """Raise a ValueError if a table of so many cells is too much for one sweep."""
    if cells * seeds > MOST_RUNS:
        raise ValueError(
            f"{where}: {cells:,} combinations with {seeds:,} seeds each would be "
            f"{cells * seeds:,} runs, and {MOST_RUNS:,} is the most: vary less at once"
        )


def check_varied(given: Config, config: Config, names: Iterable[str], program: str) -> None:
    """Raise a ValueError if the command line changed what a sweep chooses itself."""
    before, after = (flat(each) for each in (given, config))
    for name in names:
        if before[name] != after[name]:
            raise ValueError(f"--{name} is not for `{program}`, which chooses it for each run")


def flat(config: Config) -> dict[str, Any]:
    """The settings of a config by the names they have on the command line."""
    values: dict[str, Any] = {}
    for section, content in asdict(config).items():
        if isinstance(content, dict):
            values |= {f"{section}.{name}": value for name, value in content.items()}
        else:
            values[section] = content
    return values


def by_seed(runs: list[Planned]) -> list[Planned]:
    """The whole table with one seed before the next: an early look is at all of it."""
    return sorted(runs, key=lambda run: run.seed)
