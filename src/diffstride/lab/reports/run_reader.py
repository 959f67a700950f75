"""The one reader of a run's folder, whether the run has ended, is half way, or has lost files."""

import math
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from diffstride.core.cutoffs import cutoff, lowest_so_far
from diffstride.core.windows import CONVENTIONS
from diffstride.lab.reports.run_metrics import metrics_of, numbers
from diffstride.lab.reports.windows import Array
from diffstride.lab.runs.axes import data_axes
from diffstride.lab.runs.config import DENSE, ModelConfig
from diffstride.lab.runs.config_file import RECORDED, typed
from diffstride.lab.runs.documents import (
    STEP_SECONDS,
    DamagedFile,
    read_json,
    read_rows,
    read_yaml,
)
from diffstride.lab.runs.robust import Row, read_robust, summary
from diffstride.lab.runs.run_folder import Run, read_facts

MOST_EXAMPLES = 3
LATER_COLUMNS = ("cost_saved", "loss_gradient", "loss_gradient_error", "cutoff")
"""The columns of strides.csv that older runs do not have."""
SETTINGS: dict[str, Any] = {
    "stride_penalty": float,
    "macs_budget": float | None,
    "spend": bool,
    "ms_budget": float | None,
    "model.smoothness": float,
    "model.smoothness_end": float | None,
    "model.width": float,
    "model.strides": tuple[float, ...] | None,
    "data.task": tuple[str, ...],
    "data.noise": float | None,
    "trainer.epochs": int,
}
"""The types of the settings that reports make use of."""
T = TypeVar("T")


class StrideHistory(NamedTuple):
    """The stride of a layer along one axis after each epoch: the points are epochs and strides.

    The sizes are those of the layer's input and output in the end; 0 where the file has none. So
    are what one per cent more of the stride saves, in per cent of the cost, and how the loss
    changes with its logarithm, the mean over the last epoch and the standard error; None where the
    file has none. Axes that share a stride have both together, at the first.
    """

    layer: str
    axis: int
    points: list[tuple[int, float]]
    sizes: tuple[int, int]
    cost_saved: float | None = None
    loss_gradient: float | None = None
    loss_gradient_error: float | None = None
    cutoff: float | None = None
    """Up to which frequency everything passes, in the unit of the data; older runs have none."""
    steps: tuple[int, ...] = ()
    """At which step each point is."""

    @property
    def last(self) -> float:
        return self.points[-1][1]


