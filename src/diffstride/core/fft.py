"""The operator by FFT, for long axes: the same numbers as by matrices.

The only module that calls ``torch.fft``. Frequencies are cut at the end of a half spectrum, never
of a full one, and every inverse is given its length. Of the last bin of an even length the inverse
takes the real part: the lone cosine.

The cosines of a mirrored axis take a real FFT of the same length, for the samples in another order,
and a turn of each frequency:

    x[0], x[2], x[4], …, x[5], x[3], x[1]  →  V[k]        Σ x[n] cos(πk(n + ½)/N) = Re V[k]·w,
                                                      Σ x[n] cos(π(N − k)(n + ½)/N) = −Im V[k]·w

with w = exp(−iπk/(2N)) and k up to N/2.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from diffstride.core.tracing import OLD_TORCH, is_followed, shape_of

Weights = Tensor | Callable[[Tensor], Tensor]
"""One for each frequency, or what multiplies a spectrum by them."""


def apply(x: Tensor, dim: int, kept: int, weights: Weights) -> Tensor:
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
    if not callable(weights):
        weights = weights[: highest + 1]
        if not followed and x.numel() == 0:
            return _empty(x, dim, kept, weights)
    # Where nothing is kept for a backward pass, all of the spectrum may wait for its product.
    learns = callable(weights) or weights.requires_grad
    keeps = torch.is_grad_enabled() and (x.requires_grad or learns)
    first_bins: Any = _HalfSpectrum.apply if keeps and not followed else _first_bins
    spectrum = first_bins(x, dim, highest + 1)
    spectrum = weights(spectrum) if callable(weights) else spectrum * _column(weights, dim)
    y: Tensor = torch.fft.irfft(spectrum, n=kept, dim=dim)
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


def apply_cosines(x: Tensor, dim: int, kept: int, weights: Weights) -> Tensor:
    """Filter one axis with a weight for each of the M lowest cosines, resample it to M.

    An axis of N < M samples has N cosines, and the others stay 0. For the backward pass it keeps
    the coefficients of these cosines, as large as the smaller of input and output.

    >>> apply_cosines(torch.ones(2, 8), dim=-1, kept=3, weights=torch.ones(3))
    tensor([[2.6667, 2.6667, 2.6667],
            [2.6667, 2.6667, 2.6667]])
    """
    size = shape_of(x)[dim]
    functions = kept if kept <= size else size
    followed = is_followed()
    if not callable(weights):
        counted = torch.full((functions,), 2 / kept, dtype=x.dtype, device=x.device)
        counted[0] = 1 / kept
        weights = weights[:functions] * counted
        if not followed and x.numel() == 0:
            return _empty(x, dim, kept, weights)
    find: Any = _cosines if followed else _Cosines.apply
    add: Any = _sum_of_cosines if followed else _SumOfCosines.apply
    coefficients = find(x, dim, functions)
    if callable(weights):  # by plain numbers: a vector would be kept for the backward pass
        weighted = weights(coefficients) * (2 / kept)
        first, rest = weighted.narrow(dim, 0, 1), weighted.narrow(dim, 1, functions - 1)
        weighted = torch.cat([first / 2, rest], dim)
    else:
        weighted = coefficients * _column(weights, dim)
    y: Tensor = add(weighted, dim, kept)
    return y


def _empty(x: Tensor, dim: int, kept: int, weights: Tensor) -> Tensor:
    """Return what becomes of an empty batch, which MKL refuses."""
    shape = list(x.shape)
    shape[dim] = kept
    return x.narrow(dim, 0, 1).expand(shape) * weights.sum()


def _cosines(x: Tensor, dim: int, functions: int) -> Tensor:
    """Return Σ x[n] cos(πk(n + ½)/N) for so many k, of one axis."""
    size = shape_of(x)[dim]
    spectrum = torch.fft.rfft(x.index_select(dim, _there_and_back(size, x)), dim=dim)
    cos, sin = _turn(size, x, dim)
    low: Tensor = spectrum.real * cos + spectrum.imag * sin
    # One graph is for all sizes: a compiler is not asked how many there are.
    if not is_followed() and functions <= size // 2 + 1:
        # clone, or all of it would be kept for the sake of its beginning.
        return low.narrow(dim, 0, functions).clone()
    high = spectrum.real * sin - spectrum.imag * cos  # of N − k
    high = high.narrow(dim, 1, (size - 1) // 2).flip(dim)
    return torch.cat([low, high], dim).narrow(dim, 0, functions).clone()


def _sum_of_cosines(coefficients: Tensor, dim: int, size: int) -> Tensor:
    """Return Σ c[k] cos(πk(n + ½)/N) for all n, along one axis: the adjoint of :func:`_cosines`."""
    functions = shape_of(coefficients)[dim]
    missing = list(shape_of(coefficients))
    missing[dim] = size + 1 - functions
    # c[0] counts twice, because −k counts as well as k, and there is no cosine N.
    first, rest = coefficients.narrow(dim, 0, 1), coefficients.narrow(dim, 1, functions - 1)
    halves = torch.cat([first, rest / 2, coefficients.new_zeros(missing)], dim)
    low = halves.narrow(dim, 0, size // 2 + 1)
    high = halves.narrow(dim, size - size // 2, size // 2 + 1).flip(dim)  # of N − k
    cos, sin = _turn(size, coefficients, dim)
    spectrum = torch.complex(low * cos + high * sin, low * sin - high * cos)
    y: Tensor = torch.fft.irfft(spectrum, n=size, dim=dim, norm="forward")
    return y.index_select(dim, _there_and_back(size, y).argsort())


def _there_and_back(size: int, like: Tensor) -> Tensor:
    """Return 0, 2, 4, … up to the end and …, 5, 3, 1 back: the order of samples for the FFT."""
    there = torch.arange(0, size, 2, device=like.device)
    back = torch.arange(1, size, 2, device=like.device)
    return torch.cat([there, back.flip(0)])


def _turn(size: int, like: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Return the cosine and sine of πk/(2N) for k up to N/2, shaped for the axis ``dim``."""
    angle = torch.arange(size // 2 + 1, dtype=torch.float64, device="cpu") * (math.pi / 2 / size)
    cos, sin = angle.cos().to(like.device, like.dtype), angle.sin().to(like.device, like.dtype)
    return _column(cos, dim), _column(sin, dim)


class _Cosines(torch.autograd.Function):
    """:func:`_cosines`, which keeps nothing; its adjoint leads back."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, dim: int, functions: int) -> Tensor:
        return _cosines(x, dim, functions)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int, int], output: Tensor) -> None:
        x, ctx.dim, _ = inputs
        ctx.size = x.shape[ctx.dim]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _SumOfCosines.apply(gradient, ctx.dim, ctx.size), None, None  # type: ignore[no-untyped-call]


class _SumOfCosines(torch.autograd.Function):
    """:func:`_sum_of_cosines`, which keeps nothing; its adjoint leads back."""

    generate_vmap_rule = True

    @staticmethod
    def forward(coefficients: Tensor, dim: int, size: int) -> Tensor:
        return _sum_of_cosines(coefficients, dim, size)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int, int], output: Tensor) -> None:
        coefficients, ctx.dim, _ = inputs
        ctx.functions = coefficients.shape[ctx.dim]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _Cosines.apply(gradient, ctx.dim, ctx.functions), None, None  # type: ignore[no-untyped-call]
