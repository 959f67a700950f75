"""Whether a converted network runs at the sizes that it has now, and that it may learn."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from diffstride.analysis.observing import Observer, Running, observe
from diffstride.layers.resizer import learned_strides
from diffstride.surgery.map_sizes import MapSizes, Output
from diffstride.surgery.operations import is_larger
from diffstride.surgery.size_trace import SizeTrace
from diffstride.text import times


def check_sizes(
    model: nn.Module, example: Tensor, traced: SizeTrace, names: Sequence[str]
) -> dict[str, tuple[int, ...]]:
    """The sizes that converted layers make; a ValueError where a network can't do with others.

    Args:
        model: the network, converted.
        example: what it was traced with.
        traced: what was seen of it before it was converted.
        names: of the layers that were converted.
    """
    sizes, outputs = _run(model, example, names)
    _check_outputs(traced, outputs, names)
    with _other_strides(model):
        _, outputs = _run(model, example, names)
    _check_outputs(traced, outputs, names)
    return sizes


@contextmanager
def _other_strides(model: nn.Module) -> Iterator[None]:
    """Strides as they might be learned, for a while."""
    layers = [m for m in learned_strides(model).values() if m.stride.requires_grad]
    before = [layer.stride.detach().clone() for layer in layers]
    with torch.no_grad():
        try:
            for layer in layers:
                # Smaller ones where there are any: maps become larger, which leaves none empty.
                smaller = layer.stride > 1.05 * layer.min_stride
                layer.stride.mul_(torch.where(smaller, 0.8, 1.25))
            yield
        finally:
            for layer, stride in zip(layers, before, strict=True):
                layer.stride.copy_(stride)


def _run(
    model: nn.Module, example: Tensor, names: Sequence[str]
) -> tuple[dict[str, tuple[int, ...]], list[Output]]:
    """The sizes that some layers make, and what comes out of the network."""
    modules = dict(model.named_modules())
    sizes: dict[str, tuple[int, ...]] = {}

    class Sizes(Observer):
        def leave(self, layer: nn.Module, x: Tensor, output: Any) -> None:
            if (name := running.name) in names:
                sizes[name] = tuple(output.shape[2:])

    maps, running = MapSizes(example.ndim - 2), Running(model)
    try:
        output = observe(model, example, Sizes(), running, maps)
    except (RuntimeError, ValueError) as error:
        name = running.name
        raise ValueError(
            f"{name or 'the model'} ({type(modules[name]).__name__}) can't take what comes to it "
            f"now: sizes are others after conversion, and change while strides learn. Put a "
            f"pooling over everything before it (nn.AdaptiveAvgPool2d(1)), give size_multiple if "
            f"sizes must be divisible, or leave out layers with exclude. It said: {error}"
        ) from error
    if missing := [name for name in names if name not in sizes]:
        raise ValueError(
            f"{missing[0]} is converted, and the model calls another layer in its place: does it "
            f"keep a reference to its layers besides those that it registers? Leave it out with "
            f"exclude={missing}"
        )
    return sizes, maps.outputs(output)


def _check_outputs(traced: SizeTrace, outputs: Sequence[Output], names: Sequence[str]) -> None:
    """Raise a ValueError if maps were made larger again, to a size that they now miss."""
    made = {name: grid.size for name, _, grid in traced.uses if name in names}
    as_many = len(traced.outputs) == len(outputs)  # one for every row of a map, for instance
    for (expected, sites), found in zip(traced.outputs, outputs, strict=False):
        # How many numbers some outputs have depends on values, such as those over a threshold.
        same = found.maps == expected.maps and not expected.is_map
        if as_many and (found.shape == expected.shape or same):
            continue
        small = [
            name
            for name in names
            if name in sites and any(_is_larger(made[name], size) for size in expected.maps)
        ]
        if not small:
            continue
        larger = [r for r in traced.resizings if r.enlarges and r.sites & set(small)]
        before = [name for name in names if name in small or any(name in r.sites for r in larger)]
        what = str(larger[0]) if larger else "something"
        skip = 2 if expected.is_map else 0
        raise ValueError(
            f"{what} makes maps larger after {small[0]}, and can't know which stride is learned "
            f"there: the model would put out {times(found.shape[skip:])} and not "
            f"{times(expected.shape[skip:])}. Leave out what comes before it with exclude={before}"
        )


def _is_larger(before: Sequence[int], after: Sequence[int]) -> bool:
    return len(before) == len(after) and is_larger(before, after)
