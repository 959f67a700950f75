"""Convolution followed by downsampling, taps first.

A convolution adds up shifted copies of its input, one for each tap of its kernel, and each copy may
be downsampled before, by B_j = A · T_j, where T_j shifts (and pads) for tap j, and A downsamples:

    y = A · conv(w, x) = Σ_j w_j · (A T_j) x

All B_j of an axis, one below the other, are one matrix of kM rows. What it makes of the input is
read by the same kernel, whose taps now lie M samples apart, and only at the M samples of the
output. That is exact for any padding, and less work wherever few channels become many, or the
stride is large. What the matrices make is larger than the input: the backward pass makes it again.

A stride is known to the matrices by the weights of the frequencies in the fall of its window, and
by no others. So its gradient needs a few rows, not whole matrices: with D_f and E_f of such a
frequency f, and the gradient G of what the matrices make,

    ∂w_f = Σ_j ⟨D_fᵀ G_j, (E_f T_j) x⟩
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from diffstride.core.bases import Matrices, along
from diffstride.core.resample import chain, factors, folded, no_autocast
from diffstride.core.rule import AxisPlan
from diffstride.core.spectral import Options
from diffstride.core.tracing import is_followed, shape_of
from diffstride.core.work import cheapest_order

CONVOLUTIONS: dict[int, Any] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


@dataclass(frozen=True, eq=False)
class TapAxis:
    """One axis of a convolution, and the downsampling after it."""

    dim: int
    size: int
    kernel: int
    dilation: int
    padding: tuple[int, int]
    mode: str
    basis: Matrices
    falling: Tensor
    """The functions whose weights change with the stride, by their numbers."""

    def spread(self, matrix: Tensor) -> Tensor:
        return spread(matrix, self.size, self.kernel, self.dilation, self.padding, self.mode)

    def matrix(self, weights: Tensor) -> Tensor:
        """Return B (kM × size)."""
        return self.spread(folded([self.basis], [weights])[0])


def by_taps(x: Tensor, weight: Tensor, plans: Sequence[AxisPlan], how: Options) -> Tensor:
    """Convolve the last axes of ``x`` (batch, channels, *size) after carrying out their plans."""
    pads, dilation, groups, mode = how
    work = torch.float64 if x.dtype == torch.float64 else torch.float32
    like = torch.empty(0, dtype=work, device=x.device)
    sizes, kernels = shape_of(x)[2:], shape_of(weight)[2:]
    with no_autocast(x.device):
        bases, weights = factors(plans, like)
        sides = zip(range(-len(plans), 0), sizes, kernels, dilation, pads, strict=True)
        falling = [_falling(axis) for axis in plans]
        parts = zip(sides, bases, falling, strict=True)
        axes = tuple(TapAxis(*side, mode, basis, falls) for side, basis, falls in parts)
    inputs = (x, weight, tuple(p.kept for p in plans), groups)
    # Transforms of torch and compilers do not look into what is computed again.
    transformed = is_followed() or torch._C._are_functorch_transforms_active()
    if transformed or not torch.is_grad_enabled():
        make: Any = _spread_all
        return _convolve_taps(*inputs, make, axes, *weights)
    options: Any = {"use_reentrant": False, "preserve_rng_state": False}
    y: Tensor = checkpoint(_convolve_taps, *inputs, _Spread.apply, axes, *weights, **options)
    return y


def _falling(axis: AxisPlan) -> Tensor:
    functions = torch.arange(axis.kept, device=axis.weights.device)
    # To look at values would have an accelerator waited for.
    if axis.falls is None or axis.falls.device.type != "cpu":
        return functions
    return functions[axis.basis.per_function(axis.falls, axis.kept)]


def _convolve_taps(
    x: Tensor,
    weight: Tensor,
    kept: tuple[int, ...],
    groups: int,
    make: Any,
    axes: Sequence[TapAxis],
    *weights: Tensor,
) -> Tensor:
    with no_autocast(x.device):
        work = make(x.to(weights[0].dtype), axes, *weights)
    y: Tensor = CONVOLUTIONS[len(kept)](work.to(x.dtype), weight, dilation=kept, groups=groups)
    return y


def _spread_all(x: Tensor, axes: Sequence[TapAxis], *weights: Tensor) -> Tensor:
    """Return what the matrices of all axes make of ``x``, by operations that torch knows."""
    matrices = [axis.matrix(weight) for axis, weight in zip(axes, weights, strict=True)]
    return chain(matrices, x, [axis.dim for axis in axes])


class _Spread(torch.autograd.Function):
    """The same, with the gradient of the weights from the few rows that it needs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, axes: Sequence[TapAxis], *weights: Tensor) -> Tensor:
        matrices = [axis.matrix(weight) for axis, weight in zip(axes, weights, strict=True)]
        order = cheapest_order([m.shape[1] for m in matrices], [m.shape[0] for m in matrices])
        steps = [x]
        for i in order:
            steps.append(along(matrices[i], steps[-1], axes[i].dim))
        ctx.axes, ctx.order = axes, order
        ctx.save_for_backward(*weights, *matrices, *steps[:-1])
        return steps[-1]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        axes, number = ctx.axes, len(ctx.axes)
        saved = ctx.saved_tensors
        weights, matrices, steps = saved[:number], saved[number : 2 * number], saved[2 * number :]
        needs_x, _, *needs_weights = ctx.needs_input_grad
        with no_autocast(grad.device):
            if torch.is_grad_enabled():  # a gradient is differentiated itself
                made = _spread_all(steps[0], axes, *weights)
                inputs = (steps[0], *weights)
                found = torch.autograd.grad(
                    made, [t for t in inputs if t.requires_grad], grad, create_graph=True
                )
                each = iter(found)
                x_grad, *rest = [next(each) if t.requires_grad else None for t in inputs]
                return x_grad, None, *rest
            of_weights: list[Tensor | None] = [None] * number
            for place, i in enumerate(ctx.order):
                if needs_weights[i]:
                    later = [(matrices[t].mT, axes[t].dim) for t in ctx.order[place + 1 :]]
                    of_weights[i] = _weight_gradient(axes[i], weights[i], steps[place], grad, later)
            if not needs_x:
                return None, None, *of_weights
            for i in reversed(ctx.order):
                grad = along(matrices[i].mT, grad, axes[i].dim)
            return grad, None, *of_weights


