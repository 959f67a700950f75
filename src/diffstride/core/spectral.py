"""Convolution followed by downsampling, on the kept frequencies only.

A convolution that wraps round its borders multiplies each frequency of its input by that of its
kernel. Those that the downsampling drops need no computing: from input channels to output channels
there is one small matrix product for each frequency that is kept, and before and behind these, one
transform of the input and one of the output (spectral_filter.py).

Other convolutions differ from one that wraps round at their last samples alone. Let an axis of
L + T samples, padding included, be read by a kernel that reaches over T + 1 of them. What wraps
round reads x[t] where x[t + L] was meant, for t = 0 … T−1. So the difference between both
convolutions is the kernel on these T differences, at the last T of the L samples that come out, and
the downsampling's matrix takes it on from there. Along the other axes, that is a convolution of the
same kind with an axis less.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from diffstride.core.bases import FOURIER, along, angles, cached, count, shares
from diffstride.core.resample import no_autocast
from diffstride.core.rule import AxisPlan
from diffstride.core.spectra import to_samples, to_spectrum
from diffstride.core.spectral_filter import (
    CHUNK_BYTES,
    Filtered,
    SpectralAxes,
    SpectralAxis,
    filtered,
    how_many,
)
from diffstride.core.tracing import is_followed, shape_of


class Options(NamedTuple):
    """What a convolution does beside its kernel."""

    pads: list[tuple[int, int]]
    """How many samples are added before and after each axis."""
    dilation: tuple[int, ...]
    groups: int
    padding_mode: str


def convolve(x: Tensor, weight: Tensor, plans: Sequence[AxisPlan], options: Options) -> Tensor:
    """Convolve the last axes of ``x`` (batch, channels, *size) and carry out their plans.

    ``x`` and ``weight`` are both float32 or both float64.
    """
    pads, dilation, groups, mode = options
    sides = zip(plans, shape_of(x)[2:], pads, dilation, strict=True)
    with no_autocast(x.device):
        axes = [_axis(*side, mode, x) for side in sides]
        windows = [p.weights.to(x.dtype) for p in plans]
        return _convolve(x, weight, axes, windows, groups)


def _axis(
    axis: AxisPlan, size: int, pad: tuple[int, int], dilation: int, mode: str, like: Tensor
) -> SpectralAxis:
    analysis, synthesis = cached(_matrices, axis.size, axis.kept, like)
    samples = torch.eye(size, dtype=like.dtype, device=like.device)
    padded = F.pad(samples[None], pad, mode="constant" if mode == "zeros" else mode)[0].mT
    reading, reach = analysis @ padded[: axis.size], size + sum(pad) - axis.size
    wraps = reach == 0 or (mode == "circular" and axis.size == size)
    difference = None if wraps else padded[axis.size :] - padded[:reach]
    matrices = (analysis, synthesis, reading, difference)
    return SpectralAxis(axis.size, dilation, *matrices, _falling(axis))


def _matrices(size: int, kept: int) -> tuple[Tensor, Tensor]:
    """Return the analysis (2F × N) and the synthesis (M × 2F), cosines and sines in turns."""
    f = FOURIER.frequencies(kept)
    before, after = (angles(f, count(grid), grid) for grid in (size, kept))
    analysis = torch.stack([before.cos(), before.sin()], 1).flatten(0, 1)
    synthesis = torch.stack([after.cos(), after.sin()], 1) * shares(f, kept)[:, None, None]
    return analysis, synthesis.flatten(0, 1).mT


def _falling(axis: AxisPlan) -> Tensor:
    frequencies = torch.arange(axis.kept // 2 + 1, device=axis.weights.device)
    # To look at values would have an accelerator waited for.
    if axis.falls is None or axis.falls.device.type != "cpu":
        return frequencies
    return frequencies[axis.falls]


def _convolve(
    x: Tensor, weight: Tensor, axes: Sequence[SpectralAxis], windows: Sequence[Tensor], groups: int
) -> Tensor:
    """Convolve (batch, channels, *size), and downsample."""
    if not axes:
        matrices = weight.reshape(groups, -1, shape_of(weight)[1])
        y = torch.einsum("bgi,goi->bgo", x.reshape(shape_of(x)[0], groups, -1), matrices)
        return y.flatten(1)
    constants = SpectralAxes(tuple(axes), groups)
    # Transforms of torch and compilers do not look into what is differentiated by hand.
    plain = is_followed() or torch._C._are_functorch_transforms_active()
    spectrum, *edges = _read(x, constants) if plain else _Read.apply(x, constants)  # type: ignore[no-untyped-call]
    each = iter(edges)
    borders = [
        None if axis.difference is None else _border(next(each), weight, i, axes, windows, groups)
        for i, axis in enumerate(axes)
    ]
    if plain:
        return filtered(spectrum, weight, constants, borders, windows)
    return Filtered.apply(spectrum, weight, constants, *borders, *windows)  # type: ignore[no-untyped-call,no-any-return]


def _border(
    edge: Tensor,
    weight: Tensor,
    i: int,
    axes: Sequence[SpectralAxis],
    windows: Sequence[Tensor],
    groups: int,
) -> Tensor:
    """Return what is missing at the last samples of axis i when it is taken to wrap round.

    The axes before it do wrap round, and those behind it do not. All are downsampled but this one.
    """
    dim, batch, reach = i + 2, shape_of(edge)[0], shape_of(edge)[i + 2]
    padded = torch.cat([torch.zeros_like(edge), edge], dim)
    # Tap j reads T samples from d·j on. Taps become channels here, and each of the T samples that
    # come out an example of its own.
    read = padded.unfold(dim, reach, axes[i].dilation).movedim(-1, 1).movedim(dim + 1, 3)
    others = [*(replace(axis, difference=None) for axis in axes[:i]), *axes[i + 1 :]]
    rest = [*windows[:i], *windows[i + 1 :]]
    kernel = weight.movedim(dim, 2).flatten(1, 2)
    y = _convolve(read.flatten(0, 1).flatten(1, 2), kernel, others, rest, groups)
    return y.unflatten(0, (batch, reach)).movedim(1, dim)  # type: ignore[no-untyped-call,no-any-return]


def _read(x: Tensor, constants: SpectralAxes) -> tuple[Tensor, ...]:
    """Return the spectrum (F, P, batch, channels) of an input, and its edges along each axis."""
    spectrum = to_spectrum(x.flatten(0, 1), [axis.reading for axis in constants.axes])
    spectrum = spectrum.reshape(shape_of(spectrum)[0], -1, *shape_of(x)[:2])
    return spectrum, *(along(matrix, x, dim) for dim, matrix in constants.differences)


def _unread(spectrum: Tensor, edges: Sequence[Tensor], constants: SpectralAxes) -> Tensor:
    """Return the adjoint of :func:`_read`."""
    x = to_samples(spectrum.flatten(1), [axis.reading.mT for axis in constants.axes])
    x = x.reshape(*spectrum.shape[2:], *x.shape[1:])
    for edge, (dim, matrix) in zip(edges, constants.differences, strict=True):
        x = x + along(matrix.mT, edge, dim)
    return x


class _Read(torch.autograd.Function):
    """:func:`_read`, whose gradient is made for a few examples at a time."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, constants: SpectralAxes) -> tuple[Tensor, ...]:
        ctx.constants, ctx.step = constants, how_many(len(x), CHUNK_BYTES, x[0].nbytes)
        return _read(x, constants)

    @staticmethod
    def backward(ctx: Any, spectrum: Tensor, *edges: Tensor) -> Any:
        with no_autocast(spectrum.device):
            batch = spectrum.shape[2]
            if torch.is_grad_enabled() or ctx.step >= batch:
                return _unread(spectrum, edges, ctx.constants), None
            size = [axis.reading.shape[1] for axis in ctx.constants.axes]
            x = spectrum.new_empty(*spectrum.shape[2:], *size)
            for start in range(0, batch, ctx.step):
                few = slice(start, start + ctx.step)
                some = spectrum[:, :, few], [edge[few] for edge in edges]
                x[few] = _unread(*some, ctx.constants)
            return x, None
