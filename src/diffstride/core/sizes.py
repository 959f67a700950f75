"""Sizes, bounds and gains of the operator: plain numbers in, plain numbers out, without torch.

Everything that must be known before a tensor is touched is decided here, so that it can be tested
without tensors and read without knowing Fourier analysis.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from diffstride.core.windows import WINDOWS, Window

FLOAT32 = 2.0**-23
"""By how much a stride that is stored in float32 may differ from the number that was meant."""

NORMS: dict[str, Callable[[int, int], float]] = {
    "ortho": lambda size, kept: math.sqrt(kept / size),
    "forward": lambda size, kept: kept / size,
    "backward": lambda size, kept: 1.0,
}
"""By name, what a transform pair without factors on its way in, 1/M on its way out, is multiplied
by. The names are those of ``torch.fft``: a constant comes out √(N/M) times as large with ``ortho``,
unchanged with ``forward`` and N/M times with ``backward``."""


@dataclass(frozen=True)
class Convention:
    """Where the fall of a window lies, seen from the cut-off N/(2S), and the size that follows."""

    offset: float
    """δ, by how many frequencies the window of the last axis is wider than the others."""
    is_tight: bool
    """Whether the fall ends at the cut-off, instead of beginning there."""

    def band(self, size: Any, stride: Any, smoothness: float, window: Window) -> Any:
        """Return twice the frequency at which the window ends: the size before it is rounded.

        >>> CONVENTIONS["paper"].band(32, 2.0, 4.0, WINDOWS["ramp"])
        24.0
        >>> CONVENTIONS["tight"].band(32, 2.0, 4.0, WINDOWS["ramp"])
        16.0
        """
        cutoff = size / (2 * stride)
        return 2 * (cutoff if self.is_tight else window.end(cutoff, smoothness))

    def height(
        self, frequency: Any, cutoff: Any, smoothness: float, window: Window, library: Any
    ) -> Any:
        """Return how high frequencies lie in the fall: 1 where it begins and 0 where it ends.

        Both ends are exact, whatever R rounds to. A tight fall that is wider than the cut-off
        begins at frequency 0, so that constants pass.
        """
        width = window.end(0.0, smoothness)
        if not self.is_tight:
            return (width - (frequency - cutoff)) / width
        narrow = 1 - frequency / cutoff
        return library.where(cutoff <= width, narrow, (cutoff - frequency) / width)


CONVENTIONS = {
    "paper": Convention(1.0, False),
    "symmetric": Convention(0.0, False),
    "tight": Convention(0.0, True),
}
"""By the name that ``convention=`` takes. The last axis of the paper has the half spectrum, whose
window is one frequency wider."""

RAMP, PAPER = WINDOWS["ramp"], CONVENTIONS["paper"]


def kept_length(
    size: int,
    stride: float,
    smoothness: float,
    window: Window = RAMP,
    convention: Convention = PAPER,
) -> int:
    """Return M, the length of an axis after downsampling: twice the window's end, from 1 to N.

    It is ``floor(N/S + 2R)`` as in the paper, and ``floor(N/S)`` if the window is tight. There a
    stride counts as the number that it was before float32 rounded it: 48 at 2.4 become 20.

    >>> kept_length(32, 2.0, 4.0)
    24
    """
    band: float = convention.band(size, min(max(stride, 1.0), float(size)), smoothness, window)
    if convention.is_tight:
        band *= 1 + FLOAT32
    return max(1, math.floor(min(float(size), band)))


def lowest_stride(
    size: int,
    smoothness: float,
    offset: float,
    window: Window = RAMP,
    convention: Convention = PAPER,
    highest: float | None = None,
) -> float:
    """Return S_min(N), the stride at which the window is ½ at the highest frequency of the axis.

    Below it, the fall of the window would lie beyond the spectrum, where nothing is left to tell
    the stride to grow. Axes too short for such a stride get 1, and so do tight windows, which fall
    before the spectrum ends. The highest frequency is ⌊N/2⌋, as in the Fourier basis, unless given.

    >>> round(lowest_stride(32, 4.0, 0.0), 4)
    1.1429
    """
    highest = size // 2 if highest is None else highest
    half: float = highest - window.end(0.0, smoothness) / 2 - offset
    if convention.is_tight or half <= 0 or size / (2 * half) > size:
        return 1.0
    return size / (2 * half)


def offsets(axes: int, convention: str) -> tuple[float, ...]:
    """Return δ of each axis: that of the convention on the last axis, 0 on the others."""
    return (0.0,) * (axes - 1) + (CONVENTIONS[convention].offset,)


def scale(size: int, kept: int, norm: str) -> float:
    """Return what the operator is multiplied by in a norm; see ``NORMS``."""
    return NORMS[norm](size, kept)
