"""What every layer that changes the size of its input can be asked, whatever kind it is.

Costs, budgets, penalties, tables, freezing, exports and callbacks know :class:`Resizer` alone: a
new kind of layer that answers its questions works with all of them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from diffstride.core import arguments
from diffstride.core.bases import BASES, Basis, cached
from diffstride.core.resample import resample
from diffstride.core.rule import AxisPlan, Rule
from diffstride.core.tracing import shape_of
from diffstride.core.work import by_fft, cheapest_order, fft_macs, resampling_macs
from diffstride.layers.size_read import SizeRead

if TYPE_CHECKING:
    from diffstride.layers.diffstride import DiffStrideNd
    from diffstride.layers.undo import Undo

Size = Sequence[Any]
"""Numbers of samples: whole ones, or ones that know how they change with strides."""


@dataclass(frozen=True)
class AxisConstants:
    """What happens to one axis of N samples, which become M, once nothing is learned any more.

    It is multiplied by a matrix (M × N), or filtered without one, by a weight for each frequency.
    With neither it stays as it is.
    """

    size: int
    kept: int
    gain: float = 1.0
    """What a constant is multiplied by."""
    matrix: Tensor | None = None
    weights: Tensor | None = None
    basis: Basis = BASES["fourier"]

    @classmethod
    def of(cls, axis: AxisPlan, axes: int, like: Tensor) -> "AxisConstants":
        """Return what a plan does, in the precision of ``like``: the cheaper of both ways."""
        made = cls(axis.size, axis.kept, axis.gain, basis=axis.basis)
        if axis.size == axis.kept and bool((axis.weights == 1).all()):
            return made
        if by_fft(axis.basis, axis.longest, "auto", axes):
            return replace(made, weights=axis.weights.to(like))
        return replace(made, matrix=dense(axis).to(like))

    @property
    def is_identity(self) -> bool:
        return self.matrix is None and self.weights is None

    def dense(self, like: Tensor) -> Tensor:
        """Return the matrix (M × N) of the axis, however it is done."""
        if self.matrix is not None:
            return self.matrix
        if self.weights is None:
            return torch.eye(self.size, dtype=like.dtype, device=like.device)
        weights = self.weights.double()
        return dense(AxisPlan(self.size, self.kept, weights, self.gain, self.basis)).to(like)


def dense(axis: AxisPlan) -> Tensor:
    """Return the matrix (M × N) of a plan, in the precision of its weights."""
    analysis, synthesis = cached(axis.basis.matrices, axis.size, axis.kept, axis.weights)
    return (synthesis * axis.per_function) @ analysis


def work(axes: Sequence[AxisConstants]) -> int:
    """Return the multiply-accumulates of one channel."""
    current, total = [axis.size for axis in axes], 0
    for i in cheapest_order(current, [axis.kept for axis in axes]):
        axis, before = axes[i], math.prod(current)
        current[i] = axis.kept
        if axis.matrix is not None:
            total += before * axis.kept
        elif axis.weights is not None:
            total += fft_macs(axis.size, axis.kept, before, math.prod(current))
    return total


class RuleField:
    """A field of a layer's rule as an attribute of the layer; what it is set to is checked."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, layer: Any, owner: type | None = None) -> Any:
        return self if layer is None else getattr(layer.rule, self.name)

    def __set__(self, layer: Any, value: Any) -> None:
        layer.rule = replace(layer.rule, **{self.name: value})


class Counted(nn.Module):
    """A layer that says what it costs."""

    counts = True
    """Whether it does its work itself, and not a layer that it calls."""

    def macs(self, channels: int, outputs: int, size: Size, kept: Size) -> Any:
        """Return the multiply-accumulates of one example, from one size to another."""
        raise NotImplementedError


