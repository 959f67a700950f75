"""What examples are changed by for a robustness test, and how a network is made to get them so.

What changes is what the network gets, behind all that prepares it: images and spectrograms, less
the mean of the data and divided by their standard deviation, and so for signals. Nothing is trained
again, and the network stays what it was.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from diffstride.core.upsampling import spectral_resize
from diffstride.lab.data.corruptions import CORRUPTIONS, corrupted
from diffstride.lab.data.shifts import directions, moved
from diffstride.lab.data.signal_batches import normalise
from diffstride.lab.runs.axes import Axis
from diffstride.lab.runs.robust import BLURRED, MOST_MOVED, MOVED, RATE, RESIZED, SAMPLES
from diffstride.lab.training.learner import Learner

RATIOS = (0.5, 0.75, 1.5)
"""By which the number of samples along each axis is multiplied."""

Function = Callable[[Tensor, Tensor], Tensor]
"""What changes inputs (batch, channels, *spatial), of which there are numbers in their set."""
Given = tuple[Tensor, ...]
"""What a network is called with: inputs, and of signals how many samples of each are real."""


class Change(NamedTuple):
    """Something that is done to all test examples, and the row of robust.csv that it counts in."""

    name: str
    along: str
    strength: int
    amount: float
    unit: str
    apply: Function | None
    """None where nothing but the size changes."""
    ratio: float = 1.0

    @property
    def key(self) -> tuple[Any, ...]:
        """What one row is of: moves of one distance along the same axes count together."""
        return self[:5]


def changes(kind: str, axes: Sequence[Axis]) -> Iterator[Change]:
    """Yield all moves, corruptions and sizes for data of one kind.

    Sound is moved along time alone: at another pitch, it is another sound.
    """
    samples = SAMPLES[kind]
    along = [axis.name == "time" or kind != "audio" for axis in axes]
    for distance in range(1, MOST_MOVED + 1):
        for direction in directions(along):
            offsets = tuple(distance * step for step in direction)
            names = [axis.name for axis, step in zip(axes, direction, strict=True) if step]
            apply = partial(_move, offsets)
            yield Change(MOVED, " and ".join(names), distance, distance, samples, apply)
    for name, corruption in CORRUPTIONS.items():
        unit = corruption.unit.format(BLURRED[kind])
        for strength, amount in list(enumerate(corruption.amounts))[1:]:
            apply = partial(_corrupt, name, strength)
            yield Change(name, "", strength, amount, unit, apply)
    sizes = {RESIZED: "times the size"}
    if kind == "signals":
        sizes[RATE] = "times the rate, the network brought to it"
    for name, unit in sizes.items():
        for i, ratio in enumerate(RATIOS, 1):
            yield Change(name, "", i, ratio, unit, None, ratio)


def _move(offsets: tuple[int, ...], x: Tensor, numbers: Tensor) -> Tensor:
    return moved(x, offsets)


def _corrupt(name: str, strength: int, x: Tensor, numbers: Tensor) -> Tensor:
    return corrupted(x, name, strength, numbers)


def finishing(facts: Mapping[str, Any], kind: str) -> Callable[[Given], Given]:
    """Return what is done to changed examples, so that they are what data of their kind can be.

    Pixels are not brighter than white nor darker than black. Signals that are normalised one by one
    are normalised again, as they would have been had they come like this.
    """
    shape = (1, -1, *[1] * (len(facts["size"]) - 1))
    mean, std = (torch.tensor(facts[name]).reshape(shape) for name in ("mean", "std"))

    def finish(given: Given) -> Given:
        x, *lengths = given
        if kind == "images":
            x = x.maximum((0 - mean) / std).minimum((1 - mean) / std)
        elif lengths and facts.get("normalise") == "each":
            x = normalise(x, lengths[0])
        return (x, *lengths)

    return finish


@contextmanager
def on_changed(
    module: Learner, change: Change, finish: Callable[[Given], Given] = lambda given: given
) -> Iterator[bool]:
    """Change whatever the network of a module gets, for the time being.

    Yields whether it can be done: only some networks can be brought to another sampling rate.
    Examples are numbered in the order in which the network gets them.
    """
    network, counted = module.model, 0

    def before(_: nn.Module, given: Given) -> Given:
        nonlocal counted
        numbers = torch.arange(counted, counted + len(given[0]))
        counted += len(numbers)
        if change.apply is None:
            return _resized(given, change.ratio)
        return finish(_on_real_parts(given, numbers, change.apply))

    try:
        if change.name == RATE:
            try:
                module.model = network.at_rate(change.ratio)  # type: ignore[operator]
            except ValueError:  # it begins with a convolution, which knows no Hz
                yield False
                return
        hook = module.model.register_forward_pre_hook(before)
        try:
            yield True
        finally:
            hook.remove()
    finally:
        module.model = network


def _resized(given: Given, ratio: float) -> Given:
    x, *lengths = given
    size = [max(1, round(ratio * length)) for length in x.shape[2:]]
    y = spectral_resize(x, size, norm="forward") if len(x) else x
    return (y, *(real * (size[0] / x.shape[-1]) for real in lengths))


def _on_real_parts(given: Given, numbers: Tensor, change: Function) -> Given:
    """Change inputs as far as they are real: behind the end of a signal there is nothing."""
    x, *lengths = given
    if not lengths:
        return (change(x, numbers),)
    y = x.clone()
    for length in sorted(set(lengths[0].tolist())):
        own = lengths[0] == length
        y[own, :, :length] = change(x[own, :, :length], numbers[own])
    return (y, *lengths)
