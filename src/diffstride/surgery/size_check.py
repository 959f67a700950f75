"""Whether a network still fits once it is converted: at other strides, and at another size."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from diffstride.analysis.observing import Observer, Running, observe
from diffstride.layers.resizer import learned_strides
from diffstride.surgery.map_sizes import MapSizes, Output, Size
from diffstride.surgery.misfits import Misfits
from diffstride.surgery.size_trace import SizeTrace
from diffstride.surgery.ways_up import INSTEAD, check_none_is_rounded, padded_before, why_not
from diffstride.text import times


class CantTake(ValueError):
    """Raised for a layer that can't take the size that comes to it after conversion."""

    def __init__(self, name: str, kind: str, error: Exception) -> None:
        self.name = name
        super().__init__(
            f"{name or 'the model'} ({kind}) can't take what comes to it now: sizes are others "
            f"after conversion, and change while strides learn. Keep them with "
            f"output_size='keep', put a pooling over everything before it "
            f"(nn.AdaptiveAvgPool2d(1)), give size_multiple if sizes must be divisible, or leave "
            f"out layers with exclude. It said: {error}"
        )


@torch.no_grad()
def check_sizes(
    model: nn.Module, example: Tensor, traced: SizeTrace, names: Sequence[str]
) -> tuple[dict[str, Size], str | None]:
    """Return the sizes that converted layers make, and a linear layer that can't take others.

    ``traced`` is what was seen of it before the layers with these names were converted. Raises a
    ValueError if something else can't take other sizes, or the network not even these.
    """
    sizes, initial = _check_run(model, example, traced, names)
    reader = None
    layers = [m for m in learned_strides(model).values() if m.stride.requires_grad]
    before = [layer.stride.detach().clone() for layer in layers]
    try:  # with strides as they might be learned
        for layer in layers:
            # Smaller ones where there are any: maps become larger, which leaves none empty.
            smaller = layer.stride > 1.05 * layer.min_stride
            layer.stride.mul_(torch.where(smaller, 0.8, 1.25))
        _check_run(model, example, traced, names, initial)
    except CantTake as error:
        if overtaken := [way.name for way in traced.ways_up if way.overtaken]:
            why = why_not(traced.ways_up, overtaken[0])
            raise ValueError(f"{why}. It said: {error.__cause__}") from error
        if not isinstance(model.get_submodule(error.name), nn.Linear):
            raise
        reader = error.name
    finally:
        for layer, stride in zip(layers, before, strict=True):
            layer.stride.copy_(stride)
    return sizes, reader


def _check_run(
    model: nn.Module,
    example: Tensor,
    traced: SizeTrace,
    names: Sequence[str],
    initial: Misfits | None = None,
) -> tuple[dict[str, Size], Misfits]:
    """Run a converted network, and return the sizes that some layers make, and what fits.

    ``initial`` is what did at the initial strides, if these are others.
    """
    sizes: dict[str, Size] = {}

    known = {module: name for name, module in model.named_modules()}

    class Sizes(Observer):
        def leave(self, layer: nn.Module, x: Tensor, output: Any) -> None:
            if (name := known[layer]) in names:
                sizes[name] = tuple(output.shape[2:])

    misfits = Misfits(model)
    outputs = _outputs(model, example, Sizes(), misfits)
    if missing := [name for name in names if name not in sizes]:
        raise ValueError(
            f"{missing[0]} is converted, and the model calls another layer in its place: does it "
            f"keep a reference to its layers besides those that it registers? Leave it out with "
            f"exclude={missing}"
        )
    _check_outputs(traced, outputs, names)
    if error := misfits.error(initial):
        check_none_is_rounded(traced.ways_up)  # which knows why, if that is so
        raise ValueError(error)
    return sizes, misfits


