"""The operator of a layer in numpy, for pictures: what it keeps of an axis, and what it drops.

Sizes and windows are those of the library, whose operator is for tensors: reports do without torch.
"""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from diffstride.core.windows import CONVENTIONS, kept_length, lowest_stride, ramp

Array: TypeAlias = NDArray[np.float64]


def window(
    size: int,
    stride: float,
    smoothness: float,
    offset: float,
    length: int,
    convention: str = "paper",
    share: float = 1.0,
) -> Array:
    """Return the weights m(f) of an axis of ``size`` samples, for the frequencies 0 … ⌊length/2⌋.

    They are frequencies of this share of the axis: of half of it, 1 stands for 2 of the whole.

    >>> window(12, 3.0, smoothness=2.0, offset=0.0, length=8)
    array([1. , 1. , 1. , 0.5, 0. ])
    """
    frequency = np.arange(length // 2 + 1, dtype=np.float64) / share
    if smoothness == 0:
        return (2 * frequency <= kept_length(size, stride, 0.0)).astype(np.float64)
    rule = CONVENTIONS[convention]
    lowest = 1.0 if rule.is_tight else lowest_stride(size, smoothness, offset)
    stride = min(max(stride, lowest), float(size))
    cutoff = size / (2 * stride) + offset
    weights: Array = ramp(rule.height(frequency, cutoff, smoothness, np), np)
    return weights


def resample(x: Array, axis: int, kept: int, weights: Array) -> Array:
    """The lowest ``kept`` frequencies of an axis, weighted, on as many samples; the mean stays.

    >>> resample(np.array([1.0, 1.0, 1.0, 1.0]), 0, 2, np.ones(2))
    array([1., 1.])
    """
    x = np.moveaxis(x, axis, -1)
    spectrum = np.fft.rfft(x)[..., : kept // 2 + 1] * weights[: kept // 2 + 1]
    if kept % 2 == 0 and kept < x.shape[-1]:
        spectrum[..., -1] = spectrum[..., -1].real  # the sine of M/2 is 0 on M points
    samples: Array = np.fft.irfft(spectrum, n=kept) * (kept / x.shape[-1])
    return np.moveaxis(samples, -1, axis)


def downsample(
    image: Array,
    axis: int,
    stride: float,
    smoothness: float,
    offset: float,
    convention: str = "paper",
    size: int | None = None,
    share: float = 1.0,
) -> Array:
    """Return what a layer makes of an image along an axis; the mean stays.

    If the image is but a share of what the layer gets, ``size`` samples in all, so is what comes
    out.
    """
    size = image.shape[axis] if size is None else size
    kept = kept_length(size, stride, smoothness, CONVENTIONS[convention])
    length = min(image.shape[axis], part(kept, share))
    weights = window(size, stride, smoothness, offset, length, convention, share)
    return resample(image, axis, length, weights)


def part(size: int, share: float) -> int:
    """How many samples a share of so many are; halves are rounded up, as browsers do.

    >>> part(5, 0.5), part(4, 0.5), part(3, 0.1)
    (3, 2, 1)
    """
    return max(1, math.floor(size * share + 0.5))


def fit(image: Array, sizes: Sequence[int]) -> Array:
    """An image brought down to ``sizes`` by keeping its low frequencies alone."""
    for axis, size in enumerate(sizes):
        kept = min(size, image.shape[axis])
        image = resample(image, axis, kept, np.ones(kept // 2 + 1))
    return image


def spectrum(examples: Sequence[Any], axis: int) -> Array:
    """The strength of each frequency along an axis, the mean over examples, in dB below the peak.

    The frequencies are those of the longest example, from 0 to half of its samples.
    """
    longest = max(np.shape(example)[axis] for example in examples)
    frequency, strengths = np.arange(longest // 2 + 1) / longest, []
    for example in examples:
        values = np.moveaxis(np.asarray(example, dtype=np.float64), axis, -1)
        there = values.shape[-1]
        amplitude = np.abs(np.fft.rfft(values)).reshape(-1, there // 2 + 1)
        strength = np.sqrt(np.mean(amplitude**2, axis=0))
        strengths.append(np.interp(frequency, np.arange(there // 2 + 1) / there, strength))
    mean = np.mean(strengths, axis=0)
    peak = mean[1:].max(initial=0.0) or 1.0  # the mean of an example is no detail to be lost
    decibels: Array = 20 * np.log10(np.maximum(mean / peak, 1e-6))
    return decibels
