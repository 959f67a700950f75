"""A downsampling that has learned all it will: constants for each axis."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from diffstride.core import basis
from diffstride.core.resample import AxisPlan, resample
from diffstride.layers.block_products import BlockProducts, choose_blocks
from diffstride.layers.block_products import work as work_of_blocks


@dataclass(frozen=True)
class Constants:
    """What happens to one axis of N samples, which become M.

    It is multiplied by a matrix (M × N), or filtered by FFT with one weight for each of the
    frequencies 0 … ⌊M/2⌋. With neither it stays as it is.
    """

    size: int
    kept: int
    gain: float = 1.0
    """What a constant is multiplied by."""
    matrix: Tensor | None = None
    weights: Tensor | None = None

    @property
    def is_identity(self) -> bool:
        return self.matrix is None and self.weights is None

    def times(self, factor: float) -> "Constants":
        matrix, weights = (None if x is None else x * factor for x in (self.matrix, self.weights))
        return replace(self, gain=self.gain * factor, matrix=matrix, weights=weights)


def order(size: Sequence[int], kept: Sequence[int]) -> list[int]:
    """The axes, cheapest order first: those that shrink most for what they cost."""
    return sorted(range(len(size)), key=lambda i: 1 / size[i] - 1 / kept[i])


def work(axes: Sequence[Constants]) -> int:
    """Multiply-accumulates of one channel. An FFT counts as N·log₂N."""
    size, kept = [axis.size for axis in axes], [axis.kept for axis in axes]
    current, total = list(size), 0
    for i in order(size, kept):
        before = math.prod(current)
        current[i] = kept[i]
        if axes[i].matrix is not None:
            total += before * kept[i]
        elif axes[i].weights is not None:
            logarithms = [math.ceil(math.log2(n)) for n in (size[i], kept[i])]
            total += before * logarithms[0] + math.prod(current) * logarithms[1]
    return total


def spread(
    matrix: Tensor, size: int, kernel: int, dilation: int, padding: tuple[int, int], mode: str
) -> Tensor:
    """A matrix for before a convolution that does what ``matrix`` does after it: kM × N.

    Behind each other, what downsampling makes of the input shifted for each of the k taps. The
    convolution then finds its taps M samples apart, for every one of only M outputs.
    """
    samples = torch.eye(size, dtype=matrix.dtype, device=matrix.device)
    mode = "constant" if mode == "zeros" else mode
    padded = F.pad(samples[None], padding, mode=mode)[0]
    outputs = matrix.shape[1]
    taps = [padded[:, i * dilation : i * dilation + outputs] for i in range(kernel)]
    return torch.cat([matrix @ tap.T for tap in taps])


class Frozen(nn.Module):
    """Downsampling by constants, for inputs of one size.

    The matrix of an axis, M × N, holds transform, window and crop. A long axis has weights instead,
    and is done by FFT. An axis on which nothing happens has neither.

    Args:
        axes: the constants of each, in any precision.
        like: a tensor of the dtype and device that they are to have.
    """

    done_before = False
    """Whether a convolution in front of it has taken its work over, here or in one of its places:
    what comes at the size it makes passes."""

    def __init__(self, axes: Sequence[Constants], like: Tensor) -> None:
        super().__init__()
        self.size = tuple(axis.size for axis in axes)
        self.output_size = tuple(axis.kept for axis in axes)
        self.macs = work(axes)
        """Multiply-accumulates of one channel."""
        for i, axis in enumerate(axes):
            for name, kept in (("matrix", axis.matrix), ("weights", axis.weights)):
                self.register_buffer(f"{name}{i}", None if kept is None else kept.to(like))

    def forward(self, x: Tensor) -> Tensor:
        if self.done_before and tuple(x.shape[-len(self.size) :]) == self.output_size:
            return x
        for i in order(self.size, self.output_size):
            dim = i - len(self.size)
            matrix, weights = self._buffers[f"matrix{i}"], self._buffers[f"weights{i}"]
            if matrix is not None:
                x = basis.along(matrix, x, dim)
            elif weights is not None:
                plan = AxisPlan(self.size[i], self.output_size[i], weights, gain=1.0)
                x = resample(x, [plan, *[None] * (-1 - dim)], path="fft")
            elif f"products{i}" in self._modules:
                x = self._modules[f"products{i}"](x, dim)  # type: ignore[misc]
        return x

    def replace_fft(self) -> None:
        """Do long axes by matrix products too, where there is no FFT: with many, small ones."""
        for i, (n, m) in enumerate(zip(self.size, self.output_size, strict=True)):
            weights = self._buffers[f"weights{i}"]
            if weights is None:
                continue
            self._buffers[f"weights{i}"] = None
            # Small products take about three times as long as a large one, for the same work.
            if n * m <= 3 * work_of_blocks(n, m, choose_blocks(n, m))[0]:
                self._buffers[f"matrix{i}"] = dense(n, m, weights.double()).to(weights)
            else:
                self.add_module(f"products{i}", BlockProducts(n, m, weights))

    def extra_repr(self) -> str:
        return " → ".join(" × ".join(map(str, size)) for size in (self.size, self.output_size))


def dense(size: int, kept: int, weights: Tensor) -> Tensor:
    """The matrix (M × N) that filters an axis with these weights and resamples it."""
    analysis, synthesis = (matrix.to(weights) for matrix in basis.matrices(size, kept))
    return (synthesis * basis.per_function(weights, kept)) @ analysis


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
            x = self.downsample(x)
        x = self.convolution(x)
        return x if self.downsample_first else self.downsample(x)


class Subsample(nn.Module):
    """One of so many samples along each axis: what a whole stride does."""

    def __init__(self, strides: Sequence[int]) -> None:
        super().__init__()
        self.strides = tuple(strides)

    def forward(self, x: Tensor) -> Tensor:
        for i, stride in enumerate(reversed(self.strides), 1):
            x = x[(slice(None),) * (x.ndim - i) + (slice(None, None, stride),)]
        return x

    def extra_repr(self) -> str:
        return " × ".join(map(str, self.strides))
