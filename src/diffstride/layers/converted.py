"""Layers of torch without their stride, followed by one that is learned: what conversion makes."""

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from diffstride.core import arguments
from diffstride.core.conv import work_of
from diffstride.core.interpolation import interpolation_macs
from diffstride.core.maxima import max_pool
from diffstride.core.rule import AxisPlan, Rule, plan
from diffstride.core.tracing import is_followed, shape_of
from diffstride.layers.diffstride import DiffStrideNd
from diffstride.layers.joined import (
    PLANNED_FORWARDS,
    can_join,
    in_cheapest_order,
    is_layer_seen,
)
from diffstride.layers.resizer import AxisConstants, Resizer, Size
from diffstride.layers.siblings import Siblings
from diffstride.layers.size_read import SizeRead

LARGEST_BYTES = 2**28  # of the matrix of an axis that is interpolated


class Converted(nn.Module):
    """A layer of torch that runs as ever, but without a stride, and then ``downsample``.

    It is mixed into the layer's class, so that parameters keep their names and ``isinstance`` its
    answers. A state dict from before it was converted loads: the stride that is there stays.
    """

    converted_from: type[nn.Module]
    downsample: nn.Module
    sizes: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    """Before and after ``downsample`` in the pass that is running, for layers that follow."""
    downsample_first = False
    """Whether ``downsample`` comes before the layer instead."""
    size_read: SizeRead | None = None
    """Where the size is noted that the layer itself reads, if another layer goes back to it."""
    siblings: Siblings | None = None
    """Other convolutions of the same map with the same stride, to be run as one with them."""

    # Layers of torch call it "input", and may be called with its name.
    def forward(self, input: Tensor) -> Tensor:
        if self.size_read is not None:
            resizer: Any = self.downsample
            self.size_read.note(shape_of(input)[-resizer.axes :])
        if self.downsample_first:
            after: Tensor = self.downsample(input)
            self.sizes = shape_of(input), shape_of(after)
            return super().forward(after)  # type: ignore[no-any-return]
        layer: Any = self.downsample
        # Only the plain order refuses replicas, and compilers find an order for themselves.
        others = "_conv_forward" in vars(self) or getattr(layer, "_is_replica", False)
        if self.is_reorderable and not (others or is_followed() or is_layer_seen(layer)):
            if self.siblings is not None:
                after = self.siblings.run(self, input)
            else:
                after = in_cheapest_order(self, layer, input)
            shape, size = shape_of(after), shape_of(input)[-layer.axes :]
            before = (*shape[: -layer.axes], *self.size_before_downsampling(size))
            self.sizes = before, shape
            return after
        pools = isinstance(self, nn.MaxPool2d | nn.MaxPool3d)
        batched = input.ndim == 4 + isinstance(self, nn.MaxPool3d)
        if pools and batched and input.is_contiguous():
            whole = max_pool(input, super().forward)
            after = layer(whole).contiguous()
        else:
            whole = super().forward(input)
            after = layer(whole)
        self.sizes = shape_of(whole), shape_of(after)
        return after

    @property
    def is_reorderable(self) -> bool:
        """Whether this is a convolution that may be run in another order for the same numbers."""
        return not self.downsample_first and can_join(self, self.downsample)

    def work(self, channels: int, size: Size, kept: Size) -> tuple[Any, Any]:
        """Return the multiply-accumulates of resampling and of convolving an example."""
        convolution: Any = self
        full = tuple(n + -k for n, k in zip(size, shortening(self, len(size)), strict=True))
        if self.siblings is not None:
            return self.siblings.work(self, channels, size, full, kept)
        return work_of(convolution, convolution.downsample.rule, channels, size, full, kept)

    def size_before_downsampling(self, size: Sequence[int]) -> tuple[int, ...]:
        """Return the spatial size that the layer makes itself of an input of this size."""
        return tuple(n - k for n, k in zip(size, shortening(self, len(size)), strict=True))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        for name, parameter in self.downsample.named_parameters(prefix=f"{prefix}downsample"):
            state_dict.setdefault(name, parameter.detach())
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def __reduce_ex__(self: Any, protocol: Any) -> Any:
        # Pickles name classes by where they are written, and these are written nowhere.
        state = self.__getstate__() if hasattr(self, "__getstate__") else vars(self)
        return _empty_converted, (self.converted_from,), state


@functools.cache
def converted_class(kind: Any) -> type[Any]:
    """Return a class of torch, or one derived from it, with :class:`Converted` mixed in."""
    return type(f"Converted{kind.__name__}", (Converted, kind), {"converted_from": kind})


def _empty_converted(kind: Any) -> Any:
    return object.__new__(converted_class(kind))


CONVERTED: dict[type[nn.Module], tuple[str, int, type[Any]]] = {
    kind: (name.lower(), axes, converted_class(kind))
    for name in ("Conv", "MaxPool", "AvgPool")
    for axes in (1, 2, 3)
    for kind in [getattr(nn, f"{name}{axes}d")]
}
"""What can be converted: its kind, the number of its axes, and what it becomes."""


