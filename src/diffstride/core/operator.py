"""The operator by matrix products: y = (⊗ A) x with A = D · diag(w) · E, one factor an axis.

The weights w of an axis are its window times the gain of the norm. The input gradient is (⊗ Aᵀ) ∂y.
For the weights, with z = (⊗ E) x the truncated spectrum, as small as the output:

    ∂w_a = Σ p_a · q_a   over all axes but a, batch and channels

where p_a = z on axis a, (D · diag(w)) z on the others, and q_a = Dᵀ ∂y on axis a alone. So z is all
that is kept, and where no weight needs a gradient nothing is. The window is flat outside its ramp,
and a flat weight moves no stride: p and q are computed for the frequencies of the ramp alone.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from diffstride.core.basis import MatrixBasis, along, rows

# Images are filtered a few at a time, so that what passes from one product to the next stays in
# the cache and needs no fresh memory.
CHUNK_BYTES = 2**23


def apply(
    x: Tensor,
    dims: Sequence[int],
    bases: Sequence[MatrixBasis],
    weights: Sequence[Tensor],
    ramps: Sequence[range],
) -> Tensor:
    """Filter and resample the axes ``dims`` (negative) of a float32 or float64 tensor.

    Differentiable in ``x``, and in the weights of the frequencies in ``ramps``, one range an axis;
    the gradient of other weights is 0. Twice differentiable; vmap over ``x`` goes through it.
    """
    if torch.compiler.is_compiling():
        # The compiler plans memory by itself, and wants operations it can see through.
        return _plain(x, dims, bases, weights)
    learns = torch.is_grad_enabled() and any(weight.requires_grad for weight in weights)
    with _no_autocast(x.device):
        y, _ = _Operator.apply(  # type: ignore[no-untyped-call]
            x, tuple(dims), tuple(bases), tuple(ramps), learns, *weights
        )
    return y  # type: ignore[no-any-return]


def _plain(
    x: Tensor, dims: Sequence[int], bases: Sequence[MatrixBasis], weights: Sequence[Tensor]
) -> Tensor:
    with torch.autocast(x.device.type, enabled=False):
        for matrix, dim in zip(_folded(bases, weights), dims, strict=True):
            x = along(matrix, x, dim)
    return x


def _no_autocast(device: torch.device) -> AbstractContextManager[object]:
    """Autocast would run the products in half precision: spectra are never below float32."""
    if torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


class _Operator(torch.autograd.Function):
    """Returns z beside y: what is saved must be an output for double backward to see it."""

    @staticmethod
    def forward(
        x: Tensor,
        dims: tuple[int, ...],
        bases: tuple[MatrixBasis, ...],
        ramps: tuple[range, ...],
        learns: bool,
        *weights: Tensor,
    ) -> tuple[Tensor, Tensor | None]:
        if learns:
            analyses = [basis.analysis for basis in bases]
            z, y = _products(x, dims, analyses, _weighted(bases, weights))
            return y, z
        (y,) = _products(x, dims, _folded(bases, weights))
        return y, None

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: tuple[Tensor, Tensor | None]) -> None:
        _, ctx.dims, ctx.bases, ctx.ramps, ctx.learns, *weights = inputs
        ctx.save_for_backward(output[1], *weights)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor | None, grad_z: Tensor | None) -> Any:
        z, *weights = ctx.saved_tensors
        with _no_autocast(weights[0].device):
            grad_x = None
            if ctx.needs_input_grad[0]:
                grad_x = _input_gradient(ctx.dims, ctx.bases, weights, grad_y, grad_z)
            grad_weights: list[Tensor | None] = [None] * len(weights)
            if ctx.learns and grad_y is not None:
                synthesis = _weighted(ctx.bases, weights)
                for i in range(len(weights)):
                    grad_weights[i] = _weight_gradient(
                        i, z, grad_y, ctx.dims, ctx.bases, synthesis, ctx.ramps[i]
                    )
        return grad_x, None, None, None, None, *grad_weights

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, dims: Any, *rest: Any) -> Any:
        # Leading axes are free, so another one changes nothing. Weights are never mapped: the
        # output size depends on the stride.
        y, z = _Operator.apply(x.movedim(in_dims[0], 0), dims, *rest)  # type: ignore[no-untyped-call]
        return (y, z), (0, None if z is None else 0)


def _weighted(bases: Sequence[MatrixBasis], weights: Sequence[Tensor]) -> list[Tensor]:
    """D · diag(w) of each axis."""
    return [basis.synthesis * weight for basis, weight in zip(bases, weights, strict=True)]


def _folded(bases: Sequence[MatrixBasis], weights: Sequence[Tensor]) -> list[Tensor]:
    """A = D · diag(w) · E of each axis."""
    pairs = zip(_weighted(bases, weights), bases, strict=True)
    return [synthesis @ basis.analysis for synthesis, basis in pairs]


def _products(x: Tensor, dims: Sequence[int], *stages: list[Tensor]) -> list[Tensor]:
    """Apply the matrices of each stage along ``dims``, one after the other; all stages' results."""
    if torch.is_grad_enabled():  # in a backward pass that will be differentiated itself
        results = []
        for matrices in stages:
            for matrix, dim in _by_cost(matrices, dims):
                x = along(matrix, x, dim)
            results.append(x)
        return results
    # Whole tensors and no views of them: users may change what comes out in place.
    outputs, shape = [], list(x.shape)
    for matrices in stages:
        for matrix, dim in zip(matrices, dims, strict=True):
            shape[dim] = matrix.shape[0]
        outputs.append(x.new_empty(shape))
    if x.numel() == 0:
        return outputs
    first = dims[0]
    x = x.reshape(-1, *x.shape[first:])
    flat = [output.view(-1, *output.shape[first:]) for output in outputs]
    step = max(1, CHUNK_BYTES // x[0].nbytes)
    for start in range(0, len(x), step):
        part = x[start : start + step]
        for matrices, output in zip(stages, flat, strict=True):
            *earlier, (last, last_dim) = _by_cost(matrices, dims)
            for matrix, dim in earlier:
                part = along(matrix, part, dim)
            part = along(last, part, last_dim, out=output[start : start + step])
    return outputs


def _by_cost(matrices: list[Tensor], dims: Sequence[int]) -> list[tuple[Tensor, int]]:
    """The matrices in the cheapest order: what shrinks most for its price comes first."""
    pairs = zip(matrices, dims, strict=True)
    return sorted(pairs, key=lambda pair: 1 / pair[0].shape[1] - 1 / pair[0].shape[0])


def _input_gradient(
    dims: Sequence[int],
    bases: Sequence[MatrixBasis],
    weights: Sequence[Tensor],
    grad_y: Tensor | None,
    grad_z: Tensor | None,
) -> Tensor | None:
    grad_x = None
    if grad_y is not None:
        (grad_x,) = _products(grad_y, dims, [matrix.mT for matrix in _folded(bases, weights)])
    if grad_z is not None:  # only when a gradient is itself differentiated
        (through_z,) = _products(grad_z, dims, [basis.analysis.mT for basis in bases])
        grad_x = through_z if grad_x is None else grad_x + through_z
    return grad_x


def _weight_gradient(
    axis: int,
    z: Tensor,
    grad_y: Tensor,
    dims: Sequence[int],
    bases: Sequence[MatrixBasis],
    synthesis: Sequence[Tensor],
    ramp: range,
) -> Tensor:
    """∂w of one axis: Σ p·q for the basis functions in the ramp, 0 for the others."""
    own = dims[axis]
    kept = z.shape[own]
    start, length = rows(ramp, kept)
    p = z.narrow(own, start, length)
    for matrix, dim in zip(synthesis, dims, strict=True):
        if dim != own:
            p = along(matrix, p, dim)
    q = along(bases[axis].synthesis.narrow(1, start, length).mT, grad_y, own)
    others = [dim for dim in range(-p.ndim, 0) if dim != own]
    return torch.nn.functional.pad((p * q).sum(others), (start, kept - start - length))