class RunRecord:
    """What the files in the folder of a run say, however far the run has come.

    Metrics and times have a row for each epoch, without values that are no finite numbers. Strides
    are in the order of the network. Of strides that are not learned, only the plan of a sweep has
    the penalty J. Raises an OSError if there is no config, and DamagedFile if a file is damaged.
    """

    def __init__(self, folder: Path, fixed_penalty: float | None = None) -> None:
        self.folder, self.name = folder, folder.resolve().name
        self.config = _settings(folder / "config.yaml")
        model = self.config["model"]
        self.downsampling: str = model["downsampling"]
        named = str(model.get("convention", "paper"))
        self.convention = named if named in CONVENTIONS else "paper"
        self.has_skips = model.get("name") in DENSE
        self.planned_epochs: int = self.config["trainer"].get("epochs", 0)
        # The downsampling, and what keeps its strides from shrinking.
        budget, weight = self.config.get("macs_budget"), self.config.get("stride_penalty")
        held = "spent" if self.config.get("spend") else "at most"
        limits = f", {budget:.4g} MMACs {held}" if budget else ""
        if ms := self.config.get("ms_budget"):
            limits = f", {ms:.4g} ms {held}"
        self.method = self.downsampling + limits + (f", λ = {weight:g}" if weight else "")
        begun = ", ".join(f"{stride:g}" for stride in model.get("strides") or ())
        self.beginning = f"({begun})" if begun else "as the network has them"

        self.data_facts = _if_there(folder / "data.json", read_facts) or {}
        self.environment = _if_there(folder / "environment.json", read_json) or {}
        self.is_recorded = bool(self.config.get(RECORDED))
        """Whether it is a training of one's own, and not of `diffstride train`."""
        self.metrics, self.score, self.tested, self.others = metrics_of(folder, self.config)
        self.times = numbers(folder / "times.csv", "seconds")
        self.epochs = int(self.last("epoch") or 0)
        smoothness, end = model.get("smoothness", 4.0), model.get("smoothness_end")
        windows = ModelConfig(smoothness=smoothness, smoothness_end=end)
        of_the_end = windows.in_epoch(max(0, self.epochs - 1), self.planned_epochs)
        self.smoothness: float = of_the_end.smoothness
        self.finished = bool(self.metrics) and self.epochs >= self.planned_epochs
        self.minutes = sum(row["seconds"] for row in self.times) / 60
        # The time of a step in the last epoch, that is with the strides of the end. Older runs have
        # that of the whole epoch alone, its evaluation and its files included.
        steps = [0.0, *(row.get("step", 0.0) for row in self.times)]
        taken = steps[-1] - steps[-2] if self.times else 0.0
        step = self.times[-1].get(STEP_SECONDS) if self.times else None
        self.steps_timed_alone = step is not None
        if step is None and taken > 0:
            step = self.times[-1]["seconds"] / taken
        self.seconds_per_step: float | None = step
        self.penalty = fixed_penalty or self.last("stride_penalty") or None
        # Of a network for several tasks: the score of each on test data after the last epoch.
        start, last = f"{self.score.column}_", self.metrics[-1] if self.metrics else {}
        known = () if self.is_recorded else last  # others name their metrics as they like
        tasks = [name.removeprefix(start) for name in known if name.startswith(start)]
        self.task_scores = {task: last[start + task] for task in tasks}

        self.strides = _strides(folder / "strides.csv", self.data_facts)
        self.sizes_known = bool(self.strides) and all(min(s.sizes) > 0 for s in self.strides)
        # Windows can be drawn only where all layers have the same but for their strides, and some
        # methods learn strides without windows.
        alike = self.config["model"].get("windows_alike", True)
        alike = alike and self.config["model"].get("downsampling", "diffstride") == "diffstride"
        self.windows_known = self.sizes_known and bool(alike)
        # The global striding factor: the product of all learnable strides of all axes.
        self.striding_factor = math.prod(stride.last for stride in self.strides)
        layers = dict.fromkeys(stride.layer for stride in self.strides)
        self.layers = {name: [s for s in self.strides if s.layer == name] for name in layers}
        self.first_layer = next(iter(self.layers.values()), [])
        count = max((stride.axis for stride in self.strides), default=1) + 1
        kind = str(self.config["data"].get("kind"))
        self.data_axes = data_axes(self.data_facts, kind, count)
        self.axes: tuple[str, ...] = tuple(axis.name for axis in self.data_axes)
        # Of an input, as far as it is known: the first layer gets all of it, as a rule.
        sizes = [stride.sizes[0] for stride in self.first_layer] or [0] * len(self.axes)
        self.size: tuple[int, ...] = tuple(self.data_facts.get("size", [0, *sizes])[1:])

    @property
    def progress(self) -> str:
        """How many epochs are done, and of how many if that is known."""
        return (
            f"{self.epochs} of {self.planned_epochs}" if self.planned_epochs else f"{self.epochs}"
        )

    def offset(self, axis: int) -> float:
        """By how many frequencies the window of an axis is wider."""
        return CONVENTIONS[self.convention].offset * (axis == len(self.axes) - 1)

    def last(self, column: str) -> float | None:
        """A metric after the last epoch."""
        return self.metrics[-1].get(column) if self.metrics else None

    @property
    def scored(self) -> float | None:
        """The score on test data after the last epoch."""
        return self.last(self.score.column)

    def curve(self, column: str, scale: float = 1.0) -> list[tuple[float, float]]:
        """The epochs that have a metric, each with its value times ``scale``."""
        return [(row["epoch"], scale * row[column]) for row in self.metrics if column in row]

    def period(self, axis: int) -> float:
        """The frequency of one period in the whole length of an axis, in the unit of the axis."""
        return self.data_axes[axis].rate / self.size[axis]

    def up_to(self, stride: StrideHistory) -> list[StrideHistory]:
        """The strides of all layers up to this one, along the same axis."""
        same = [other for other in self.strides if other.axis == stride.axis]
        return same[: same.index(stride) + 1]

    def cutoff(self, stride: StrideHistory) -> float | None:
        """Up to which frequency everything passes a layer and all before it, in its axis' unit.

        None if sizes are not known.
        """
        if stride.cutoff is not None:
            return stride.cutoff
        before, size = self.up_to(stride), self.data_facts.get("size")
        if size is None or any(not other.sizes[0] for other in before):
            return None
        whole, rate = size[1 + stride.axis], self.data_axes[stride.axis].rate
        own = [(cutoff(other.sizes[0], other.last, whole, rate),) for other in before]
        return lowest_so_far(own)[-1][0]

    def times_smaller(self, stride: StrideHistory) -> float | None:
        """How many times smaller than the input maps are behind a layer, if sizes are known."""
        size, kept = self.data_facts.get("size"), stride.sizes[1]
        return size[1 + stride.axis] / kept if size and kept else None

    @property
    def last_layer(self) -> list[StrideHistory]:
        """The strides of the last layer that learns some."""
        return next(reversed(self.layers.values()), [])

    @cached_property
    def robust(self) -> list[Row]:
        """How the network does on changed examples, if that was measured."""
        return _if_there(Run(self.folder).robust_file, read_robust) or []

    @property
    def robustness(self) -> tuple[float | None, float | None]:
        """What tables show of that: its two numbers."""
        return summary(self.robust) if self.robust else (None, None)

    @cached_property
    def examples(self) -> list[tuple[str, Array]]:
        """Real inputs, if any were kept, with their labels.

        They are grey images of values from 0 to 255, or the samples of signals from −1 to 1.
        """
        path = self.folder / "examples.json"
        document = _if_there(path, read_json, "images") or {"images": ()}
        try:
            examples = [
                (str(entry["label"]), _example(entry, len(self.axes)))
                for entry in document["images"]
            ]
        except (ValueError, LookupError, TypeError, OverflowError) as error:
            values = "samples" if len(self.axes) == 1 else "rows of pixels that are of one length"
            expected = f"images, each with a label and {values}"
            raise ValueError(f"{path} must have {expected}: {error!r}") from error
        return examples[:MOST_EXAMPLES]


