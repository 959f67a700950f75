"""Layers that downsample behind a binomial filter."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from diffstride.core.blur import TAPS, blur_macs, blur_pool, check_taps
from diffstride.core.tracing import shape_of
from diffstride.layers.joined import PLANNED_FORWARDS
from diffstride.layers.resizer import Size
from diffstride.layers.whole_stride import WholeStrideNd


class BlurPoolNd(WholeStrideNd):
    """Blur pooling on any number of axes: :func:`diffstride.functional.blur_pool`."""

    method = "blur pooling"

    def __init__(self, stride: int | Sequence[int] = 2, *, taps: int = TAPS) -> None:
        super().__init__(stride)
        check_taps(taps)
        self.taps = taps

    def macs(self, channels: int, outputs: int, size: Size, kept: Size) -> Any:
        return channels * blur_macs(size, kept, self.taps)

    def frozen(self, size: Sequence[int]) -> "BlurPoolNd":
        return self

    def forward(self, x: Tensor) -> Tensor:
        self.check(x)
        self.note(shape_of(x)[-self.axes :])
        return blur_pool(x, self.stride, taps=self.taps)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, taps={self.taps}"


PLANNED_FORWARDS.append(BlurPoolNd.forward)


class BlurPool1d(BlurPoolNd):
    """Blur pooling along one axis; arguments as for :class:`BlurPool2d`.

    >>> import torch
    >>> BlurPool1d(4, taps=5)(torch.rand(8, 16, 101)).shape
    torch.Size([8, 16, 26])
    """

    axes = 1


class BlurPool2d(BlurPoolNd):
    """Blur pooling of images (Zhang 2019): a binomial filter, of which one of S samples is kept.

    Input (batch, channels, H, W) or (channels, H, W), output ⌈H/S⌉ × ⌈W/S⌉. It has nothing to
    learn. What is computed: :func:`diffstride.functional.blur_pool`.

    Args:
        stride: a whole number, one or one per axis.
        taps: the length of the filter: 2 for ½ ½, 3 for ¼ ½ ¼, and so on.

    Raises:
        ValueError: if a stride is not whole, or ``taps`` not a whole number of at least 1.

    >>> import torch
    >>> layer = BlurPool2d(2)
    >>> layer, layer(torch.ones(1, 3, 15, 32)).shape
    (BlurPool2d(stride=(2, 2), taps=3), torch.Size([1, 3, 8, 16]))
    """

    axes = 2


class BlurPool3d(BlurPoolNd):
    """Blur pooling along three axes; arguments as for :class:`BlurPool2d`.

    >>> import torch
    >>> BlurPool3d((1, 2, 2))(torch.rand(2, 4, 8, 16, 16)).shape
    torch.Size([2, 4, 8, 8, 8])
    """

    axes = 3
