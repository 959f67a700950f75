"""The operator by its definition: a direct sum over frequencies, in float64, slow and plain.

Written with numpy alone and nothing of the library, so that a mistake would have to be made twice.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Axis:
    """A, and how A moves with the stride: away from kinks, and for each frequency on one."""

    matrix: Array
    slope: Array
    slopes_on_kinks: tuple[Array, ...]


def kept_length(size: int, stride: float, smoothness: float) -> int:
    stride = max(1.0, min(stride, size))
    return max(1, min(size, math.floor(size / stride + 2 * smoothness)))


def effective_stride(
    size: int, stride: float, smoothness: float, offset: float, highest: float | None = None
) -> float:
    highest = size // 2 if highest is None else highest
    denominator = 2 * (highest - smoothness / 2 - offset)
    lowest = size / denominator if denominator > 0 else math.inf
    if lowest > size:
        lowest = 1.0
    return min(max(stride, lowest), size)


def window(f: int, size: int, stride: float, smoothness: float, offset: float) -> float:
    stride = effective_stride(size, stride, smoothness, offset)
    return min(1.0, max(0.0, (smoothness + size / (2 * stride) + offset - f) / smoothness))


def tight_length(size: int, stride: float) -> int:
    """⌊N/S⌋, where N/S counts as whole if float32 can't tell it from a whole number."""
    length = size / max(1.0, min(stride, size))
    nearest = round(length)
    if abs(length - nearest) <= length * 2**-23:
        length = nearest
    return max(1, math.floor(length))


def ramp(
    f: float,
    size: int,
    stride: float,
    smoothness: float,
    tight: bool,
    offset: float,
    highest: float | None = None,
):
    """How high f lies in the ramp, and the derivative of that in the stride."""
    if not tight:
        stride = effective_stride(size, stride, smoothness, offset, highest)
        height = (smoothness + size / (2 * stride) + offset - f) / smoothness
        return height, -size / (2 * stride**2 * smoothness)
    stride = min(stride, size)
    cutoff, change = size / (2 * stride), -size / (2 * stride**2)
    if abs(2 * cutoff - round(2 * cutoff)) <= 2 * cutoff * 2**-23:
        cutoff = round(2 * cutoff) / 2
    if cutoff > smoothness:
        return (cutoff - f) / smoothness, change / smoothness
    # A ramp that is wider than the band begins at frequency 0.
    return 1 - f / cutoff, change * f / cutoff**2


def cosine_waves(size: int, length: int) -> Iterator[tuple[float, Array]]:
    """The cosines of a mirrored axis: the periods of each, and what it makes of each sample."""
    n, j = np.arange(size) + 0.5, np.arange(length)[:, None] + 0.5
    for k in range(min(size, length)):
        wave = np.cos(np.pi * k * j / length) * np.cos(np.pi * k * n / size)
        yield k / 2, wave * (1 if k == 0 else 2) / length


