"""Windows, low-pass shapes whose width follows the stride, and the sizes that follow from them.

A window is 1 up to some frequency and falls to 0 over the next R. It moves when the stride does,
and what it weighs differently then is all that a stride ever learns from. A window is half way down
in the middle of its fall. Where the fall lies is up to the convention.

To add one, write its two functions and put it into ``WINDOWS``. Nothing here needs torch: sizes are
plain numbers, and windows take the array library, torch for layers and numpy for pictures.
"""

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

FLOAT32 = 2.0**-23
"""By how much a stride that is stored in float32 may differ from the number that was meant."""


@dataclass(frozen=True)
class Window:
    """A window by two functions."""

    weight: Callable[[Any, Any], Any]
    """From heights, 1 where the fall begins and 0 where it ends, and the library: the weights. They
    are constant before and after the fall."""
    end: Callable[[Any, float], Any] = operator.add
    """From the frequency where the fall begins, and R: the frequency where it ends."""


def ramp(height: Any, library: Any) -> Any:
    """Return clip(height, 0, 1), whose gradient includes both ends of the ramp.

    >>> import torch
    >>> ramp(torch.tensor([1.5, 1.0, 0.5, 0.0, -0.5]), torch)
    tensor([1.0000, 1.0000, 0.5000, 0.0000, 0.0000])
    """
    # Not torch.clamp: whether it passes a gradient at its bounds depends on the version of torch,
    # and at whole N/(2S), where most strides begin, only the ends of the ramp may hold a frequency.
    return library.where(height < 0, 0.0, library.where(height > 1, 1.0, height))


def raised_cosine(height: Any, library: Any) -> Any:
    """Return (1 − cos πh) / 2 for a frequency of the height h, clipped like the ramp.

    Its slope is 0 at both ends of the fall, so that nothing jumps when a frequency enters or leaves
    it. At a whole N/(2S) a stride learns from R = 2 on: before, only the ends hold a frequency.

    >>> import torch
    >>> raised_cosine(torch.tensor([1.5, 1.0, 0.5, 0.0, -0.5]), torch)
    tensor([1.0000, 1.0000, 0.5000, 0.0000, 0.0000])
    """
    return (1 - library.cos(math.pi * ramp(height, library))) / 2


WINDOWS = {"ramp": Window(ramp), "raised_cosine": Window(raised_cosine)}
"""By the name that ``window=`` takes; the ramp is the paper's."""


@dataclass(frozen=True)
class Convention:
    """Where the fall of a window lies, seen from the cut-off N/(2S), and the size that follows."""

    offset: float
    """δ, by how many frequencies the window of the last axis is wider than the others."""
    is_tight: bool
    """Whether the fall ends at the cut-off, instead of beginning there."""

    def band(self, size: Any, stride: Any, width: float) -> Any:
        """Return twice the frequency at which a fall of this width ends: the size, not rounded.

        >>> [CONVENTIONS[name].band(32, 2.0, width=4.0) for name in ("paper", "tight")]
        [24.0, 16.0]
        """
        cutoff = size / (2 * stride)
        return 2 * (cutoff if self.is_tight else cutoff + width)

    def grown(self, size: Any, stride: Any, width: float) -> Any:
        """Return the size whose :meth:`band` is ``size``, not rounded: how far a stride leads up.

        >>> [CONVENTIONS[name].grown(24, 2.0, width=4.0) for name in ("paper", "tight")]
        [32.0, 48.0]
        """
        return (size if self.is_tight else size + -2 * width) * stride

    def height(self, frequency: Any, cutoff: Any, width: float, library: Any) -> Any:
        """Return how high frequencies lie in the fall: 1 where it begins and 0 where it ends.

        Both ends are exact, whatever R rounds to. A tight fall that is wider than the cut-off
        begins at frequency 0, so that constants pass.
        """
        if not self.is_tight:
            return (width - (frequency - cutoff)) / width
        narrow = 1 - frequency / cutoff
        return library.where(cutoff <= width, narrow, (cutoff - frequency) / width)


PAPER = Convention(1.0, False)
CONVENTIONS = {"paper": PAPER, "symmetric": Convention(0.0, False), "tight": Convention(0.0, True)}
"""By the name that ``convention=`` takes. The last axis of the paper has the half spectrum, whose
window is one frequency wider."""


def kept_length(size: int, stride: float, width: float, convention: Convention = PAPER) -> int:
    """Return M, the length of an axis after downsampling: twice the window's end, from 1 to N.

    It is ``floor(N/S + 2R)`` as in the paper, and ``floor(N/S)`` if the window is tight. There a
    stride counts as the number that it was before float32 rounded it: 48 at 2.4 become 20.

    >>> kept_length(32, 2.0, width=4.0)
    24
    """
    band = _meant_band(size, min(max(stride, 1.0), float(size)), width, convention)
    return max(1, math.floor(min(float(size), band)))


def grown_length(size: int, stride: float, width: float, convention: Convention = PAPER) -> int:
    """Return M, the length of an axis of N samples on its way up.

    It is the shortest whose band, M/S + 2R or M/S if the window is tight, holds N samples, so that
    the way down leads back to N: ⌈S·(N − 2R)⌉, or ⌈S·N⌉. It is at least N: an axis of 2R samples
    or less has no room for a window that is not tight, and stays as long as it is.

    >>> grown_length(24, 2.0, width=4.0)
    32
    >>> grown_length(21, 1.5, width=1.0, convention=CONVENTIONS["tight"])
    32
    """
    stride = max(stride, 1.0)
    longest: float = convention.grown(size, stride, width)
    shortest = math.floor(longest / (1 + FLOAT32) if convention.is_tight else longest)
    if _meant_band(shortest, stride, width, convention) < size:
        shortest += 1
    return max(size, shortest)


def _meant_band(size: int, stride: float, width: float, convention: Convention) -> float:
    """Return twice the frequency at which the window ends, in float32's favour if it is tight."""
    band: float = convention.band(size, stride, width)
    return band * (1 + FLOAT32) if convention.is_tight else band


def lowest_stride(size: int, width: float, offset: float, highest: float | None = None) -> float:
    """Return S_min(N), the stride at which the window is ½ at the highest frequency of the axis.

    Below it, the fall of the window would lie beyond the spectrum, where nothing is left to tell
    the stride to grow. Axes too short for such a stride get 1. The highest frequency is ⌊N/2⌋, as
    in the Fourier basis, unless given.

    >>> round(lowest_stride(32, width=4.0, offset=0.0), 4)
    1.1429
    """
    half = (size // 2 if highest is None else highest) - width / 2 - offset
    return 1.0 if half <= 0 or size / (2 * half) > size else size / (2 * half)
