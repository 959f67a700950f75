"""Circular convolution followed by downsampling, on the kept frequencies only.

With circular padding a convolution multiplies each frequency of its input by that of its kernel.
Those that the downsampling drops need no computing, so what is left is one small complex matrix
product for each frequency, from input channels to output channels:

    x → E → X(f) → Y(f) = W(f) · X(f), W(f) with the window folded in → D → y

All in real numbers: a complex tensor is a pair of planes, the real and the imaginary one. A
transform is a matrix product that turns the tensor round on the way, from (…, N) to (F, …) and from
(F, …) to (…, M), so that frequencies come first, where batched products want them. Of the last axis
the frequencies 0 … ⌊M/2⌋ are enough; the others need both signs, and 0 and −0 are both computed,
which is less trouble than leaving one out. The spectrum of a kernel is much larger than the kernel:
it, and all else between the transforms of the last axis, is computed for a few of that axis's
frequencies at a time, and again in the backward pass.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from diffstride.core.bases import FOURIER, angles, cached, count, shares
from diffstride.core.resample import no_autocast
from diffstride.core.rule import AxisPlan
from diffstride.core.tracing import is_followed, shape_of

# Planes: real numbers, or the real and the imaginary parts of complex ones.
Planes = Sequence[Tensor] | Tensor
# How much of the kernel's spectrum there is at a time, at least that of one frequency.
CHUNK_BYTES = 2**23


class Options(NamedTuple):
    """What a convolution does beside its kernel."""

    pads: list[tuple[int, int]]
    """How many samples are added before and after each axis."""
    dilation: tuple[int, ...]
    groups: int
    padding_mode: str


@dataclass(frozen=True, eq=False)
class _Constants:
    """What is the same for all inputs, in one object: transforms of torch look into lists."""

    analysis: Sequence[Tensor]
    """The matrices of all axes but the last."""
    synthesis: Sequence[Tensor]
    groups: int


def convolve(x: Tensor, weight: Tensor, plans: Sequence[AxisPlan], options: Options) -> Tensor:
    """Convolve the last axes of ``x`` (batch, channels, *size) and carry out their plans.

    Output sample n of an axis is Σ_j weight[j] · x[(n + dilation·j − p) mod N], before it is
    downsampled, for p samples before it. ``x`` and ``weight`` are both float32 or both float64.
    """
    makers = [_other] * (len(plans) - 1) + [_last]
    axes = [cached(make, p.size, p.kept, x) for make, p in zip(makers, plans, strict=True)]
    *analysis, first = [matrices for matrices, _ in axes]
    *synthesis, last = [matrices for _, matrices in axes]
    constants = _Constants(analysis, synthesis, options.groups)
    phases = _phases(shape_of(weight)[2:], plans, options).to(x.dtype)
    with no_autocast(x.device):
        spectrum = _analyse([x], first)
        if is_followed():
            product = torch.stack(_convolve(spectrum, weight, phases, constants))
        else:
            product = _Convolution.apply(spectrum, weight, phases, constants)  # type: ignore[no-untyped-call]
        y = product.flatten(0, 1).flatten(1).mT @ last[0]
    return y.reshape(*product.shape[2:], -1)


def _each(planes: Planes) -> Sequence[Tensor]:
    """Return the planes one by one, in a way that ``torch.jit.trace`` takes without a warning."""
    return planes.unbind() if isinstance(planes, Tensor) else planes


def _analyse(planes: Planes, matrices: Tensor) -> Tensor:
    """Return the planes (2, F, …) of the frequencies of samples (…, N), real or complex."""
    flat = [plane.reshape(-1, plane.shape[-1]).mT for plane in _each(planes)]
    spectrum = matrices[0] @ flat[0]
    if len(flat) == 2:
        spectrum = torch.addmm(spectrum, matrices[1], flat[1])
    return spectrum.reshape(2, -1, *planes[0].shape[:-1])


def _synthesise(planes: Planes, matrices: Tensor) -> list[Tensor]:
    """Return the planes (…, M) of the samples of frequencies (F, …), one for each matrix.

    With the same matrices, it is the adjoint of :func:`_analyse`.
    """
    real, imaginary = (plane.flatten(1).mT for plane in _each(planes))
    shape = (*planes[0].shape[1:], matrices.shape[-1])
    halves = (matrix.chunk(2) for matrix in _each(matrices))
    return [torch.addmm(real @ a, imaginary, b).reshape(shape) for a, b in halves]


def _last(size: int, kept: int) -> tuple[Tensor, Tensor]:
    """Return the matrices of the last axis, (1, 2F, N) and (1, 2F, M): real ↔ 0 … ⌊M/2⌋."""
    f = FOURIER.frequencies(kept)
    return _rotations(f, size, torch.ones_like(f), 1), _rotations(f, kept, shares(f, kept), 1)


def _other(size: int, kept: int) -> tuple[Tensor, Tensor]:
    """Return the matrices of the other axes, complex ↔ 0 … ⌊M/2⌋, −0 … −⌊M/2⌋.

    The first matrix of the analysis, (2, 4F, N), says what becomes of the real plane and the second
    one what becomes of the imaginary plane. Those of the synthesis, (2, 4F, M), say what the planes
    of the samples are made of.
    """
    f = _both_signs(FOURIER.frequencies(kept))
    return _rotations(f, size, torch.ones_like(f), 2), _rotations(f, kept, shares(f, kept) / 2, 2)


def _rotations(frequencies: Tensor, grid: int, factors: Tensor, planes: int) -> Tensor:
    angle = angles(frequencies, count(grid), grid)
    cos, sin = factors[:, None] * angle.cos(), factors[:, None] * angle.sin()
    return torch.stack([torch.cat([cos, -sin]), torch.cat([sin, cos])][:planes])


def _both_signs(frequencies: Tensor) -> Tensor:
    return torch.cat([frequencies, -frequencies])


def _phases(kernel: Sequence[int], plans: Sequence[AxisPlan], options: Options) -> Tensor:
    """Return a kernel's spectrum from its taps, window included, in the window's precision.

    Π weight(f) · exp(2πi Σ f (d·j − p) / N), products and sums over the axes:
    (2, frequencies of the other axes, of the last axis, taps).
    """
    device = plans[0].weights.device
    angle = torch.zeros(1, 1, dtype=torch.float64, device="cpu")
    window = plans[0].weights.new_ones(1)
    axes = zip(plans, kernel, options.pads, options.dilation, strict=True)
    for i, (p, k, (start, _), d) in enumerate(axes):
        f, weights = FOURIER.frequencies(p.kept), p.weights
        if i < len(plans) - 1:
            f, weights = _both_signs(f), weights.repeat(2)
        taps = angles(f, d * count(k) - start, p.size)
        angle = (angle[:, None, :, None] + taps[:, None, :]).flatten(2).flatten(0, 1)
        window = torch.outer(window, weights).flatten()
    both = torch.stack([angle.cos(), angle.sin()]).to(device, window.dtype)
    return (both * window[:, None]).unflatten(1, (-1, plans[-1].kept // 2 + 1))  # type: ignore[no-untyped-call,no-any-return]


class _Convolution(torch.autograd.Function):
    """:func:`_convolve`, a few frequencies of the last axis at a time."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, phases: Tensor, constants: _Constants) -> Tensor:
        size = [matrices.shape[-1] for matrices in constants.synthesis]
        y = x.new_empty(*x.shape[:3], len(weight), *size)
        for some in _chunks(weight, phases):
            planes = _convolve(x[:, some], weight, phases[:, :, some], constants)
            torch.stack(planes, out=y[:, some])
        return y

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        x, weight, phases, ctx.constants = inputs
        ctx.save_for_backward(x, weight, phases)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, weight, phases = ctx.saved_tensors
        if torch.is_grad_enabled():  # to be differentiated itself, vmapped or traced
            planes, *others = _gradients(x, weight, phases, gradient, ctx.constants)
            return torch.stack(planes), *others, None
        grad_x, grad_weight = torch.empty_like(x), torch.zeros_like(weight)
        grad_phases = torch.empty_like(phases)
        for some in _chunks(weight, phases):
            planes, grad_of_few, grad_phases[:, :, some] = _gradients(
                x[:, some], weight, phases[:, :, some], gradient[:, some], ctx.constants
            )
            torch.stack(planes, out=grad_x[:, some])
            grad_weight += grad_of_few
        return grad_x, grad_weight, grad_phases, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
        return torch.vmap(lambda *given: torch.stack(_convolve(*given)), in_dims)(*inputs), 0


