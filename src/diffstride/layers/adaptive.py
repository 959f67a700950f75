"""Layers whose stride is found for each example: easy ones are made small, and cost less."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from diffstride.core.per_example import at_one_size, diff_stride_each, groups_by_size
from diffstride.core.rule import REPLACING, Rule
from diffstride.core.work import resampling_macs
from diffstride.layers.resizer import Counted, Size
from diffstride.layers.stride_predictor import StridePredictor


class AtOneSize(Counted):
    """Downsamples examples by strides of their own to one size, and says what that costs."""

    def __init__(self, rule: Rule) -> None:
        super().__init__()
        self.rule = rule

    def macs(self, channels: int, outputs: int, size: Size, kept: Size) -> Any:
        return channels * resampling_macs(size, kept, self.rule)

    def forward(self, x: Tensor, strides: Tensor, made: Sequence[int]) -> Tensor:
        return at_one_size(x, strides, self.rule, made)


class AdaptiveStrideNd(nn.Module):
    """Downsamples each example by strides that a :class:`StridePredictor` finds for it.

    In training mode all examples come out at the size of the smallest stride, and a larger one
    takes away frequencies alone: ``rest`` runs once. In eval mode each comes out at a size of its
    own, and ``rest`` runs once for each size: examples with larger strides cost less. What comes
    out of ``rest`` must have one size whatever comes in, as behind a global pooling.
    """

    axes: int

    def __init__(
        self,
        channels: int,
        rest: nn.Module | None = None,
        *,
        stride: float = 2.0,
        min_stride: float = 1.0,
        max_stride: float = 4.0,
        hidden: int = 16,
        shared: bool = False,
        budget: float | None = None,
        norm: str = "forward",
        **rule: Any,
    ) -> None:
        super().__init__()
        strides: Any = dict(stride=stride, min_stride=min_stride, max_stride=max_stride)
        self.predictor = StridePredictor(
            channels, self.axes, **strides, hidden=hidden, shared=shared
        )
        checked = Rule(**{**REPLACING, "norm": norm, **rule})
        if checked.output_size is not None or not checked.crop:
            raise ValueError(
                "output_size and crop=False are not for layers whose sizes are found for each "
                "example: leave them out, or use a DiffStride layer"
            )
        self.downsample = AtOneSize(checked)
        self.rest = rest
        self.in_groups: bool | None = None
        """Whether each example gets a size of its own; None: in eval mode alone."""
        lowest, highest = max_stride**-self.axes, min_stride**-self.axes
        if budget is not None and not lowest < budget < highest:
            raise ValueError(
                f"budget must lie between the shares of samples that the range of strides leaves, "
                f"{lowest:.3g} and {highest:.3g}, got {budget}"
            )
        self.budget = budget
        self.register_buffer("shift", torch.zeros(()))

    shift: Tensor
    """By how much logarithms of strides are moved for the budget: the mean of latest batches."""

    @property
    def rule(self) -> Rule:
        return self.downsample.rule

    def strides_of(self, x: Tensor) -> Tensor:
        """Return the strides of each example, (batch, axes), as the layer uses them now."""
        strides: Tensor = self.predictor(x)
        if self.budget is None:
            return strides
        if not self.training:
            return self._within(strides.log() + self.shift)
        shift = self._shift_to_budget(strides.log())
        with torch.no_grad():
            latest = torch.where(shift.isfinite(), shift, self.shift)
            self.shift.lerp_(latest.to(self.shift), 0.1)
        return self._within(strides.log() + shift)

    def forward(self, x: Tensor) -> Any:
        strides = self.strides_of(x)
        size = tuple(x.shape[2:])
        alone = not self.training if self.in_groups is None else self.in_groups
        if not alone:
            made = self.rule.size_after(size, (self.predictor.min_stride,) * self.axes)
            y = self.downsample(x, strides, made)
            return y if self.rest is None else self.rest(y)
        if self.rest is None:
            return diff_stride_each(x, strides, self.rule)
        groups = groups_by_size(size, strides.detach().tolist(), self.rule)
        outputs = []
        for made, members in groups.items():
            chosen = torch.tensor(members, device=x.device)
            outputs.append(self.rest(self.downsample(x[chosen], strides[chosen], made)))
        order = torch.tensor([i for members in groups.values() for i in members], device=x.device)
        return torch.cat(outputs)[order.argsort()]

    def _within(self, logarithms: Tensor) -> Tensor:
        return logarithms.exp().clamp(self.predictor.min_stride, self.predictor.max_stride)

    def _shift_to_budget(self, logarithms: Tensor) -> Tensor:
        """Return what all logarithms are to be moved by, for the batch to keep what it may.

        Its gradient is that of the budget: where some strides become smaller, others must grow.
        """
        assert self.budget is not None
        with torch.no_grad():
            range_ = math.log(self.predictor.max_stride / self.predictor.min_stride)
            low, high = logarithms.new_tensor([-range_, range_]).unbind()
            for _ in range(40):
                middle = (low + high) / 2
                is_above = self._kept(logarithms + middle) > self.budget
                low, high = torch.where(is_above, middle, low), torch.where(is_above, high, middle)
            step = 1e-3
            both = [self._kept(logarithms + middle + move) for move in (-step, step)]
            slope = ((both[1] - both[0]) / (2 * step)).clamp(max=-1e-6)
        # What is subtracted is 0, and changes with each logarithm as the root does.
        return middle - (self._kept(logarithms + middle) - self.budget) / slope

    def _kept(self, logarithms: Tensor) -> Tensor:
        """Return the share of samples that is kept, in the mean over a batch."""
        return self._within(logarithms).prod(-1).reciprocal().mean()

    def extra_repr(self) -> str:
        return "" if self.budget is None else f"budget={self.budget:g}"


class AdaptiveStride1d(AdaptiveStrideNd):
    """Strides for each signal; arguments as for :class:`AdaptiveStride2d`.

    >>> layer = AdaptiveStride1d(4, stride=2.0).eval()
    >>> [y.shape for y in layer(torch.rand(2, 4, 100))]
    [torch.Size([4, 50]), torch.Size([4, 50])]
    """

    axes = 1


class AdaptiveStride2d(AdaptiveStrideNd):
    """Strides for each image: what is easy is made small, and costs less.

    Args:
        channels: of what comes in.
        rest: what reads the images once they are downsampled, whatever their size: in eval mode it
            runs once for each size, and what it puts out for each example comes back in order. It
            should not mix examples, as batch normalisation does while training. Without it, eval
            mode returns a list, with one tensor for each example.
        stride: of all examples, before training.
        min_stride, max_stride: the range of strides.
        hidden, shared: as for :class:`StridePredictor`.
        budget: the share of samples that a batch keeps, in the mean over its examples: 0.25 is what
            stride 2 on two axes keeps. Convolutions in ``rest`` cost in proportion to it. In
            training mode all strides of a batch are moved by one factor so that it holds, and in
            eval mode by the mean factor of the latest batches: no example changes another.
        norm: as for :class:`DiffStride2d`; ``"forward"`` keeps values in one range at all sizes.
        rule: ``smoothness``, ``convention``, ``window``, ``basis``, ``path`` and ``size_multiple``,
            which makes groups fewer. Windows are tight and R is 1 unless given.

    >>> rest = nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    >>> layer = AdaptiveStride2d(3, rest, stride=2.0, size_multiple=4)
    >>> layer(torch.rand(5, 3, 32, 32)).shape, layer.eval()(torch.rand(5, 3, 32, 32)).shape
    (torch.Size([5, 8]), torch.Size([5, 8]))
    """

    axes = 2


class AdaptiveStride3d(AdaptiveStrideNd):
    """Strides for each volume or video; arguments as for :class:`AdaptiveStride2d`.

    >>> layer = AdaptiveStride3d(2, stride=2.0).eval()
    >>> [y.shape for y in layer(torch.rand(1, 2, 8, 16, 16))]
    [torch.Size([2, 4, 8, 8])]
    """

    axes = 3
