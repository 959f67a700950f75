"""What finds the strides of each example."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from diffstride.core import arguments
from diffstride.core.resample import no_autocast


class StridePredictor(nn.Module):
    """Finds strides for each example, from what is left of it after pooling.

    1. of each channel, the mean of all samples, and along each axis the logarithm of how much
       neighbours differ (root of the mean square);
    2. of these numbers, how far each lies from its mean in the latest batches of training, in
       standard deviations;
    3. two linear layers with a tanh between, which put out u;
    4. S = min · (max/min)^sigmoid(u), for each axis.

    It starts at a constant: whatever the example, S is ``stride``.

    Args:
        channels: how many channels an example has.
        axes: how many spatial axes.
        stride: what all strides are before training, between the two ends of the range.
        min_stride, max_stride: the range, which strides never leave.
        hidden: how many numbers the first linear layer puts out.
        shared: one stride for all axes of an example.

    >>> StridePredictor(3, axes=2, stride=1.5)(torch.rand(4, 3, 16, 16)).shape
    torch.Size([4, 2])
    """

    def __init__(
        self,
        channels: int,
        axes: int,
        *,
        stride: float = 2.0,
        min_stride: float = 1.0,
        max_stride: float = 4.0,
        hidden: int = 16,
        shared: bool = False,
    ) -> None:
        super().__init__()
        arguments.check_strides((min_stride, max_stride), "min_stride and max_stride")
        if not min_stride < stride < max_stride:
            raise ValueError(
                f"stride must lie between min_stride={min_stride} and max_stride={max_stride}, "
                f"got {stride}"
            )
        self.channels, self.axes, self.shared = channels, axes, shared
        self.min_stride, self.max_stride = min_stride, max_stride
        self.head = nn.Sequential(
            nn.Linear(channels * (1 + axes), hidden), nn.Tanh(), nn.Linear(hidden, self._strides)
        )
        self.register_buffer("mean", torch.zeros(channels * (1 + axes)))
        self.register_buffer("spread", torch.ones(channels * (1 + axes)))
        self.register_buffer("batches", torch.zeros(()))
        last: Any = self.head[-1]
        share = math.log(stride / min_stride) / math.log(max_stride / min_stride)
        nn.init.zeros_(last.weight)
        nn.init.constant_(last.bias, math.log(share / (1 - share)))

    mean: Tensor
    spread: Tensor
    batches: Tensor

    @property
    def _strides(self) -> int:
        return 1 if self.shared else self.axes

    def features(self, x: Tensor) -> Tensor:
        """Return the numbers that strides are found from: (batch, channels · (1 + axes))."""
        x = x if x.dtype == torch.float64 else x.float()  # squares overflow in half precision
        pooled = [x.flatten(2).mean(-1)]
        for dim in range(-self.axes, 0):
            squares = x.diff(dim=dim).flatten(2).square() if x.shape[dim] > 1 else x.flatten(2) * 0
            pooled.append((squares.mean(-1) + 1e-8).log() / 2)
        return torch.cat(pooled, 1)

    def forward(self, x: Tensor) -> Tensor:
        arguments.check_tensor(x)
        if x.ndim != self.axes + 2 or x.shape[1] != self.channels or len(x) == 0:
            raise ValueError(
                f"input must be (batch, channels, *spatial) with {self.channels} channels, "
                f"{self.axes} spatial axes and at least one example, got {tuple(x.shape)}"
            )
        with no_autocast(x.device):  # sizes follow from strides, so that all digits count
            features = self.features(x)
            if self.training:
                self._remember(features.detach())
            standard = ((features - self.mean) / self.spread).to(self.mean.dtype)
            shares = self.head(standard).sigmoid()
            strides = self.min_stride * (self.max_stride / self.min_stride) ** shares
        return strides.expand(-1, self.axes)  # type: ignore[no-any-return]

    @torch.no_grad()
    def _remember(self, features: Tensor) -> None:
        """Move the mean and the spread a tenth of the way to a batch's; the first sets them.

        Numbers that are not finite are left out, or all strides would be NaN from then on.
        """
        features = torch.where(features.isfinite(), features, self.mean).to(self.mean.dtype)
        share = torch.where(self.batches == 0, 1.0, 0.1).to(self.mean)
        self.mean.lerp_(features.mean(0), share)
        self.spread.lerp_(features.std(0, correction=0) + 1e-3, share)
        self.batches += 1

    def extra_repr(self) -> str:
        return f"axes={self.axes}, min_stride={self.min_stride:g}, max_stride={self.max_stride:g}"
