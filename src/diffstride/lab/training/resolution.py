"""How much resolution a task needs: accuracy with less and less of it, without training again.

Resolution is taken away along one axis at one place: of the input, or behind a layer that
downsamples. There, frequencies above a cut-off become zero, and maps keep their size, so that all
that follows sees the scale that it was trained at, and nothing but information is lost.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from diffstride.analysis.stride_table import stride_table
from diffstride.core import fft
from diffstride.lab.runs.axes import Axis, data_axes
from diffstride.lab.runs.lock import locked
from diffstride.lab.runs.resolution import INPUT, STEPS, Step, write_resolution
from diffstride.lab.training.learner import Learner
from diffstride.lab.training.resampling import Scores, mean_scores, scores_of_each
from diffstride.lab.training.trained_run import load_classifier
from diffstride.layers.diffstride import DiffStrideNd
from diffstride.layers.resizer import Resizer, resizers


class Place(NamedTuple):
    """Where resolution is taken away."""

    name: str
    layer: Resizer | None
    """None for the input of the network."""
    input_size: tuple[int, ...]
    output_size: tuple[int, ...]
    cutoffs: tuple[float, ...]
    """Up to which frequency everything comes this far, for each axis, in its unit."""


class Setting(NamedTuple):
    """One place and axis with frequencies up to one bin; all are there if it is the full one."""

    place: Place
    axis: int
    bins: int
    is_full: bool


def measure(
    folder: str | Path,
    data_path: str | None = None,
    *,
    best: bool = False,
    steps: int = STEPS,
    resize: bool = False,
    task: str | None = None,
) -> list[Step]:
    """Measure how accurate the network of a run is with less resolution, and write resolution.csv.

    Args:
        folder: of the run.
        data_path: other data of the same classes, instead of the run's test data.
        best: the epoch that was best on the test data, instead of the last.
        steps: how many cut-offs to try at each place along each axis.
        resize: make maps smaller, by larger strides, instead of keeping their size: what follows
            then sees another scale than it was trained at. For comparison; nothing is written.
        task: one of several; the mean over all unless given.
    """
    if steps < 1:
        raise ValueError(f"--steps must be at least 1, got {steps}")
    why = "resolution is for networks that classify: shares of an accuracy are measured"
    run, prepared, facts = load_classifier(folder, data_path, best, why)
    size, axes = tuple(prepared.facts["size"]), data_axes(run.data, run.config.data.kind)
    with locked(run.folder):
        taken = Reduction(size, axes, steps, resize, task)
        found = taken.curves(prepared.module, prepared.test, facts)
        if not resize:
            write_resolution(run.resolution_file, found)
    return found


class Reduction(NamedTuple):
    """Which resolution is taken away from a network, and how."""

    size: tuple[int, ...]
    """Of an example, (channels, *spatial)."""
    axes: Sequence[Axis]
    steps: int = STEPS
    resize: bool = False
    task: str | None = None

    def curves(self, module: Learner, batches: Iterable[Any], facts: dict[str, str]) -> list[Step]:
        """Return the accuracy of a classifier on batches that it tests, at each cut-off."""
        every = places(module.model, self.size, self.axes)
        settings = [
            Setting(place, axis, bins, is_full)
            for axis in range(len(self.axes))
            for place in every
            for bins, is_full in self._bins(place, axis)
        ]
        full, right = self._answers(module, batches), []
        with tqdm(settings, "resolution", leave=False, delay=2, disable=None) as bar:
            for setting in bar:
                if setting.is_full:
                    right.append(full)
                    continue
                with reduced(module.model, setting, self.resize):
                    right.append(self._answers(module, batches))
        counted = {"examples": sum(map(len, full.values())), "task": self.task or ""}
        found = []
        for setting, shares in zip(settings, bands(full, right), strict=True):
            name, rate, unit = self.axes[setting.axis]
            cutoff = setting.bins * rate / self.size[1 + setting.axis]
            values = shares | counted | facts | {"learned": _learned(setting, every)}
            where = (setting.place.name, setting.axis, name, unit, cutoff, setting.bins)
            found.append(Step(*where, **values))
        return found

    def _bins(self, place: Place, axis: int) -> Iterator[tuple[int, bool]]:
        full = place.output_size[axis] // 2
        top = place.cutoffs[axis] * self.size[1 + axis] / self.axes[axis].rate
        if full:
            yield full, True
            for bins in bins_down(top, full, self.steps):
                yield bins, False

    def _answers(self, module: Learner, batches: Iterable[Any]) -> Scores:
        """Return which test examples a network gets right."""
        right = scores_of_each(module, batches)
        if self.task is None:
            return right
        if self.task not in right:
            tasks = ", ".join(filter(None, right)) or "it has one without a name"
            raise ValueError(f"--task must be a task of the run ({tasks}), got {self.task!r}")
        return {self.task: right[self.task]}


def places(model: nn.Module, size: Sequence[int], axes: Sequence[Axis]) -> list[Place]:
    """Return the input of a network and each of its layers that downsample, as they run."""
    whole, highest = tuple(size[1:]), tuple(axis.rate / 2 for axis in axes)
    found = [Place(INPUT, None, whole, whole, highest)]
    if resizers(model):
        layers = dict(model.named_modules())
        for row in stride_table(model, size, sampling_rate=[axis.rate for axis in axes]).rows:
            layer = layers[row.site]
            assert isinstance(layer, Resizer)
            if row.cutoff:  # else it has other axes than the input
                sizes = row.input_size, row.output_size
                found.append(Place(f"behind {row.site}", layer, *sizes, row.cutoff))
    return found


def _learned(setting: Setting, every: Sequence[Place]) -> float | None:
    """Return what passes all layers, of the input; of a layer, what passes up to there."""
    if setting.place.layer is not None:
        return setting.place.cutoffs[setting.axis]
    return every[-1].cutoffs[setting.axis] if len(every) > 1 else None


def bins_down(top: float, full: int, steps: int) -> list[int]:
    """Return whole numbers from ``top`` down to 1, each the same share of the one before.

    They are about as many as ``steps``, less if there are not so many, and below ``full``.

    >>> bins_down(64, 64, 5), bins_down(4, 4, 8)
    ([27, 12, 5, 2, 1], [3, 2, 1])
    """
    found: set[int] = set()
    for parts in range(steps, 20 * steps):
        powers = (max(1.0, top) ** (1 - i / parts) for i in range(parts + 1))
        found = {bins for power in powers if 1 <= (bins := math.floor(power + 1e-9)) < full}
        if len(found) >= min(steps, full - 1):
            break
    return sorted(found, reverse=True)


@contextmanager
def reduced(model: nn.Module, setting: Setting, resize: bool) -> Iterator[None]:
    """Take resolution away from a network for the time being."""
    (name, layer, input_size, *_), axis, bins, _ = setting
    if resize and layer is not None:
        with _larger_stride(layer, axis, input_size[axis] / (2 * bins), name):
            yield
        return
    # Hooks on each layer that makes the same maps: what one branch lost, none may bring.
    with ExitStack() as hooks:
        if layer is None:
            dim = axis - len(input_size)

            def before(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
                x, *lengths = inputs
                y = low_pass(x, dim, bins, resize)
                # How many samples of a signal are real: of fewer, fewer.
                return (y, *(real * (y.shape[dim] / x.shape[dim]) for real in lengths))

            hooks.enter_context(model.register_forward_pre_hook(before))
        else:
            dim = axis - layer.axes

            def after(_: nn.Module, inputs: Any, output: Tensor) -> Tensor:
                return low_pass(output, dim, bins)

            for other in _same_maps(model, layer):
                hooks.enter_context(other.register_forward_hook(after))
        yield


def _same_maps(model: nn.Module, layer: Resizer) -> list[Resizer]:
    """Return a layer, and those that follow it."""
    followers = [other for _, other in resizers(model) if other.follows]
    return [layer, *(other for other in followers if other.leading is layer.leading)]


def low_pass(x: Tensor, dim: int, bins: int, resize: bool = False) -> Tensor:
    """Return a tensor without the frequencies above a bin; as long as it is, or as is needed.

    >>> wave = torch.cos(2 * torch.pi * 3 * torch.arange(16) / 16)
    >>> low_pass(1 + wave, -1, 2).allclose(torch.ones(16)), len(low_pass(wave, -1, 4, resize=True))
    (True, 9)
    """
    size = x.shape[dim]
    kept = min(size, 2 * bins + 1) if resize else size
    work = x if x.dtype == torch.float64 else x.to(torch.float32)
    weights = (torch.arange(kept // 2 + 1, device=x.device) <= bins).to(work.dtype) * (kept / size)
    return fft.apply(work, dim, kept, weights).to(x.dtype)


@contextmanager
def _larger_stride(layer: Resizer, axis: int, stride: float, name: str) -> Iterator[None]:
    owner = layer.stride_owner
    if not isinstance(owner, DiffStrideNd) or owner.shared:
        wrong = f"--resize needs a stride of its own for each axis, and that {name} has none"
        raise ValueError(f"{wrong}: measure without --resize")
    before = owner.stride.detach().clone()
    try:
        with torch.no_grad():
            owner.stride[axis] = stride
        yield
    finally:
        with torch.no_grad():
            owner.stride.copy_(before)


def bands(full: Scores, right: Sequence[Scores]) -> list[dict[str, Any]]:
    """Return the accuracy of each setting and its share of the full one, with bands of 95 %.

    Of several tasks, the mean. Examples are drawn again, the same ones for all settings: the band
    of a share is that of pairs.
    """
    accuracy, drawn = mean_scores([full, *right])
    if accuracy[0] == 0:
        raise ValueError("the network gets none of these data right: there is nothing to lose")
    whole = drawn[:, :1]
    shares = np.divide(drawn, whole, out=np.ones_like(drawn), where=whole > 0)
    found = []
    for i in range(1, len(accuracy)):
        low, high = np.percentile(drawn[:, i], (2.5, 97.5))
        kept_low, kept_high = np.percentile(shares[:, i], (2.5, 97.5))
        numbers = (accuracy[i], low, high, accuracy[i] / accuracy[0], kept_low, kept_high)
        names = ("accuracy", "low", "high", "kept", "kept_low", "kept_high")
        found.append(dict(zip(names, map(float, numbers), strict=True)))
    return found
