"""Several downsamplings of one map side by side, each with a stride of its own, and their mix."""

import operator
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from diffstride.core import arguments
from diffstride.core.rule import Rule
from diffstride.core.tracing import shape_of
from diffstride.layers.conv import (
    DiffStrideConv1d,
    DiffStrideConv2d,
    DiffStrideConv3d,
    DiffStrideConvNd,
)
from diffstride.layers.resizer import Resizer
from diffstride.layers.size_read import SizeRead
from diffstride.layers.undo import ToSize


class ToGrid(ToSize):
    """Resizes what a branch makes to the size that the first one has made just before."""

    follows = True
    passes_on = True

    def __init__(self, first: DiffStrideConvNd, source: SizeRead) -> None:
        super().__init__()
        self._first = [first]  # in a list: as an attribute it would be registered here too
        self.source = source
        self.axes = first.axes
        like = first.rule
        self.rule = Rule(0.0, norm=like.norm, basis=like.basis, path=like.path, way="any")

    @property
    def leading(self) -> Resizer:
        return self._first[0]

    @property
    def strides(self) -> tuple[float, ...]:
        """1 for each axis: what is made is a size, whatever the branch's stride."""
        return (1.0,) * self.axes

    def strides_for(self, size: Sequence[int]) -> tuple[float, ...]:
        made = self.source.read() or tuple(size)
        return tuple(n / m for n, m in zip(size, made, strict=True))

    def _unknown(self) -> str:
        return f"{self} makes the size of the first branch, which has not run yet: call it first"

    def extra_repr(self) -> str:
        return f"norm={self.norm!r}"


class MultiScaleNd(nn.Module):
    """Convolutions of one map, each with a learned stride, brought to one size and mixed."""

    branch: ClassVar[type[DiffStrideConvNd]]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        branches: int = 2,
        stride: float | Sequence[float] = 2.0,
        *,
        spread: float = 1.5,
        norm: str = "forward",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        if operator.index(branches) < 2:
            raise ValueError(
                f"branches must be at least 2, got {branches}: of one, use {self.branch.__name__}"
            )
        if not spread >= 1:
            raise ValueError(
                f"spread must be at least 1, got {spread}: the first branch has the smallest stride"
            )
        self.axes = self.branch.downsampling.axes
        first = arguments.per_axis(stride, self.axes, "stride")
        make: Any = self.branch
        kernel = (in_channels, out_channels, kernel_size)
        options |= {"norm": norm, "device": device, "dtype": dtype}
        strides = (tuple(s * spread**i for s in first) for i in range(branches))
        made = [make(*kernel, stride, **options) for stride in strides]
        for other in made[1:]:
            other.is_beside = True
        self.branches = nn.ModuleList(made)
        self.grid = SizeRead()
        """The size that the first branch made last, in which the others are mixed with it."""
        self.to_grid = nn.ModuleList(ToGrid(made[0], self.grid) for _ in made[1:])
        self.mix = nn.Parameter(torch.zeros(branches, device=device, dtype=dtype))

    @property
    def weights(self) -> Tensor:
        """How much of each branch is in the mix: positive numbers, 1 together."""
        return self.mix.softmax(0)

    @property
    def strides(self) -> tuple[tuple[float, ...], ...]:
        """The strides in use: of each branch, one per axis."""
        return tuple(branch.strides for branch in self.branches)  # type: ignore[misc]

    def output_size(self, size: int | Sequence[int]) -> tuple[int, ...]:
        """Return the spatial size that comes out: that of the first branch."""
        return self.branches[0].output_size(size)  # type: ignore[no-any-return, operator]

    def forward(self, x: Tensor) -> Tensor:
        weights = self.weights
        first = self.branches[0](x)
        self.grid.note(shape_of(first)[-self.axes :])
        y: Tensor = first * weights[0]
        for i, to_grid in enumerate(self.to_grid, 1):
            # Weighted while it is small: both are linear, and may trade places.
            y = y + to_grid(self.branches[i](x) * weights[i])
        return y


class MultiScale1d(MultiScaleNd):
    """Branches of several strides for signals; arguments as for :class:`MultiScale2d`.

    Input (batch, in_channels, N) or (in_channels, N).

    >>> MultiScale1d(2, 4, 5, stride=4.0, padding=2)(torch.rand(8, 2, 100)).shape
    torch.Size([8, 4, 25])
    """

    branch = DiffStrideConv1d


class MultiScale2d(MultiScaleNd):
    """Convolutions of one image side by side, each with a learned stride of its own, and mixed.

    Input (batch, in_channels, H, W) or (in_channels, H, W), output the same with out_channels, of
    the size that the first branch makes. In the place of a strided convolution it makes maps of the
    same size.

    1. Each branch is a :class:`DiffStrideConv2d`: a convolution, then a downsampling. All read the
       same input; none shares weights or a stride with another.
    2. What each makes is resized to the size that the first makes, by
       :func:`diffstride.functional.spectral_resize`. A branch with a larger stride has no fine
       detail there, but a wide view that costs less.
    3. The output is the sum of all, each times a weight. Weights are learned, positive and 1
       together, and equal at first.

    The first branch sets the grid. A branch whose stride becomes smaller than that of the first is
    cut to the grid, so detail that only it has is lost; while its window falls outside the grid,
    its stride learns nothing and stays.

    Args:
        in_channels, out_channels, kernel_size: of every convolution, as for ``nn.Conv2d``.
        branches: how many, at least 2.
        stride: with which the first branch begins, one number or one per axis, at least 1.
        spread: by how much the stride of each branch is larger than that of the one before, at
            first: from 2, with 1.5 and three branches, 2, 3 and 4.5. With 1 all begin at ``stride``
            and differ by their weights alone; then it is chance which one stays fine.
        norm: as for :class:`DiffStride2d`; with ``"forward"``, constants stay what they are. With
            any, all branches change constants by the same factor.
        device, dtype: of all parameters.
        options: of every branch: ``padding``, ``dilation``, ``groups``, ``bias``,
            ``padding_mode``, ``order``, and every other argument of :class:`DiffStride2d`.

    Raises:
        ValueError: for an argument out of range, or where a branch would begin beyond
            ``max_stride``; the message names it.

    Attributes:
        branches: the :class:`DiffStrideConv2d` layers, ``branches.0`` first.
        mix: the logarithms of the weights, up to a constant.

    >>> layer = MultiScale2d(3, 8, 3, branches=3, stride=2.0, padding=1)
    >>> layer.strides
    ((2.0, 2.0), (3.0, 3.0), (4.5, 4.5))
    >>> layer(torch.rand(2, 3, 33, 40)).shape, layer.output_size((33, 40))
    (torch.Size([2, 8, 16, 20]), (16, 20))
    """

    branch = DiffStrideConv2d


class MultiScale3d(MultiScaleNd):
    """Branches of several strides for volumes; arguments as for :class:`MultiScale2d`.

    Input (batch, in_channels, D, H, W) or (in_channels, D, H, W).

    >>> MultiScale3d(1, 4, 3, stride=(1, 2, 2), padding=1)(torch.rand(1, 8, 8, 8)).shape
    torch.Size([4, 8, 4, 4])
    """

    branch = DiffStrideConv3d
