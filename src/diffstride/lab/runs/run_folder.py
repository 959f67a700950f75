"""The folder of a run: which files it has, what they say, and how far the run has come."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from diffstride.lab.runs.config import Config, check_name
from diffstride.lab.runs.config_file import check_has_network, read_config, write_config
from diffstride.lab.runs.documents import (
    LARGEST_SIZE,
    DamagedFile,
    RunError,
    read_json,
    read_rows,
    read_yaml,
    short,
    write_json,
)
from diffstride.lab.runs.scores import Score, score_of

MOST_CHANNELS = 1024
Facts: TypeAlias = Mapping[str, Any]


class Run:
    """A folder ``runs/<name>``, which need not exist yet, and the files in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config_file = folder / "config.yaml"
        self.metrics_file = folder / "metrics.csv"
        self.strides_file = folder / "strides.csv"
        self.times_file = folder / "times.csv"
        self.timings_file = folder / "timings.json"
        self.resolution_file = folder / "resolution.csv"
        self.robust_file = folder / "robust.csv"
        self.restored_file = folder / "restored.json"
        self.checkpoints = folder / "checkpoints"
        self.best_file = self.checkpoints / "best.ckpt"

    @classmethod
    def of(cls, config: Config, recipe: str) -> "Run":
        """Return the run of a config, which need not exist yet; its name must be a folder's."""
        default = f"{recipe}-{config.model.downsampling}-{config.seed}"
        name = default if config.name is None else config.name
        check_name(name)
        return cls(Path(config.out).expanduser() / name)

    @classmethod
    def open(cls, folder: str | Path) -> "Run":
        """Return the run in a folder, or raise a RunError: there must be one, with a network."""
        run = cls(Path(folder).expanduser())
        if not run.config_file.is_file():
            stages = f", but a search: take {folder}/found, or another of its runs"
            is_search = (run.folder / "search.json").exists()
            wrong = stages if is_search else ": it must have a config.yaml"
            raise RunError(f"{folder} has no run{wrong}")
        check_has_network(run.config_file, read_yaml(run.config_file))
        return run

    def check_new(self) -> None:
        """Raise a RunError if there is a run, or a search with its runs, in the folder already."""
        if (self.folder / "search.json").exists():
            raise RunError(f"{self.folder} has a search already: choose another --name")
        if self.config_file.exists():
            resume = f"continue it with `diffstride resume {self.folder}`"
            advice = f"{resume}, remove it, or choose another --name"
            raise RunError(f"{self.folder} has a run already: {advice}")

    def create(
        self, config: Config, environment: Facts, data: Facts, examples: Sequence[Facts] = ()
    ) -> None:
        """Write what is known before training; if the folder has a run, raise a RunError."""
        self.check_new()
        write_json(self.folder / "environment.json", environment)
        write_json(self.folder / "data.json", data)
        write_json(self.folder / "examples.json", {"images": examples}, indent=None)
        write_config(self.config_file, config)  # the last: with it, the folder is a run

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def config(self) -> Config:
        return read_config(self.config_file)

    @property
    def data(self) -> dict[str, Any]:
        """The facts in data.json; a ValueError if it is not there, or damaged."""
        path = self.folder / "data.json"
        try:
            return read_facts(path, "size", "classes", "mean", "std")
        except OSError as error:
            raise RunError(f"{path} can't be read: {error}") from error

    @cached_property
    def score(self) -> Score:
        """What the run is judged by."""
        return score_of(self.config.data.noise)

    def metrics(self, *columns: str) -> list[dict[str, str]]:
        """Return the rows of metrics.csv, one per epoch; ``columns`` must be there too."""
        return read_rows(self.metrics_file, "epoch", self.score.column, *columns)

    @property
    def epochs_done(self) -> int:
        """How many epochs metrics.csv has; 0 if it is not there or can't be read."""
        try:
            return int(self.metrics()[-1]["epoch"])
        except (OSError, ValueError):
            return 0

    def is_finished(self, epochs: int) -> bool:
        """Return whether the last of so many epochs is done.

        Its checkpoint must be there, unless all were thrown away: metrics are written just before
        it, and a run that was killed between the two has an epoch to repeat.
        """
        last = self.checkpoint_file(epochs)
        return self.epochs_done >= epochs and max(self.checkpoint_files(), default=last) >= last

    def checkpoint_files(self) -> list[Path]:
        """Return the checkpoints of epochs, the newest first."""
        return sorted(self.checkpoints.glob("epoch-*.ckpt"), reverse=True)

    def checkpoint_file(self, epoch: int) -> Path:
        """Return where the checkpoint of an epoch is."""
        return self.checkpoints / f"epoch-{epoch:05}.ckpt"


def read_facts(path: Path, *names: str) -> dict[str, Any]:
    """Return the facts in data.json; a DamagedFile unless it has these names, each of its kind."""
    facts = read_json(path, *names)
    for name, (is_right, kind) in FACTS.items():
        if name in facts and not is_right(facts[name]):
            raise DamagedFile(f"{path}: {name} must be {kind}, got {short(facts[name])}")
    size = facts.get("size", ())
    given = [name for name in ("axes", "sampling_rate", "units") if name in facts]
    for name in given:
        if len(size) != 1 + len(facts[name]):
            got = f"{short(facts[name])} and {short(size)}"
            rule = "as many as size has after the channels"
            raise DamagedFile(f"{path}: {name} must be {rule}, got {got}")
    if "axes" in given and "sampling_rate" not in given:
        raise DamagedFile(f"{path} must have sampling_rate where it has axes: there is none")
    return facts


def _is_whole(value: Any, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


def _is_size(value: Any) -> bool:
    limits = (MOST_CHANNELS, *[LARGEST_SIZE] * 3)
    return _is_list(value) and 2 <= len(value) <= 4 and all(map(_is_whole, value, [1] * 4, limits))


def _is_number(value: Any) -> bool:
    # A larger integer is no float.
    return _is_whole(value, -(10**300), 10**300) or (type(value) is float and math.isfinite(value))


def _is_list(value: Any, kind: type = object) -> bool:
    return isinstance(value, list) and all(isinstance(item, kind) for item in value)


def _are_numbers(value: Any) -> bool:
    return _is_list(value) and all(map(_is_number, value))


def _by_task(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else [value]


def _is_count(value: Any) -> bool:
    return all(_is_whole(count, 0, 10**12) for count in _by_task(value))


FACTS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "size": (
        _is_size,
        f"channels (1 to {MOST_CHANNELS:,}) and 1 to 3 sizes (1 to {LARGEST_SIZE:,})",
    ),
    "mean": (_are_numbers, "a list of numbers"),
    "std": (_are_numbers, "a list of numbers"),
    "classes": (
        lambda value: value != {} and all(n and _is_list(n, str) for n in _by_task(value)),
        "a list of names, or one for each task",
    ),
    "axes": (lambda value: _is_list(value, str), "a list of words"),
    "sampling_rate": (
        lambda value: _are_numbers(value) and all(rate > 0 for rate in value),
        "a list of numbers above 0",
    ),
    "units": (lambda value: _is_list(value, str), "a list of words"),
    "train": (_is_count, "a whole number, or one for each task"),
    "test": (_is_count, "a whole number, or one for each task"),
    "skipped": (_is_list, "a list of files"),
}
"""What each fact must be: a check, and its words."""
