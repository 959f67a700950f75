"""What every layer that changes the size of its input can be asked, whatever kind it is.

Costs, budgets, penalties, tables, freezing, exports and callbacks ask :class:`Resizer`, and know no
other class. A new kind of layer answers these questions, and works with all of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from diffstride.core import arguments
from diffstride.core.plan import AxisPlan
from diffstride.core.resample import resample
from diffstride.core.rule import Rule
from diffstride.core.tracing import shape_of
from diffstride.core.work import resampling_macs
from diffstride.layers.constants import AxisConstants

if TYPE_CHECKING:
    from diffstride.layers.diffstride import DiffStrideNd

Size = Sequence[Any]
"""Numbers of samples: whole ones, or ones that know how they change with strides."""


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

    @property
    def counts(self) -> bool:
        """Whether its work is its own, and not that of a layer that it calls."""
        return True

    def macs(self, channels: int, outputs: int, size: Size, kept: Size) -> Any:
        """Return the multiply-accumulates of one example, from one size to another."""
        raise NotImplementedError


class Resizer(Counted):
    """A layer that changes the size of its input, by a rule and one stride for each axis."""

    axes: ClassVar[int]
    rule: Rule
    smoothness = RuleField()
    norm = RuleField()
    convention = RuleField()
    crop = RuleField()
    size_multiple = RuleField()
    window = RuleField()
    basis = RuleField()
    path = RuleField()

    @property
    def strides(self) -> tuple[float, ...]:
        """The strides in use, one per axis."""
        raise NotImplementedError

    @property
    def stride_owner(self) -> "DiffStrideNd | None":
        """The layer that holds the stride that this one uses, if it is learned."""
        return None

    @property
    def follows(self) -> bool:
        """Whether this layer makes the size that the owner of its stride has made before."""
        return False

    def strides_for(self, size: Sequence[int]) -> tuple[float, ...]:
        """Return the strides by which an input of this size is downsampled."""
        return self.strides

    def output_size(self, size: int | Sequence[int]) -> tuple[int, ...]:
        """Return the spatial size that comes out for an input of spatial size ``size``."""
        return self.rule.size_after(arguments.spatial_size(size, self.axes), self.strides)

    def soft_size(self, size: Size, whole: Sequence[int], strides: Size) -> Size:
        """Return the sizes that come out as ``strides`` change them: not rounded, not bounded.

        ``whole`` are those that really come out.
        """
        if self.rule.output_size is not None:
            return whole
        if not self.rule.crop:
            return size
        return self.rule.soft_size(size, strides)

    def macs(self, channels: int, outputs: int, size: Size, kept: Size) -> Any:
        return channels * resampling_macs(size, kept, self.rule)

    def prepare(self, size: Sequence[int]) -> tuple[int, ...] | None:
        """Do what must be done outside of a compiled graph, before an input of this size is read.

        Returns the size that comes out where :meth:`plans` could not know it in a graph.
        """
        return None

    def plans(
        self, size: Sequence[int], device: torch.device, known: tuple[int, ...] | None = None
    ) -> list[AxisPlan]:
        """Return what to do to each axis of an input; ``known`` is what was prepared for it."""
        raise NotImplementedError

    def constants(self, size: Sequence[int], like: Tensor) -> list[AxisConstants]:
        """Return what happens to each axis of an input of this size, as constants."""
        with torch.no_grad():
            plans = self.plans(size, like.device)
            return [AxisConstants.of(axis, len(plans), like) for axis in plans]

    def check(self, x: Tensor) -> None:
        """Raise a TypeError or ValueError unless the layer can take ``x``."""
        arguments.check_tensor(x)
        arguments.check_rank(x, self.axes)

    def forward(self, x: Tensor) -> Tensor:
        self.check(x)
        size = shape_of(x)[-self.axes :]
        known = self.prepare(size)
        plans = self.plans(size, x.device, known)
        return resample(x, plans, path=self.rule.path)


def resizers(model: nn.Module) -> Iterator[tuple[str, Resizer]]:
    """Yield every resizer of a network and its name, each once."""
    for name, module in model.named_modules():
        if isinstance(module, Resizer):
            yield name, module


def learned_strides(model: nn.Module) -> dict[str, "DiffStrideNd"]:
    """Return the layers that hold learned strides by name, in the order of registration."""
    owners = ((name, layer, layer.stride_owner) for name, layer in resizers(model))
    return {name: owner for name, layer, owner in owners if owner is layer and owner is not None}