class Following(Resizer):
    """Downsampling by the stride of another layer, for branches that meet.

    The layer that is followed, the leader, has the stride: it belongs to the network there, and is
    only referred to here, so that it is saved and sent between processes once. It learns for both.
    Should a layer with a fixed stride take the place of the leader's downsampling, it is followed.

    Where both get maps of one size, this is the leader's downsampling, called again. Otherwise it
    makes the size that the leader has made just before, with the leader's stride times how much
    larger the input is here: both keep the same frequencies. ``ratio`` is that of the strides that
    both had before they were learned.
    """

    follows = True

    def __init__(self, leader: Converted, ratio: Sequence[float], same_size: bool = False) -> None:
        super().__init__()
        self._leader = [leader]  # in a list: as an attribute it would be registered here too
        self.ratio = tuple(ratio)
        self.same_size = same_size
        self.counts = not same_size
        self.axes = self.leading.axes

    @property
    def leader(self) -> Converted:
        return self._leader[0]

    @property
    def leading(self) -> Resizer:
        assert isinstance(self.leader.downsample, Resizer)
        return self.leader.downsample

    @property
    def is_planned(self) -> bool:  # type: ignore[override]
        return self.same_size and self.leading.is_planned

    @property
    def stride_owner(self) -> DiffStrideNd | None:
        return self.leading.stride_owner

    @property
    def rule(self) -> Rule:  # type: ignore[override]
        return self.leading.rule

    @property
    def strides(self) -> tuple[float, ...]:
        """Those of the leader; for maps of another size, what goes with these in whole numbers."""
        if self.same_size:
            return self.leading.strides
        both = zip(self.leading.strides, self.ratio, strict=True)
        return tuple(float(max(1, round(max(1, round(s)) * r))) for s, r in both)

    def _sizes(self) -> list[tuple[int, ...]]:
        """Return the spatial sizes before and after the leader's downsampling."""
        assert self.leader.sizes is not None
        return [shape[-self.axes :] for shape in self.leader.sizes]

    def plans(self, size: Size, device: torch.device, known: Size | None = None) -> list[AxisPlan]:
        if self.same_size:
            return self.leading.plans(size, device)
        before, after = self._sizes()
        kept = tuple(min(n, m) for n, m in zip(size, after, strict=True))
        if self.stride_owner is None:
            # Of a window without a fall, the size says all.
            return plan(self.rule, size, (1.0,) * self.axes, device, output_size=kept)
        stride = self.stride_owner.differentiable_strides()
        stride = stride * stride.new_tensor([n / m for n, m in zip(size, before, strict=True)])
        # Not clamp: whether it passes a gradient at 1 itself differs between versions of torch.
        stride = stride.where(stride >= 1, torch.ones_like(stride))
        return plan(self.rule, size, stride, device, output_size=kept)

    def forward(self, x: Tensor) -> Tensor:
        if getattr(self, "_is_replica", False):
            raise RuntimeError(
                "nn.DataParallel copies every layer alone, so that layers can't share a stride: "
                "use nn.parallel.DistributedDataParallel, with one process for each device"
            )
        if self.same_size:
            self.note(shape_of(x)[-self.axes :])
            return self.leading.again(x)
        _, after = self._sizes()
        if self.leading.is_planned:
            y = super().forward(x)
        else:  # it has no frequencies that both could keep
            self.check(x)
            self.note(shape_of(x)[-self.axes :])
            y = x
        # A branch that is smaller already: no stride makes it larger.
        return y if shape_of(y)[-self.axes :] == after else _interpolate(y, after)

    def macs(self, channels: int, outputs: int, size: Size, kept: Size) -> Any:
        if self.leading.is_planned:
            return super().macs(channels, outputs, size, kept)
        return channels * interpolation_macs(size, kept)

    def frozen(self, size: Sequence[int]) -> nn.Module | None:
        made = self.leading.frozen(size) if self.same_size else None
        return self if made is self.leading else made

    def constants(self, size: Sequence[int], like: Tensor) -> list[AxisConstants]:
        if self.leading.is_planned:
            axes = super().constants(size, like)
        else:
            axes = [AxisConstants(n, n) for n in size]
        if self.same_size:
            return axes
        _, after = self._sizes()
        return [lengthened(axis, m, like) for axis, m in zip(axes, after, strict=True)]


PLANNED_FORWARDS.append(Following.forward)


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
            f"its matrix would have {axis.size * size / 1e6:.0f} million numbers: freeze it for "
            f"shorter inputs, or convert it so that no branch is shorter than the one it meets"
        )
    samples = torch.eye(axis.kept, dtype=like.dtype, device=like.device)
    longer = _interpolate(samples[None], (size,))[0].mT
    return AxisConstants(axis.size, size, axis.gain, matrix=longer @ axis.dense(like))


def torch_class(module: nn.Module) -> type[nn.Module] | None:
    """Return the class of torch that a layer is of, if it is one that can be converted."""
    return next((kind for kind in type(module).__mro__ if kind in CONVERTED), None)


def shortening(module: nn.Module, axes: int) -> tuple[int, ...]:
    """Return by how many samples a layer without its stride makes each axis shorter."""
    if getattr(module, "padding", 0) == "same":
        return (0,) * axes
    usual = {"kernel_size": 1, "padding": 0, "dilation": 1}
    given = {name: getattr(module, name, value) for name, value in usual.items()}
    if given["padding"] == "valid":
        given["padding"] = 0
    sizes = (arguments.per_axis(value, axes, name) for name, value in given.items())
    return tuple(int(d * (k - 1) - 2 * p) for k, p, d in zip(*sizes, strict=True))


def recast(module: nn.Module, kind: type[Any]) -> Any:
    """Return a module of another class that has all that this one has: tensors, layers, hooks."""
    made: Any = object.__new__(kind)
    vars(made).update(vars(module))
    vars(made).pop("siblings", None)  # which know the other module
    return made


def whole_strides(module: nn.Module) -> tuple[int, ...]:
    """Return the strides of a layer of torch that can be converted, one for each axis."""
    base = torch_class(module)
    assert base is not None
    stride: Any = module.stride
    return tuple(stride) if isinstance(stride, tuple | list) else (stride,) * CONVERTED[base][1]
