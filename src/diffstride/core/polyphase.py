"""Adaptive polyphase sampling: the strongest of all grids (Chaman and Dokmanić 2021)."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from diffstride.core.pooling import spatial_axes
from diffstride.core.tracing import shape_of
from diffstride.core.whole_strides import strided_size, whole_strides


class Sampled(NamedTuple):
    """Samples of one grid for each example, and which grid that is."""

    samples: Tensor
    grids: Tensor
    """One whole number for each example: Σ pᵢ·Πⱼ﹥ᵢ Sⱼ for a grid that begins at sample pᵢ of axis
    i."""


def polyphase_sample(
    x: Tensor, stride: int | Sequence[int] = 2, *, grids: Tensor | None = None
) -> Sampled:
    """Downsample by a whole stride, on that grid of samples which has the largest norm.

    An axis can be sampled at every S-th place from sample 0 on, or from 1, … or from S − 1: with
    strides S₁ … S_d there are S₁·…·S_d grids. For each example:

    1. of every grid the ℓ² norm, over all its samples in all channels;
    2. y = the samples of the grid with the largest; of several the first.

    So samples that move around the edges by one place are the same ones on another grid, and come
    out the same, apart from where on the smaller map they begin. An axis whose length is no
    multiple of S goes on with its first samples, so that all grids have ⌈N/S⌉.

    The choice has no gradient; what was chosen gets that of the output.

    Args:
        x: (batch, channels, *spatial) or (channels, *spatial), floating point, any memory format.
        stride: one whole number per spatial axis, or one for all of a batched input.
        grids: the choice, made before for a branch that is to be sampled alike, instead of the
            largest norm.

    Returns:
        The samples, and the grids that were chosen.

    Raises:
        TypeError: if ``x`` is not a floating-point tensor.
        ValueError: if a stride is not whole, or there is not one choice for each example.

    >>> samples, grids = polyphase_sample(torch.tensor([[[0.0, 3.0, 1.0, 5.0]]]), 2)
    >>> samples, grids
    (tensor([[[3., 5.]]]), tensor([1]))
    """
    strides = whole_strides(stride, spatial_axes(x, stride, "stride"), "polyphase sampling")
    axes = len(strides)
    if x.ndim == axes + 1:
        samples, grids = polyphase_sample(x[None], strides, grids=grids)
        return Sampled(samples[0], grids)
    shape = shape_of(x)
    size, kept = shape[-axes:], strided_size(shape[-axes:], strides)
    for i, (n, m, s) in enumerate(zip(size, kept, strides, strict=True)):
        if n != m * s:
            places = torch.arange(m * s, device=x.device).remainder(n)
            x = x.index_select(i - axes, places)
    sides = [side for pair in zip(kept, strides, strict=True) for side in pair]
    parts = x.reshape(*x.shape[:2], *sides)
    order = [*range(3, 3 + 2 * axes, 2), 0, 1, *range(2, 2 + 2 * axes, 2)]
    parts = parts.permute(order)  # the grid, then the example, its channels and samples
    if grids is None:
        grids = _largest(parts, axes)
    elif shape_of(grids) != shape[:1]:
        raise ValueError(
            f"grids must have one number for each of {shape[0]} examples, got the shape "
            f"{tuple(grids.shape)}"
        )
    begins: list[Tensor] = []
    rest = grids
    for s in reversed(strides):
        begins.insert(0, rest.remainder(s))
        rest = rest.div(s, rounding_mode="floor")
    examples = torch.arange(x.shape[0], device=x.device)
    where = (*begins, examples)
    return Sampled(parts[where], grids)


def _largest(parts: Tensor, axes: int) -> Tensor:
    """Return the number of the grid with the largest norm, for each example."""
    numbers = parts.detach()
    if numbers.dtype != torch.float64:  # squares of half precision overflow
        numbers = numbers.float()
    over = [*range(axes + 1, parts.ndim)]
    norms = numbers.square().sum(over)
    return norms.flatten(0, axes - 1).argmax(0)


def polyphase_macs(kept: Sequence[Any], strides: Sequence[int]) -> Any:
    """Return the multiply-accumulates of one channel: the square of every sample is added up.

    >>> polyphase_macs((16, 16), (2, 2))
    1024
    """
    return math.prod([*kept, *strides])
