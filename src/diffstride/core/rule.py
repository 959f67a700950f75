"""What a downsampling is, apart from its stride: one value, checked once, passed whole."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from diffstride.core import arguments
from diffstride.core.bases import BASES
from diffstride.core.sizes import CONVENTIONS, NORMS, kept_length
from diffstride.core.windows import WINDOWS

PATHS = ("auto", "operator", "fft")


@dataclass(frozen=True)
class Rule:
    """How any axis is downsampled by any stride. Layers, functions and conversions share it.

    Raises:
        TypeError: if the smoothness is no number.
        ValueError: if a value is none of those that the docstring of
            :func:`diffstride.functional.diff_stride` gives; the message names it.

    >>> Rule(smoothness=1.0).size_after((32, 32), (2.0, 3.1))
    (18, 12)
    """

    smoothness: float | Sequence[float] = 4.0
    """R, for every axis or one for each."""
    crop: bool = True
    output_size: int | Sequence[int] | None = None
    """The size that comes out whatever the stride."""
    size_multiple: int = 1
    norm: str = "ortho"
    convention: str = "paper"
    window: str = "ramp"
    basis: str = "fourier"
    path: str = "auto"

    def __post_init__(self) -> None:
        smoothness = arguments.to_numbers(self.smoothness, "smoothness")
        object.__setattr__(self, "smoothness", smoothness)  # as plain numbers
        for number in smoothness if isinstance(smoothness, tuple) else [smoothness]:
            if not (math.isfinite(number) and number >= 0):
                raise ValueError(f"smoothness must be finite and at least 0, got {smoothness}")
        arguments.check_choice(self.norm, NORMS, "norm")
        arguments.check_choice(self.convention, CONVENTIONS, "convention")
        arguments.check_choice(self.window, WINDOWS, "window")
        arguments.check_choice(self.basis, BASES, "basis")
        arguments.check_choice(self.path, PATHS, "path")
        if not (isinstance(self.size_multiple, int) and self.size_multiple >= 1):
            raise ValueError(
                f"size_multiple must be a whole number of at least 1, got {self.size_multiple}"
            )
        given = {
            "crop=False": not self.crop,
            "output_size": self.output_size is not None,
            "size_multiple": self.size_multiple > 1,
        }
        if sum(given.values()) > 1:
            names = " and ".join(name for name, is_given in given.items() if is_given)
            raise ValueError(
                f"at most one of crop, output_size and size_multiple may say the output size, "
                f"got {names}"
            )

    def smoothness_of(self, axes: int) -> tuple[float, ...]:
        """Return R of each of so many axes."""
        return arguments.per_axis(self.smoothness, axes, "smoothness")

    def band(self, size: Sequence[int], strides: Sequence[float]) -> tuple[int, ...]:
        """Return how many basis functions of each axis the window lets pass."""
        arguments.check_strides(strides)
        arguments.check_sizes(size)
        shape = WINDOWS[self.window], CONVENTIONS[self.convention]
        axes = zip(size, strides, self.smoothness_of(len(size)), strict=True)
        return tuple(kept_length(n, s, smoothness, *shape) for n, s, smoothness in axes)

    def soft_size(self, size: Sequence[Any], strides: Sequence[Any]) -> list[Any]:
        """Return the size that goes with the strides before it is rounded and bounded."""
        window, convention = WINDOWS[self.window], CONVENTIONS[self.convention]
        axes = zip(size, strides, self.smoothness_of(len(size)), strict=True)
        return [convention.band(n, s, smoothness, window) for n, s, smoothness in axes]

    def size_after(self, size: Sequence[int], strides: Sequence[float]) -> tuple[int, ...]:
        """Return the spatial size that comes out."""
        if self.output_size is not None:
            return fixed_size(size, self.output_size)
        if not self.crop:
            arguments.check_sizes(size)
            return tuple(size)
        band = self.band(size, strides)
        step = self.size_multiple
        return tuple(min(n, -(-m // step) * step) for n, m in zip(size, band, strict=True))


def fixed_size(size: Sequence[int], wanted: arguments.Numbers) -> tuple[int, ...]:
    """Return an output size that was given, if an input of this size can be cut down to it."""
    arguments.check_sizes(size)
    kept = arguments.whole_numbers(wanted, len(size))
    if any(m > n for m, n in zip(kept, size, strict=True)):
        raise ValueError(
            f"output_size must not be larger than the input, got {kept} for {tuple(size)}"
        )
    return kept


def output_size(
    size: int | Sequence[int],
    stride: arguments.Numbers,
    *,
    smoothness: float | Sequence[float] = 4.0,
    crop: bool = True,
    size_multiple: int = 1,
    convention: str = "paper",
    window: str = "ramp",
) -> tuple[int, ...]:
    """Return the spatial size that :func:`diff_stride` makes of ``size``.

    With ``smoothness=0`` it is also the one that :func:`spectral_pool` makes.

    >>> output_size((32, 32), 2.0)
    (24, 24)
    >>> output_size((32, 32), (2.0, 3.1), smoothness=0)
    (16, 10)
    >>> output_size((32, 32), 2.1, size_multiple=8)
    (24, 24)
    >>> output_size((32, 32), 2.0, convention="tight")
    (16, 16)
    """
    spatial = (size,) if isinstance(size, int) else tuple(size)
    rule = Rule(smoothness, crop, None, size_multiple, convention=convention, window=window)
    strides = arguments.per_axis(stride, len(spatial), "stride")
    arguments.check_strides(strides)
    return rule.size_after(spatial, strides)
