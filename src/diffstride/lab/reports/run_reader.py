"""A run as its folder has it: whole, half way, or with files missing."""

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from diffstride.lab.reports.table import method, read_strides
from diffstride.lab.runs.documents import DamagedFile, read_json, read_rows, read_yaml


@dataclass(frozen=True)
class Site:
    """A learnable stride along one axis: what it was, epoch by epoch, and the sizes at the end."""

    layer: str
    axis: int
    epochs: tuple[int, ...]
    strides: tuple[float, ...]
    sizes: tuple[int, int] | None
    """In and out, where they are known."""


@dataclass(frozen=True)
class Run:
    """What the files in the folder of a run say."""

    folder: Path
    config: dict[str, Any]
    facts: dict[str, Any]
    """On the data: data.json."""
    environment: dict[str, Any]
    metrics: list[dict[str, float]]
    """A row an epoch; what is no number is left out."""
    strides: list[dict[str, str]]
    times: list[dict[str, float]]
    fixed_penalty: float | None = None
    """J of strides that are not learned, which a run does not write down but a sweep does."""

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def downsampling(self) -> str:
        return str(self.config["model"]["downsampling"])

    @property
    def method(self) -> str:
        """What it downsamples with, and what keeps its strides from shrinking."""
        told = [self.downsampling]
        if budget := self.config.get("macs_budget"):
            told.append(f"{budget:.4g} MMACs at most")
        if weight := self.config.get("stride_penalty"):
            told.append(f"λ = {weight:g}")
        return ", ".join(told)

    @property
    def smoothness(self) -> float:
        return float(self.config["model"].get("smoothness", 4.0))

    @property
    def convention(self) -> str:
        return str(self.config["model"].get("convention", "paper"))

    def offset(self, axis: int) -> float:
        """By how many frequencies the window of an axis is wider."""
        return float(self.convention == "paper" and axis == len(self.axes) - 1)

    @property
    def start(self) -> str:
        """The strides it was told, as a label.

        Those of the network itself have no label of their own.
        """
        told = self.config["model"].get("strides")
        return f"({', '.join(f'{s:g}' for s in told)})" if told else "as the network has them"

    @property
    def epochs(self) -> int:
        return int(self.metrics[-1]["epoch"]) if self.metrics else 0

    @property
    def planned(self) -> int:
        return int(self.config.get("trainer", {}).get("epochs", 0))

    @property
    def finished(self) -> bool:
        return bool(self.metrics) and self.epochs >= self.planned

    def last(self, column: str) -> float | None:
        """A metric after the last epoch."""
        return self.metrics[-1].get(column) if self.metrics else None

    @property
    def penalty(self) -> float | None:
        """The regulariser J; None where nobody knows it."""
        return self.fixed_penalty or self.last("stride_penalty") or None

    @property
    def seconds_per_step(self) -> float | None:
        """Of the network as it was in the end: in the last epoch."""
        if not self.times:
            return None
        before = self.times[-2]["step"] if len(self.times) > 1 else 0
        steps = self.times[-1]["step"] - before
        return self.times[-1]["seconds"] / steps if steps > 0 else None

    @property
    def minutes(self) -> float:
        return sum(row["seconds"] for row in self.times) / 60

    @property
    def axes(self) -> tuple[str, ...]:
        """What the axes of the data are called."""
        if named := self.facts.get("axes"):
            return tuple(map(str, named))
        count = max((site.axis for site in self.sites), default=1) + 1
        names = {1: ("samples",), 2: ("vertical", "horizontal")}
        return names.get(count, ("depth", "vertical", "horizontal"))

    @cached_property
    def sites(self) -> list[Site]:
        """Every learnable stride, in the order of the network."""
        found: dict[tuple[str, int], list[dict[str, str]]] = {}
        for row in self.strides:
            found.setdefault((row["layer"], int(row["axis"])), []).append(row)
        return [
            Site(
                layer,
                axis,
                tuple(int(row["epoch"]) for row in own),
                tuple(float(row["stride"]) for row in own),
                _sizes(own[-1]),
            )
            for (layer, axis), own in found.items()
        ]

    @property
    def layers(self) -> list[str]:
        return list(dict.fromkeys(site.layer for site in self.sites))

    @property
    def factor(self) -> float | None:
        """The global striding factor: the product of all strides of all axes."""
        return math.prod(site.strides[-1] for site in self.sites) if self.sites else None

    @cached_property
    def examples(self) -> list[tuple[str, list[list[float]]]]:
        """Real inputs, if any were kept: a label and rows of grey values from 0 to 255."""
        path = self.folder / "examples.json"
        if not path.is_file():
            return []
        try:
            images = [
                (str(image["label"]), [[float(v) for v in row] for row in image["pixels"]])
                for image in read_json(path, "images")["images"]
            ]
        except DamagedFile:
            raise
        except (ValueError, LookupError, TypeError) as error:
            raise ValueError(
                f"{path} must have images, each with a label and rows of pixels: {error!r}"
            ) from error
        for _, pixels in images:
            if not pixels or not pixels[0] or len({len(row) for row in pixels}) > 1:
                raise ValueError(
                    f"{path} has an image whose rows are of different lengths, or none"
                )
        return images[:3]


def read_run(folder: Path) -> Run:
    """The run in a folder, however far it has come.

    Raises:
        ValueError: if its config is not there or no config, or a file is damaged.
    """
    try:
        config = read_yaml(folder / "config.yaml")
        method(config, folder)
        return Run(
            folder,
            config,
            _json(folder / "data.json"),
            _json(folder / "environment.json"),
            _numbers(folder / "metrics.csv", "epoch", "test_accuracy"),
            read_strides(folder) if (folder / "strides.csv").is_file() else [],
            _numbers(folder / "times.csv", "step", "seconds"),
        )
    except OSError as error:
        raise ValueError(f"{folder} is no run: {error}") from error


def _json(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def _numbers(path: Path, *columns: str) -> list[dict[str, float]]:
    found = []
    for row in read_rows(path, *columns) if path.is_file() else []:
        values = {name: float(text) for name, text in row.items() if text}
        found.append({name: value for name, value in values.items() if math.isfinite(value)})
    return found


def _sizes(row: dict[str, str]) -> tuple[int, int] | None:
    if not (row.get("input_size") and row.get("output_size")):
        return None
    return int(row["input_size"]), int(row["output_size"])
