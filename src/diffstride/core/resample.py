"""Carry plans out: y = (⊗ D) · diag(⊗ w) · (⊗ E) x, one factor an axis, by matrix products or FFT.

The weights w of an axis are its window times the gain of the norm. Both gradients follow from the
truncated spectrum z = (⊗ E) x, along each axis as small as the smaller of input and output, so
nothing else is kept:

    h = (⊗ Dᵀ) ∂y        ∂x = (⊗ Eᵀ) (h · ⊗ w)        ∂(⊗ w) = Σ h · z over batch and channels

Where no weight needs a gradient, nothing is kept, and one matrix A = D · diag(w) · E an axis does.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from diffstride.core.bases import Matrices, along, cached
from diffstride.core.rule import AxisPlan
from diffstride.core.tracing import is_followed, shape_of
from diffstride.core.work import by_fft, cheapest_order

# Images are filtered some at a time, so that what passes from one product to the next stays in
# the cache and needs no fresh memory.
CHUNK_BYTES = 2**23


def resample(x: Tensor, plans: Sequence[AxisPlan | None], *, path: str = "auto") -> Tensor:
    """Carry out the plan of each of the last axes of ``x``; one without a plan stays as it is."""
    axes = len(plans)
    # Half precision has neither the range nor the digits for a spectrum.
    work = x if x.dtype == torch.float64 else x.to(torch.float32)
    channels_last = is_channels_last(x, axes)
    if channels_last:
        work = work.movedim(1, -1)
    short: dict[int, AxisPlan] = {}
    for dim, axis in enumerate(plans, -axes - channels_last):
        if axis is None or axis.changes_nothing:
            continue
        if by_fft(axis.basis, axis.longest, path, axes):
            assert axis.basis.transform is not None
            work = axis.basis.transform(work, dim, axis.kept, axis.weights.to(work.dtype))
        else:
            short[dim] = axis
    if short:
        work = by_matrices(work, tuple(short), *factors(list(short.values()), work))
    # contiguous: an FFT along an inner axis leaves its result in another order.
    work = work.contiguous()
    y = (work.movedim(-1, 1) if channels_last else work).to(x.dtype)
    # Users may change what comes out in place.
    return y.clone() if all(axis is None or axis.changes_nothing for axis in plans) else y


def is_channels_last(x: Tensor, axes: int) -> bool:
    """Return whether the channels of a batched input lie next to each other in memory."""
    return x.ndim == axes + 2 and not x.is_contiguous() and x.movedim(1, -1).is_contiguous()


def factors(plans: Sequence[AxisPlan], like: Tensor) -> tuple[tuple[Matrices, ...], list[Tensor]]:
    """Return E and D of each axis, and the weights of its functions, in the dtype of ``like``."""
    bases = (Matrices(*cached(p.basis.matrices, p.size, p.kept, like)) for p in plans)
    return tuple(bases), [p.per_function.to(like.dtype) for p in plans]


def by_matrices(
    x: Tensor, dims: tuple[int, ...], bases: tuple[Matrices, ...], weights: Sequence[Tensor]
) -> Tensor:
    """Filter and resample the axes ``dims`` (negative) of a float32 or float64 tensor.

    Differentiable, twice too, in ``x`` and in the weights; vmap over ``x`` goes through it.
    """
    with no_autocast(x.device):
        if is_followed():
            for matrix, dim in zip(folded(bases, weights), dims, strict=True):
                x = along(matrix, x, dim)
        else:
            learns = torch.is_grad_enabled() and any(weight.requires_grad for weight in weights)
            x, _ = _Operator.apply(x, dims, bases, learns, *weights)  # type: ignore[no-untyped-call]
    return x


def no_autocast(device: torch.device) -> AbstractContextManager[object]:
    """Keep autocast from running the products in half precision: spectra need float32."""
    if torch.compiler.is_compiling() or (
        torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type)
    ):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


class _Operator(torch.autograd.Function):
    """Returns z beside y: what is saved must be an output for double backward to see it."""

    @staticmethod
    def forward(
        x: Tensor,
        dims: tuple[int, ...],
        bases: tuple[Matrices, ...],
        learns: bool,
        *weights: Tensor,
    ) -> tuple[Tensor, Tensor | None]:
        if not learns:
            return _in_chunks(folded(bases, weights), x, dims), None
        analysis, synthesis = [basis.analysis for basis in bases], _weighted(bases, weights)
        z = _resized(x, dims, analysis)
        y = _resized(z, dims, synthesis)
        for source, spectrum, target in _chunks(dims[0], x, z, y):
            chain(analysis, source, dims, out=spectrum)
            chain(synthesis, spectrum, dims, out=target)
        return y, z

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: tuple[Tensor, Tensor | None]) -> None:
        _, ctx.dims, ctx.bases, _, *weights = inputs
        ctx.save_for_backward(output[1], *weights)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor | None, grad_z: Tensor | None) -> Any:
        z, *weights = ctx.saved_tensors
        # grad_z arrives, and gradients are tracked, only when a gradient is differentiated itself.
        with no_autocast(weights[0].device):
            if torch.is_grad_enabled() or grad_y is None or grad_z is not None:
                grad_x, total = _gradients(ctx, z, weights, grad_y, grad_z)
            else:
                grad_x, total = _gradients_in_chunks(ctx, z, weights, grad_y)
            return grad_x, None, None, None, *_weight_gradients(total, weights, ctx.dims)

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, dims: Any, *rest: Any) -> Any:
        # Leading axes are free, so another one changes nothing. Weights are never mapped: the
        # output size depends on the stride.
        y, z = _Operator.apply(x.movedim(in_dims[0], 0), dims, *rest)  # type: ignore[no-untyped-call]
        return (y, z), (0, None if z is None else 0)


def _weighted(bases: Sequence[Matrices], weights: Sequence[Tensor]) -> list[Tensor]:
    """Return D · diag(w) of each axis."""
    return [basis.synthesis * weight for basis, weight in zip(bases, weights, strict=True)]


def folded(bases: Sequence[Matrices], weights: Sequence[Tensor]) -> list[Tensor]:
    """Return A = D · diag(w) · E of each axis."""
    weighted = _weighted(bases, weights)
    return [after @ basis.analysis for after, basis in zip(weighted, bases, strict=True)]


def _resized(x: Tensor, dims: Sequence[int], matrices: Sequence[Tensor]) -> Tensor:
    """Return room for what the matrices make of ``x``.

    It is no view of another tensor, because users may change what comes out in place.
    """
    shape = list(x.shape)
    for matrix, dim in zip(matrices, dims, strict=True):
        shape[dim] = matrix.shape[0]
    return x.new_empty(shape)


def _chunks(first: int, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield the tensors a few images at a time; the axes before ``first`` tell images apart."""
    if tensors[0].numel() == 0:
        return
    flat = [tensor.reshape(-1, *tensor.shape[first:]) for tensor in tensors]
    step = max(1, CHUNK_BYTES // max(tensor[0].nbytes for tensor in flat))
    for start in range(0, len(flat[0]), step):
        yield tuple(tensor[start : start + step] for tensor in flat)


def chain(
    matrices: Sequence[Tensor], x: Tensor, dims: Sequence[int], out: Tensor | None = None
) -> Tensor:
    """Return the product of ``x`` with each matrix along its axis, in the cheapest order."""
    kept, size = zip(*map(shape_of, matrices), strict=True)
    *first, last = cheapest_order(size, kept)
    for i in first:
        x = along(matrices[i], x, dims[i])
    return along(matrices[last], x, dims[last], out=out)


def _in_chunks(matrices: Sequence[Tensor], x: Tensor, dims: Sequence[int]) -> Tensor:
    """Return the same a few images at a time."""
    y = _resized(x, dims, matrices)
    for source, target in _chunks(dims[0], x, y):
        chain(matrices, source, dims, out=target)
    return y


def _adjoints(
    bases: Sequence[Matrices], weights: Sequence[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """Return Dᵀ and (diag(w) · E)ᵀ of each axis."""
    before = [b.analysis.mT * weight for b, weight in zip(bases, weights, strict=True)]
    return [b.synthesis.mT for b in bases], before


def _gradients_in_chunks(
    ctx: Any, z: Tensor | None, weights: Sequence[Tensor], grad_y: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    """Return ∂x and Σ h·z, both from one pass over the output's gradient."""
    if z is None:
        return _in_chunks([a.mT for a in folded(ctx.bases, weights)], grad_y, ctx.dims), None
    synthesis, analysis = _adjoints(ctx.bases, weights)
    grad_x = _resized(grad_y, ctx.dims, analysis)
    total = z.new_zeros(z.shape[ctx.dims[0] :])
    for source, spectrum, target in _chunks(ctx.dims[0], grad_y, z, grad_x):
        h = chain(synthesis, source, ctx.dims)
        if ctx.needs_input_grad[0]:
            chain(analysis, h, ctx.dims, out=target)
        total += (h * spectrum).sum(0)
    return grad_x if ctx.needs_input_grad[0] else None, total


def _gradients(
    ctx: Any,
    z: Tensor | None,
    weights: Sequence[Tensor],
    grad_y: Tensor | None,
    grad_z: Tensor | None,
) -> tuple[Tensor | None, Tensor | None]:
    """Return the same by operations that can be differentiated, vmapped and traced."""
    synthesis, analysis = _adjoints(ctx.bases, weights)
    grad_x = total = None
    if grad_y is not None:
        h = chain(synthesis, grad_y, ctx.dims)
        grad_x = chain(analysis, h, ctx.dims)
        if z is not None:
            total = (h * z).sum(list(range(h.ndim + ctx.dims[0])))
    if grad_z is not None:
        through_z = chain([basis.analysis.mT for basis in ctx.bases], grad_z, ctx.dims)
        grad_x = through_z if grad_x is None else grad_x + through_z
    return grad_x, total


def _weight_gradients(
    total: Tensor | None, weights: Sequence[Tensor], dims: Sequence[int]
) -> list[Tensor | None]:
    """Return the gradient of each weight vector: Σ h·z, summed over all axes but this one's."""
    if total is None:
        return [None] * len(weights)
    gradients: list[Tensor | None] = []
    for this in dims:
        rest = total
        for weight, dim in zip(weights, dims, strict=True):
            if dim != this:
                rest = rest * weight.reshape(-1, *[1] * (-1 - dim))
        others = [dim for dim in range(-rest.ndim, 0) if dim != this]
        gradients.append(rest.sum(others) if others else rest)
    return gradients
