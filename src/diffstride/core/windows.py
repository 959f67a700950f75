"""Windows: low-pass shapes whose width follows the stride.

A window is 1 up to some frequency and falls to 0 over the next R. It moves when the stride does,
and what it weighs differently then is all that a stride ever learns from. A window is half way down
in the middle of its fall. Where the fall lies is up to the convention; see :mod:`sizes`.

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

    weight: Callable[[Any, Any], Any]
    """From heights, 1 where the fall begins and 0 where it ends, and the library: the weights."""
    end: Callable[[Any, float], Any]
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


def after_the_beginning(beginning: Any, smoothness: float) -> Any:
    """Return the end of a window that falls over R frequencies."""
    return beginning + smoothness


WINDOWS = {
    "ramp": Window(ramp, after_the_beginning),
    "raised_cosine": Window(raised_cosine, after_the_beginning),
}
"""By the name that ``window=`` takes; the ramp is the paper's."""
