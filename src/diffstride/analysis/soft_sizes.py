"""Sizes that know how they change with the strides of a network."""

from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

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


class FollowedSizes(TorchFunctionMode):
    """Carries soft sizes from the input of every operation to its output.

    What an operation does to the number of samples is taken as a factor: a convolution with
    stride 2 halves soft sizes as it does whole ones.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sizes: Any = WeakIdKeyDictionary()

    def of(self, x: Tensor) -> Size:
        """Return the soft size of a tensor, or its whole one."""
        known: Size = self.sizes.get(x, tuple(x.shape[2:]))
        return known

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        results = function(*args, **(kwargs or {}))
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        source = next((x for x in given if x in self.sizes), None)
        if source is not None:
            for result in tree_leaves(results):
                if (
                    isinstance(result, Tensor)
                    and result.ndim == source.ndim
                    and result not in self.sizes
                ):
                    self.sizes[result] = scaled(
                        self.sizes[source], source.shape[2:], result.shape[2:]
                    )
        return results
