"""Sizes of maps: what changes them, and of which a tensor was computed, whatever became of them."""

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from diffstride.analysis.observing import Observer, Operation, tensors_in
from diffstride.text import times

Size = tuple[int, ...]
POOLS = ("max_pool", "avg_pool", "lp_pool")
_LARGER = 1.5
"""Padding makes maps larger as well, but by less, unless they are tiny."""


@dataclass(frozen=True)
class SizeChange:
    """Something that changed the size of a map; layers that never ran have no sizes."""

    name: str
    """The module in which it happened."""
    operation: str
    size_before: Size
    size_after: Size

    def __str__(self) -> str:
        sizes = f" ({times(self.size_before)} → {times(self.size_after)})"
        where = f"{self.operation} in {self.name or 'the model'}"
        return where + sizes if self.size_before else where


@dataclass(frozen=True)
class Resizing(SizeChange):
    """One operation that changed the size of a map."""

    sites: frozenset[str]
    """The sites that what it reads was computed from."""

    @property
    def enlarges(self) -> bool:
        return self.operation != "pad" and is_larger(self.size_before, self.size_after)


def is_larger(before: Sequence[int], after: Sequence[int]) -> bool:
    """Return whether an axis has grown by a factor, and not by a border."""
    return any(m >= _LARGER * n for n, m in zip(before, after, strict=True))


def has_stride(operation: Operation, before: Size, after: Size) -> bool:
    """Return whether an operation takes one of several samples; a convolved border takes none."""
    if all(m == 1 for m in after) or all(m >= n for n, m in zip(before, after, strict=True)):
        return False  # a pooling over everything; or nothing became smaller
    name, argument = operation.name, operation.argument
    if name in ("__getitem__", "index_select"):
        index = operation.args[1] if name == "__getitem__" else argument("index", 2)
        indices = index if isinstance(index, tuple) else (index,)
        return is_larger(after, before) and any(_leaves_out(i) for i in indices)
    if name == "unfold":
        return _largest(argument("step", 3)) > 1
    if (steps := steps_of(operation)) is not None:
        return _largest(steps) > 1
    return name in ("interpolate", "pixel_unshuffle") or name.startswith("fractional")


def steps_of(operation: Operation) -> Any:
    """Return by how much a convolution or pooling strides; None for all other operations."""
    name, argument = operation.name, operation.argument
    if re.match("conv(?!_transpose)", name):
        return argument("stride", 3) or 1
    if name.startswith(POOLS):
        place = 2 if name.startswith("lp_pool") else 1
        return argument("stride", place + 1) or argument("kernel_size", place)
    return None


def axes_changed(operation: Operation, before: int, after: int) -> slice | None:
    """Return which axes of its input an operation works on, where their number does not matter.

    ``before`` and ``after`` are the numbers of axes of what comes in and what comes out.
    """
    # The method of a tensor adds an axis; the function of the same name makes columns.
    if operation.name == "unfold" and after == before + 1:
        axis = operation.argument("dimension", 1) % before
        return slice(axis, axis + 1)
    axes = axes_in_name(operation.name)
    return None if axes is None else slice(before - axes, before)


def axes_in_name(operation: str) -> int | None:
    """Return along how many axes a convolution or pooling works, by its name.

    >>> axes_in_name("conv_transpose2d"), axes_in_name("adaptive_max_pool1d")
    (2, 1)
    >>> axes_in_name("interpolate")
    """
    match = re.search(r"(?:conv|transpose|pool)([123])d", operation)
    return None if match is None else int(match[1])


def _leaves_out(index: Any) -> bool:
    """Return whether an index takes one of several samples, and not all from one to another."""
    if isinstance(index, slice):
        return index.step not in (None, 1)
    if not isinstance(index, Tensor | list):
        return False
    numbers = torch.as_tensor(index)
    if numbers.dtype in (torch.bool, torch.uint8):  # which to take, and not their numbers
        numbers = numbers.nonzero()
    places = set(numbers.flatten().tolist())
    return len(places) > 1 and max(places) - min(places) >= _LARGER * (len(places) - 1)


def _largest(stride: Any) -> int:
    return max(stride, default=1) if isinstance(stride, list | tuple) else int(stride or 1)


@dataclass(frozen=True)
class Output:
    """A tensor that came out of a network."""

    shape: Size
    maps: frozenset[Size]
    """The sizes of the maps that it was last computed from: its own, if it is one."""
    is_map: bool = False

    def has_places(self, size: Sequence[int]) -> bool:
        """Return whether axes of this size have the places of a map, all or along some axes."""
        return math.prod(size) in (
            math.prod(some)
            for map_size in self.maps
            for n in range(1, len(map_size) + 1)
            for some in itertools.combinations(map_size, n)
        )

    def is_larger_than(self, before: Size) -> bool:
        """Return whether it was computed from a map that is larger than one of this size."""
        return any(len(size) == len(before) and is_larger(before, size) for size in self.maps)


class MapSizes(Observer):
    """While a network runs, knows the sizes of the maps that every tensor was last computed from.

    A map has as many axes as the example, and is computed from another; or it has the size of one,
    and is computed from what that became. Where a convolution or pooling works on fewer or more
    axes, what it makes is a map for it, and the last one with so many.
    """

    def __init__(self, axes: int) -> None:
        self.axes = axes
        self.known: Any = WeakIdKeyDictionary()

    def begin(self, x: Tensor) -> None:
        self.known[x] = Output(tuple(x.shape), frozenset([tuple(x.shape[2:])]), is_map=True)

    def operation(self, operation: Operation) -> None:
        given = [self.known[x] for x in operation.inputs if x in self.known]
        if not given:
            return
        sizes = frozenset().union(*(x.maps for x in given))
        from_map = any(x.is_map for x in given)
        axes = axes_in_name(operation.name)
        for x in operation.outputs:
            size = tuple(x.shape[2:])
            # Not all with as many axes: heads of attention are (batch, heads, places, numbers).
            if x.ndim == self.axes + 2 and (from_map or size in sizes):
                self.begin(x)
            elif x.ndim == (axes or 0) + 2:
                last = {size, *(other for other in sizes if len(other) != axes)}
                self.known[x] = Output(tuple(x.shape), frozenset(last))
            else:
                self.known[x] = Output(tuple(x.shape), sizes)

    def outputs(self, values: Any) -> list[Output]:
        """Return what is known of each tensor in whatever a network has returned."""
        tensors = tensors_in(values)
        for x in tensors:
            if x.ndim == self.axes + 2:
                self.begin(x)
        return [self.known.get(x, Output(tuple(x.shape), frozenset())) for x in tensors]
