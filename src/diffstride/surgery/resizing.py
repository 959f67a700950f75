"""Operations, not layers, that make maps smaller by a stride or larger by a factor."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
        return f"{self.operation} in {self.where or 'the model'} ({_arrow(self)})"


def is_larger(before: Sequence[int], after: Sequence[int]) -> bool:
    """Whether an axis has grown by a factor, and not by a border."""
    return any(m >= _LARGER * n for n, m in zip(before, after, strict=True))


def _arrow(resizing: Resizing) -> str:
    return " → ".join(" × ".join(map(str, size)) for size in (resizing.before, resizing.after))


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
        return any(isinstance(i, slice) and i.step not in (None, 1) for i in index)
    if operation.startswith("conv") and not operation.startswith("conv_transpose"):
        return _largest(_argument("stride", 3, args, kwargs)) > 1
    if operation.startswith(POOLS):
        first = 2 if operation.startswith("lp_pool") else 1
        kernel = _argument("kernel_size", first, args, kwargs)
        return _largest(_argument("stride", first + 1, args, kwargs) or kernel) > 1
    return operation in ("interpolate", "pixel_unshuffle") or operation.startswith("fractional")


def _argument(name: str, place: int, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return args[place] if len(args) > place else kwargs.get(name)


def _largest(stride: Any) -> int:
    if isinstance(stride, list | tuple):
        return max(stride, default=1)
    return 1 if stride is None else int(stride)
