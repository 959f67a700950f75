"""Convolution followed by downsampling with a learnable stride, in the cheapest exact order.

Downsampling an axis is linear and does not touch the others. So it commutes with a convolution
that does not extend along it, a 1×1 convolution or a 1×3 along its height, and is done before:
what follows is smaller. It also commutes with the taps of a kernel, each for itself (taps.py).
And with circular padding a convolution is a product on the spectrum, of which only the frequencies
that are kept need computing (circular.py).
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from diffstride.core import arguments, circular, taps
from diffstride.core.plan import AxisPlan, plan
from diffstride.core.resample import is_channels_last, resample
from diffstride.core.rule import Rule
from diffstride.core.tracing import shape_of
from diffstride.core.work import (
    LONGEST_MATRIX_AXIS_OF_SEVERAL,
    cheapest,
    resampling_macs,
    work_of_orders,
)

ORDERS = ("auto", "after", "before", "taps", "spectral")


def diff_stride_conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: float | Sequence[float] | Tensor,
    *,
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    padding_mode: str = "zeros",
    order: str = "auto",
    **rule: Any,
) -> Tensor:
    """``diff_stride(conv(x, weight, bias), stride)``, without a stride in the convolution.

    Args:
        x: (batch, channels, *spatial) or (channels, *spatial).
        weight, bias, padding, dilation, groups, padding_mode: as for ``torch.nn.ConvNd``.
        stride: as for :func:`diff_stride`.
        order: ``"after"`` convolves, then downsamples. ``"before"`` downsamples the axes along
            which the kernel has size 1 first. ``"taps"`` downsamples first, once for each tap of
            the kernel, and convolves at the size that comes out. ``"spectral"`` convolves on the
            kept frequencies, for circular padding that keeps the size. ``"auto"`` takes the
            cheapest that applies. The numbers are the same.
        rule: every other argument of :func:`diff_stride`.

    >>> x, weight = torch.rand(2, 3, 16, 16), torch.rand(8, 3, 1, 1)
    >>> diff_stride_conv(x, weight, None, 2.0, smoothness=1.0).shape
    torch.Size([2, 8, 10, 10])
    """
    axes = weight.ndim - 2
    arguments.check_tensor(x)
    arguments.check_rank(x, axes)
    checked = Rule(**rule)
    size = convolved_size(
        shape_of(x)[-axes:], shape_of(weight)[2:], padding=padding, dilation=dilation
    )
    return convolve(
        x,
        weight,
        bias,
        plan(checked, size, stride, x.device),
        padding=padding,
        dilation=dilation,
        groups=groups,
        padding_mode=padding_mode,
        rule=checked,
        order=order,
    )


def convolve(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    plans: list[AxisPlan],
    *,
    padding: int | Sequence[int] | str,
    dilation: int | Sequence[int],
    groups: int,
    padding_mode: str,
    rule: Rule,
    order: str,
) -> Tensor:
    """Convolve without a stride and carry out the plans, in the order asked for."""
    arguments.check_choice(order, ORDERS, "order")
    axes = len(plans)
    unbatched = x.ndim == axes + 1
    if unbatched:
        x = x[None]
    shape, kernel = shape_of(x), shape_of(weight)[2:]
    spread = _whole(dilation, axes, "dilation")
    pads = _pads(padding, kernel, spread)
    size = tuple(p.size for p in plans)
    pointwise = [k == 1 and pad == (0, 0) for k, pad in zip(kernel, pads, strict=True)]
    wraps = padding_mode == "circular" and shape[2:] == size and all(p.basis.wraps for p in plans)
    if order == "auto":
        order = _cheapest(shape, shape_of(weight), plans, rule, pointwise, wraps)
    if order == "spectral" and wraps and 0 in shape:
        order = "after"  # an empty batch has no spectrum, and any order will do
    if order == "spectral":
        if not wraps:
            raise ValueError(
                f"order='spectral' needs padding_mode='circular' and a padding that keeps the "
                f"size, and a basis that wraps round, as 'fourier' does; got {padding_mode!r} and "
                f"{shape[2:]} to {size}"
            )
        if max(size) > LONGEST_MATRIX_AXIS_OF_SEVERAL:
            raise ValueError(
                f"order='spectral' is for axes of at most {LONGEST_MATRIX_AXIS_OF_SEVERAL} "
                f"samples, got {tuple(size)}: leave order='auto'"
            )
        starts = [before for before, _ in pads]
        work = torch.float64 if x.dtype == torch.float64 else torch.float32
        y = circular.convolve(x.to(work), weight.to(work), plans, starts, spread, groups)
        if bias is not None:
            gain = math.prod(p.gain for p in plans)
            y = y + (bias.to(work) * gain).reshape(-1, *[1] * axes)
        y = y.to(x.dtype)
    elif order == "taps":
        channels_last = is_channels_last(x, axes)
        y = taps.convolve(x.contiguous(), weight, plans, pads, spread, groups, padding_mode)
        if bias is not None:
            y = y + (bias * math.prod(p.gain for p in plans)).reshape(-1, *[1] * axes)
        y = y.movedim(1, -1).contiguous().movedim(-1, 1) if channels_last else y
    else:
        may_come_first = pointwise if order == "before" else [False] * axes
        early = [p if first else None for p, first in zip(plans, may_come_first, strict=True)]
        late = [None if e else p for p, e in zip(plans, early, strict=True)]
        if any(early):
            x = resample(x, early, path=rule.path)
            if bias is not None:  # downsampled after, a constant would have grown
                bias = bias * math.prod(p.gain for p in early if p)
        y = _convolve(x, weight, bias, pads, spread, groups, padding_mode)
        if any(late):
            y = resample(y, late, path=rule.path)
    return y[0] if unbatched else y


def convolved_size(
    size: Sequence[int],
    kernel: Sequence[int],
    *,
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
) -> tuple[int, ...]:
    """The spatial size after a convolution without a stride.

    >>> convolved_size((32, 32), (3, 5), padding=1)
    (32, 30)
    """
    spread = _whole(dilation, len(kernel), "dilation")
    pads = _pads(padding, kernel, spread)
    axes = zip(size, pads, kernel, spread, strict=True)
    return tuple(n + (sum(pad) - d * (k - 1)) for n, pad, k, d in axes)


def _whole(value: int | Sequence[int], axes: int, name: str) -> tuple[int, ...]:
    return tuple(int(number) for number in arguments.per_axis(value, axes, name))


def _pads(
    padding: int | Sequence[int] | str, kernel: Sequence[int], dilation: Sequence[int]
) -> list[tuple[int, int]]:
    """How many samples are added before and after each axis."""
    if isinstance(padding, str):
        arguments.check_choice(padding, ("same", "valid"), "padding")
        total = [
            d * (k - 1) if padding == "same" else 0 for k, d in zip(kernel, dilation, strict=True)
        ]
        return [(t // 2, t - t // 2) for t in total]
    return [(p, p) for p in _whole(padding, len(kernel), "padding")]


def _convolve(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    pads: list[tuple[int, int]],
    dilation: tuple[int, ...],
    groups: int,
    padding_mode: str,
) -> Tensor:
    convolution = taps.CONVOLUTIONS[len(pads)]
    if padding_mode == "zeros" and all(before == after for before, after in pads):
        inner = [before for before, _ in pads]
    else:
        inner = [0] * len(pads)
        if any(sum(pad) for pad in pads):
            # F.pad counts axes from the last.
            flat = [amount for pad in reversed(pads) for amount in pad]
            x = F.pad(x, flat, mode="constant" if padding_mode == "zeros" else padding_mode)
    y: Tensor = convolution(x, weight, bias, 1, inner, dilation, groups)
    return y


def _cheapest(
    shape: Sequence[int],
    weight: Sequence[int],
    plans: list[AxisPlan],
    rule: Rule,
    pointwise: list[bool],
    wraps: bool,
) -> str:
    """Return the order that takes the least time, of those that apply."""
    (batch, channels, *size), (outputs, per_group, *kernel) = shape, weight
    full, kept = [p.size for p in plans], [p.kept for p in plans]
    work = work_of_orders(weight, channels, size, full, kept, rule, pointwise)
    if wraps and "taps" in work:
        # A complex product is four real ones, on half of the frequencies; the spectrum of the
        # kernel is the same for the whole batch.
        transforms = channels * resampling_macs(full, kept, None)
        transforms += outputs * resampling_macs(kept, kept, None)
        products = math.prod(kept) * per_group * outputs
        work["spectral"] = transforms, products * (2 + math.prod(kernel) / max(1, batch))
    return cheapest(work)


def work_of(
    convolution: Any,
    rule: Rule,
    channels: int,
    size: Sequence[Any],
    full: Sequence[Any],
    kept: Sequence[Any],
    order: str | None = None,
) -> tuple[Any, Any]:
    """Return the work of resampling and of convolving an example, in the cheapest order or another.

    Sizes are as for :func:`work_of_orders`. What a circular convolution on the spectrum saves is
    not counted: that depends on the batch.
    """
    weight = shape_of(convolution.weight)
    pads = _pads(convolution.padding, weight[2:], convolution.dilation)
    pointwise = [k == 1 and pad == (0, 0) for k, pad in zip(weight[2:], pads, strict=True)]
    work = work_of_orders(weight, channels, size, full, kept, rule, pointwise)
    return work.get(order or cheapest(work), work["before"])
