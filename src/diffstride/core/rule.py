"""What a downsampling is, apart from its stride, and the plan of each axis that follows from it.

The way up is the same with input and output exchanged: see ``Rule.way``.
"""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from diffstride.core import arguments, windows
from diffstride.core.bases import BASES, Basis
from diffstride.core.tracing import shape_of
from diffstride.core.windows import CONVENTIONS, WINDOWS

NORMS: dict[str, Callable[[int, int], float]] = {
    "ortho": lambda size, kept: math.sqrt(kept / size),
    "forward": lambda size, kept: kept / size,
    "backward": lambda size, kept: 1.0,
}
"""By name, what a transform pair without factors on its way in, 1/M on its way out, is multiplied
by. The names are those of ``torch.fft``: a constant comes out √(N/M) times as large with ``ortho``,
unchanged with ``forward`` and N/M times with ``backward``."""

CHOICES: dict[str, Collection[str]] = {
    "norm": NORMS,
    "convention": CONVENTIONS,
    "window": WINDOWS,
    "basis": BASES,
    "path": ("auto", "operator", "fft"),
    "way": ("down", "up", "any"),
}


REPLACING: dict[str, Any] = {"smoothness": 1.0, "convention": "tight"}
"""The defaults of what takes the place of a strided layer: it makes maps of the same size, and R is
the smallest with which a stride has a frequency to learn from wherever two samples are left
(docs/cost.md compares)."""


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
    way: str = "down"
    """Whether strides lead down or up: up, an axis gets the shortest length that would be brought
    back to its own, and the window is that of the way back. With "any", each axis goes where a
    given size lies."""

    def __post_init__(self) -> None:
        smoothness = arguments.to_numbers(self.smoothness, "smoothness")
        object.__setattr__(self, "smoothness", smoothness)  # as plain numbers
        numbers = smoothness if isinstance(smoothness, tuple) else (smoothness,)
        if not all(0 <= number < math.inf for number in numbers):
            raise ValueError(f"smoothness must be finite and at least 0, got {smoothness}")
        for name, choices in CHOICES.items():
            arguments.check_choice(getattr(self, name), choices, name)
        multiple, fixed = self.size_multiple, self.output_size is not None
        if not (isinstance(multiple, int) and multiple >= 1):
            raise ValueError(f"size_multiple must be a whole number of at least 1, got {multiple}")
        given = {"crop=False": not self.crop, "output_size": fixed, "size_multiple": multiple > 1}
        if not self.crop and self.way != "down":
            raise ValueError(
                "crop=False is for the way down: there is nothing to cut on the way up"
            )
        if sum(given.values()) > 1:
            raise ValueError(
                f"at most one of crop, output_size and size_multiple may say the output size, "
                f"got {' and '.join(name for name in given if given[name])}"
            )

    def widths(self, axes: int) -> list[float]:
        """Return over how many frequencies the window of each of so many axes falls."""
        smoothness = arguments.per_axis(self.smoothness, axes, "smoothness")
        return [WINDOWS[self.window].end(0.0, number) for number in smoothness]

    def band(self, size: Sequence[int], strides: Sequence[float]) -> tuple[int, ...]:
        """Return how many basis functions of each axis the window lets pass."""
        arguments.check_strides(strides)
        arguments.check_sizes(size)
        axes = zip(size, strides, self.widths(len(size)), strict=True)
        return tuple(windows.kept_length(*axis, CONVENTIONS[self.convention]) for axis in axes)

    def soft_size(self, size: Sequence[Any], strides: Sequence[Any]) -> list[Any]:
        """Return the size that goes with the strides before it is rounded and bounded."""
        axes = zip(size, strides, self.widths(len(size)), strict=True)
        convention = CONVENTIONS[self.convention]
        if self.way == "down":
            return [convention.band(*axis) for axis in axes]
        # Without room for a window, an axis stays as long as it is whatever the stride.
        return [
            convention.grown(n, s, r) if convention.is_tight or int(n) > 2 * r else n
            for n, s, r in axes
        ]

    def size_after(self, size: Sequence[int], strides: Sequence[float]) -> tuple[int, ...]:
        """Return the spatial size that comes out."""
        if self.output_size is not None:
            return arguments.fixed_size(size, self.output_size, self.way)
        if not self.crop:
            arguments.check_sizes(size)
            return tuple(size)
        step = self.size_multiple
        if self.way == "down":
            band = self.band(size, strides)
            return tuple(min(n, -(-m // step) * step) for n, m in zip(size, band, strict=True))
        arguments.check_strides(strides)
        arguments.check_sizes(size)
        axes = zip(size, strides, self.widths(len(size)), strict=True)
        grown = [windows.grown_length(*axis, CONVENTIONS[self.convention]) for axis in axes]
        return tuple(-(-m // step) * step for m in grown)


@dataclass(frozen=True)
class AxisPlan:
    """What happens to one axis: N samples become M, each frequency is multiplied by its weight.

    If M is larger than N, the frequencies that N samples don't have stay 0.
    """

    size: int
    kept: int
    weights: Tensor
    """One for each different frequency of the :attr:`functions`, norm included; more have no
    meaning."""
    gain: float
    """What a constant is multiplied by."""
    basis: Basis
    falls: Tensor | None = None
    """Which of the weights lie in the fall of the window and change with the stride, if known."""
    changes_nothing: bool = False
    """Whether the axis is known to stay as it is, so that nothing needs computing."""

    @property
    def functions(self) -> int:
        """How many functions carry what comes out: the lowest of the shorter end."""
        return self.kept if self.kept <= self.size else self.size

    @property
    def longest(self) -> int:
        """The length of the longer end."""
        return self.size if self.kept <= self.size else self.kept

    @property
    def per_function(self) -> Tensor:
        """The weight of each of the functions."""
        weights = self.weights
        if self.kept > self.size:
            weights = weights[: shape_of(self.basis.frequencies(self.size))[0]]
        return self.basis.per_function(weights, self.functions)


def plan(
    rule: Rule,
    size: Sequence[int],
    stride: arguments.Numbers,
    device: torch.device,
    *,
    numbers: Sequence[float] | None = None,
    output_size: arguments.Numbers | None = None,
) -> list[AxisPlan]:
    """Return the plan of each axis.

    Args:
        rule: how to downsample.
        size: the spatial size that comes in.
        stride: one for all axes or one for each; a tensor makes weights that are differentiable.
        device: of the data.
        numbers: the values of the strides, where they are known already: reading them is not free
            on an accelerator.
        output_size: the size that comes out, instead of what the rule says.
    """
    axes = len(size)
    widths = rule.widths(axes)
    if output_size is None:
        output_size = tuple(size) if not rule.crop and min(widths) > 0 else rule.output_size
    # With a fixed size nothing of the plan depends on the stride's value, and a compiler that can't
    # read it needn't.
    unread = output_size is not None and torch.compiler.is_compiling()
    if numbers is None:
        numbers = () if unread else arguments.per_axis(stride, axes, "stride")
    arguments.check_strides(numbers)
    if output_size is None:
        length = rule.size_after(size, numbers)
        band = rule.band(size, numbers) if rule.way == "down" else length
    elif isinstance(output_size, tuple) and unread:
        band = length = output_size
    else:
        band = length = arguments.fixed_size(size, output_size, rule.way)
    if isinstance(stride, Tensor):
        strides = list(stride.to(device).expand(axes).unbind())
    else:  # not torch.tensor, of which torch.jit.trace warns
        values = arguments.per_axis(stride, axes, "stride")
        strides = [torch.full((), s, dtype=window_dtype(device), device=device) for s in values]
    offsets = [0.0] * (axes - 1) + [CONVENTIONS[rule.convention].offset]
    plans = []
    for i, (n, m) in enumerate(zip(size, length, strict=True)):
        # The window lies on the longer end, and the shorter one has the frequencies.
        long, short = (n, m) if rule.way == "down" or m <= n else (m, n)
        weights, falls = axis_weights(rule, long, band[i], short, strides[i], widths[i], offsets[i])
        scale = NORMS[rule.norm](n, m)
        basis = BASES[rule.basis]
        # A graph that asked whether sizes are the same would be made again where they are not.
        stays = rule.way == "any" and not torch.compiler.is_compiling() and n == m
        plans.append(AxisPlan(n, m, weights * scale, scale * n / m, basis, falls, stays))
    return plans


def axis_weights(
    rule: Rule, size: int, band: int, length: int, stride: Tensor, width: float, offset: float
) -> tuple[Tensor, Tensor]:
    """Return the window of an axis of N samples, at the frequencies of ``length`` functions.

    Beside it, which of these lie in its fall. ``band`` is the kept length that goes with the
    stride: without a fall, it says what passes.
    """
    dtype, basis = window_dtype(stride.device), BASES[rule.basis]
    frequency = basis.frequencies(length).to(stride.device, dtype)
    stride = stride.to(dtype)
    if width == 0:
        # The stride has no part in it, but a gradient of 0 all the same: data-parallel training
        # takes a parameter without one for a mistake.
        kept = basis.is_kept(frequency, band)
        return kept.to(dtype) + 0 * stride, torch.zeros_like(kept)
    convention = CONVENTIONS[rule.convention]
    tight = convention.is_tight  # then the fall lies within the spectrum at any stride
    lowest = 1.0 if tight else windows.lowest_stride(size, width, offset, basis.highest(size))
    cutoff = size / (2 * held_in(stride, lowest, size)) + offset
    height = convention.height(frequency, as_meant(cutoff) if tight else cutoff, width, torch)
    fall = height.detach()
    return WINDOWS[rule.window].weight(height, torch), (fall >= 0) & (fall <= 1)


def as_meant(cutoff: Tensor) -> Tensor:
    """Return N/(2S) as it was before float32 rounded S: half of a whole number, if it is that near.

    A window that ends there ends with the size; see ``kept_length``.
    """
    exact = cutoff.detach()
    near = (2 * exact).round() / 2
    is_near = (near - exact).abs() <= windows.FLOAT32 * exact
    return torch.where(is_near, near - exact, 0.0) + cutoff


def held_in(stride: Tensor, lowest: float, highest: float | None) -> Tensor:
    """Return clamp(S, lowest, highest), with a gradient that passes straight through.

    A stride beyond what an input can use still learns which way to go. An infinite one comes out
    as the bound it is beyond, and has no gradient.

    >>> held_in(torch.tensor([0.5, 3.0, float("inf")]), 1.0, 8.0)
    tensor([1., 3., 8.])
    """
    # The sum is exact: its second term is 0.
    change = torch.where(stride.isfinite(), stride - stride.detach(), 0.0)
    return stride.detach().clamp(lowest, highest) + change


def window_dtype(device: torch.device) -> torch.dtype:
    """Return float64 where the device has it: on a long axis, float32 would be visible."""
    return torch.float32 if device.type == "mps" else torch.float64
