"""How much work a downsampling is, and which way to do it is the least."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from diffstride.core.bases import BASES, Basis
from diffstride.core.spectra import is_paired

Size = Sequence[Any]
# About where a matrix product and an FFT cross on a CPU (benchmarks/scaling.py); with several axes
# later, because an FFT along an inner axis is slower than along the last.
LONGEST_MATRIX_AXIS = 200
LONGEST_MATRIX_AXIS_OF_SEVERAL = 320
# How much longer a multiply-accumulate of resampling and one of convolving take than in a
# convolution of neighbours, about, on a CPU (benchmarks/conv.py): taps lie far apart, and on the
# spectrum there is one small product for each frequency, with a kernel's spectrum that is made for
# every batch.
SLOWER_BY = {"taps": (1, 2), "spectral": (2, 11)}


def by_fft(basis: Basis, size: int, path: str, axes: int) -> bool:
    """Return whether an axis is done by FFT instead of a matrix: the one place that chooses.

    ``size`` is that of the longer end, the input of an axis that shrinks.
    """
    if basis.transform is None:
        return False
    longest = LONGEST_MATRIX_AXIS if axes == 1 else LONGEST_MATRIX_AXIS_OF_SEVERAL
    return path == "fft" or (path == "auto" and size > longest)


def cheapest_order(size: Sequence[int], kept: Sequence[int]) -> list[int]:
    """Return the axes in the cheapest order: those that shrink most for their price first.

    >>> cheapest_order((32, 32), (24, 8))
    [1, 0]
    """
    return sorted(range(len(size)), key=lambda i: 1 / size[i] - 1 / kept[i])


class _Way(Protocol):
    """How axes are resampled, as rules say it."""

    @property
    def basis(self) -> str: ...
    @property
    def path(self) -> str: ...


def resampling_macs(
    size: Sequence[Any], kept: Sequence[Any], rule: _Way | None, axes: Sequence[bool] | None = None
) -> Any:
    """Return the multiply-accumulates that resampling one map takes, along all axes or some.

    Sizes may be whole, or numbers that know how they change with strides. An FFT counts as N·log₂N;
    without a rule, all axes are done by matrices.
    """
    current, total = list(size), 0
    for i in cheapest_order([int(n) for n in size], [int(m) for m in kept]):
        if axes is not None and not axes[i]:
            continue
        before = math.prod(current)
        current[i] = kept[i]
        longest = max(int(size[i]), int(kept[i]))
        if rule and by_fft(BASES[rule.basis], longest, rule.path, len(size)):
            total += fft_macs(int(size[i]), int(kept[i]), before, math.prod(current))
        else:
            total += before * kept[i]
    return total


def fft_macs(size: int, kept: int, before: Any, after: Any) -> Any:
    """Return the multiply-accumulates of an axis by FFT, for so many samples before and after."""
    return before * math.ceil(math.log2(size)) + after * math.ceil(math.log2(kept))


@dataclass(frozen=True)
class ConvolutionWork:
    """A convolution and a downsampling after it, of which the work is asked."""

    weight: tuple[int, ...]
    """The shape of the weight."""
    channels: int
    """How many come in."""
    basis: str
    path: str
    pointwise: tuple[bool, ...]
    """Along which axes the kernel does not extend."""
    reach: tuple[int, ...]
    """Over how many samples beyond one the kernel reaches; 0 for axes that wrap round."""

    def orders(self, full: Sequence[Any]) -> list[str]:
        """Return the orders that there are, for the size that the convolution makes."""
        found = ["after", "before"]
        if max(int(n) for n in full) <= LONGEST_MATRIX_AXIS_OF_SEVERAL:
            found.append("taps")
            if is_spectral(self.basis, full, self.reach):
                found.append("spectral")
        return found

    def of(self, order: str, size: Size, full: Size, kept: Size) -> tuple[Any, Any]:
        """Return the multiply-accumulates of resampling and of convolving one example.

        The sizes are those that come in, that the convolution makes, and that are left of it. They
        may be whole, or know how they change with strides.
        """
        outputs, per_group, *kernel = self.weight
        numbers, channels = math.prod(self.weight), self.channels
        if order == "after":
            return outputs * resampling_macs(full, kept, self), numbers * math.prod(full)
        if order == "before":
            both = zip(full, kept, self.pointwise, strict=True)
            early = [m if point else n for n, m, point in both]
            late = [not point for point in self.pointwise]
            resampling = channels * resampling_macs(full, early, self, self.pointwise)
            resampling += outputs * resampling_macs(early, kept, self, late)
            return resampling, numbers * math.prod(early)
        if order == "taps":
            spread = [k * m for k, m in zip(kernel, kept, strict=True)]
            return channels * resampling_macs(size, spread, None), numbers * math.prod(kept)
        return _spectral_work(channels, outputs, per_group, kernel, size, kept, self.reach)

    def cheapest(self, size: Size, full: Size, kept: Size) -> str:
        """Return the order that takes the least time, as far as the work tells."""
        best, least = "after", math.inf
        for order in self.orders(full):  # compilers stumble over min(..., key=...)
            resampling, convolving = self.of(order, size, full, kept)
            slower, slower_still = SLOWER_BY.get(order, (1, 1))
            time = slower * int(resampling) + slower_still * int(convolving)
            if time < least:
                best, least = order, time
        return best


def is_spectral(basis: str, full: Sequence[Any], reach: Sequence[int]) -> bool:
    """Return whether a convolution can be done on the spectrum (see core/spectral.py)."""
    longest = max(int(n) for n in full)
    fits = all(int(n) >= t for n, t in zip(full, reach, strict=True))
    return BASES[basis].wraps and fits and longest <= LONGEST_MATRIX_AXIS_OF_SEVERAL


def _spectral_work(
    channels: int,
    outputs: int,
    per_group: int,
    kernel: Sequence[int],
    size: Sequence[Any],
    kept: Sequence[Any],
    reach: Sequence[int],
) -> tuple[Any, Any]:
    """Return the same for a convolution on the spectrum, whose borders are ones of fewer axes."""
    # A cosine and a sine for each frequency, also where the sine is 0.
    parts = [m + (2 * (int(m) // 2 + 1) - int(m)) for m in kept]
    read: Any = 0
    written: Any = 0
    for i, part in enumerate(parts):
        read += math.prod([*parts[:i], *size[i:]]) * part
        written += math.prod([*parts[: i + 1], *kept[i:]])
    resampling = channels * read + outputs * written
    each = 2 ** len(kernel)  # parts of the input that each part of the output is made of
    if is_paired(each, per_group, outputs * per_group // channels):
        each = 2
    convolving = math.prod(parts) * each * per_group * outputs
    for i, (t, k) in enumerate(zip(reach, kernel, strict=True)):
        if t:
            fewer: Any = [[*every[:i], *every[i + 1 :]] for every in (kernel, size, kept)]
            fewer.append([*[0] * i, *reach[i + 1 :]])
            more = _spectral_work(channels * k, outputs, per_group * k, *fewer)
            both = channels * math.prod(size) + outputs * math.prod(kept)
            resampling += t * (both + more[0])
            convolving += t * more[1]
    return resampling, convolving
