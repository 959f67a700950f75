"""Layers that learn a stride through linear interpolation."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from diffstride.core.interpolation import (
    interpolate,
    interpolation_macs,
    learned_resize,
    places_between,
)
from diffstride.core.tracing import shape_of
from diffstride.core.whole_strides import strided_size
from diffstride.layers.diffstride import DiffStrideNd
from diffstride.layers.joined import PLANNED_FORWARDS
from diffstride.layers.resizer import Counted, Size
from diffstride.text import times


class LearnedResizeNd(DiffStrideNd):
    """A learnable resize on any number of axes: :func:`diffstride.functional.learned_resize`.

    What is said of the parameter of :class:`DiffStrideNd` holds of this one too.
    """

    is_planned = False

    def __init__(
        self,
        stride: float | Sequence[float] = 2.0,
        *,
        shared: bool = False,
        learnable: bool = True,
        min_stride: float = 1.0,
        max_stride: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            stride,
            smoothness=0.0,
            norm="forward",
            shared=shared,
            learnable=learnable,
            min_stride=min_stride,
            max_stride=max_stride,
            device=device,
            dtype=dtype,
        )

    def size_after(self, size: Sequence[int], strides: Sequence[float]) -> tuple[int, ...]:
        return strided_size(size, strides)

    def soft_size(self, size: Size, whole: Sequence[int], strides: Size) -> Size:
        return [n / s for n, s in zip(size, strides, strict=True)]

    def macs(self, channels: int, outputs: int, size: Size, kept: Size) -> Any:
        return channels * interpolation_macs(size, kept)

    def frozen(self, size: Sequence[int]) -> "FixedResize":
        return FixedResize(size, self.output_size(tuple(size)), self.differentiable_strides())

    def forward(self, x: Tensor) -> Tensor:
        self.check(x)
        size = shape_of(x)[-self.axes :]
        self.note(size)
        known = self.prepare(size)
        kept = self.size_after(size, self.project()) if known is None else known
        return learned_resize(x, self.differentiable_strides(), output_size=kept)

    def extra_repr(self) -> str:
        strides = ", ".join(f"{s:.4g}" for s in self.strides)
        text = f"stride=({strides}), learnable={self.stride.requires_grad}"
        for name, usual in (("shared", False), ("min_stride", 1.0), ("max_stride", None)):
            if getattr(self, name) != usual:
                text += f", {name}={getattr(self, name)!r}"
        return text


PLANNED_FORWARDS.append(LearnedResizeNd.forward)


class FixedResize(Counted):
    """Linear interpolation at places that stay: what freezing makes of a learned resize."""

    def __init__(self, size: Sequence[int], kept: Sequence[int], strides: Tensor) -> None:
        super().__init__()
        self.size, self.output_size = tuple(size), tuple(kept)
        for i, (n, m) in enumerate(zip(size, kept, strict=True)):
            before, part = places_between(n, m, strides[i].detach().double(), strides.device)
            self.register_buffer(f"before{i}", before)
            self.register_buffer(f"part{i}", part)

    def macs(self, channels: int, outputs: int, size: Size, kept: Size) -> Any:
        return channels * interpolation_macs(size, kept)

    def forward(self, x: Tensor) -> Tensor:
        for i, n in enumerate(self.size):
            if n > 1:
                before, part = self._buffers[f"before{i}"], self._buffers[f"part{i}"]
                assert before is not None and part is not None
                x = interpolate(x, i - len(self.size), before, part)
        return x

    def extra_repr(self) -> str:
        return f"{times(self.size)} → {times(self.output_size)}"


class LearnedResize1d(LearnedResizeNd):
    """A learnable resize of one axis; arguments as for :class:`LearnedResize2d`.

    >>> LearnedResize1d(2.5)(torch.rand(8, 16, 101)).shape
    torch.Size([8, 16, 41])
    """

    axes = 1


class LearnedResize2d(LearnedResizeNd):
    """Linear interpolation of images at places that lie a learnable stride apart.

    Input (batch, channels, H, W) or (channels, H, W), output ⌈H/S⌉ × ⌈W/S⌉. There is no filter
    before it: what is finer than the stride folds. What is computed:
    :func:`diffstride.functional.learned_resize`.

    Args:
        stride, shared, learnable, min_stride, max_stride: as for :class:`DiffStride2d`.
        device, dtype: of the parameter.

    Raises:
        ValueError: for an argument out of range; the message names it.

    >>> layer = LearnedResize2d((2.0, 1.6))
    >>> layer
    LearnedResize2d(stride=(2, 1.6), learnable=True)
    >>> layer(torch.rand(1, 3, 15, 32)).square().sum().backward()
    >>> layer.stride.grad.shape, layer.output_size((15, 32))
    (torch.Size([2]), (8, 20))
    """

    axes = 2


class LearnedResize3d(LearnedResizeNd):
    """A learnable resize of three axes; arguments as for :class:`LearnedResize2d`.

    >>> LearnedResize3d((1.0, 2.0, 2.0))(torch.rand(2, 4, 8, 16, 16)).shape
    torch.Size([2, 4, 8, 8, 8])
    """

    axes = 3
