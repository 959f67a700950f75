"""Carry plans out: choose between matrices and FFT for each axis, and leave the rest as it was."""

from collections.abc import Sequence

import torch
from torch import Tensor

from diffstride.core import operator
from diffstride.core.bases import Matrices, cached
from diffstride.core.plan import AxisPlan
from diffstride.core.work import by_fft


def resample(x: Tensor, plans: Sequence[AxisPlan | None], *, path: str = "auto") -> Tensor:
    """Carry out the plan of each of the last axes of ``x``; one without a plan stays as it is."""
    axes = len(plans)
    # Half precision has neither the range nor the digits for a spectrum.
    work = x if x.dtype == torch.float64 else x.to(torch.float32)
    channels_last = is_channels_last(x, axes)
    if channels_last:
        work = work.movedim(1, -1)
    first = -axes - 1 if channels_last else -axes
    planned = [(first + i, axis) for i, axis in enumerate(plans) if axis is not None]
    short = []
    for dim, axis in planned:
        if by_fft(axis.basis, axis.size, path, axes):
            assert axis.basis.transform is not None
            work = axis.basis.transform(work, dim, axis.kept, axis.weights.to(work.dtype))
        else:
            short.append((dim, axis))
    if short:
        work = operator.apply(
            work,
            [dim for dim, _ in short],
            [Matrices(*cached(a.basis.matrices, a.size, a.kept, work)) for _, a in short],
            [a.per_function.to(work.dtype) for _, a in short],
        )
    # contiguous: an FFT along an inner axis leaves its result in an order of its own.
    work = work.contiguous()
    return (work.movedim(-1, 1) if channels_last else work).to(x.dtype)


def is_channels_last(x: Tensor, axes: int) -> bool:
    """Return whether the channels of a batched input lie next to each other in memory."""
    return x.ndim == axes + 2 and not x.is_contiguous() and x.movedim(1, -1).is_contiguous()
