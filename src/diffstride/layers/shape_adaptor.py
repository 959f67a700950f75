"""Layers that learn by how much to downsample as the mixture of two branches."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from diffstride.core import arguments
from diffstride.core.rule import Rule
from diffstride.core.shape_adaptor import (
    adaptor_macs,
    check_largest,
    shape_adaptor,
    share_of,
    stride_of,
)
from diffstride.core.tracing import shape_of
from diffstride.core.whole_strides import strided_size
from diffstride.layers.diffstride import DiffStrideNd, Reading
from diffstride.layers.joined import PLANNED_FORWARDS
from diffstride.layers.resizer import Counted, Resizer, Size
from diffstride.text import times

EDGES = (0.05, 0.95)
"""Between which a share begins: at 0 and 1 a sigmoid has no gradient."""


class ShapeAdaptorNd(DiffStrideNd):
    """A shape adaptor on any number of axes: :func:`diffstride.functional.shape_adaptor`.

    What is learned is ``alpha``. The stride is computed from it, S = 1/(1/K + (1 − 1/K)·σ) with
    σ = sigmoid(alpha): it has a gradient, so that a cost may be in the loss, but can't be set.
    """

    is_planned = False

    def __init__(
        self,
        stride: float | Sequence[float] = 2.0,
        *,
        per_axis: bool = False,
        max_stride: float | None = None,
        learnable: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        Resizer.__init__(self)
        self.rule = Rule(0.0, norm="forward")
        initial = arguments.per_axis(stride, self.axes, "stride")
        arguments.check_strides(initial)
        if len(set(initial)) > 1 and not per_axis:
            raise ValueError(
                f"stride must be the same on all axes, got {initial}: a shape adaptor has one "
                f"factor for all, unless it is made with per_axis=True"
            )
        largest = math.floor(max(initial)) + 1 if max_stride is None else max_stride
        check_largest(largest)
        if not max(initial) <= largest:
            raise ValueError(f"stride must be at most max_stride={largest}, got {initial}")
        self.shared = not per_axis
        self.min_stride, self.max_stride = 1.0, float(largest)
        self._initial = initial
        values = torch.empty(1 if self.shared else self.axes, device=device, dtype=dtype)
        self.alpha = nn.Parameter(values, requires_grad=learnable)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        low, high = EDGES
        shares = [min(max(share_of(s, self.largest), low), high) for s in self._initial]
        values = [math.log(share / (1 - share)) for share in shares[: self.alpha.numel()]]
        with torch.no_grad():
            self.alpha.copy_(torch.tensor(values, dtype=torch.float64, device="cpu"))
        strides = tuple(stride_of(share, self.largest) for share in shares)
        self._reading = Reading(None, -1, strides[: self.alpha.numel()], strides)

    @property
    def largest(self) -> int:
        """K, the stride at which the smaller branch is all."""
        assert self.max_stride is not None
        return int(self.max_stride)

    @property
    def share(self) -> Tensor:
        """σ, the share of the larger branch."""
        return self.alpha.sigmoid()

    @property
    def stride(self) -> Tensor:  # type: ignore[override]
        """The strides, one for all axes or one for each, computed from the share."""
        return stride_of(self.share, self.largest)  # type: ignore[no-any-return]

    def scale_stride(self, factor: float) -> None:
        Resizer.scale_stride(self, factor)

    def size_after(self, size: Sequence[int], strides: Sequence[float]) -> tuple[int, ...]:
        return strided_size(size, strides)

    def soft_size(self, size: Size, whole: Sequence[int], strides: Size) -> Size:
        return [n / s for n, s in zip(size, strides, strict=True)]

    def macs(self, channels: int, outputs: int, size: Size, kept: Size) -> Any:
        return channels * adaptor_macs(size, kept, self.largest, self.shared)

    def frozen(self, size: Sequence[int]) -> "FixedMixture":
        share = self.share.detach()[0] if self.shared else self.share.detach()
        return FixedMixture(share, self.largest, size, self.output_size(tuple(size)))

    def forward(self, x: Tensor) -> Tensor:
        self.check(x)
        size = shape_of(x)[-self.axes :]
        self.note(size)
        known = self.prepare(size)
        kept = self.size_after(size, self.project()) if known is None else known
        share = self.share[0] if self.shared else self.share
        return shape_adaptor(x, share, largest=self.largest, output_size=kept)

    def extra_repr(self) -> str:
        strides = ", ".join(f"{s:.4g}" for s in self.strides)
        text = f"stride=({strides}), learnable={self.alpha.requires_grad}"
        return f"{text}, per_axis={not self.shared}, max_stride={self.largest}"


PLANNED_FORWARDS.append(ShapeAdaptorNd.forward)


class FixedMixture(Counted):
    """The mixture of both branches at one size: what freezing makes of a shape adaptor."""

    def __init__(
        self, share: Tensor, largest: int, size: Sequence[int], kept: Sequence[int]
    ) -> None:
        super().__init__()
        self.size, self.output_size, self.largest = tuple(size), tuple(kept), largest
        self.register_buffer("share", share.clone())  # exporters stumble over views

    def macs(self, channels: int, outputs: int, size: Size, kept: Size) -> Any:
        return channels * adaptor_macs(size, kept, self.largest, self._share.ndim == 0)

    @property
    def _share(self) -> Tensor:
        share = self._buffers["share"]
        assert share is not None
        return share

    def forward(self, x: Tensor) -> Tensor:
        return shape_adaptor(x, self._share, largest=self.largest, output_size=self.output_size)

    def extra_repr(self) -> str:
        return f"{times(self.size)} → {times(self.output_size)}"


class ShapeAdaptor1d(ShapeAdaptorNd):
    """A shape adaptor of one axis; arguments as for :class:`ShapeAdaptor2d`.

    >>> ShapeAdaptor1d(2.5)(torch.rand(8, 16, 101)).shape
    torch.Size([8, 16, 41])
    """

    axes = 1


class ShapeAdaptor2d(ShapeAdaptorNd):
    """A shape adaptor of images (Liu et al. 2020): a smaller map and the map itself, mixed.

    Input (batch, channels, H, W) or (channels, H, W), output ⌈s·H⌉ × ⌈s·W⌉. What is computed:
    :func:`diffstride.functional.shape_adaptor`.

    Args:
        stride: 1/s to begin with, one number or one per axis. It begins where the larger branch has
            a share from 0.05 to 0.95, for at the ends of its range nothing could be learned.
        per_axis: whether every axis has a factor of its own; one for all, as in the paper,
            otherwise.
        max_stride: K, the whole number that the smaller branch pools by, and the largest stride;
            the next one above the stride unless given. The paper has 2.
        learnable: False makes the factor a constant.
        device, dtype: of the parameter.

    Raises:
        ValueError: for an argument out of range; the message names it.

    Attributes:
        alpha: the parameter, with one element in all, or one per axis.

    >>> layer = ShapeAdaptor2d(2.0)
    >>> layer
    ShapeAdaptor2d(stride=(2, 2), learnable=True, per_axis=False, max_stride=3)
    >>> layer(torch.rand(1, 3, 15, 32)).square().sum().backward()
    >>> layer.alpha.grad.shape, layer.output_size((15, 32))
    (torch.Size([1]), (8, 16))
    """

    axes = 2


class ShapeAdaptor3d(ShapeAdaptorNd):
    """A shape adaptor of three axes; arguments as for :class:`ShapeAdaptor2d`.

    >>> ShapeAdaptor3d((1.5, 2.0, 2.0), per_axis=True)(torch.rand(2, 4, 8, 16, 16)).shape
    torch.Size([2, 4, 6, 8, 8])
    """

    axes = 3
