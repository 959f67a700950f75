"""Layers of torch without their stride, followed by one that is learned: what conversion makes."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from diffstride.core import arguments
from diffstride.core.plan import AxisPlan, plan
from diffstride.core.rule import Rule
from diffstride.core.tracing import shape_of
from diffstride.layers.constants import AxisConstants
from diffstride.layers.diffstride import DiffStrideNd
from diffstride.layers.resizer import Resizer

# How large the matrix of an axis may be that is interpolated.
LARGEST_BYTES = 2**28


class Converted(nn.Module):
    """A layer of torch that runs as ever, but without a stride, and then ``downsample``.

    It is mixed into the layer's own class, so that parameters keep their names and ``isinstance``
    its answers. A state dict of the layer before it was converted has no learnable stride, and
    loads: the one that is there stays.
    """

    downsample: nn.Module
    sizes: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    """Before and after ``downsample`` in the pass that is running, for layers that follow."""

    downsample_first = False
    """Whether the order is the other one, which for some layers gives the same for less."""

    # Layers of torch call it "input", and may be called with its name.
    def forward(self, input: Tensor) -> Tensor:
        if self.downsample_first:
            result: Tensor = super().forward(self.downsample(input))
            return result
        before = super().forward(input)
        after: Tensor = self.downsample(before)
        self.sizes = shape_of(before), shape_of(after)
        return after

    def size_before_downsampling(self, size: Sequence[int]) -> tuple[int, ...]:
        """Return the spatial size that the layer makes itself of an input of this size."""
        return tuple(n - k for n, k in zip(size, shortening(self, len(size)), strict=True))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        for name, parameter in self.downsample.named_parameters(prefix=f"{prefix}downsample"):
            state_dict.setdefault(name, parameter.detach())
        super()._load_from_state_dict(state_dict, prefix, *rest)


class Following(Resizer):
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
    def stride_owner(self) -> DiffStrideNd:
        assert isinstance(self.leader.downsample, DiffStrideNd)
        return self.leader.downsample

    @property
    def follows(self) -> bool:
        return True

    @property
    def counts(self) -> bool:
        return not self.same_size

    @property
    def axes(self) -> int:  # type: ignore[override]
        return self.stride_owner.axes

    @property
    def rule(self) -> Rule:  # type: ignore[override]
        return self.stride_owner.rule

    @property
    def strides(self) -> tuple[float, ...]:
        """The strides next to what was learned that both layers could have had from the start."""
        pairs = zip(self.stride_owner.strides, self.ratio, strict=True)
        return tuple(float(max(1, round(max(1, round(s)) * r))) for s, r in pairs)

    def _sizes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the spatial sizes before and after the leader's downsampling."""
        assert self.leader.sizes is not None
        before, after = (shape[-self.axes :] for shape in self.leader.sizes)
        return before, after

    def plans(
        self, size: Sequence[int], device: torch.device, known: tuple[int, ...] | None = None
    ) -> list[AxisPlan]:
        if self.same_size:
            return self.stride_owner.plans(size, device)
        before, after = self._sizes()
        larger = [n / m for n, m in zip(size, before, strict=True)]
        stride = self.stride_owner.differentiable_strides()
        stride = stride * stride.new_tensor(larger)
        # Not clamp: whether it passes a gradient at 1 itself differs between versions of torch.
        stride = stride.where(stride >= 1, torch.ones_like(stride))
        kept = tuple(min(n, m) for n, m in zip(size, after, strict=True))
        return plan(self.rule, size, stride, device, output_size=kept)

    def forward(self, x: Tensor) -> Tensor:
        if getattr(self, "_is_replica", False):
            raise RuntimeError(
                "nn.DataParallel copies every layer alone, and layers that share a stride can't "
                "find each other then: use nn.parallel.DistributedDataParallel, with one process "
                "for each device"
            )
        if self.same_size:
            shared: Tensor = self.stride_owner(x)
            return shared
        y = super().forward(x)
        _, after = self._sizes()
        # A branch that is smaller already: no stride makes it larger.
        return y if shape_of(y)[-self.axes :] == after else _interpolate(y, after)

    def constants(self, size: Sequence[int], like: Tensor) -> list[AxisConstants]:
        axes = super().constants(size, like)
        if self.same_size:
            return axes
        _, after = self._sizes()
        return [lengthened(axis, m, like) for axis, m in zip(axes, after, strict=True)]


def _interpolate(x: Tensor, size: Sequence[int]) -> Tensor:
    mode = ("linear", "bilinear", "trilinear")[len(size) - 1]
    return F.interpolate(x, tuple(size), mode=mode)


def lengthened(axis: AxisConstants, size: int, like: Tensor) -> AxisConstants:
    """Return what happens to an axis that is made as long as the leader's in the end."""
    if axis.kept == size:
        return axis
    if axis.size * size * like.element_size() > LARGEST_BYTES:
        raise ValueError(
            f"an axis of {axis.size} samples is interpolated to {size}, which no filter does, and "
            f"its matrix would have {axis.size * size / 1e6:.0f} million numbers: convert the "
            f"network so that no branch is shorter than the one it meets, or freeze it for shorter "
            f"inputs"
        )
    samples = torch.eye(axis.kept, dtype=like.dtype, device=like.device)
    longer = _interpolate(samples[None], (size,))[0].mT
    return AxisConstants(axis.size, size, axis.gain, matrix=longer @ axis.dense(like))


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


def shortening(module: nn.Module, axes: int) -> tuple[int, ...]:
    """Return by how many samples a layer without its stride makes each axis shorter."""
    if getattr(module, "padding", 0) == "same":
        return (0,) * axes

    def per_axis(name: str, otherwise: int) -> tuple[int, ...]:
        value = getattr(module, name, otherwise)
        value = 0 if value == "valid" else value
        return tuple(int(number) for number in arguments.per_axis(value, axes, name))

    kernel, padding, dilation = (
        per_axis(name, otherwise)
        for name, otherwise in (("kernel_size", 1), ("padding", 0), ("dilation", 1))
    )
    return tuple(d * (k - 1) - 2 * p for k, p, d in zip(kernel, padding, dilation, strict=True))


def recast(module: nn.Module, kind: type[Any]) -> Any:
    """Return a module of another class that has all that this one has: tensors, parts and hooks."""
    made: Any = object.__new__(kind)
    vars(made).update(vars(module))
    return made


def whole_strides(module: nn.Module) -> tuple[int, ...]:
    """The strides of a layer of torch that can be converted, one for each axis."""
    base = torch_class(module)
    assert base is not None
    stride: Any = module.stride
    return tuple(stride) if isinstance(stride, tuple | list) else (stride,) * CONVERTED[base][1]
