"""Layers that downsample by a whole stride, by cutting the spectrum."""

import torch

from diffstride.core.rule import AxisPlan, plan
from diffstride.core.whole_strides import strided_size
from diffstride.layers.resizer import Size
from diffstride.layers.whole_stride import WholeStrideNd


class FrequencyLowCutNd(WholeStrideNd):
    """Frequency low-cut pooling: :func:`diffstride.functional.frequency_low_cut`."""

    is_planned = True
    method = "frequency low-cut pooling"

    def plans(self, size: Size, device: torch.device, known: Size | None = None) -> list[AxisPlan]:
        return plan(self.rule, size, 1.0, device, output_size=strided_size(size, self.stride))


class FrequencyLowCut1d(FrequencyLowCutNd):
    """Frequency low-cut pooling along one axis; arguments as for :class:`FrequencyLowCut2d`.

    >>> FrequencyLowCut1d(2)(torch.rand(8, 16, 101)).shape
    torch.Size([8, 16, 51])
    """

    axes = 1


class FrequencyLowCut2d(FrequencyLowCutNd):
    """Frequency low-cut pooling of images (Grabinski et al. 2022): the lowest frequencies alone.

    Input (batch, channels, H, W) or (channels, H, W), output ⌈H/S⌉ × ⌈W/S⌉. It has nothing to
    learn. What is computed: :func:`diffstride.functional.frequency_low_cut`.

    Args:
        stride: a whole number, one or one per axis.

    Raises:
        ValueError: if a stride is not whole.

    >>> layer = FrequencyLowCut2d(2)
    >>> layer, layer(torch.ones(1, 3, 15, 32)).shape
    (FrequencyLowCut2d(stride=(2, 2)), torch.Size([1, 3, 8, 16]))
    """

    axes = 2


class FrequencyLowCut3d(FrequencyLowCutNd):
    """Frequency low-cut pooling along three axes; arguments as for :class:`FrequencyLowCut2d`.

    >>> FrequencyLowCut3d((1, 2, 2))(torch.rand(2, 4, 8, 16, 16)).shape
    torch.Size([2, 4, 8, 8, 8])
    """

    axes = 3
