"""The authors' released layer, restated: our window and basis, with its quirks as switches.

With every switch on, this reproduces the recorded outputs and gradients of the TensorFlow code;
with every switch off, it is our layer. So the two differ in these points and in no other.
"""

import math
from dataclasses import dataclass, fields
from typing import cast

import torch
from torch import Tensor

from diffstride.core import bases, windows
from diffstride.core.rule import held_in


@dataclass(frozen=True)
class Quirks:
    """What the released code does otherwise. True is its way, False is ours."""

    gain: bool = True
    """The spectrum is scaled by 1/(H'W') on the way out alone: a constant grows by HW/(H'W')."""

    even_sizes: bool = True
    """Output sizes are rounded to even numbers; only an odd height can give an odd height."""

    even_positions: bool = True
    """Even heights: the window takes frequency −k for k − 1, so it is not symmetric."""

    odd_positions: bool = True
    """Odd heights: positions and kept rows are shifted by one, so rows land on wrong ones."""

    lone_row: bool = True
    """An even output height keeps frequency −H'/2 and drops +H'/2, instead of half of each."""

    stride_floor: bool = True
    """The stride itself is raised to N/(N−R), a shared one to the larger of both axes."""

    two_samples: bool = True
    """N/S counts as at least 2, with no gradient below."""

    float32_window: bool = True
    """The window is computed in float32, which decides on which side of a kink a frequency is."""


RELEASED = Quirks()
OURS = Quirks(**{field.name: False for field in fields(Quirks)})


