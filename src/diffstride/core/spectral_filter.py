"""What a convolution on the spectrum does between its input's spectrum and its output's samples.

A kernel's spectrum is large: it is made for a few frequencies of the first axis at a time, and
again in the backward pass. Where all of it fits, a few examples are filtered at a time instead, so
that what passes from one product to the next stays in the cache. Of a window, a stride's gradient
needs the few frequencies in its fall.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from diffstride.core.bases import along
from diffstride.core.resample import no_autocast
from diffstride.core.spectra import (
    axis_to_frequencies,
    axis_to_samples,
    kernel_adjoint,
    kernel_gradient,
    kernel_spectrum,
    product,
    to_samples,
)
from diffstride.core.tracing import shape_of

# How much of a kernel's spectrum there is at a time, at least that of one frequency; and how much
# of what passes from one product to the next.
KERNEL_BYTES = 2**25
CHUNK_BYTES = 2**24


@dataclass(frozen=True, eq=False)
class SpectralAxis:
    """One axis of a convolution, and the downsampling after it."""

    size: int
    """L, the samples that the convolution makes."""
    dilation: int
    analysis: Tensor
    """(2F × L), cosines and sines in turns."""
    synthesis: Tensor
    """(M × 2F)"""
    reading: Tensor
    """(2F × N), the analysis of the first L samples of the input, padding included."""
    difference: Tensor | None
    """(T × N), from the input to x[t + L] − x[t]; None if the axis wraps round."""
    falling: Tensor
    """The frequencies whose weights change with the stride."""

    def taps(self, kernel: int) -> Tensor:
        """Return (2F × k), from the taps of a kernel to its spectrum."""
        places = torch.arange(kernel, device=self.analysis.device) * self.dilation % self.size
        return self.analysis[:, places]

    def weighted(self, window: Tensor) -> Tensor:
        """Return the synthesis with the window's weights."""
        return self.synthesis * window.repeat_interleave(2)

    @property
    def last(self) -> Tensor:
        """The analysis (2F × T) of the last T samples."""
        assert self.difference is not None
        return self.analysis[:, self.size - shape_of(self.difference)[0] :]


@dataclass(frozen=True, eq=False)
class SpectralAxes:
    """What is the same for all inputs, in one object: transforms of torch look into lists."""

    axes: tuple[SpectralAxis, ...]
    groups: int

    @property
    def differences(self) -> list[tuple[int, Tensor]]:
        """The axes (negative) that do not wrap round, and what makes their edges."""
        every = ((i - len(self.axes), axis.difference) for i, axis in enumerate(self.axes))
        return [(dim, matrix) for dim, matrix in every if matrix is not None]

    def taps(self, weight: Tensor) -> list[Tensor]:
        kernel = shape_of(weight)[2:]
        return [axis.taps(k) for axis, k in zip(self.axes, kernel, strict=True)]

    def weighted(self, windows: Sequence[Tensor]) -> list[Tensor]:
        return [axis.weighted(window) for axis, window in zip(self.axes, windows, strict=True)]


def filtered(
    spectrum: Tensor,
    weight: Tensor,
    constants: SpectralAxes,
    borders: Sequence[Tensor | None],
    windows: Sequence[Tensor],
) -> Tensor:
    """Return the samples of an input's spectrum (F, P, batch, channels) times a kernel's.

    To these belongs what the borders (batch, outputs, *size) say, each along its own axis.
    """
    kernel = kernel_spectrum(weight, constants.taps(weight), constants.groups)
    matrices = constants.weighted(windows)
    y = to_samples(product(spectrum, kernel).flatten(1), matrices)
    y = y.reshape(shape_of(spectrum)[2], -1, *shape_of(y)[1:])
    for i, border in enumerate(borders):
        if border is not None:
            y = y + along(matrices[i] @ constants.axes[i].last, border, i - len(windows))
    return y


