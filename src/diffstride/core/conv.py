"""Convolution followed by downsampling with a learnable stride, in the cheapest exact order.

Downsampling an axis is linear and does not touch the others. So it commutes with a convolution
that does not extend along it, a 1×1 convolution or a 1×3 along its height, and is done before:
what follows is smaller. It commutes with the taps of a kernel: each may read an input that is
downsampled before, so that the convolution runs at the size that comes out (taps.py). And a
convolution is a product on the spectrum, of which only the frequencies that are kept need computing
(spectral.py).
"""

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from diffstride.core import arguments, spectral
from diffstride.core.resample import is_channels_last, resample
from diffstride.core.rule import REPLACING, AxisPlan, Rule, plan
from diffstride.core.spectral import Options
from diffstride.core.taps import CONVOLUTIONS, by_taps
from diffstride.core.tracing import shape_of
from diffstride.core.work import (
    LONGEST_MATRIX_AXIS_OF_SEVERAL,
    ConvolutionWork,
    is_spectral,
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
    """Convolve without a stride, then :func:`diff_stride`, whose windows are tight here.

    Args:
        x: (batch, channels, *spatial) or (channels, *spatial).
        weight, bias, padding, dilation, groups, padding_mode: as for ``torch.nn.ConvNd``.
        stride: as for :func:`diff_stride`.
        order: ``"after"`` convolves, then downsamples. ``"before"`` downsamples the axes along
            which the kernel has size 1 first. ``"taps"`` downsamples first, once for each tap of
            the kernel, and convolves at the size that comes out. ``"spectral"`` convolves on the
            kept frequencies, for kernels that reach no further than the axes are long. ``"auto"``
            takes the cheapest that applies. The numbers are the same.
        rule: every other argument of :func:`diff_stride`. Windows are tight and R is 1 unless
            given, so that the size is that of a strided convolution.

    Returns:
        The output of the convolution, downsampled.

    Raises:
        TypeError: if ``x`` is not a floating-point tensor.
        ValueError: if ``x`` has other axes than ``weight`` is for, or an argument is out of range;
            the message names it.

    >>> x, weight = torch.rand(2, 3, 16, 16), torch.rand(8, 3, 1, 1)
    >>> diff_stride_conv(x, weight, None, 2.0).shape
    torch.Size([2, 8, 8, 8])
    """
    axes = weight.ndim - 2
    arguments.check_tensor(x)
    arguments.check_rank(x, axes)
    checked = Rule(**{**REPLACING, **rule}, way="down")
    size = convolved_size(shape_of(x)[-axes:], shape_of(weight)[2:], padding, dilation)
    plans = plan(checked, size, stride, x.device)
    return convolve(x, weight, bias, plans, padding, dilation, groups, padding_mode, checked, order)


def convolve(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    plans: list[AxisPlan],
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
    dilation = _whole(dilation, axes, "dilation")
    pads = _pads(padding, kernel, dilation)
    options = Options(pads, dilation, groups, padding_mode)
    size, kept = tuple(p.size for p in plans), [p.kept for p in plans]
    pointwise = [k == 1 and pad == (0, 0) for k, pad in zip(kernel, pads, strict=True)]
    reach = _reach(kernel, dilation, padding_mode, shape[2:], size)
    if order == "auto":
        shapes = shape_of(weight), shape[1], rule.basis, rule.path
        work = ConvolutionWork(*shapes, tuple(pointwise), tuple(reach))
        order = work.cheapest(shape[2:], size, kept)
    if order == "spectral":
        if not is_spectral(rule.basis, size, reach):
            raise ValueError(
                f"order='spectral' needs axes of at most {LONGEST_MATRIX_AXIS_OF_SEVERAL} samples, "
                f"a kernel that reaches no further than these, and a basis that wraps round, as "
                f"'fourier' does; got axes of {size}, a kernel of {kernel} with dilation "
                f"{dilation}, and basis={rule.basis!r}: leave order='auto'"
            )
        if 0 in shape:
            order = "after"  # an empty batch has no spectrum, and any order will do
    if order in ("spectral", "taps"):
        if order == "spectral":
            _check_channels(shape, weight, groups)
            dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
            y = spectral.convolve(x.to(dtype), weight.to(dtype), plans, options)
        else:
            y = by_taps(x.contiguous(), weight, plans, options)
        if bias is not None:
            y = y + (bias * _gain(plans)).to(y.dtype).reshape(-1, *[1] * axes)
        if order == "spectral":  # autocast has no part in it
            y = y.to(x.dtype)
        if is_channels_last(x, axes):
            y = y.movedim(1, -1).contiguous().movedim(-1, 1)
    else:
        comes_first = pointwise if order == "before" else [False] * axes
        early = [p if first else None for p, first in zip(plans, comes_first, strict=True)]
        late = [None if first else p for p, first in zip(plans, comes_first, strict=True)]
        if any(early):
            x = resample(x, early, path=rule.path)
            if bias is not None:  # downsampled after, a constant would have grown
                bias = bias * _gain([p for p in early if p])
        y = _convolve(x, weight, bias, options)
        if any(late):
            y = resample(y, late, path=rule.path)
    return y[0] if unbatched else y


def _check_channels(shape: Sequence[int], weight: Tensor, groups: int) -> None:
    expected = shape_of(weight)[1] * groups
    if shape[1] != expected:
        raise ValueError(
            f"a weight of {shape_of(weight)} with groups={groups} is for {expected} channels, got "
            f"an input of {tuple(shape)}"
        )


def _gain(plans: Sequence[AxisPlan]) -> float:
    """Return what carrying out the plans multiplies a constant by."""
    gain = 1.0
    for axis in plans:  # compilers stumble over math.prod of a generator
        gain *= axis.gain
    return gain


def convolved_size(
    size: Sequence[int],
    kernel: Sequence[int],
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
) -> tuple[int, ...]:
    """Return the spatial size after a convolution without a stride.

    >>> convolved_size((32, 32), (3, 5), padding=1)
    (32, 30)
    """
    dilation = _whole(dilation, len(kernel), "dilation")
    axes = zip(size, _pads(padding, kernel, dilation), kernel, dilation, strict=True)
    return tuple(n + (sum(pad) - d * (k - 1)) for n, pad, k, d in axes)


def _whole(value: int | Sequence[int], axes: int, name: str) -> tuple[int, ...]:
    return tuple(int(number) for number in arguments.per_axis(value, axes, name))


def _pads(
    padding: int | Sequence[int] | str, kernel: Sequence[int], dilation: Sequence[int]
) -> list[tuple[int, int]]:
    """Return how many samples are added before and after each axis."""
    if not isinstance(padding, str):
        return [(p, p) for p in _whole(padding, len(kernel), "padding")]
    arguments.check_choice(padding, ("same", "valid"), "padding")
    if padding == "valid":
        return [(0, 0)] * len(kernel)
    total = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    return [(t // 2, t - t // 2) for t in total]


def _reach(
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding_mode: str,
    size: Sequence[Any],
    full: Sequence[Any],
) -> list[int]:
    """Return how many samples beyond one the kernel reads along each axis; 0 if it wraps round."""
    circular = padding_mode == "circular"
    axes = zip(kernel, dilation, size, full, strict=True)
    return [0 if circular and int(n) == int(m) else d * (k - 1) for k, d, n, m in axes]


def _convolve(x: Tensor, weight: Tensor, bias: Tensor | None, options: Options) -> Tensor:
    pads, dilation, groups, mode = options
    inner = [before for before, _ in pads]
    is_plain = mode == "zeros" and all(before == after for before, after in pads)
    if any(sum(pad) for pad in pads) and not is_plain:
        # F.pad counts axes from the last.
        flat = [amount for pad in reversed(pads) for amount in pad]
        x = F.pad(x, flat, mode="constant" if mode == "zeros" else mode)
        inner = [0] * len(pads)
    y: Tensor = CONVOLUTIONS[len(pads)](x, weight, bias, 1, inner, dilation, groups)
    return y


def work_of(
    convolution: Any,
    rule: Rule,
    channels: int,
    size: Sequence[Any],
    full: Sequence[Any],
    kept: Sequence[Any],
    order: str | None = None,
    outputs: int | None = None,
) -> tuple[Any, Any]:
    """Return the work of resampling and of convolving an example, in the cheapest order or another.

    Sizes are as for :meth:`ConvolutionWork.of`, and ``outputs`` as for :func:`cheapest_order_of`.
    """
    work = _work(convolution, rule, channels, size, full, outputs)
    if order is None:
        order = _cheapest(work, *(tuple(map(int, sizes)) for sizes in (size, full, kept)))
    elif order not in work.orders(full):
        order = "before"
    return work.of(order, size, full, kept)


def cheapest_order_of(
    convolution: Any,
    rule: Rule,
    channels: int,
    size: Sequence[Any],
    full: Sequence[Any],
    kept: Sequence[Any],
    outputs: int | None = None,
) -> str:
    """Return the order that ``"auto"`` takes, if the convolution makes so many channels."""
    work = _work(convolution, rule, channels, size, full, outputs)
    return _cheapest(work, *(tuple(map(int, sizes)) for sizes in (size, full, kept)))


def _work(
    convolution: Any,
    rule: Rule,
    channels: int,
    size: Sequence[Any],
    full: Sequence[Any],
    outputs: int | None,
) -> ConvolutionWork:
    made, *weight = shape_of(convolution.weight)
    kernel = weight[1:]
    pads = _pads(convolution.padding, kernel, convolution.dilation)
    pointwise = [k == 1 and pad == (0, 0) for k, pad in zip(kernel, pads, strict=True)]
    reach = _reach(kernel, convolution.dilation, convolution.padding_mode, size, full)
    shapes = (outputs or made, *weight), channels, rule.basis, rule.path
    return ConvolutionWork(*shapes, tuple(pointwise), tuple(reach))


@functools.lru_cache(maxsize=4096)
def _cheapest(work: ConvolutionWork, *sizes: tuple[int, ...]) -> str:
    return work.cheapest(*sizes)