class Resizer(Counted):
    """A layer that changes the size of its input, by a rule and one stride for each axis."""

    axes: int
    rule: Rule
    smoothness = RuleField()
    norm = RuleField()
    convention = RuleField()
    crop = RuleField()
    size_multiple = RuleField()
    window = RuleField()
    basis = RuleField()
    path = RuleField()

    follows = False
    """Whether this layer makes the size that its leading layer has made before."""
    is_beside = False
    """Whether it is a branch beside another one, which reads the same and stands for both."""
    is_planned = True
    """Whether it does nothing but carry out its plans, which need no more than a size, and so may
    be run together with a convolution before it."""
    size_read: SizeRead | None = None
    """Where it notes the size that it reads, if another layer undoes what it does."""
    source: SizeRead | None = None
    """Where it finds the size that it makes, if it undoes another layer."""

    @property
    def stride_owner(self) -> "DiffStrideNd | None":
        """The layer that holds the stride that this one uses, if it is learned."""
        return None

    @property
    def leading(self) -> "Resizer":
        """The layer that makes the size, if another one has the stride or is followed."""
        return self.stride_owner or self

    @property
    def strides(self) -> tuple[float, ...]:
        """The strides in use, one per axis."""
        assert self.stride_owner is not None
        return self.stride_owner.strides

    def strides_for(self, size: Sequence[int]) -> tuple[float, ...]:
        """Return the strides by which an input of this size is downsampled."""
        return self.strides

    def up(self) -> "Undo":
        """Return a layer that undoes this one: it makes the size that this one read before.

        For decoders. It has no stride of its own, follows this one whatever it learns, and fits
        for every size of the input.

        >>> from diffstride import SpectralPool1d
        >>> down = SpectralPool1d(3)
        >>> up = down.up()
        >>> up(down(torch.rand(2, 4, 31))).shape
        torch.Size([2, 4, 31])
        """
        from diffstride.layers.undo import Undo

        return Undo(self)

    def note(self, size: Sequence[int]) -> None:
        """Tell the layers that undo this one what size it reads now.

        A layer with a ``forward`` of its own calls this there.
        """
        if self.size_read is not None:
            self.size_read.note(tuple(size))

    def scale_stride(self, factor: float) -> None:
        """Multiply the stride and its range, as for an input with so many times the samples.

        Raises:
            ValueError: if the stride would be below 1, or the layer has none that can be set.
        """
        raise ValueError(f"{type(self).__name__} has no stride of its own to scale: {self}")

    def scaled_strides(self, factor: float) -> tuple[float, ...]:
        """Return so many times the strides, each at least 1 or an error."""
        scaled = (factor * stride for stride in self.strides)
        # What is below 1 by its last digits was meant to be 1.
        strides = tuple(1.0 if abs(stride - 1) < 1e-6 else stride for stride in scaled)
        arguments.check_strides(strides)
        return strides

    def output_size(self, size: int | Sequence[int]) -> tuple[int, ...]:
        """Return the spatial size that comes out for an input of spatial size ``size``."""
        return self.size_after(arguments.spatial_size(size, self.axes), self.strides)

    def size_after(self, size: Sequence[int], strides: Sequence[float]) -> tuple[int, ...]:
        """Return the spatial size that would come out, were these the strides in use."""
        return self.rule.size_after(size, strides)

    def soft_size(self, size: Size, whole: Sequence[int], strides: Size) -> Size:
        """Return the sizes that come out, not rounded to ``whole``, as ``strides`` change them."""
        if self.rule.output_size is not None:
            return whole
        if not self.rule.crop:
            return size
        return self.rule.soft_size(size, strides)

    def macs(self, channels: int, outputs: int, size: Size, kept: Size) -> Any:
        return channels * resampling_macs(size, kept, self.rule)

    def prepare(self, size: Sequence[int]) -> tuple[int, ...] | None:
        """Do what a compiled graph can't; return the size that comes out, if it can't know it."""
        return None

    def plans(self, size: Size, device: torch.device, known: Size | None = None) -> list[AxisPlan]:
        """Return what to do to each axis of an input; ``known`` is what was prepared for it."""
        raise NotImplementedError

    def constants(self, size: Sequence[int], like: Tensor) -> list[AxisConstants]:
        """Return what happens to each axis of an input of this size, as constants."""
        with torch.no_grad():
            plans = self.plans(size, like.device)
            return [AxisConstants.of(axis, len(plans), like) for axis in plans]

    def frozen(self, size: Sequence[int]) -> nn.Module | None:
        """Return what takes its place in a frozen network, if its constants are no matrices.

        That is for inputs of one spatial size, and has nothing to learn. A layer that has nothing
        to learn anyway returns itself.
        """
        return None

    def again(self, x: Tensor) -> Tensor:
        """Return what it makes of a branch that meets the one that it has read just before.

        A layer that chooses something for each input chooses the same for both.
        """
        return self(x)  # type: ignore[no-any-return]

    def check(self, x: Tensor) -> None:
        """Raise a TypeError or ValueError unless the layer can take ``x``."""
        arguments.check_tensor(x)
        arguments.check_rank(x, self.axes)

    def forward(self, x: Tensor) -> Tensor:
        self.check(x)
        size = shape_of(x)[-self.axes :]
        self.note(size)
        known = self.prepare(size)
        plans = self.plans(size, x.device, known)
        return resample(x, plans, path=self.rule.path)


def resizers(model: nn.Module) -> list[tuple[str, Resizer]]:
    """Return every resizer of a network with its name, each once."""
    return [(name, x) for name, x in model.named_modules() if isinstance(x, Resizer)]


def learned_strides(model: nn.Module) -> dict[str, "DiffStrideNd"]:
    """Return the layers that hold learned strides by name, in the order of registration."""
    owners = ((name, layer, layer.stride_owner) for name, layer in resizers(model))
    return {name: owner for name, layer, owner in owners if owner is layer and owner is not None}
