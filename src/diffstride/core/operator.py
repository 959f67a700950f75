"""The operator itself: y = (⊗ D) · diag(⊗ w) · (⊗ E) x, one factor an axis.

The weights w of an axis are its window times the gain of the norm. Both gradients follow from the
truncated spectrum z = (⊗ E) x, which is as small as the output, so nothing else is kept:

    h = (⊗ Dᵀ) ∂y        ∂x = (⊗ Eᵀ) (h · ⊗ w)        ∂(⊗ w) = Σ h · z over batch and channels
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from diffstride.core.basis import Basis


def apply(
    x: Tensor, dims: Sequence[int], bases: Sequence[Basis], weights: Sequence[Tensor]
) -> Tensor:
    """Filter and resample the axes ``dims`` (negative) of a float32 or float64 tensor.

    Differentiable, twice too, in ``x`` and in the weights; vmap goes through it.
    """
    with _no_autocast(x.device):
        y, _ = _Operator.apply(x, tuple(dims), tuple(bases), *weights)  # type: ignore[no-untyped-call]
    return y  # type: ignore[no-any-return]


def _no_autocast(device: torch.device) -> AbstractContextManager[object]:
    """Autocast would run the products in half precision: spectra are never below float32."""
    if torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


class _Operator(torch.autograd.Function):
    """Returns z beside y: what is saved must be an output for double backward and vmap."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor, dims: tuple[int, ...], bases: tuple[Basis, ...], *weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        z = x
        for basis, dim in zip(bases, dims, strict=True):
            z = basis.analyse(z, dim)
        y = z * _outer(weights, dims)
        for basis, dim in zip(bases, dims, strict=True):
            y = basis.synthesise(y, dim)
        return y, z

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: tuple[Tensor, Tensor]) -> None:
        _, ctx.dims, ctx.bases, *weights = inputs
        ctx.save_for_backward(output[1], *weights)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor | None, grad_z: Tensor | None) -> Any:
        # grad_z arrives only when a gradient is itself differentiated.
        z, *weights = ctx.saved_tensors
        with _no_autocast(z.device):
            grad_weights: Sequence[Tensor | None] = [None] * len(weights)
            if grad_y is not None:
                h = grad_y
                for basis, dim in zip(ctx.bases, ctx.dims, strict=True):
                    h = basis.synthesise_adjoint(h, dim)
                if any(ctx.needs_input_grad[3:]):
                    grad_weights = _weight_gradients(h * z, weights, ctx.dims)
                h = h * _outer(weights, ctx.dims)
                grad_z = h if grad_z is None else grad_z + h
            grad_x = None
            if ctx.needs_input_grad[0] and grad_z is not None:
                grad_x = grad_z
                for basis, dim in zip(ctx.bases, ctx.dims, strict=True):
                    grad_x = basis.analyse_adjoint(grad_x, dim)
        return grad_x, None, None, *grad_weights


def _outer(weights: Sequence[Tensor], dims: Sequence[int]) -> Tensor:
    """The product of one weight vector an axis, shaped to multiply a tensor on these axes."""
    product = _column(weights[0], dims[0])
    for weight, dim in zip(weights[1:], dims[1:], strict=True):
        product = product * _column(weight, dim)
    return product


def _weight_gradients(
    products: Tensor, weights: Sequence[Tensor], dims: Sequence[int]
) -> list[Tensor]:
    """The gradient of each weight vector, from h·z: summed over all axes but its own."""
    others = [dim for dim in range(-products.ndim, 0) if dim not in dims]
    total = products.sum(others, keepdim=True)
    gradients = []
    for own, weight in zip(dims, weights, strict=True):
        rest = total
        for other, dim in zip(weights, dims, strict=True):
            if dim != own:
                rest = (rest * _column(other, dim)).sum(dim, keepdim=True)
        gradients.append(rest.reshape(weight.shape))
    return gradients


def _column(weight: Tensor, dim: int) -> Tensor:
    """The vector, shaped to multiply the axis ``dim`` of a tensor."""
    return weight.reshape(-1, *[1] * (-1 - dim))
