"""The window m(f): a low-pass whose width is differentiable in the stride.

    m(f) = clip((R + N/(2S) + δ − |f|) / R, 0, 1)

It is 1 up to the frequency N/(2S) + δ, falls to 0 over the next R frequencies, and moves as a whole
when the stride does. That ramp is all a stride ever learns from.
"""

import torch
from torch import Tensor

from diffstride.core import sizes


def ramp(frequency: Tensor, cutoff: Tensor | float, smoothness: float) -> Tensor:
    """``clip((R + cutoff − |f|) / R, 0, 1)``, whose gradient includes both ends of the ramp.

    >>> ramp(torch.arange(6.0), cutoff=2.0, smoothness=2.0)
    tensor([1.0000, 1.0000, 1.0000, 0.5000, 0.0000, 0.0000])
    """
    # In this order a frequency at the cut-off is exactly at the ramp's end, whatever R rounds to.
    height = (smoothness - (frequency.abs() - cutoff)) / smoothness
    # Not torch.clamp: whether it passes a gradient at its bounds depends on the version of torch,
    # and at whole N/(2S), where most strides begin, only the ends of the ramp may hold a frequency.
    inside = torch.where(height > 1, torch.ones_like(height), height)
    return torch.where(height < 0, torch.zeros_like(height), inside)


def held_in(stride: Tensor, lowest: float, highest: float | None) -> Tensor:
    """``clamp(S, lowest, highest)``, with a gradient that passes straight through.

    An infinite stride comes out as the bound it is beyond, and has no gradient.

    >>> held_in(torch.tensor([0.5, 3.0, float("inf")]), 1.0, 8.0)
    tensor([1., 3., 8.])
    """
    # The sum is exact: its second term is 0.
    change = torch.where(stride.isfinite(), stride - stride.detach(), 0.0)
    return stride.detach().clamp(lowest, highest) + change


def effective_stride(stride: Tensor, size: int, smoothness: float, offset: float) -> Tensor:
    """The stride the window of this input is made with: ``clamp(S, S_min(N), N)``.

    The gradient passes straight through, so that a stride beyond what an input can use is still
    told which way to go.
    """
    return held_in(stride, sizes.lowest_stride(size, smoothness, offset), size)


def window_dtype(device: torch.device) -> torch.dtype:
    """float64 where the device has it: on a long axis, float32 would be visible in the ramp."""
    return torch.float32 if device.type == "mps" else torch.float64


def half_window(
    size: int,
    band: int,
    length: int,
    stride: Tensor,
    *,
    smoothness: float,
    offset: float,
) -> Tensor:
    """m(f) of an axis of ``size`` samples, for the frequencies 0 … ⌊length/2⌋.

    ``band`` is the kept length that goes with the stride: without a ramp, it says what passes.
    """
    dtype = window_dtype(stride.device)
    frequency = torch.arange(length // 2 + 1, dtype=dtype, device=stride.device)
    if smoothness == 0:
        # The stride has no part in it, but a gradient of 0 all the same: data-parallel training
        # takes a parameter without one for a mistake.
        return (2 * frequency <= band).to(dtype) + 0 * stride.to(dtype)
    stride = effective_stride(stride.to(dtype), size, smoothness, offset)
    return ramp(frequency, size / (2 * stride) + offset, smoothness)


def window(
    size: int,
    stride: float | Tensor,
    *,
    smoothness: float = 4.0,
    offset: float = 0.0,
    crop: bool = True,
) -> Tensor:
    """The window of one axis, for the frequencies 0, 1, … that are kept.

    1. M = ``output_size(size, stride)``, or N without ``crop``.
    2. S is clamped to what an axis of N samples can use (:func:`effective_stride`).
    3. m(f) = clip((R + N/(2S) + δ − f) / R, 0, 1) for f = 0 … ⌊M/2⌋; for R = 0 it is 1 on the
       frequencies that are kept.

    Args:
        size: N, the length of the axis.
        stride: S, a number or a tensor with one; differentiable.
        smoothness: R, how many frequencies the ramp takes.
        offset: δ; 1 on the last axis with ``convention="paper"``, else 0.
        crop: whether frequencies that are not kept are left out.

    Returns:
        A vector of ⌊M/2⌋ + 1 values from 0 to 1, in the dtype of ``stride`` if it has one.

    >>> window(12, 3.0, smoothness=2.0)
    tensor([1.0000, 1.0000, 1.0000, 0.5000, 0.0000])
    """
    (kept,) = sizes.output_size(size, stride, smoothness=smoothness)
    dtype = torch.get_default_dtype()
    if not isinstance(stride, Tensor):
        stride = torch.tensor(stride, dtype=torch.float64)
    elif stride.is_floating_point():
        dtype = stride.dtype
    length = kept if crop else size
    values = half_window(
        size, kept, length, stride.reshape(()), smoothness=smoothness, offset=offset
    )
    return values.to(dtype)
