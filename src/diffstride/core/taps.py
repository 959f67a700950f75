"""Convolution followed by downsampling, with the downsampling first: one for each tap.

A convolution without a stride adds up shifted copies of its input, one for each tap of its kernel.
Downsampling is linear, so each copy may be downsampled before they are added up: by B_j = A · T_j,
where T_j shifts (and pads) for tap j, and A downsamples. All B_j of an axis, one below the other,
are one matrix of kM rows. What it makes of the input is read by the same kernel, whose taps now lie
M samples apart, and only at the M samples of the output:

    y = A · conv(w, x) = Σ_j w_j · (A T_j) x

That is exact for any padding, and less work wherever few channels become many, or the stride is
large. What the matrices make is larger than the input and computed again for the backward pass.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from diffstride.core.bases import Matrices, along, cached
from diffstride.core.operator import folded, no_autocast
from diffstride.core.plan import AxisPlan
from diffstride.core.tracing import is_followed, shape_of
from diffstride.core.work import cheapest_order

CONVOLUTIONS: dict[int, Any] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def convolve(
    x: Tensor,
    weight: Tensor,
    plans: Sequence[AxisPlan],
    pads: Sequence[tuple[int, int]],
    dilation: Sequence[int],
    groups: int,
    padding_mode: str,
) -> Tensor:
    """Convolve the last axes of ``x`` (batch, channels, *size) and carry out their plans."""
    work = torch.float64 if x.dtype == torch.float64 else torch.float32
    size, kernel = shape_of(x)[2:], shape_of(weight)[2:]
    with no_autocast(x.device):
        like = torch.empty(0, dtype=work, device=x.device)
        bases = [Matrices(*cached(p.basis.matrices, p.size, p.kept, like)) for p in plans]
        downsampling = folded(bases, [p.per_function.to(work) for p in plans])
        axes = zip(downsampling, size, kernel, dilation, pads, strict=True)
        matrices = [spread(*axis, padding_mode) for axis in axes]
    inputs: Any = (x, weight, tuple(p.kept for p in plans), groups, *matrices)
    # Transforms of torch and compilers do not look into what is computed again.
    transformed = is_followed() or torch._C._are_functorch_transforms_active()
    if torch.is_grad_enabled() and not transformed:
        y: Tensor = checkpoint(_convolve, *inputs, use_reentrant=False, preserve_rng_state=False)
        return y
    return _convolve(*inputs)


def _convolve(
    x: Tensor, weight: Tensor, kept: Sequence[int], groups: int, *matrices: Tensor
) -> Tensor:
    work = x.to(matrices[0].dtype)
    with no_autocast(x.device):
        sizes = [m.shape[1] for m in matrices], [m.shape[0] for m in matrices]
        for i in cheapest_order(*sizes):
            work = along(matrices[i], work, i - len(matrices))
    y: Tensor = CONVOLUTIONS[len(matrices)](
        work.to(x.dtype), weight, dilation=tuple(kept), groups=groups
    )
    return y


def spread(
    matrix: Tensor, size: int, kernel: int, dilation: int, padding: tuple[int, int], mode: str
) -> Tensor:
    """Return what ``matrix`` (M × N), after a convolution, is before it: B (kM × size).

    >>> spread(torch.tensor([[1.0, 2.0]]), 2, 3, 1, (1, 1), "zeros")
    tensor([[2., 0.],
            [1., 2.],
            [0., 1.]])
    """
    left, right = padding
    length = left + size + right
    taps = [
        F.pad(matrix, (j * dilation, length - j * dilation - matrix.shape[1]))
        for j in range(kernel)
    ]
    shifted = torch.cat(taps)
    if mode == "zeros":
        return shifted[:, left : left + size]
    samples = torch.eye(size, dtype=matrix.dtype, device=matrix.device)
    return shifted @ F.pad(samples[None], padding, mode=mode)[0].mT
