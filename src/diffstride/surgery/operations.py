"""Operations, not layers, that make maps smaller by a stride or larger by a factor."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from diffstride.text import times

POOLS = ("max_pool", "avg_pool", "lp_pool")
_LARGER = 1.5
"""Padding makes maps larger as well, but by less, unless they are tiny."""


@dataclass(frozen=True)
class Resizing:
    """One operation that changed the size of a map."""

    where: str
    """The module that was running, by name."""
    operation: str
    before: tuple[int, ...]
    after: tuple[int, ...]
    sites: frozenset[str]
    """The sites that what it reads was computed from."""

    @property
    def enlarges(self) -> bool:
        return self.operation != "pad" and is_larger(self.before, self.after)

    def __str__(self) -> str:
        sizes = f"{times(self.before)} → {times(self.after)}"
        return f"{self.operation} in {self.where or 'the model'} ({sizes})"


def is_larger(before: Sequence[int], after: Sequence[int]) -> bool:
    """Whether an axis has grown by a factor, and not by a border."""
    return any(m >= _LARGER * n for n, m in zip(before, after, strict=True))


def has_stride(
    operation: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    before: Sequence[int],
    after: Sequence[int],
) -> bool:
    """Whether an operation takes one of several samples: what a convolved border takes is none."""
    if all(m == 1 for m in after) or all(m >= n for n, m in zip(before, after, strict=True)):
        return False  # a pooling over everything; or nothing became smaller
    if operation == "__getitem__":
        index = args[1] if isinstance(args[1], tuple) else (args[1],)
        return is_larger(after, before) and any(_leaves_out(i) for i in index)
    if operation == "index_select":
        return is_larger(after, before) and _leaves_out(_argument("index", 2, args, kwargs))
    if operation == "unfold":
        return _largest(_argument("step", 3, args, kwargs)) > 1
    if operation.startswith("conv") and not operation.startswith("conv_transpose"):
        return _largest(_argument("stride", 3, args, kwargs)) > 1
    if operation.startswith(POOLS):
        first = 2 if operation.startswith("lp_pool") else 1
        kernel = _argument("kernel_size", first, args, kwargs)
        return _largest(_argument("stride", first + 1, args, kwargs) or kernel) > 1
    return operation in ("interpolate", "pixel_unshuffle") or operation.startswith("fractional")


def worked_on(
    operation: str, args: Sequence[Any], kwargs: Mapping[str, Any], before: int, after: int
) -> slice | None:
    """Which axes of its input an operation works on, where that is no matter of how many there are.

    ``before`` and ``after`` are the numbers of axes of what comes in and what comes out.
    """
    if operation == "unfold" and after == before + 1:  # of a tensor; the function makes columns
        axis = _argument("dimension", 1, args, kwargs) % before
        return slice(axis, axis + 1)
    axes = own_axes(operation)
    return None if axes is None else slice(before - axes, before)


def own_axes(operation: str) -> int | None:
    """Along how many axes a convolution or pooling works, by its name.

    >>> own_axes("conv_transpose2d"), own_axes("adaptive_max_pool1d"), own_axes("interpolate")
    (2, 1, None)
    """
    found = re.search(r"(?:conv|transpose|pool)([123])d", operation)
    return None if found is None else int(found[1])


def _leaves_out(index: Any) -> bool:
    """Whether an index takes one of several samples, and not all from one to another."""
    if isinstance(index, slice):
        return index.step not in (None, 1)
    if not isinstance(index, Tensor | list):
        return False
    numbers = torch.as_tensor(index)
    if numbers.dtype in (torch.bool, torch.uint8):  # which to take, and not their numbers
        numbers = numbers.nonzero()
    places = set(numbers.flatten().tolist())
    return len(places) > 1 and max(places) - min(places) >= _LARGER * (len(places) - 1)


def _argument(name: str, place: int, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return args[place] if len(args) > place else kwargs.get(name)


def _largest(stride: Any) -> int:
    if isinstance(stride, list | tuple):
        return max(stride, default=1)
    return 1 if stride is None else int(stride)
