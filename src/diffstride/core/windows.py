"""Windows: low-pass shapes whose width follows the stride.

A window is 1 up to its cut-off and falls to 0 over the next R frequencies. It moves when the stride
does, and what it weighs differently then is all that a stride ever learns from. A window is half
way down in the middle of its fall.

To add one, write its two functions and put it into ``WINDOWS``. Nothing here needs torch: the
functions take the array library to compute with, which is torch for layers and numpy for pictures.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Window:
    """A window by two functions."""

    weight: Callable[[Any, Any, float, Any], Any]
    """From frequencies (0 or more), the cut-off, R above 0, and the array library: the weights."""
    end: Callable[[Any, float], Any]
    """From the cut-off and R: the frequency at which the weight has become 0."""


def ramp(frequency: Any, cutoff: Any, smoothness: float, library: Any) -> Any:
    """Return clip((R + cutoff − f) / R, 0, 1), whose gradient includes both ends of the ramp.

    >>> import torch
    >>> ramp(torch.arange(6.0), 2.0, 2.0, torch)
    tensor([1.0000, 1.0000, 1.0000, 0.5000, 0.0000, 0.0000])
    """
    # In this order a frequency at the cut-off is exactly at the ramp's end, whatever R rounds to.
    height = (smoothness - (frequency - cutoff)) / smoothness
    # Not torch.clamp: whether it passes a gradient at its bounds depends on the version of torch,
    # and at whole N/(2S), where most strides begin, only the ends of the ramp may hold a frequency.
    return library.where(height < 0, 0.0, library.where(height > 1, 1.0, height))


def raised_cosine(frequency: Any, cutoff: Any, smoothness: float, library: Any) -> Any:
    """Return (1 + cos πt) / 2 for a frequency that is the part t of the fall beyond the cut-off.

    Its slope is 0 at both ends of the fall, so that nothing jumps when a frequency enters or leaves
    it. At a whole cut-off a stride learns from R = 2 on: before, only the ends hold a frequency.

    >>> import torch
    >>> raised_cosine(torch.arange(6.0), 2.0, 2.0, torch)
    tensor([1.0000, 1.0000, 1.0000, 0.5000, 0.0000, 0.0000])
    """
    fallen = 1 - ramp(frequency, cutoff, smoothness, library)
    return (1 + library.cos(math.pi * fallen)) / 2


def after_the_cutoff(cutoff: Any, smoothness: float) -> Any:
    """Return the end of a window that falls over the R frequencies behind its cut-off."""
    return cutoff + smoothness


WINDOWS = {
    "ramp": Window(ramp, after_the_cutoff),
    "raised_cosine": Window(raised_cosine, after_the_cutoff),
}
"""By the name that ``window=`` takes; the ramp is the paper's."""
