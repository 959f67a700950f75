"""Blur pooling: a binomial filter, of which one of so many samples is kept (Zhang 2019)."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from diffstride.core.pooling import spatial_axes
from diffstride.core.tracing import shape_of
from diffstride.core.whole_strides import strided_size, whole_strides

TAPS = 3
"""Of the filter unless told otherwise: ¼, ½, ¼."""


def blur_pool(x: Tensor, stride: int | Sequence[int] = 2, *, taps: int = TAPS) -> Tensor:
    """Downsample by a whole stride, behind a binomial filter (Zhang 2019).

    For every spatial axis, of N samples and stride S:

    1. the axis is continued by reflection at its first and last sample, which are not repeated:
       by ⌊(K−1)/2⌋ samples before, and ⌈(K−1)/2⌉ behind, for a filter of K taps;
    2. each sample becomes the mean of K neighbours, weighted by the binomial coefficients;
    3. one of S is kept, the first and every S-th from there: ⌈N/S⌉ of them.

    Reflection goes on at the other end where an axis is shorter than the filter. The filter sums to
    1, so constants stay what they are.

    Args:
        x: (batch, channels, *spatial) or (channels, *spatial), floating point, any memory format.
        stride: one whole number per spatial axis, or one for all of a batched input.
        taps: K. One tap is no filter, 2 are a mean, and 3 a triangle.

    Raises:
        TypeError: if ``x`` is not a floating-point tensor.
        ValueError: if a stride is not whole, or ``taps`` not a whole number of at least 1.

    >>> blur_pool(torch.tensor([[[0.0, 0.0, 4.0, 0.0, 0.0]]]), 2)
    tensor([[[0., 2., 0.]]])
    """
    check_taps(taps)
    strides = whole_strides(stride, spatial_axes(x, stride, "stride"), "blur pooling")
    kept = strided_size(shape_of(x)[-len(strides) :], strides)
    for i, (s, m) in enumerate(zip(strides, kept, strict=True)):
        x = _along(x, i - len(strides), s, m, taps)
    return x


def check_taps(taps: object) -> None:
    """Raise a ValueError unless a filter can have so many taps."""
    if not (isinstance(taps, int) and taps >= 1):
        raise ValueError(f"taps must be a whole number of at least 1, got {taps!r}")


def blur_macs(size: Sequence[Any], kept: Sequence[Any], taps: int) -> Any:
    """Return the multiply-accumulates of one channel: K for each sample, axis after axis.

    >>> blur_macs((32, 32), (16, 16), 3)
    2304
    """
    total: Any = 0
    for i in range(len(size)):
        total = total + taps * math.prod([*kept[: i + 1], *size[i + 1 :]])
    return total


def _along(x: Tensor, dim: int, stride: int, kept: int, taps: int) -> Tensor:
    size = shape_of(x)[dim]
    begins = torch.arange(kept, device=x.device) * stride - (taps - 1) // 2
    y: Tensor | None = None
    for k in range(taps):
        weight = math.comb(taps - 1, k) / 2 ** (taps - 1)
        some = x.index_select(dim, _reflected(begins + k, size)) * weight
        y = some if y is None else y + some
    assert y is not None
    return y


def _reflected(places: Tensor, size: int) -> Tensor:
    """Return places of an axis for any places of its continuation."""
    if size == 1:
        return torch.zeros_like(places)
    last = size - 1
    return last - (places.remainder(2 * last) - last).abs()
