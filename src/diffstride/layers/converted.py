"""Layers of torch without their stride, followed by one that is learned: what conversion makes."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from diffstride.core.pooling import diff_stride
from diffstride.layers.diffstride import DiffStrideNd


class Converted(nn.Module):
    """Mixed into a layer of torch: it runs as ever, but without a stride, and then ``downsample``.

    The layer keeps its class, its parameters and their names. A state dict of the layer before it
    was converted has no learnable stride, and loads: the one that is there stays.
    """

    downsample: nn.Module
    shapes: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    """Before and after ``downsample`` in the last pass, for layers that follow this one."""

    downsample_first = False
    """Whether the order is the other one, which for some layers gives the same for less."""

    def forward(self, x: Tensor) -> Tensor:
        if self.downsample_first:
            found: Tensor = super().forward(self.downsample(x))
            return found
        before = super().forward(x)
        after: Tensor = self.downsample(before)
        self.shapes = tuple(before.shape), tuple(after.shape)
        return after

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        for name, parameter in self.downsample.named_parameters(prefix=f"{prefix}downsample"):
            state_dict.setdefault(name, parameter.detach())
        super()._load_from_state_dict(state_dict, prefix, *rest)


class Following(nn.Module):
    """Downsampling to the size that another layer has just made, for branches that meet.

    The stride is that of the other layer, times how much larger the input is here: both keep the
    same frequencies. It learns for both.
    """

    def __init__(self, leader: Converted, ratio: Sequence[float]) -> None:
        super().__init__()
        self._leader = [leader]  # in a list: it is a part of the network elsewhere already
        self.ratio = tuple(ratio)
        """Of the strides that both had before they were learned."""

    @property
    def leader(self) -> Converted:
        return self._leader[0]

    @property
    def whole_strides(self) -> tuple[int, ...]:
        """The strides next to what was learned that both layers could have had from the start."""
        assert isinstance(self.leader.downsample, DiffStrideNd)
        learned = self.leader.downsample.strides
        return tuple(
            max(1, round(max(1, round(s)) * r)) for s, r in zip(learned, self.ratio, strict=True)
        )

    def forward(self, x: Tensor) -> Tensor:
        layer = self.leader.downsample
        assert isinstance(layer, DiffStrideNd)
        assert self.leader.shapes is not None
        before, after = (shape[-layer.axes :] for shape in self.leader.shapes)
        size = tuple(x.shape[-layer.axes :])
        larger = [n / m for n, m in zip(size, before, strict=True)]
        stride = layer.in_range().expand(layer.axes)
        stride = (stride * stride.new_tensor(larger)).clamp(min=1)
        kept = tuple(min(n, m) for n, m in zip(size, after, strict=True))
        y = diff_stride(
            x,
            stride,
            smoothness=layer.smoothness,
            output_size=kept,
            norm=layer.norm,
            convention=layer.convention,
            path=layer.path,
        )
        if kept == after:
            return y
        # A branch that is smaller already: no stride makes it larger.
        mode = ("linear", "bilinear", "trilinear")[layer.axes - 1]
        return F.interpolate(y, after, mode=mode)


class ConvertedConv1d(Converted, nn.Conv1d): ...


class ConvertedConv2d(Converted, nn.Conv2d): ...


class ConvertedConv3d(Converted, nn.Conv3d): ...


class ConvertedMaxPool1d(Converted, nn.MaxPool1d): ...


class ConvertedMaxPool2d(Converted, nn.MaxPool2d): ...


class ConvertedMaxPool3d(Converted, nn.MaxPool3d): ...


class ConvertedAvgPool1d(Converted, nn.AvgPool1d): ...


class ConvertedAvgPool2d(Converted, nn.AvgPool2d): ...


class ConvertedAvgPool3d(Converted, nn.AvgPool3d): ...


class ConvertedIdentity(Converted, nn.Identity): ...


CONVERTED: dict[type[nn.Module], tuple[str, int, type[Converted]]] = {
    nn.Conv1d: ("conv", 1, ConvertedConv1d),
    nn.Conv2d: ("conv", 2, ConvertedConv2d),
    nn.Conv3d: ("conv", 3, ConvertedConv3d),
    nn.MaxPool1d: ("maxpool", 1, ConvertedMaxPool1d),
    nn.MaxPool2d: ("maxpool", 2, ConvertedMaxPool2d),
    nn.MaxPool3d: ("maxpool", 3, ConvertedMaxPool3d),
    nn.AvgPool1d: ("avgpool", 1, ConvertedAvgPool1d),
    nn.AvgPool2d: ("avgpool", 2, ConvertedAvgPool2d),
    nn.AvgPool3d: ("avgpool", 3, ConvertedAvgPool3d),
}
"""What can be converted: its kind, the number of its axes, and what it becomes."""
