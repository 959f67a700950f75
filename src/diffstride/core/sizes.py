"""Sizes, bounds and gains of the operator: plain numbers in, plain numbers out, without torch.

Everything that must be known before a tensor is touched is decided here, so that it can be tested
without tensors and read without knowing Fourier analysis.
"""

import math
from collections.abc import Callable

from diffstride.core.windows import WINDOWS, Window

RAMP = WINDOWS["ramp"]

CONVENTIONS = {"paper": 1.0, "symmetric": 0.0}
"""By name, by how many frequencies the window of the last axis is wider: the δ of the paper, whose
last axis has the half spectrum."""

NORMS: dict[str, Callable[[int, int], float]] = {
    "ortho": lambda size, kept: math.sqrt(kept / size),
    "forward": lambda size, kept: kept / size,
    "backward": lambda size, kept: 1.0,
}
"""By name, what a transform pair without factors on its way in, 1/M on its way out, is multiplied
by. The names are those of ``torch.fft``: a constant comes out √(N/M) times as large with ``ortho``,
unchanged with ``forward`` and N/M times with ``backward``."""


def kept_length(size: int, stride: float, smoothness: float, window: Window = RAMP) -> int:
    """Return M, the length of an axis after downsampling: twice the window's end, from 1 to N.

    With the windows of the paper it is ``floor(N/S + 2R)``.

    >>> kept_length(32, 2.0, 4.0)
    24
    """
    stride = min(max(stride, 1.0), float(size))
    end: float = window.end(size / (2 * stride), smoothness)
    return max(1, math.floor(min(float(size), 2 * end)))


def lowest_stride(
    size: int,
    smoothness: float,
    offset: float,
    window: Window = RAMP,
    highest: float | None = None,
) -> float:
    """Return S_min(N), the stride at which the window is ½ at the highest frequency of the axis.

    Below it, the fall of the window would lie beyond the spectrum, where nothing is left to tell
    the stride to grow. Axes too short for such a stride get 1. The highest frequency is that of the
    Fourier basis, ⌊N/2⌋, unless given.

    >>> round(lowest_stride(32, 4.0, 0.0), 4)
    1.1429
    """
    highest = size // 2 if highest is None else highest
    half: float = highest - window.end(0.0, smoothness) / 2 - offset
    if half <= 0 or size / (2 * half) > size:
        return 1.0
    return size / (2 * half)


def offsets(axes: int, convention: str) -> tuple[float, ...]:
    """Return δ of each axis: that of the convention on the last axis, 0 on the others."""
    return (0.0,) * (axes - 1) + (CONVENTIONS[convention],)


def scale(size: int, kept: int, norm: str) -> float:
    """Return what the operator is multiplied by in a norm; see ``NORMS``."""
    return NORMS[norm](size, kept)