def _chunks(weight: Tensor, phases: Tensor) -> Iterator[slice]:
    """Yield frequencies of the last axis, so few at a time that the kernel's spectrum is small."""
    one = 2 * phases.shape[1] * weight.shape[0] * weight.shape[1] * weight.element_size()
    step = max(1, CHUNK_BYTES // max(1, one))
    for start in range(0, phases.shape[2], step):
        yield slice(start, start + step)


def _convolve(x: Planes, weight: Tensor, phases: Tensor, constants: _Constants) -> list[Tensor]:
    """Convolve what has frequencies for its last axis: (F, batch, channels, *the other axes)."""
    groups = constants.groups
    for matrices in reversed(constants.analysis):
        x = _analyse(x, matrices)
    y = _multiply(_grouped(x, groups), [w.mT for w in _each(_spectrum(weight, phases, groups))])
    y = _ungrouped(y, groups, x[0].shape[:-2])
    for matrices in constants.synthesis:
        y = _synthesise(y, matrices)
    return y


def _gradients(
    x: Planes, weight: Tensor, phases: Tensor, gradient: Planes, constants: _Constants
) -> tuple[list[Tensor], Tensor, Tensor]:
    """Return the gradients of :func:`_convolve`: of its input, of the kernel and of the phases."""
    groups = constants.groups
    for matrices in reversed(constants.analysis):
        x = _analyse(x, matrices)
    for matrices in reversed(constants.synthesis):
        gradient = _analyse(gradient, matrices)
    g = _grouped(gradient, groups)
    grad_x = _multiply(g, _spectrum(weight, phases, groups), conjugate=True)
    grad_x = _ungrouped(grad_x, groups, x[0].shape[:-2])
    for matrices in constants.analysis:
        grad_x = _synthesise(grad_x, matrices)
    grad_spectrum = _multiply([p.mT for p in g], _grouped(x, groups), conjugate=True)
    real, imaginary = (p.reshape(phases[0, ..., 0].numel(), -1) for p in grad_spectrum)
    cos, sin = (p.flatten(0, 1).mT for p in phases)
    grad_weight = torch.addmm(cos @ real, sin, imaginary).mT.reshape(weight.shape)
    taps = weight.reshape(-1, phases.shape[-1])
    grad_phases = torch.stack([real @ taps, imaginary @ taps]).reshape(phases.shape)
    return grad_x, grad_weight, grad_phases


def _grouped(planes: Planes, groups: int) -> list[Tensor]:
    """Turn (F, …, batch, channels) into (frequencies · groups, batch, channels of a group)."""
    *_, batch, channels = shape_of(planes[0])
    shape = (batch, groups, channels // groups)
    return [p.reshape(-1, *shape).transpose(1, 2).flatten(0, 1) for p in _each(planes)]


def _ungrouped(planes: Planes, groups: int, frequencies: Sequence[int]) -> list[Tensor]:
    """Undo :func:`_grouped`."""
    *_, batch, channels = shape_of(planes[0])
    together = (p.reshape(-1, groups, batch, channels).transpose(1, 2) for p in _each(planes))
    return [p.reshape(*frequencies, batch, groups * channels) for p in together]


def _spectrum(weight: Tensor, phases: Tensor, groups: int) -> Tensor:
    """Return W(f): (frequencies · groups, outputs, inputs of a group)."""
    outputs, inputs, *_ = shape_of(weight)
    spectrum = phases.flatten(0, 2) @ weight.reshape(outputs * inputs, -1).mT
    return spectrum.reshape(2, -1, outputs // groups, inputs)


def _multiply(a: Planes, b: Planes, *, conjugate: bool = False) -> list[Tensor]:
    """Return a · b, or a · b̄, of batches of complex matrices."""
    sign = -1 if conjugate else 1
    (ar, ai), (br, bi) = _each(a), _each(b)
    real = torch.baddbmm(torch.bmm(ar, br), ai, bi, alpha=-sign)
    return [real, torch.baddbmm(torch.bmm(ai, br), ar, bi, alpha=sign)]
