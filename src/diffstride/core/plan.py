"""Plan what happens to each axis in plain numbers, before a tensor is touched."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from diffstride.core import arguments, sizes
from diffstride.core.bases import BASES, Basis
from diffstride.core.rule import Rule, fixed_size
from diffstride.core.windows import WINDOWS


@dataclass(frozen=True)
class AxisPlan:
    """What happens to one axis: N samples become M, each frequency is multiplied by its weight."""

    size: int
    kept: int
    weights: Tensor
    """One for each different frequency of the M lowest functions, norm included."""
    gain: float
    """What a constant is multiplied by."""
    basis: Basis

    @property
    def per_function(self) -> Tensor:
        """The weight of each of the M functions."""
        return self.basis.per_function(self.weights, self.kept)


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
    smoothness = rule.smoothness_of(axes)
    if output_size is None:
        output_size = tuple(size) if not rule.crop and min(smoothness) > 0 else rule.output_size
    # With a fixed size nothing of the plan depends on the stride's value, and a compiler that can't
    # read it needn't.
    unread = output_size is not None and torch.compiler.is_compiling()
    if numbers is None and not unread:
        numbers = arguments.per_axis(stride, axes, "stride")
    if numbers is not None:
        arguments.check_strides(numbers)
    if isinstance(output_size, tuple) and unread:
        band = length = output_size
    elif output_size is not None:
        band = length = fixed_size(size, output_size)
    else:
        assert numbers is not None
        band, length = rule.band(size, numbers), rule.size_after(size, numbers)
    if isinstance(stride, Tensor):
        strides = list(stride.to(device).expand(axes).unbind())
    else:  # not torch.tensor, of which torch.jit.trace warns
        values = arguments.per_axis(stride, axes, "stride")
        strides = [torch.full((), s, dtype=window_dtype(device), device=device) for s in values]
    plans = []
    for i, offset in enumerate(sizes.offsets(axes, rule.convention)):
        n, m = size[i], length[i]
        weights = axis_weights(rule, n, band[i], m, strides[i], smoothness[i], offset)
        scale = sizes.scale(n, m, rule.norm)
        plans.append(AxisPlan(n, m, weights * scale, scale * n / m, BASES[rule.basis]))
    return plans


def axis_weights(
    rule: Rule,
    size: int,
    band: int,
    length: int,
    stride: Tensor,
    smoothness: float,
    offset: float,
) -> Tensor:
    """Return the window of an axis of N samples, at the frequencies of ``length`` functions.

    ``band`` is the kept length that goes with the stride: without a fall, it says what passes.
    """
    dtype = window_dtype(stride.device)
    basis = BASES[rule.basis]
    frequency = basis.frequencies(length).to(stride.device, dtype)
    stride = stride.to(dtype)
    if smoothness == 0:
        # The stride has no part in it, but a gradient of 0 all the same: data-parallel training
        # takes a parameter without one for a mistake.
        return basis.is_kept(frequency, band).to(dtype) + 0 * stride
    window, convention = WINDOWS[rule.window], sizes.CONVENTIONS[rule.convention]
    highest = basis.highest(size)
    lowest = sizes.lowest_stride(size, smoothness, offset, window, convention, highest)
    cutoff = size / (2 * held_in(stride, lowest, size)) + offset
    if convention.is_tight:
        cutoff = as_meant(cutoff)
    height = convention.height(frequency, cutoff, smoothness, window, torch)
    weights: Tensor = window.weight(height, torch)
    return weights


def as_meant(cutoff: Tensor) -> Tensor:
    """Return N/(2S) as it was before float32 rounded S: half of a whole number, if it is that near.

    A window that ends there ends with the size; see ``kept_length``.
    """
    exact = cutoff.detach()
    near = (2 * exact).round() / 2
    is_near = (near - exact).abs() <= sizes.FLOAT32 * exact
    return torch.where(is_near, near - exact, 0.0) + cutoff


def held_in(stride: Tensor, lowest: float, highest: float | None) -> Tensor:
    """Return clamp(S, lowest, highest), with a gradient that passes straight through.

    A stride beyond what an input can use is still told which way to go. An infinite one comes out
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


def window(
    size: int,
    stride: float | Tensor,
    *,
    smoothness: float = 4.0,
    offset: float = 0.0,
    crop: bool = True,
    convention: str = "symmetric",
    window: str = "ramp",
) -> Tensor:
    """Return the window of one axis, for the frequencies 0, 1, … that are kept.

    1. M = ``output_size(size, stride)``, or N without ``crop``.
    2. S is clamped to what an axis of N samples can use, from S_min(N) to N.
    3. m(f) = clip((R + N/(2S) + δ − f) / R, 0, 1) for f = 0 … ⌊M/2⌋, or another window of that
       cut-off; for R = 0 it is 1 on the frequencies that are kept. A tight window ends at the
       cut-off: m(f) = clip((N/(2S) − f) / min(R, N/(2S)), 0, 1).

    Args:
        size: N, the length of the axis.
        stride: S, a number or a tensor with one; differentiable.
        smoothness: R, how many frequencies the fall takes.
        offset: δ; 1 on the last axis with ``convention="paper"``, else 0.
        crop: whether frequencies that are not kept are left out.
        convention: ``"tight"`` ends the fall at N/(2S), the others begin it there.
        window: as for :func:`diff_stride`.

    Returns:
        A vector of ⌊M/2⌋ + 1 values from 0 to 1, in the dtype of ``stride`` if it has one.

    >>> window(12, 3.0, smoothness=2.0)
    tensor([1.0000, 1.0000, 1.0000, 0.5000, 0.0000])
    """
    rule = Rule(smoothness, convention=convention, window=window)
    (kept,) = rule.band((size,), arguments.per_axis(stride, 1, "stride"))
    dtype = torch.get_default_dtype()
    if not isinstance(stride, Tensor):
        stride = torch.tensor(stride, dtype=torch.float64)
    elif stride.is_floating_point():
        dtype = stride.dtype
    length = kept if crop else size
    values = axis_weights(rule, size, kept, length, stride.reshape(()), float(smoothness), offset)
    return values.to(dtype)
