"""How much work a downsampling is, and which way to do it is the least."""

import math
from collections.abc import Sequence
from typing import Any

from diffstride.core.bases import BASES, Basis
from diffstride.core.rule import Rule

# About where a matrix product and an FFT cross on a CPU (benchmarks/scaling.py); with several axes
# later, because an FFT along an inner axis is slower than along the last.
LONGEST_MATRIX_AXIS = 200
LONGEST_MATRIX_AXIS_OF_SEVERAL = 320


def by_fft(basis: Basis, size: int, path: str, axes: int) -> bool:
    """Return whether an axis is done by FFT instead of a matrix: the one place that chooses."""
    if basis.transform is None:
        return False
    longest = LONGEST_MATRIX_AXIS if axes == 1 else LONGEST_MATRIX_AXIS_OF_SEVERAL
    return path == "fft" or (path == "auto" and size > longest)


def cheapest_order(size: Sequence[int], kept: Sequence[int]) -> list[int]:
    """Return the axes in the cheapest order: those that shrink most for their price first.

    >>> cheapest_order((32, 32), (24, 8))
    [1, 0]
    """
    return sorted(range(len(size)), key=lambda i: 1 / size[i] - 1 / kept[i])


def resampling_macs(
    size: Sequence[Any], kept: Sequence[Any], rule: Rule | None, axes: Sequence[bool] | None = None
) -> Any:
    """Return the multiply-accumulates that resampling one map takes, along all axes or some.

    Sizes may be whole, or numbers that know how they change with strides. An FFT counts as N·log₂N;
    without a rule, all axes are done by matrices.
    """
    whole_size, whole_kept = [int(n) for n in size], [int(m) for m in kept]
    current, total = list(size), 0
    for i in cheapest_order(whole_size, whole_kept):
        if axes is not None and not axes[i]:
            continue
        before = math.prod(current)
        current[i] = kept[i]
        if rule and by_fft(BASES[rule.basis], whole_size[i], rule.path, len(size)):
            total += fft_macs(whole_size[i], whole_kept[i], before, math.prod(current))
        else:
            total += before * kept[i]
    return total


def fft_macs(size: int, kept: int, before: Any, after: Any) -> Any:
    """Return the multiply-accumulates of an axis by FFT, for so many samples before and after."""
    return before * math.ceil(math.log2(size)) + after * math.ceil(math.log2(kept))
