"""Layers of torch without their stride, followed by one that is learned: what conversion makes."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from diffstride.core.pooling import diff_stride
from diffstride.core.tracing import shape_of
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

    # Layers of torch call it "input", and may be called with its name.
    def forward(self, input: Tensor) -> Tensor:
        if self.downsample_first:
            found: Tensor = super().forward(self.downsample(input))
            return found
        before = super().forward(input)
        after: Tensor = self.downsample(before)
        self.shapes = shape_of(before), shape_of(after)
        return after

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        for name, parameter in self.downsample.named_parameters(prefix=f"{prefix}downsample"):
            state_dict.setdefault(name, parameter.detach())
        super()._load_from_state_dict(state_dict, prefix, *rest)


class Following(nn.Module):
    """Downsampling by the stride of another layer, for branches that meet.

    The layer that is followed, the leader, has the stride: it is a part of the network there, and
    only referred to here, so that it is saved and sent between processes once. It learns for both.

    Where both get maps of one size, this is the leader's downsampling, called again. Otherwise it
    makes the size that the leader has made just before, with the leader's stride times how much
    larger the input is here: both keep the same frequencies.

    Args:
        leader: the layer to follow.
        ratio: of the strides that both had before they were learned.
        same_size: whether both are given maps of one size, whatever the size of the input.
    """

    def __init__(self, leader: Converted, ratio: Sequence[float], same_size: bool = False) -> None:
        super().__init__()
        self._leader = [leader]  # in a list: as an attribute it would become a part of this one
        self.ratio = tuple(ratio)
        self.same_size = same_size

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
        if getattr(self, "_is_replica", False):
            raise RuntimeError(
                "nn.DataParallel copies every layer alone, and layers that share a stride can't "
                "find each other then: use nn.parallel.DistributedDataParallel, with one process "
                "for each device"
            )
        layer = self.leader.downsample
        if self.same_size:
            shared: Tensor = layer(x)
            return shared
        assert isinstance(layer, DiffStrideNd)
        assert self.leader.shapes is not None
        before, after = (shape[-layer.axes :] for shape in self.leader.shapes)
        size = shape_of(x)[-layer.axes :]
        larger = [n / m for n, m in zip(size, before, strict=True)]
        stride = layer.in_range().expand(layer.axes)
        stride = stride * stride.new_tensor(larger)
        # Not clamp: whether it passes a gradient at 1 itself differs between versions of torch.
        stride = stride.where(stride >= 1, torch.ones_like(stride))
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


def torch_class(module: nn.Module) -> type[nn.Module] | None:
    """The class of torch that a layer is of, if it is one that can be converted."""
    return next((kind for kind in type(module).__mro__ if kind in CONVERTED), None)


def whole_strides(module: nn.Module) -> tuple[int, ...]:
    """The strides of a layer of torch that can be converted, one for each axis."""
    base = torch_class(module)
    assert base is not None
    stride: Any = module.stride
    return tuple(stride) if isinstance(stride, tuple | list) else (stride,) * CONVERTED[base][1]
