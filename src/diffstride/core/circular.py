"""Circular convolution followed by downsampling, on the kept frequencies only.

With circular padding a convolution multiplies each frequency of its input by that of its kernel.
Those that the downsampling drops need no computing, so what is left is one small complex matrix
product a frequency, from input channels to output channels:

    x → E → X(f) → Y(f) = W(f) · X(f), W(f) with the window folded in → D → y

All in real numbers: a complex tensor is a pair of planes, the real and the imaginary one. A
transform is a matrix product that turns the tensor round on the way, from (…, N) to (F, …) and from
(F, …) to (…, M), so that frequencies come first, where batched products want them. Of the last axis
the frequencies 0 … ⌊M/2⌋ are enough; the others need both signs, and 0 and −0 are both computed,
which is less trouble than leaving one out. The spectrum of a kernel is much larger than the kernel:
it, and all else between the transforms of the last axis, is computed for a few of that axis's
frequencies at a time, and again in the backward pass.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from diffstride.core import bases
from diffstride.core.resample import no_autocast
from diffstride.core.rule import AxisPlan
from diffstride.core.tracing import is_followed, shape_of

# Planes: real numbers, or the real and the imaginary parts of complex ones.
Planes = Sequence[Tensor] | Tensor
# How much of the kernel's spectrum there is at a time, at least that of one frequency.
CHUNK_BYTES = 2**23


def convolve(
    x: Tensor,
    weight: Tensor,
    plans: Sequence[AxisPlan],
    starts: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """Convolve the last axes of ``x`` (batch, channels, *size) and carry out their plans.

    Output sample n of an axis is Σ_j weight[j] · x[(n + dilation·j − start) mod N], before it is
    downsampled. ``x`` and ``weight`` are both float32 or both float64.
    """
    pairs = [bases.cached(_last if p is plans[-1] else _other, p.size, p.kept, x) for p in plans]
    *analysis, first = [matrices for matrices, _ in pairs]
    *synthesis, last = [matrices for _, matrices in pairs]
    phases = _phases(shape_of(weight)[2:], plans, starts, dilation).to(x.dtype)
    with no_autocast(x.device):
        spectrum = _analyse([x], first)
        if is_followed():
            product = torch.stack(_convolve(spectrum, weight, phases, analysis, synthesis, groups))
        else:
            product = _Convolution.apply(spectrum, weight, phases, analysis, synthesis, groups)  # type: ignore[no-untyped-call]
        y = product.flatten(0, 1).flatten(1).mT @ last[0]
    return y.reshape(*product.shape[2:], -1)


def _each(planes: Planes) -> Sequence[Tensor]:
    """The planes one by one, in a way that ``torch.jit.trace`` takes without a warning."""
    return planes.unbind() if isinstance(planes, Tensor) else planes


def _analyse(planes: Planes, matrices: Tensor) -> Tensor:
    """From samples (…, N), real or complex, to the planes of their frequencies (2, F, …)."""
    flat = [plane.reshape(-1, plane.shape[-1]).mT for plane in _each(planes)]
    spectrum = matrices[0] @ flat[0]
    if len(flat) == 2:
        spectrum = torch.addmm(spectrum, matrices[1], flat[1])
    return spectrum.reshape(2, -1, *planes[0].shape[:-1])


def _synthesise(planes: Planes, matrices: Tensor) -> list[Tensor]:
    """From frequencies (F, …) to the planes of their samples (…, M), one a matrix.

    With the same matrices, it is the adjoint of :func:`_analyse`.
    """
    real, imaginary = (plane.flatten(1).mT for plane in _each(planes))
    shape = (*planes[0].shape[1:], matrices.shape[-1])
    halves = (matrix.chunk(2) for matrix in _each(matrices))
    return [torch.addmm(real @ a, imaginary, b).reshape(shape) for a, b in halves]


def _last(size: int, kept: int) -> tuple[Tensor, Tensor]:
    """The matrices of the last axis, (1, 2F, N) and (1, 2F, M): real numbers ↔ 0 … ⌊M/2⌋."""
    f = _count(kept // 2 + 1)
    analysis, synthesis = _angle(f, size), _angle(f, kept)
    counted = _counted(f, kept)
    return (
        torch.cat([analysis.cos(), -analysis.sin()])[None],
        torch.cat([counted * synthesis.cos(), -counted * synthesis.sin()])[None],
    )


def _other(size: int, kept: int) -> tuple[Tensor, Tensor]:
    """The matrices of the other axes, complex numbers ↔ 0 … ⌊M/2⌋, −0 … −⌊M/2⌋.

    The first matrix of the analysis, (2, 4F, N), says what becomes of the real plane and the second
    one what becomes of the imaginary plane. Those of the synthesis, (2, 4F, M), say what the planes
    of the samples are made of.
    """
    f = torch.cat([_count(kept // 2 + 1), -_count(kept // 2 + 1)])
    analysis, synthesis = _angle(f, size), _angle(f, kept)
    counted = _counted(f, kept) / 2
    cos, sin = analysis.cos(), analysis.sin()
    real, imaginary = counted * synthesis.cos(), counted * synthesis.sin()
    return (
        torch.stack([torch.cat([cos, -sin]), torch.cat([sin, cos])]),
        torch.stack([torch.cat([real, -imaginary]), torch.cat([imaginary, real])]),
    )


def _count(numbers: int) -> Tensor:
    return torch.arange(numbers, dtype=torch.float64, device="cpu")


def _angle(frequencies: Tensor, grid: int, positions: Tensor | None = None) -> Tensor:
    """2π f n / grid; the phase is reduced while it is a whole number, as in the basis."""
    n = _count(grid) if positions is None else positions
    return torch.outer(frequencies, n).remainder(grid) * (2 * math.pi / grid)


def _counted(frequencies: Tensor, kept: int) -> Tensor:
    """1/M for 0 and for the lone cosine of M/2, 2/M for those that stand for −f as well."""
    alone = (frequencies == 0) | (2 * frequencies.abs() == kept)
    return (2 - alone.double())[:, None] / kept


def _phases(
    kernel: Sequence[int],
    plans: Sequence[AxisPlan],
    starts: Sequence[int],
    dilation: Sequence[int],
) -> Tensor:
    """The spectrum of a kernel from its taps, window included, in the precision of the window.

    Π weight(f) · exp(2πi Σ f (d·j − p) / N), products and sums over the axes:
    (2, frequencies of the other axes, of the last axis, taps).
    """
    device = plans[0].weights.device
    angle = torch.zeros(1, 1, dtype=torch.float64, device="cpu")
    window = plans[0].weights.new_ones(1)
    for i, (p, k, start, d) in enumerate(zip(plans, kernel, starts, dilation, strict=True)):
        f, own = _count(p.kept // 2 + 1), p.weights
        if i < len(plans) - 1:
            f, own = torch.cat([f, -f]), own.repeat(2)
        taps = _angle(f, p.size, d * _count(k) - start)
        angle = (angle[:, None, :, None] + taps[:, None, :]).flatten(2).flatten(0, 1)
        window = torch.outer(window, own).flatten()
    both = torch.stack([angle.cos(), angle.sin()]).to(device, window.dtype)
    return (both * window[:, None]).unflatten(1, (-1, plans[-1].kept // 2 + 1))  # type: ignore[no-untyped-call,no-any-return]


class _Convolution(torch.autograd.Function):
    """:func:`_convolve`, a few frequencies of the last axis at a time."""

    @staticmethod
    def forward(
        x: Tensor,
        weight: Tensor,
        phases: Tensor,
        analysis: Sequence[Tensor],
        synthesis: Sequence[Tensor],
        groups: int,
    ) -> Tensor:
        size = [matrices.shape[-1] for matrices in synthesis]
        y = x.new_empty(*x.shape[:3], len(weight), *size)
        for some in _chunks(weight, phases):
            few = _convolve(x[:, some], weight, phases[:, :, some], analysis, synthesis, groups)
            _store(few, y[:, some])
        return y

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        x, weight, phases, *ctx.constants = inputs
        ctx.save_for_backward(x, weight, phases)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, weight, phases = ctx.saved_tensors
        if torch.is_grad_enabled():  # to be differentiated itself, vmapped or traced
            planes, grad_weight, grad_phases = _gradients(
                x, weight, phases, gradient, *ctx.constants
            )
            return torch.stack(planes), grad_weight, grad_phases, None, None, None
        grad_x, grad_weight = torch.empty_like(x), torch.zeros_like(weight)
        grad_phases = torch.empty_like(phases)
        for some in _chunks(weight, phases):
            planes, part, grad_phases[:, :, some] = _gradients(
                x[:, some], weight, phases[:, :, some], gradient[:, some], *ctx.constants
            )
            _store(planes, grad_x[:, some])
            grad_weight += part
        return grad_x, grad_weight, grad_phases, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
        def stacked(*inputs: Any) -> Tensor:
            return torch.stack(_convolve(*inputs))

        return torch.vmap(stacked, in_dims)(*inputs), 0


def _chunks(weight: Tensor, phases: Tensor) -> Iterator[slice]:
    """Frequencies of the last axis, as many at a time as keep the kernel's spectrum small."""
    one = 2 * phases.shape[1] * weight.shape[0] * weight.shape[1] * weight.element_size()
    step = max(1, CHUNK_BYTES // max(1, one))
    for start in range(0, phases.shape[2], step):
        yield slice(start, start + step)


def _store(planes: Planes, place: Tensor) -> None:
    for target, plane in zip(place, planes, strict=True):
        target.copy_(plane)


def _convolve(
    x: Planes,
    weight: Tensor,
    phases: Tensor,
    analysis: Sequence[Tensor],
    synthesis: Sequence[Tensor],
    groups: int,
) -> list[Tensor]:
    """What is left when the last axis is frequencies: (F, batch, channels, *the other axes)."""
    for matrices in reversed(analysis):
        x = _analyse(x, matrices)
    y = _multiply(_grouped(x, groups), [w.mT for w in _each(_spectrum(weight, phases, groups))])
    y = _ungrouped(y, groups, x[0].shape[:-2])
    for matrices in synthesis:
        y = _synthesise(y, matrices)
    return y


def _gradients(
    x: Planes,
    weight: Tensor,
    phases: Tensor,
    gradient: Planes,
    analysis: Sequence[Tensor],
    synthesis: Sequence[Tensor],
    groups: int,
) -> tuple[list[Tensor], Tensor, Tensor]:
    """Of :func:`_convolve`: of its input, of the kernel and of the phases."""
    for matrices in reversed(analysis):
        x = _analyse(x, matrices)
    for matrices in reversed(synthesis):
        gradient = _analyse(gradient, matrices)
    g = _grouped(gradient, groups)
    grad_x = _multiply(g, _spectrum(weight, phases, groups), conjugate=True)
    grad_x = _ungrouped(grad_x, groups, x[0].shape[:-2])
    for matrices in analysis:
        grad_x = _synthesise(grad_x, matrices)
    grad_spectrum = _multiply([p.mT for p in g], _grouped(x, groups), conjugate=True)
    real, imaginary = (p.reshape(phases[0, ..., 0].numel(), -1) for p in grad_spectrum)
    cos, sin = (p.flatten(0, 1).mT for p in phases)
    grad_weight = torch.addmm(cos @ real, sin, imaginary).mT.reshape(weight.shape)
    taps = weight.reshape(-1, phases.shape[-1])
    grad_phases = torch.stack([real @ taps, imaginary @ taps]).reshape(phases.shape)
    return grad_x, grad_weight, grad_phases


def _grouped(planes: Planes, groups: int) -> list[Tensor]:
    """(F, …, batch, channels) to (frequencies · groups, batch, channels of a group)."""
    *_, batch, channels = shape_of(planes[0])
    split = (
        p.reshape(-1, batch, groups, channels // groups).transpose(1, 2) for p in _each(planes)
    )
    return [p.reshape(-1, batch, channels // groups) for p in split]


def _ungrouped(planes: Planes, groups: int, frequencies: Sequence[int]) -> list[Tensor]:
    """Undo :func:`_grouped`."""
    *_, batch, channels = shape_of(planes[0])
    together = (p.reshape(-1, groups, batch, channels).transpose(1, 2) for p in _each(planes))
    return [p.reshape(*frequencies, batch, groups * channels) for p in together]


def _spectrum(weight: Tensor, phases: Tensor, groups: int) -> Tensor:
    """W(f): (frequencies · groups, outputs, inputs of a group)."""
    outputs, inputs, *_ = shape_of(weight)
    spectrum = phases.flatten(0, 2) @ weight.reshape(outputs * inputs, -1).mT
    return spectrum.reshape(2, -1, outputs // groups, inputs)


def _multiply(a: Planes, b: Planes, *, conjugate: bool = False) -> list[Tensor]:
    """a · b, or a · b̄, of batches of complex matrices."""
    sign = -1 if conjugate else 1
    (ar, ai), (br, bi) = _each(a), _each(b)
    real = torch.baddbmm(torch.bmm(ar, br), ai, bi, alpha=-sign)
    return [real, torch.baddbmm(torch.bmm(ai, br), ar, bi, alpha=sign)]
