"""Linear interpolation at places that a real stride lays out, so that the stride can be learned."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from diffstride.core import arguments
from diffstride.core.pooling import spatial_axes
from diffstride.core.rule import window_dtype
from diffstride.core.tracing import shape_of
from diffstride.core.whole_strides import strided_size


def learned_resize(
    x: Tensor,
    stride: float | Sequence[float] | Tensor,
    *,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Downsample by a real stride through linear interpolation, differentiably in both.

    For every spatial axis, of N samples at places 0 … N−1 and stride S:

    1. kept length M = ⌈N/S⌉, from 1 to N;
    2. places p(m) = (N−1)/2 + S·(m − (M−1)/2), which lie S apart with the middle of the axis in
       their middle; what lies outside is taken to the first or last sample;
    3. y(m) = (1−t)·x(i) + t·x(i+1) for i = ⌊p(m)⌋ and t = p(m) − i.

    The gradient of the stride flows through the places: ∂y(m)/∂S = (x(i+1) − x(i))·(m − (M−1)/2). A
    place on a sample has the slope of what lies behind it, and of what lies before it at the last
    one; a place that was taken back has none. An axis of which one sample is left has no gradient.

    Args:
        x: (batch, channels, *spatial) or (channels, *spatial), floating point, any memory format.
        stride: one number of at least 1 per spatial axis, as numbers or as a tensor; a single
            number stands for every spatial axis of a batched input.
        output_size: M, if it is known already: at most the size of ``x``.

    Raises:
        TypeError: if ``x`` is not a floating-point tensor.
        ValueError: if a stride is below 1, or ``output_size`` is not what is said above.

    >>> x = torch.arange(6.0)[None, None]
    >>> stride = torch.tensor([2.0], requires_grad=True)
    >>> learned_resize(x, stride)
    tensor([[[0.5000, 2.5000, 4.5000]]], grad_fn=<AddBackward0>)
    """
    axes = spatial_axes(x, stride, "stride")
    size = shape_of(x)[-axes:]
    if output_size is None:
        output_size = strided_size(size, arguments.per_axis(stride, axes, "stride"))
    elif not torch.compiler.is_compiling():  # which has sizes that are no numbers yet
        output_size = arguments.fixed_size(size, output_size)
    if isinstance(stride, Tensor):
        strides: Any = stride.to(x.device, window_dtype(x.device)).expand(axes).unbind()
    else:
        strides = arguments.per_axis(stride, axes, "stride")
        arguments.check_strides(strides)
    for i in _cheapest_first(size, output_size):
        between = places_between(size[i], output_size[i], strides[i], x.device)
        x = interpolate(x, i - axes, *between)
    return x


def places_between(
    size: int, kept: int, stride: float | Tensor, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return between which samples places lie: the one before each, and how far it is from that."""
    steps = torch.arange(kept, device=device, dtype=window_dtype(device)) - (kept - 1) / 2
    places = steps * stride + (size - 1) / 2
    inside = (places >= 0) & (places <= size - 1)
    # Not clamp: whether it passes a gradient at its bounds differs between versions of torch.
    places = torch.where(inside, places, places.detach().clamp(0, size - 1))
    before = places.detach().floor().clamp(0, max(0, size - 2))
    return before.long(), places - before


def interpolate(x: Tensor, dim: int, before: Tensor, part: Tensor) -> Tensor:
    """Return x along one axis between samples, ``part`` of the way from one to the next."""
    if shape_of(x)[dim] == 1:
        return x
    first, second = x.index_select(dim, before), x.index_select(dim, before + 1)
    part = part.to(x.dtype).reshape(-1, *[1] * (-1 - dim))
    return first + part * (second - first)


def interpolation_macs(size: Sequence[Any], kept: Sequence[Any]) -> Any:
    """Return the multiply-accumulates of one channel: one for each sample, axis after axis.

    >>> interpolation_macs((32, 32), (16, 20))
    832
    """
    current, total = list(size), 0
    for i in _cheapest_first(size, kept):
        current[i] = kept[i]
        total = total + math.prod(current)
    return total


def _cheapest_first(size: Sequence[Any], kept: Sequence[Any]) -> list[int]:
    """Return the axes in the order in which they are done: what shrinks most comes first."""
    return sorted(range(len(size)), key=lambda i: int(kept[i]) / int(size[i]))