class Filtered(torch.autograd.Function):
    """:func:`filtered`, a few examples or a few frequencies of the first axis at a time."""

    @staticmethod
    def forward(
        ctx: Any, spectrum: Tensor, weight: Tensor, constants: SpectralAxes, *rest: Any
    ) -> Tensor:
        ctx.save_for_backward(spectrum, weight, *rest)
        ctx.constants = constants
        axes = constants.axes
        borders, windows = rest[: len(axes)], rest[len(axes) :]
        matrices = constants.weighted(windows)
        size = [len(matrix) for matrix in matrices]
        y = spectrum.new_empty(spectrum.shape[2], weight.shape[0], *size)
        for few, frequencies in _chunks(spectrum, weight, constants):
            parts = []
            for part in frequencies:
                z = product(part.x, part.kernel).flatten(1)
                for matrix in reversed(matrices[1:]):
                    z = axis_to_samples(z, matrix)
                parts.append(z)  # frequencies of the first axis, samples of the others
            z = torch.cat(parts) if len(parts) > 1 else parts[0]
            made = y[few]
            axis_to_samples(z, matrices[0], out=made)
            for i, border in enumerate(borders):
                if border is not None:
                    made += along(matrices[i] @ axes[i].last, border[few], i - len(axes))
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        spectrum, weight, *rest = ctx.saved_tensors
        constants, number = ctx.constants, len(ctx.constants.axes)
        borders, windows = rest[:number], rest[number:]
        with no_autocast(gradient.device):
            if not torch.is_grad_enabled():
                needs = ctx.needs_input_grad
                return _gradients(spectrum, weight, constants, borders, windows, gradient, needs)
            # It is differentiated itself.
            inputs = (spectrum, weight, *rest)
            y = filtered(spectrum, weight, constants, borders, windows)
            learned = [t for t in inputs if t is not None and t.requires_grad]
            found = iter(torch.autograd.grad(y, learned, gradient, create_graph=True))
            needs = [t is not None and t.requires_grad for t in inputs]
            first, second, *others = [next(found) if needed else None for needed in needs]
            return first, second, None, *others


class _Part(NamedTuple):
    """Some examples, at some frequencies of the first axis and all of the others."""

    frequencies: slice
    """Of the first axis."""
    rows: slice
    """Where these lie in the spectrum."""
    x: Tensor
    kernel: Tensor
    taps: list[Tensor]


def _chunks(
    spectrum: Tensor, weight: Tensor, constants: SpectralAxes
) -> Iterator[tuple[slice, Iterator[_Part]]]:
    """Yield some examples, and for these all frequencies, some at a time.

    Where the kernel's spectrum is so large that it is made in parts, all examples share each part.
    """
    first, *others = constants.taps(weight)
    total, parts, batch, _ = spectrum.shape
    every = len(first) // 2
    one = total // every  # frequencies of the other axes, to each of the first
    outputs, inputs = weight.shape[:2]
    some_of = how_many(every, KERNEL_BYTES, one * parts * outputs * inputs * weight.element_size())
    examples = batch
    if some_of == every:
        examples = how_many(batch, CHUNK_BYTES, total * parts * outputs * weight.element_size())
    made: dict[int, Tensor] = {}

    def frequencies(few: slice) -> Iterator[_Part]:
        for start in range(0, every, some_of):
            some = slice(start, min(start + some_of, every))
            taps = [first[2 * some.start : 2 * some.stop], *others]
            if start not in made:
                made.clear()
                made[start] = kernel_spectrum(weight, taps, constants.groups)
            rows = slice(one * some.start, one * some.stop)
            yield _Part(some, rows, spectrum[rows, :, few], made[start], taps)

    for start in range(0, batch, examples):
        few = slice(start, start + examples)
        yield few, frequencies(few)