def fourier_waves(size: int, length: int) -> Iterator[tuple[float, Array]]:
    """Frequency f and −f together; 0 stands alone."""
    n, j = np.arange(size), np.arange(length)[:, None]
    for f in range(min(size, length) // 2 + 1):
        if f == 0:
            wave = np.full((length, size), 1 / length)
        elif 2 * f == length:
            # Of the Nyquist frequency of the output only the cosine remains, as in
            # (X[f] + X[−f]) / 2.
            wave = np.cos(np.pi * j) * np.cos(2 * np.pi * f * n / size) / length
        else:
            # On the way up, the highest frequency of an even size has a mirror image too.
            wave = 2 * np.cos(2 * np.pi * f * (j / length - n / size)) / length
        yield f, wave


BASES = {
    "fourier": (fourier_waves, lambda size: size // 2),
    "dct": (cosine_waves, lambda size: (size - 1) / 2),
}
"""The waves of a basis, and the highest frequency of so many samples."""


def axis(
    size: int,
    stride: float,
    *,
    smoothness: float,
    offset: float,
    crop: bool = True,
    norm: str = "ortho",
    tight: bool = False,
    output: int | None = None,
    multiple: int = 1,
    basis: str = "fourier",
) -> Axis:
    """The matrix of one axis, and its derivative with respect to the stride."""
    kept = tight_length(size, stride) if tight else kept_length(size, stride, smoothness)
    length = min(size, math.ceil(kept / multiple) * multiple) if crop else size
    if output is not None:
        kept = length = output
    gain = {"backward": 1.0, "ortho": math.sqrt(length / size), "forward": length / size}[norm]
    matrix, slope, on_kinks = np.zeros((length, size)), np.zeros((length, size)), []
    waves, highest = BASES[basis]
    for f, wave in waves(size, length):
        wave = wave * gain
        if smoothness == 0:
            matrix += wave * (f <= highest(kept))
            continue
        height, change = ramp(f, size, stride, smoothness, tight, offset, highest(size))
        matrix += min(1.0, max(0.0, height)) * wave
        change = change * wave
        if min(abs(height), abs(height - 1)) < 1e-9:
            on_kinks.append(change)
        elif 0 < height < 1:
            slope += change
    return Axis(matrix, slope, tuple(on_kinks))


def grown_length(size: int, stride: float, smoothness: float, tight: bool) -> int:
    """The shortest axis whose band holds the samples, counted up from these."""
    for length in itertools.count(size):
        band = length / stride + (0 if tight else 2 * smoothness)
        if band >= size or (tight and abs(band - size) <= band * 2**-23):
            return length
    raise AssertionError


def axis_up(
    size: int,
    stride: float,
    *,
    smoothness: float,
    offset: float,
    norm: str = "ortho",
    tight: bool = False,
    output: int | None = None,
    multiple: int = 1,
    basis: str = "fourier",
) -> Axis:
    """The matrix of one axis on its way up, and its derivative with respect to the stride.

    Every frequency that the samples have is put out as a wave on more of them; the window is that
    of the longer axis.
    """
    length = grown_length(size, stride, smoothness, tight)
    length = math.ceil(length / multiple) * multiple if output is None else output
    gain = {"backward": 1.0, "ortho": math.sqrt(length / size), "forward": length / size}[norm]
    matrix, slope, on_kinks = np.zeros((length, size)), np.zeros((length, size)), []
    waves, highest = BASES[basis]
    for f, wave in waves(size, length):
        wave = wave * gain
        if smoothness == 0:
            matrix += wave
            continue
        height, change = ramp(f, length, stride, smoothness, tight, offset, highest(length))
        matrix += min(1.0, max(0.0, height)) * wave
        change = change * wave
        if min(abs(height), abs(height - 1)) < 1e-9:
            on_kinks.append(change)
        elif 0 < height < 1:
            slope += change
    return Axis(matrix, slope, tuple(on_kinks))


def apply(matrices: list[Array], x: Array) -> Array:
    """Each matrix along its own of the last axes of ``x``."""
    for position, matrix in enumerate(matrices):
        dim = x.ndim - len(matrices) + position
        x = np.moveaxis(np.tensordot(matrix, x, axes=(1, dim)), 0, dim)
    return x


def forward(axes: list[Axis], x: Array) -> Array:
    return apply([a.matrix for a in axes], x)


def input_gradient(axes: list[Axis], g: Array) -> Array:
    """The gradient of sum(g·y) with respect to x."""
    return apply([a.matrix.T for a in axes], g)


def stride_gradients(axes: list[Axis], which: int, x: Array, g: Array) -> list[float]:
    """The gradient of sum(g·y) with respect to one stride.

    On a kink of the window it may be that of either side; then each possible value is listed.
    """

    def with_slope(slope: Array) -> float:
        matrices = [slope if i == which else a.matrix for i, a in enumerate(axes)]
        return float((g * apply(matrices, x)).sum())

    base = with_slope(axes[which].slope)
    extra = [with_slope(slope) for slope in axes[which].slopes_on_kinks]
    return [
        base + sum(chosen)
        for count in range(len(extra) + 1)
        for chosen in itertools.combinations(extra, count)
    ]