def diff_stride(
    x: Tensor,
    stride: Tensor,
    smoothness: float,
    *,
    shared: bool = False,
    crop: bool = True,
    quirks: Quirks = RELEASED,
) -> Tensor:
    """(…, H, W) to (…, H', W'), in float64; ``stride`` has an element for each, equal if shared."""
    size = x.shape[-2:]
    strides = floored(stride, size, smoothness, shared) if quirks.stride_floor else stride
    precision = torch.float32 if quirks.float32_window else torch.float64
    cutoffs, kept = [], []
    for n, s, offset in zip(size, strides.unbind(), (0.0, 1.0), strict=True):
        kept.append(windows.kept_length(n, s.item(), smoothness) if crop else n)
        if not quirks.stride_floor:
            s = held_in(s, windows.lowest_stride(n, smoothness, offset), n)
        elif not quirks.two_samples:
            s = _straight_through(s, s.detach().clamp(max=n))
        s = s.to(precision)
        samples = (n / s).clamp(min=2.0) if quirks.two_samples else n / s
        cutoffs.append(samples / 2 + offset)
    if quirks.even_sizes:
        kept = _even_sizes(size, [c.item() for c in cutoffs], smoothness, crop)
    positions = _positions(size[0], quirks), torch.arange(size[1] // 2 + 1, dtype=torch.float64)
    fall = _ramp if quirks.float32_window else _our_ramp
    rows, columns = (
        fall(position.to(precision).abs(), cutoff, smoothness).to(torch.float64)
        for position, cutoff in zip(positions, cutoffs, strict=True)
    )
    return _resample(x, rows[:, None] * columns, kept, quirks)


def _our_ramp(position: Tensor, cutoff: Tensor, smoothness: float) -> Tensor:
    height = windows.PAPER.height(position, cutoff, smoothness, torch)
    return cast(Tensor, windows.ramp(height, torch))


def _ramp(position: Tensor, cutoff: Tensor, smoothness: float) -> Tensor:
    """The ramp in the order of the released code: rounding decides what is left of its ends."""
    height = (smoothness + cutoff - position.abs()) / smoothness
    inside = torch.where(height > 1, torch.ones_like(height), height)
    return torch.where(height < 0, torch.zeros_like(height), inside)


def spectral_pool(x: Tensor, strides: tuple[float, float], *, quirks: Quirks = RELEASED) -> Tensor:
    """The released fixed pooling: no window, the same rows, sizes rounded in its own way."""
    size = x.shape[-2:]
    kept = [windows.kept_length(n, s, 0.0) for n, s in zip(size, strides, strict=True)]
    if quirks.even_sizes:
        least = 2 if quirks.two_samples else 1
        kept = [
            max(least, 2 * math.floor(size[0] / strides[0] / 2)),
            max(least, math.floor(size[1] / strides[1])),
        ]
    return _resample(x, torch.ones((), dtype=torch.float64), kept, quirks)


def floored(stride: Tensor, size: torch.Size, smoothness: float, shared: bool) -> Tensor:
    """What the released layer writes into its variable on every call, and then uses."""
    bounds = [n / (n - smoothness) if n != smoothness else math.inf for n in size]
    bound = torch.tensor([max(bounds)] * 2 if shared else bounds, dtype=torch.float64)
    # Its variable is float32.
    bound = bound.to(torch.float32).to(torch.float64)
    return _straight_through(stride, torch.maximum(stride.detach(), bound))


def _straight_through(x: Tensor, value: Tensor) -> Tensor:
    return value + (x - x.detach())


def _even_sizes(size: torch.Size, cutoffs: list[float], smoothness: float, crop: bool) -> list[int]:
    height, width = size
    if not crop:
        return [height, 2 * (width // 2)]
    rows, columns = math.ceil(smoothness + cutoffs[0]), math.ceil(smoothness + cutoffs[1] - 1)
    return [min(height, 2 * rows - height % 2), min(2 * (width // 2), 2 * columns)]


def _positions(height: int, quirks: Quirks) -> Tensor:
    """Where the window takes each row to be, rows in the order of an FFT."""
    frequency = torch.fft.fftfreq(height, 1 / height, dtype=torch.float64)
    centred = torch.fft.fftshift(frequency).abs()
    if height % 2 and quirks.odd_positions:
        return torch.fft.fftshift(centred)  # where the inverse shift is meant
    if height % 2 == 0 and quirks.even_positions:
        return torch.where(frequency < 0, -frequency - 1, frequency)
    return frequency.abs()


def _resample(x: Tensor, mask: Tensor, kept: list[int], quirks: Quirks) -> Tensor:
    height, width = x.shape[-2:]
    new_height, new_width = kept
    columns = new_width // 2 + 1
    spectrum = _full_dft(height) @ x.to(torch.complex128) @ _half_dft(width).mT
    spectrum = (spectrum * mask)[..., :columns]
    spectrum = _select_rows(height, new_height, quirks) @ spectrum
    spectrum = _full_dft(new_height).conj() @ spectrum / new_height
    waves = _half_dft(new_width)
    counted = torch.full((columns, 1), 2.0, dtype=torch.float64)
    counted[0] = 1
    if new_width % 2 == 0:
        counted[-1] = 1
    y = (spectrum @ (waves.conj() * counted / new_width)).real
    return y if quirks.gain else y * math.sqrt(new_height * new_width / (height * width))


def _select_rows(height: int, kept: int, quirks: Quirks) -> Tensor:
    """Which rows of the spectrum each row of the smaller spectrum is made of."""
    selection = torch.zeros(kept, height, dtype=torch.complex128)
    below = kept // 2  # how many negative frequencies
    if height % 2 and kept % 2 and kept < height and quirks.odd_positions:
        below += 1
    for row in range(kept):
        selection[row, row if row < kept - below else row - kept] = 1
    if kept % 2 == 0 and kept < height and not quirks.lone_row:
        selection[kept // 2, -(kept // 2)] = selection[kept // 2, kept // 2] = 0.5
    return selection


def _half_dft(n: int) -> Tensor:
    """The DFT at the frequencies 0 … ⌊N/2⌋."""
    functions = bases.waves(n, n)
    cosines = torch.cat([functions[:1], functions[1::2]])
    sines = torch.zeros_like(cosines)
    sines[1 : (n + 1) // 2] = functions[2::2]
    return torch.complex(cosines, -sines)


def _full_dft(n: int) -> Tensor:
    half = _half_dft(n)
    return torch.cat([half, half[1 : (n + 1) // 2].conj().flip(0)])
