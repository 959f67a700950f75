"""Downsampling by constants: what freezing makes of layers that have learned all they will."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from diffstride.core import bases
from diffstride.core.resample import resample
from diffstride.core.rule import AxisPlan
from diffstride.core.work import cheapest_order
from diffstride.layers import block_products
from diffstride.layers.resizer import AxisConstants, Counted, Size, dense, work
from diffstride.text import times


class Frozen(Counted):
    """Downsampling by constants, for inputs of one size.

    Each axis has a matrix (M × N) of transform, window and crop, or if it is long, weights for an
    FFT, or neither if nothing happens to it. They get the dtype and device of ``like``.
    """

    done_before = False
    """Whether a convolution in front of it, here or in one of its places, does its work: then what
    has the size that it makes passes."""

    def __init__(self, axes: Sequence[AxisConstants], like: Tensor) -> None:
        super().__init__()
        self.size = tuple(axis.size for axis in axes)
        self.output_size = tuple(axis.kept for axis in axes)
        self.work = work(axes)  # multiply-accumulates of one channel
        self._bases = [axis.basis for axis in axes]
        for i, axis in enumerate(axes):
            for name, values in (("matrix", axis.matrix), ("weights", axis.weights)):
                self.register_buffer(f"{name}{i}", None if values is None else values.to(like))

    def is_done(self, size: Sequence[int]) -> bool:
        """Return whether what comes at this size has been downsampled already."""
        return self.done_before and tuple(size) == self.output_size

    def macs(self, channels: int, outputs: int, size: Size, kept: Size) -> Any:
        return 0 if self.is_done(size) else channels * self.work

    def forward(self, x: Tensor) -> Tensor:
        if self.is_done(x.shape[-len(self.size) :]):
            return x
        for i in cheapest_order(self.size, self.output_size):
            dim = i - len(self.size)
            matrix, weights = self._buffers[f"matrix{i}"], self._buffers[f"weights{i}"]
            if matrix is not None:
                x = bases.along(matrix, x, dim)
            elif weights is not None:
                x = resample(x, [self._plan(i, weights), *[None] * (-1 - dim)], path="fft")
            elif f"products{i}" in self._modules:
                x = self._modules[f"products{i}"](x, dim)  # type: ignore[misc]
        return x

    def _plan(self, i: int, weights: Tensor) -> AxisPlan:
        return AxisPlan(self.size[i], self.output_size[i], weights, 1.0, self._bases[i])

    def replace_fft(self) -> None:
        """Do long axes by matrix products too, where there is no FFT: with many, small ones."""
        for i, (n, m) in enumerate(zip(self.size, self.output_size, strict=True)):
            weights, self._buffers[f"weights{i}"] = self._buffers[f"weights{i}"], None
            if weights is None:
                continue
            small = block_products.products(self._bases[i], n, m, weights)
            if small is None:
                self._buffers[f"matrix{i}"] = dense(self._plan(i, weights.double())).to(weights)
            else:
                self.add_module(f"products{i}", small)

    def extra_repr(self) -> str:
        return f"{times(self.size)} → {times(self.output_size)}"


class FrozenConv(nn.Module):
    """A convolution without a stride and a frozen downsampling, in the order that is less work."""

    def __init__(self, convolution: nn.Module, downsample: Frozen, downsample_first: bool) -> None:
        super().__init__()
        self.convolution = convolution
        self.downsample = downsample
        self.downsample_first = downsample_first

    @property
    def weight(self) -> Tensor:
        return self.convolution.weight  # type: ignore[return-value]

    @property
    def bias(self) -> Tensor | None:
        return self.convolution.bias  # type: ignore[return-value]

    def forward(self, x: Tensor) -> Tensor:
        if self.downsample_first:
            return self.convolution(self.downsample(x))  # type: ignore[no-any-return]
        return self.downsample(self.convolution(x))  # type: ignore[no-any-return]


class Subsample(nn.Module):
    """One of so many samples along each axis: what a whole stride does."""

    def __init__(self, strides: Sequence[int]) -> None:
        super().__init__()
        self.strides = tuple(strides)

    def forward(self, x: Tensor) -> Tensor:
        samples: list[Any] = [..., *(slice(None, None, stride) for stride in self.strides)]
        return x[tuple(samples)]

    def extra_repr(self) -> str:
        return times(self.strides)
