"""Sizes that know how they change with the strides of a network."""

from typing import Any

from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from diffstride.analysis.observing import Observer, Operation
from diffstride.layers.diffstride import DiffStrideNd
from diffstride.layers.resizer import Resizer, Size


class Soft:
    """A number that knows how it changes with the strides of each layer."""

    def __init__(
        self, value: float, slopes: dict[DiffStrideNd, tuple[float, ...]] | None = None
    ) -> None:
        self.value = value
        self.slopes = slopes or {}

    def _combined(self, factor: float, other: "Soft", its: float) -> dict[Any, tuple[float, ...]]:
        """Return the slopes of a sum of multiples of two numbers."""
        slopes = {k: tuple(factor * slope for slope in v) for k, v in self.slopes.items()}
        for layer, theirs in other.slopes.items():
            ours = slopes.get(layer, (0.0,) * len(theirs))
            slopes[layer] = tuple(a + its * b for a, b in zip(ours, theirs, strict=True))
        return slopes

    def __add__(self, other: "Soft | float") -> "Soft":
        other = soft(other)
        return Soft(self.value + other.value, self._combined(1.0, other, 1.0))

    def __mul__(self, other: "Soft | float") -> "Soft":
        other = soft(other)
        return Soft(self.value * other.value, self._combined(other.value, other, self.value))

    def __truediv__(self, other: "Soft | float") -> "Soft":
        other = soft(other)
        value = self.value / other.value
        return Soft(value, self._combined(1 / other.value, other, -value / other.value))

    def __rtruediv__(self, other: float) -> "Soft":
        return soft(other) / self

    __radd__, __rmul__ = __add__, __mul__

    def __int__(self) -> int:
        return int(self.value)


def soft(value: Soft | float) -> Soft:
    """Return a number as one that may change with strides; a plain number does not."""
    return value if isinstance(value, Soft) else Soft(value)


def soft_output(layer: Resizer, size: Size, whole: Size) -> Size:
    """Return the whole sizes that come out, with the gradient of sizes that are not rounded."""
    owner = layer.stride_owner
    strides: list[Soft | float] = list(layer.strides_for([int(n) for n in size]))
    if owner is not None:
        one = [tuple(float(i == axis) for i in range(owner.axes)) for axis in range(owner.axes)]
        strides = [Soft(s, {owner: one[i]}) for i, s in enumerate(owner.strides)]
    exact = layer.soft_size(size, whole, strides)
    return [Soft(int(m), soft(n).slopes) for m, n in zip(whole, exact, strict=True)]


def scaled(sizes: Size, before: Size, after: Size) -> Size:
    """Return soft sizes after what changed whole ones from ``before`` to ``after``."""
    # Of the product only the slopes: where the factor is rounded, the size is not.
    return [
        Soft(m, (s * (m / n)).slopes) if isinstance(s, Soft) else m
        for s, n, m in zip(sizes, before, after, strict=True)
    ]


class SoftSizes(Observer):
    """Carries soft sizes from the input of every operation to its output.

    What an operation does to the number of samples is taken as a factor: a convolution with
    stride 2 halves soft sizes as it does whole ones.
    """

    def __init__(self) -> None:
        self._sizes: Any = WeakIdKeyDictionary()
        self._made: dict[nn.Module | None, Size] = {}
        """The size that each layer has made last."""

    def of(self, x: Tensor) -> Size:
        """Return the soft size of a tensor, or its whole one."""
        known: Size = self._sizes.get(x, tuple(x.shape[2:]))
        return known

    def resized(self, layer: nn.Module, x: Tensor, output: Tensor) -> Size:
        """Return the soft size of what a layer has made."""
        if isinstance(layer, Resizer) and layer.follows:
            self._sizes[output] = self._made[layer.stride_owner]
        elif isinstance(layer, Resizer) and layer.stride_owner is not None:
            self._sizes[output] = soft_output(layer, self.of(x), output.shape[2:])
        self._made[layer] = self.of(output)
        return self._made[layer]

    def operation(self, operation: Operation) -> None:
        source = next((x for x in operation.inputs if x in self._sizes), None)
        if source is None:
            return
        for result in operation.outputs:
            if result.ndim == source.ndim and result not in self._sizes:
                soft_size = self._sizes[source]
                self._sizes[result] = scaled(soft_size, source.shape[2:], result.shape[2:])
