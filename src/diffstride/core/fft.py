"""The operator by FFT, for long axes: the same numbers as by matrices.

The only module that calls ``torch.fft``. Frequencies are cut at the end of a half spectrum, never
of a full one, and every inverse is given its length. Of the last bin of an even length the inverse
takes the real part: the lone cosine.
"""

from typing import Any

import torch
from torch import Tensor

from diffstride.core.tracing import OLD_TORCH, is_followed, shape_of


def apply(x: Tensor, dim: int, kept: int, weights: Tensor) -> Tensor:
    """Filter one axis with a weight for each of the frequencies 0 … ⌊M/2⌋, resample it to M.

    An axis of N < M samples has frequencies up to ⌊N/2⌋ alone, and the others stay 0. For the
    backward pass it keeps the truncated spectrum, as large as the smaller of input and output.

    >>> apply(torch.ones(2, 8), dim=-1, kept=3, weights=torch.ones(2))
    tensor([[2.6667, 2.6667, 2.6667],
            [2.6667, 2.6667, 2.6667]])
    """
    followed = is_followed()
    size = shape_of(x)[dim]
    highest = (kept if kept <= size else size) // 2
    weights = weights[: highest + 1]
    if not followed and x.numel() == 0:  # an empty batch, which MKL refuses
        shape = list(x.shape)
        shape[dim] = kept
        return x.narrow(dim, 0, 1).expand(shape) * weights.sum()
    # Where nothing is kept for a backward pass, all of the spectrum may wait for its product.
    keeps = torch.is_grad_enabled() and (x.requires_grad or weights.requires_grad)
    first_bins: Any = _HalfSpectrum.apply if keeps and not followed else _first_bins
    spectrum = first_bins(x, dim, highest + 1)
    y: Tensor = torch.fft.irfft(spectrum * _column(weights, dim), n=kept, dim=dim)
    if OLD_TORCH and y.requires_grad and not followed:
        # Of a gradient that is one number for all, as that of a sum, torch 2.6 finds no FFT.
        y.register_hook(lambda g: None if g is None else g.contiguous())  # type: ignore[no-untyped-call]
    return y


def enlarge(x: Tensor, dim: int, size: int) -> Tensor:
    """Return the same curve along one axis at more samples: no frequency is added, none lost.

    >>> enlarge(torch.tensor([[1.0, 0.0, -1.0, 0.0]]), dim=-1, size=8)[0, :3]
    tensor([1.0000, 0.7071, 0.0000])
    """
    before = x.shape[dim]
    if not size >= before:
        raise ValueError(f"size must be at least that of the input, {before}, got {size}")
    work = x if x.dtype == torch.float64 else x.to(torch.float32)
    spectrum = torch.fft.rfft(work, dim=dim, norm="forward")
    if before % 2 == 0 and size > before:  # the lone cosine becomes one that has a sine beside it
        halves = torch.ones(before // 2 + 1, dtype=work.dtype, device=work.device)
        halves[-1] = 0.5
        spectrum = spectrum * _column(halves, dim)
    y: Tensor = torch.fft.irfft(spectrum, n=size, dim=dim, norm="forward")
    return y.to(x.dtype)


def _first_bins(x: Tensor, dim: int, bins: int) -> Tensor:
    spectrum: Tensor = torch.fft.rfft(x, dim=dim)
    return spectrum.narrow(dim, 0, bins)


class _HalfSpectrum(torch.autograd.Function):
    """:func:`_first_bins`. Unlike ``torch.fft.rfft`` it does not keep its input."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, dim: int, bins: int) -> Tensor:
        # clone, or all of the spectrum would be kept for the sake of its beginning.
        return _first_bins(x, dim, bins).clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int, int], output: Tensor) -> None:
        x, ctx.dim, ctx.bins = inputs
        ctx.size = x.shape[ctx.dim]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        # The inverse counts every bin but 0 and N/2 twice: the adjoint wants each once.
        counted = torch.full((ctx.bins,), 2.0, dtype=gradient.real.dtype, device=gradient.device)
        counted[0] = 1
        if 2 * (ctx.bins - 1) == ctx.size:
            counted[-1] = 1
        halved = gradient / _column(counted, ctx.dim)
        return torch.fft.irfft(halved, n=ctx.size, dim=ctx.dim, norm="forward"), None, None


def _column(vector: Tensor, dim: int) -> Tensor:
    """Return the vector, shaped to multiply the axis ``dim`` of a tensor."""
    return vector.reshape(-1, *[1] * (-1 - dim))
