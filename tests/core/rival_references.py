"""The methods of others as their papers define them: slow sums and loops over numpy arrays.

Each takes one example (channels, *spatial). Separable methods are written for one axis.
"""

import itertools
import math

import numpy as np


def along(one_axis, x, strides):
    """Apply a function of a vector and a stride to every line of every axis."""
    for axis, stride in enumerate(strides, 1):
        x = np.apply_along_axis(one_axis, axis, x, stride)
    return x


def blur(x, strides, taps):
    """A dense convolution with the rows of Pascal's triangle, on the reflected line, then a step.

    Reflected sample by sample: a step beyond an end is a step back.
    """
    kernel = [math.comb(taps - 1, k) / 2 ** (taps - 1) for k in range(taps)]

    def one_axis(line, stride):
        n = len(line)

        def at(place):
            while n > 1 and not 0 <= place < n:
                place = -place if place < 0 else 2 * (n - 1) - place
            return line[place] if n > 1 else line[0]

        left = (taps - 1) // 2
        dense = [sum(kernel[k] * at(i + k - left) for k in range(taps)) for i in range(n)]
        return np.array(dense[::stride])

    return along(one_axis, x, strides)


def low_cut(x, strides):
    """The sum over all kept frequencies, −M/2 … M/2, each with the phase that it has in between.

    The two outer ones of an even M are one frequency on M samples: each counts half.
    """

    def one_axis(line, stride):
        n = len(line)
        kept = -(-n // stride)
        made = np.zeros(kept, dtype=complex)
        for f in range(-(kept // 2), kept // 2 + 1):
            coefficient = sum(v * np.exp(-2j * np.pi * f * i / n) for i, v in enumerate(line)) / n
            half = 0.5 if kept % 2 == 0 and abs(f) == kept // 2 else 1.0
            for m in range(kept):
                made[m] += half * coefficient * np.exp(2j * np.pi * f * m / kept)
        assert np.abs(made.imag).max() < 1e-9 * max(1, np.abs(line).max())
        return made.real

    return along(one_axis, x, strides)


def polyphase(x, strides):
    """Every grid by itself, wrapped around where the axis ends; the largest sum of squares."""
    best, samples = -1.0, None
    for begins in itertools.product(*map(range, strides)):
        grid = x
        for axis, (p, s) in enumerate(zip(begins, strides, strict=True), 1):
            n = x.shape[axis]
            places = [(p + s * m) % n for m in range(-(-n // s))]
            grid = np.take(grid, places, axis)
        norm = float((grid.astype(np.float64) ** 2).sum())
        if norm > best:
            best, samples = norm, grid
    return samples


def resize(x, strides, size):
    """The line between the two samples that a place lies between."""

    def one_axis(line, job):
        stride, kept = job
        n = len(line)
        made = []
        for m in range(kept):
            place = min(max((n - 1) / 2 + stride * (m - (kept - 1) / 2), 0), n - 1)
            i = min(int(place), max(0, n - 2))
            t = place - i
            made.append((1 - t) * line[i] + t * line[min(i + 1, n - 1)])
        return np.array(made)

    return along(one_axis, x, list(zip(strides, size, strict=True)))


def adaptor(x, shares, largest, size, per_axis):
    """Both branches, each interpolated between the middles of its samples; then their mixture."""

    def pooled(line, k):
        return np.array([line[i : i + k].max() for i in range(0, len(line), k)])

    def interpolated(line, kept):
        n = len(line)
        made = []
        for m in range(kept):
            place = min(max((m + 0.5) * n / kept - 0.5, 0), n - 1)
            i = min(int(place), max(0, n - 2))
            t = place - i
            made.append((1 - t) * line[i] + t * line[min(i + 1, n - 1)])
        return np.array(made)

    def mixture(x, share, axes):
        ones = [largest if i in axes else 1 for i in range(len(size))]
        wanted = [size[i] if i in axes else n for i, n in enumerate(x.shape[1:])]
        smaller = along(interpolated, along(pooled, x, ones), wanted)
        return (1 - share) * smaller + share * along(interpolated, x, wanted)

    if not per_axis:
        return mixture(x, shares[0], range(len(size)))
    for axis, share in enumerate(shares):
        x = mixture(x, share, [axis])
    return x