def _check_outputs(traced: SizeTrace, outputs: Sequence[Output], names: Sequence[str]) -> None:
    """Raise a ValueError if maps were made larger again, to a size that they now miss."""
    made = {use.name: use.made.size for use in traced.uses if use.name in names}
    as_many = len(traced.outputs) == len(outputs)  # one for every row of a map, for instance
    known = zip(traced.outputs, traced.learned_outputs, outputs, strict=False)
    for (expected, sites), is_learned, output in known:
        # How many numbers some outputs have depends on values, such as those over a threshold.
        same = output.maps == expected.maps and not expected.is_map
        if as_many and (output.shape == expected.shape or same or is_learned):
            continue
        small = [n for n in names if n in sites and expected.is_larger_than(made[n])]
        if not small:
            continue
        larger = [r for r in traced.resizings if r.enlarges and r.sites & set(small)]
        before = [name for name in names if name in small or any(name in r.sites for r in larger)]
        what = str(larger[0]) if larger else "something"
        why = ""
        if larger:
            why = padded_before(traced.uses, larger[0].size_after)
            why = why or why_not(traced.ways_up, larger[0].name)
        skip = 2 if expected.is_map else 0
        raise ValueError(
            f"{what} makes maps larger after {small[0]}, and can't know which stride is learned "
            f"there: the model would put out {times(output.shape[skip:])} and not "
            f"{times(expected.shape[skip:])}. Leave out what comes before it with exclude={before}"
            f"{why and f'. {why}'}"
        )


@torch.no_grad()
def check_another_size(
    model: nn.Module, converted: nn.Module, example: Tensor, traced: SizeTrace
) -> None:
    """Raise a ValueError unless a converted network that goes up fits another size of the input.

    Every axis is made shorter by a sample, so that one of both sizes is odd. A map that was as
    large as the input, or so many times as large, must be so again, unless the network before
    conversion makes the same of this input; one that can't take it before either may fail after.
    """
    size = example.shape[2:]
    factors = _factors(traced, size)
    if not factors:
        return
    other = example
    for axis in range(2, example.ndim):
        other = other.narrow(axis, 0, max(1, other.shape[axis] - 1))
    other, smaller = other.contiguous(), other.shape[2:]
    try:
        outputs = _outputs(converted, other)
    except CantTake as error:
        if _outputs_before(model, other) is None:
            return
        raise ValueError(
            f"{error.name or 'the model'} can take what comes to it for an input of {times(size)} "
            f"after conversion, but not for one of {times(smaller)}: leave out layers with "
            f"exclude. It said: {error.__cause__}"
        ) from error
    for i, whole in factors.items():
        expected_size = tuple(f * n for f, n in zip(whole, smaller, strict=True))
        if outputs[i].shape[2:] == expected_size:
            continue
        before = _outputs_before(model, other)
        if before is None or before[i].shape != outputs[i].shape:
            raise ValueError(
                f"for an input of {times(smaller)} the model would put out "
                f"{times(outputs[i].shape[2:])} after conversion, and not "
                f"{times(expected_size)}: something in it makes maps larger by a factor, and "
                f"follows no layer. {INSTEAD}, or leave out layers with exclude"
            )


def _factors(traced: SizeTrace, size: Sequence[int]) -> dict[int, list[int]]:
    """Return which outputs have the size of the input, or so many times that, and how many."""
    factors = {}
    known = zip(traced.outputs, traced.learned_outputs, strict=True)
    for i, ((output, _), is_learned) in enumerate(known):
        if output.is_map and not is_learned:
            axes = list(zip(output.shape[2:], size, strict=True))
            if all(m % n == 0 for m, n in axes):
                factors[i] = [m // n for m, n in axes]
    return factors


def _outputs_before(model: nn.Module, x: Tensor) -> list[Output] | None:
    """Return what comes out of a network that was not converted; None if it can't take this."""
    try:
        return _outputs(model, x)
    except CantTake:
        return None


def _outputs(model: nn.Module, x: Tensor, *observers: Observer) -> list[Output]:
    """Run a network, and return what is known of each tensor that comes out."""
    maps, running = MapSizes(x.ndim - 2), Running(model)
    try:
        return maps.outputs(observe(model, x, *observers, running, maps))
    except (RuntimeError, ValueError, IndexError) as error:
        kind = type(model.get_submodule(running.name)).__name__
        raise CantTake(running.name, kind, error) from error