def _weight_gradient(
    axis: TapAxis, weights: Tensor, x: Tensor, grad: Tensor, later: Sequence[tuple[Tensor, int]]
) -> Tensor:
    """Return ∂w of an axis, from what its matrix read and the gradient of what came out last.

    ``later`` are the transposed matrices, with their axes, of the steps behind this one.
    """
    rows = axis.falling
    if not len(rows):
        return torch.zeros_like(weights)
    back = axis.basis.synthesis[:, rows].mT.contiguous()
    back = torch.kron(torch.eye(axis.kernel).to(back), back)  # the same for every tap
    for matrix, dim in [(back, axis.dim), *later]:
        grad = along(matrix, grad, dim)
    read = along(axis.spread(axis.basis.analysis[rows]), x, axis.dim)
    others = [dim for dim in range(-grad.ndim, 0) if dim != axis.dim]
    total = (grad * read).sum(others).reshape(axis.kernel, -1).sum(0)
    return torch.zeros_like(weights).index_copy_(0, rows, total)


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
    rest = left + size + right - matrix.shape[1]
    shifts = range(0, kernel * dilation, dilation)
    shifted = torch.cat([F.pad(matrix, (shift, rest - shift)) for shift in shifts])
    if mode == "zeros":
        return shifted[:, left : left + size]
    samples = torch.eye(size, dtype=matrix.dtype, device=matrix.device)
    return shifted @ F.pad(samples[None], padding, mode=mode)[0].mT
