"""Spectra in real numbers: how they lie in memory, how they are made, and their products.

A spectrum is (F, P, …): the frequencies of all axes in order, 0 … ⌊M/2⌋ of each, and then the
parts, cosine or sine, of all axes in the opposite order. In this layout the frequency of an axis
and its part lie next to each other when it is that axis's turn to be transformed, so that each
transform is a matrix product, from cosines and sines in turns.

A kernel's spectrum has the same layout. A shift by t samples turns cosine and sine into each other,

    (C, S) → (C cos θt + S sin θt, S cos θt − C sin θt)

so that part p of a convolution is the sum over the kernel's parts u of ± kernel[u] ·
input[p xor u], with a minus for every axis along which both p and u are the sine.
"""

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from diffstride.core.tracing import shape_of

FEWEST_PAIRED_CHANNELS = 16


def to_spectrum(x: Tensor, matrices: Sequence[Tensor]) -> Tensor:
    """Return the spectrum (F, P · rows) of samples (rows, *size), by matrices (2F × N)."""
    x = x[None]
    for matrix in matrices:
        x = axis_to_frequencies(x, matrix)
    return x


def to_samples(x: Tensor, matrices: Sequence[Tensor]) -> Tensor:
    """Return the samples (rows, *size) of a spectrum, by matrices (N × 2F) of all its axes.

    With transposed matrices it is the adjoint of :func:`to_spectrum`.
    """
    for matrix in reversed(matrices):
        x = axis_to_samples(x, matrix)
    return x[0]