def _gradients(
    spectrum: Tensor,
    weight: Tensor,
    constants: SpectralAxes,
    borders: Sequence[Tensor | None],
    windows: Sequence[Tensor],
    gradient: Tensor,
    needs: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    """Return the gradients of :func:`filtered`, as autograd wants them."""
    axes = constants.axes
    needs_spectrum, needs_weight, _, *needs_rest = needs
    grad_spectrum = torch.empty_like(spectrum) if needs_spectrum else None
    grad_weight = torch.zeros_like(weight) if needs_weight else None
    grad_borders = [None if border is None else torch.empty_like(border) for border in borders]
    grad_windows = [torch.zeros_like(window) for window in windows]
    of_kernel: Tensor | None = None
    weighted = constants.weighted(windows)
    for few, frequencies in _chunks(spectrum, weight, constants):
        grad = gradient[few]
        whole = axis_to_frequencies(grad.flatten(0, 1)[None], weighted[0].mT)
        for part in frequencies:
            z = whole[part.frequencies]
            for matrix in weighted[1:]:
                z = axis_to_frequencies(z, matrix.mT)
            z = z.reshape(*part.x.shape[:3], -1)
            if grad_spectrum is not None:
                turned = product(z, part.kernel.transpose(-1, -2), back=True)
                grad_spectrum[part.rows, :, few] = turned
            if grad_weight is not None:
                pairs = kernel_gradient(part.x, z, constants.groups)
                of_kernel = pairs if of_kernel is None else of_kernel.add_(pairs)
                if few.stop >= len(gradient):  # the last examples that share this kernel
                    grad_weight += kernel_adjoint(of_kernel, part.taps, weight)
                    of_kernel = None
        for i, axis in enumerate(axes):
            border, grad_border = borders[i], grad_borders[i]
            if border is not None and grad_border is not None:
                matrix = (weighted[i] @ axis.last).mT
                grad_border[few] = along(matrix, grad, i - len(axes))
            if needs_rest[len(axes) + i]:
                some = None if border is None else border[few]
                grad_windows[i] += _window_gradient(
                    i, spectrum[:, :, few], weight, constants, some, windows, grad
                )
    return grad_spectrum, grad_weight, None, *grad_borders, *grad_windows


def _window_gradient(
    i: int,
    spectrum: Tensor,
    weight: Tensor,
    constants: SpectralAxes,
    border: Tensor | None,
    windows: Sequence[Tensor],
    gradient: Tensor,
) -> Tensor:
    """Return the gradient of the window of axis i, from the frequencies in its fall."""
    axes, falling = constants.axes, constants.axes[i].falling
    if not len(falling):
        return torch.zeros_like(windows[i])
    places = torch.stack([2 * falling, 2 * falling + 1], 1).flatten()
    # Of all that follows, this axis comes first: little is left then.
    order = [i, *(j for j in range(len(axes)) if j != i)]
    weighted, taps = constants.weighted(windows), constants.taps(weight)
    weighted[i], taps[i] = axes[i].synthesis[:, places], taps[i][places]
    z = axis_to_frequencies(gradient.movedim(2 + i, 2).flatten(0, 1)[None], weighted[i].mT)
    total = z.new_zeros(len(falling))
    if border is not None:
        added = axes[i].last[places] @ border.movedim(2 + i, 0).flatten(1)
        total += (z.reshape(added.shape) * added).reshape(len(falling), -1).sum(1)
    for j in order[1:]:
        z = axis_to_frequencies(z, weighted[j].mT)
    number = len(axes)
    x = spectrum.reshape(*map(len, windows), *[2] * number, *spectrum.shape[2:])
    x = x.index_select(i, falling).movedim((i, 2 * number - 1 - i), (0, 2 * number - 1))
    x = x.reshape(-1, *spectrum.shape[1:])
    kernel = kernel_spectrum(weight.movedim(2 + i, 2), [taps[j] for j in order], constants.groups)
    y = product(x, kernel)
    total += (z.reshape(y.shape) * y).reshape(len(falling), -1).sum(1)
    return torch.zeros_like(windows[i]).index_copy_(0, falling, total)


def how_many(number: int, limit: int, nbytes: int) -> int:
    """Return how many of so many things of a size may be taken at once."""
    return min(number, max(1, limit // max(1, nbytes)))