def _example(entry: dict[str, Any], axes: int) -> Array:
    """The values of an example; a ValueError unless they are those of data with so many axes."""
    values: Array = np.array(entry["samples" if axes == 1 else "pixels"], dtype=np.float64)
    if values.ndim != min(axes, 2) or values.size == 0:
        raise ValueError(f"there are values of {values.ndim} axes, {values.size} in all")
    return values


def _settings(path: Path) -> dict[str, Any]:
    """What config.yaml says; a DamagedFile if a setting that reports use is of another type."""
    config = read_yaml(path)
    for name in ("model", "data", "optim", "trainer"):
        if not isinstance(config.setdefault(name, {}), dict):
            raise DamagedFile(f"{path}: {name} must have settings of its own, got {config[name]!r}")
    if not isinstance(config["model"].get("downsampling"), str):
        raise DamagedFile(f"{path} must have a model with a downsampling")
    for name, hint in SETTINGS.items():
        section, _, key = name.rpartition(".")
        settings = config[section] if section else config
        if key in settings:
            try:
                settings[key] = typed(settings[key], hint, name)
            except ValueError as error:
                raise DamagedFile(f"{path}: {error}") from None
    return config


def _if_there(path: Path, read: Callable[..., T], *names: str) -> T | None:
    return read(path, *names) if path.is_file() else None


def _finite(cell: str | None) -> float | None:
    return float(cell) if cell and math.isfinite(float(cell)) else None


def _strides(path: Path, facts: dict[str, Any]) -> list[StrideHistory]:
    """The strides in a file; a DamagedFile if a layer has other axes than the data."""
    columns = ["epoch", "layer", "axis", "stride"]
    if "axes" in facts:
        columns.append("input_size")  # of which the cut-off is made
    rows = read_rows(path, *columns, may_be_empty=True) if path.is_file() else []
    axes_of: dict[tuple[str, str], list[int]] = {}
    histories: dict[tuple[str, int], list[dict[str, str]]] = {}
    for row in rows:
        axes_of.setdefault((row["layer"], row["epoch"]), []).append(int(row["axis"]))
        histories.setdefault((row["layer"], int(row["axis"])), []).append(row)
    highest = max((axis for _, axis in histories), default=0)
    expected = list(range(len(facts["size"]) - 1 if "size" in facts else highest + 1))
    for (layer, epoch), axes in axes_of.items():
        if sorted(axes) != expected:
            rule = f"each of the axes {expected} of {layer} once in epoch {epoch}"
            raise DamagedFile(f"{path} must have {rule}, got {axes}")
    return [
        StrideHistory(
            layer,
            axis,
            [(int(row["epoch"]), float(row["stride"])) for row in rows],
            (int(rows[-1].get("input_size") or 0), int(rows[-1].get("output_size") or 0)),
            steps=tuple(int(row.get("step") or 0) for row in rows),
            **{name: _finite(rows[-1].get(name)) for name in LATER_COLUMNS},
        )
        for (layer, axis), rows in histories.items()
    ]