def axis_to_frequencies(x: Tensor, matrix: Tensor) -> Tensor:
    """Transform the first of the axes behind (F, rows): to (F · its F, 2 · rows, others)."""
    frequencies, rows, size, *others = shape_of(x)
    parts = shape_of(matrix)[0]
    if others:
        each = matrix.expand(frequencies * rows, parts, size)
        y = torch.bmm(each, x.reshape(frequencies * rows, size, -1))
        y = y.reshape(frequencies, rows, parts, -1).transpose(1, 2)
    else:
        y = torch.bmm(matrix.expand(frequencies, parts, size), x.mT)
    return y.reshape(frequencies * parts // 2, 2 * rows, *others)


def axis_to_samples(x: Tensor, matrix: Tensor, out: Tensor | None = None) -> Tensor:
    """Undo that: from (F · its F, 2 · rows, others) to (F, rows, N, others)."""
    total, rows, *others = shape_of(x)
    size, parts = shape_of(matrix)
    frequencies, rows = 2 * total // parts, rows // 2
    x = x.reshape(frequencies, parts, rows, -1)
    if others:
        x = x.transpose(1, 2).reshape(frequencies * rows, parts, -1)
        room = None if out is None else out.view(frequencies * rows, size, -1)
        y = torch.bmm(matrix.expand(frequencies * rows, size, parts), x, out=room)
    else:
        room = None if out is None else out.view(frequencies, rows, size)
        y = torch.bmm(x[..., 0].mT, matrix.mT.expand(frequencies, parts, size), out=room)
    return y.reshape(frequencies, rows, size, *others)


def kernel_spectrum(weight: Tensor, taps: Sequence[Tensor], groups: int) -> Tensor:
    """Return the spectrum of a kernel: (F, P, groups, inputs, outputs of a group)."""
    outputs, inputs, *kernel = shape_of(weight)
    grouped = weight.reshape(groups, outputs // groups, inputs, *kernel).transpose(1, 2)
    spectrum = to_spectrum(grouped.flatten(0, 2), taps)
    return spectrum.reshape(shape_of(spectrum)[0], -1, groups, inputs, outputs // groups)


def kernel_adjoint(spectrum: Tensor, taps: Sequence[Tensor], weight: Tensor) -> Tensor:
    """Return the adjoint of :func:`kernel_spectrum`, for a kernel like ``weight``."""
    _, _, groups, inputs, outputs = spectrum.shape
    grouped = to_samples(spectrum.flatten(1), [matrix.mT for matrix in taps])
    grouped = grouped.reshape(groups, inputs, outputs, *grouped.shape[1:])
    return grouped.transpose(1, 2).reshape(weight.shape)


def _sign(p: int, u: int, back: bool) -> int:
    """Return the sign of kernel[u] · input[p xor u], or of kernel[u] · output[p xor u] back."""
    return -1 if bin((p ^ u if back else p) & u).count("1") % 2 else 1


def product(x: Tensor, kernel: Tensor, *, back: bool = False) -> Tensor:
    """Return the spectrum (F, P, batch, outputs) of a convolution, from those of its parts.

    With ``back`` and a kernel whose inputs and outputs are exchanged, it is the adjoint.
    """
    frequencies, parts, batch, _ = shape_of(x)
    *_, groups, inputs, outputs = shape_of(kernel)
    if _is_depthwise(groups, inputs, outputs):
        each = x.reshape(frequencies, parts, batch, groups, inputs, 1)
        factors = kernel[:, :, None]
        found = [_sum_of_products(each, factors, p, back).sum(-2) for p in range(parts)]
        return torch.stack(found, 1).reshape(frequencies, parts, batch, -1)
    if is_paired(parts, inputs, outputs):
        return _from_pairs(product(_to_pairs(x), _to_pairs(kernel), back=back), parts)
    turned = _turned(x, groups, back)
    matrices = kernel.permute(0, 2, 1, 3, 4).reshape(-1, parts * inputs, outputs)
    y = torch.bmm(turned, matrices).reshape(frequencies, groups, parts, batch, outputs)
    return y.permute(0, 2, 3, 1, 4).reshape(frequencies, parts, batch, groups * outputs)


def kernel_gradient(x: Tensor, gradient: Tensor, groups: int) -> Tensor:
    """Return the gradient of a kernel's spectrum, from an input's and the gradient behind it."""
    frequencies, parts, batch, channels = shape_of(x)
    inputs, outputs = channels // groups, gradient.shape[-1] // groups
    g = gradient.reshape(frequencies, parts, batch, groups, outputs)
    if _is_depthwise(groups, inputs, outputs):
        each = x.reshape(frequencies, parts, batch, groups, inputs, 1)
        g = g[..., None, :]
        # Of kernel[u] and input[q], the output p = q xor u: the same sum with p and q exchanged.
        return torch.stack([_sum_of_products(each, g, u, None).sum(1) for u in range(parts)], 1)
    if is_paired(parts, inputs, outputs):
        pairs = kernel_gradient(_to_pairs(x), _to_pairs(gradient), groups)
        return _from_pairs(pairs, parts)
    g = g.permute(0, 3, 1, 2, 4).reshape(frequencies * groups, parts * batch, outputs)
    y = torch.bmm(_turned(x, groups).mT, g)
    return y.reshape(frequencies, groups, parts, inputs, outputs).transpose(1, 2)


def _is_depthwise(groups: int, inputs: int, outputs: int) -> bool:
    """Return whether matrices are so narrow that products of single numbers are faster."""
    return groups > 1 and min(inputs, outputs) == 1


def is_paired(parts: int, inputs: int, outputs: int) -> bool:
    """Return whether there are so many channels that pairs of parts save more than they cost."""
    return parts > 2 and min(inputs, outputs) >= FEWEST_PAIRED_CHANNELS


def _to_pairs(x: Tensor) -> Tensor:
    """Return (F, P, …) as (F · P/2, 2, …): cosine and sine of the sum of all axes' angles.

    There are P/2 sums, because the angle of each axis but one may be added or subtracted. A shift
    mixes a pair with no other, so that products of pairs are P/2 times less work than of parts.
    """
    number, parts, *rest = shape_of(x)
    while parts > 2:
        parts //= 2
        # cos(x ± y) = cos x cos y ∓ sin x sin y, sin(x ± y) = sin x cos y ± cos x sin y
        x = x.reshape(number, parts // 2, 2, 2, *rest)
        (a, b), (c, d) = (part.unbind(2) for part in x.unbind(2))
        pairs = torch.stack([a - d, b + c, a + d, b - c], 1)
        x = pairs.reshape(number, 2, 2, parts // 2, *rest).transpose(2, 3)
        number *= 2
    return x.reshape(number, 2, *rest)


def _from_pairs(x: Tensor, parts: int) -> Tensor:
    """Undo :func:`_to_pairs`."""
    number, _, *rest = shape_of(x)
    done = 2
    while done < parts:
        number //= 2
        x = x.reshape(number, 2, done // 2, 2, *rest)
        (a, b), (c, d) = (pair.unbind(2) for pair in x.unbind(1))
        halves = [a + c, b + d, b - d, c - a]
        x = torch.stack(halves, 2).reshape(number, done // 2, 2, 2, *rest) / 2
        done *= 2
    return x.reshape(number, parts, *rest)


def _sum_of_products(a: Tensor, b: Tensor, p: int, back: bool | None) -> Tensor:
    """Return Σ_u ± a[p xor u] · b[u]; with None, the signs are those of a kernel's gradient."""
    total = None
    for u in range(shape_of(a)[1]):
        sign = _sign(u, p, False) if back is None else _sign(p, u, back)
        first, second = a[:, p ^ u], b[:, u]
        if total is None:
            total = sign * first * second if sign < 0 else first * second
        else:
            total = torch.addcmul(total, first, second, value=sign)
    assert total is not None
    return total


@functools.cache
def _places(parts: int, back: bool) -> list[int]:
    """Return, for each p and u, where among inputs and inputs with a minus ± input[p xor u] is."""
    pairs = ((p, u) for p in range(parts) for u in range(parts))
    return [(p ^ u) + parts * (_sign(p, u, back) < 0) for p, u in pairs]


def _turned(x: Tensor, groups: int, back: bool = False) -> Tensor:
    """Return ± input[p xor u] for each p and u: (F · groups, P · batch, P · inputs)."""
    frequencies, parts, batch, channels = shape_of(x)
    # Not torch.tensor for the places, of which torch.jit.trace warns.
    turned = torch.cat([x, -x], 1)[:, _places(parts, back)]
    turned = turned.reshape(frequencies, parts, parts, batch, groups, channels // groups)
    turned = turned.permute(0, 4, 1, 3, 2, 5)
    return turned.reshape(frequencies * groups, parts * batch, parts * (channels // groups))
