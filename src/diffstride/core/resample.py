"""Plan each axis in plain numbers, then carry the plans out."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from diffstride.core import arguments, basis, fft, operator, sizes
from diffstride.core.window import half_window, window_dtype

# About where a matrix product and an FFT cross on a CPU (benchmarks/scaling.py); with several axes
# later, because an FFT along an inner axis is slower than along the last.
LONGEST_MATRIX_AXIS = 200
LONGEST_MATRIX_AXIS_OF_SEVERAL = 320


@dataclass(frozen=True)
class AxisPlan:
    """What happens to one axis: N samples become M, each frequency 0 … ⌊M/2⌋ with its weight."""

    size: int
    kept: int
    weights: Tensor
    gain: float
    """What a constant is multiplied by."""


def plan(
    size: Sequence[int],
    stride: float | Sequence[float] | Tensor,
    *,
    smoothness: float,
    crop: bool,
    output_size: int | Sequence[int] | None,
    size_multiple: int,
    norm: str,
    convention: str,
    device: torch.device,
    numbers: Sequence[float] | None = None,
) -> list[AxisPlan]:
    """The plan of each axis for a stride that may be learned.

    ``numbers`` are the values of the stride, where they are known already: reading them is not
    free on an accelerator.
    """
    arguments.check_choice(norm, arguments.NORMS, "norm")
    arguments.check_choice(convention, arguments.CONVENTIONS, "convention")
    arguments.check_smoothness(smoothness)
    arguments.check_static(crop, output_size, size_multiple)
    axes = len(size)
    # With a fixed size nothing of the plan depends on the stride's value, and a compiler that can't
    # read it needn't.
    if not crop and smoothness > 0:
        output_size = tuple(size)
    unread = output_size is not None and torch.compiler.is_compiling()
    if numbers is None and not unread:
        numbers = arguments.per_axis(stride, axes, "stride")
    if numbers is not None:
        arguments.check_strides(numbers)
    if not isinstance(stride, Tensor):
        stride = torch.tensor(stride, dtype=window_dtype(device), device=device)
    strides = stride.to(device).expand(axes).unbind()
    if isinstance(output_size, tuple) and unread:
        band = length = output_size
    elif output_size is not None:
        band = length = sizes.pooled_size(size, None, output_size)
    else:
        assert numbers is not None
        band = sizes.output_size(size, numbers, smoothness=smoothness)
        length = sizes.output_size(
            size, numbers, smoothness=smoothness, crop=crop, size_multiple=size_multiple
        )
    plans = []
    for i, offset in enumerate(sizes.offsets(axes, convention)):
        n, m = size[i], length[i]
        window = half_window(n, band[i], m, strides[i], smoothness=smoothness, offset=offset)
        scale = sizes.scale(n, m, norm)
        plans.append(AxisPlan(n, m, window * scale, gain=scale * n / m))
    return plans


def resample(x: Tensor, plans: Sequence[AxisPlan | None], *, path: str = "auto") -> Tensor:
    """Carry out the plan of each of the last axes of ``x``; one without a plan stays as it is."""
    arguments.check_choice(path, arguments.PATHS, "path")
    axes = len(plans)
    # Half precision has neither the range nor the digits for a spectrum.
    work = x if x.dtype == torch.float64 else x.to(torch.float32)
    channels_last = _is_channels_last(x, axes)
    if channels_last:
        work = work.movedim(1, -1)
    first = -axes - 1 if channels_last else -axes
    planned = [(first + i, axis) for i, axis in enumerate(plans) if axis is not None]
    long = [(dim, axis) for dim, axis in planned if by_fft(axis.size, path, axes)]
    short = [(dim, axis) for dim, axis in planned if not by_fft(axis.size, path, axes)]
    for dim, axis in long:
        work = fft.apply(work, dim, axis.kept, axis.weights.to(work.dtype))
    if short:
        work = operator.apply(
            work,
            [dim for dim, _ in short],
            [basis.MatrixBasis(a.size, a.kept, work.dtype, work.device) for _, a in short],
            [basis.per_function(a.weights, a.kept).to(work.dtype) for _, a in short],
        )
    # contiguous: an FFT along an inner axis leaves its result in an order of its own.
    work = work.contiguous()
    return (work.movedim(-1, 1) if channels_last else work).to(x.dtype)


def by_fft(size: int, path: str, axes: int) -> bool:
    """The one place that chooses between matrices and FFT."""
    longest = LONGEST_MATRIX_AXIS if axes == 1 else LONGEST_MATRIX_AXIS_OF_SEVERAL
    return path == "fft" or (path == "auto" and size > longest)


def _is_channels_last(x: Tensor, axes: int) -> bool:
    """Whether the channels of a batched input lie next to each other in memory."""
    return x.ndim == axes + 2 and not x.is_contiguous() and x.movedim(1, -1).is_contiguous()
