"""Sizes that know how they change with the strides of a network."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from diffstride.layers import DiffStrideConvNd, DiffStrideNd

# Numbers of samples: whole, or Soft.
Size: TypeAlias = Sequence[Any]


class Soft:
    """A number that knows how it changes with the strides of each layer."""

    def __init__(self, value: float, slopes: dict[DiffStrideNd, tuple[float, ...]]) -> None:
        self.value = value
        self.slopes = slopes

    def __add__(self, other: "Soft | float") -> "Soft":
        if not isinstance(other, Soft):
            return Soft(self.value + other, self.slopes)
        slopes = dict(self.slopes)
        for layer, theirs in other.slopes.items():
            ours = slopes.get(layer, (0.0,) * len(theirs))
            slopes[layer] = tuple(a + b for a, b in zip(ours, theirs, strict=True))
        return Soft(self.value + other.value, slopes)

    def __mul__(self, other: "Soft | float") -> "Soft":
        if isinstance(other, Soft):
            product = self * other.value + other * self.value
            return Soft(self.value * other.value, product.slopes)
        slopes = {k: tuple(other * slope for slope in v) for k, v in self.slopes.items()}
        return Soft(self.value * other, slopes)

    __radd__, __rmul__ = __add__, __mul__

    def __int__(self) -> int:
        return int(self.value)


def soft_output(layer: DiffStrideNd | DiffStrideConvNd, size: Size, whole: Size) -> Size:
    """The sizes that come out, with the gradient of N/S + 2R."""
    own = layer.downsample if isinstance(layer, DiffStrideConvNd) else layer
    assert isinstance(own, DiffStrideNd)
    soft = [n if isinstance(n, Soft) else Soft(n, {}) for n in size]
    if own.fixed_size is not None:
        return [Soft(m, {}) for m in whole]
    if not own.crop:
        return soft
    for axis, (n, s) in enumerate(zip(list(soft), own.strides, strict=True)):
        slope = tuple(-n.value / s**2 if i == axis else 0.0 for i in range(own.axes))
        soft[axis] = Soft(whole[axis], (n * (1 / s) + Soft(0.0, {own: slope})).slopes)
    return soft


def scaled(soft: Size, before: Size, after: Size) -> Size:
    """Soft sizes after what changed whole ones from ``before`` to ``after``."""
    sizes = zip(soft, before, after, strict=True)
    # Of the product only the slopes: where the factor is rounded, the size is not.
    return [Soft(m, (s * (m / n)).slopes) if isinstance(s, Soft) else m for s, n, m in sizes]


class FollowedSizes(TorchFunctionMode):
    """Carries soft sizes from the input of every operation to its output.

    What an operation does to the number of samples is taken as a factor: a convolution with
    stride 2 halves soft sizes as it does whole ones.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sizes: Any = WeakIdKeyDictionary()

    def of(self, x: Tensor) -> Size:
        known: Size = self.sizes.get(x, tuple(x.shape[2:]))
        return known

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        results = function(*args, **(kwargs or {}))
        given = (*args, *(kwargs or {}).values())
        source = next((t for t in _tensors(given) if t in self.sizes), None)
        if source is not None:
            for result in _tensors([results]):
                if result.ndim == source.ndim and result not in self.sizes:
                    self.sizes[result] = scaled(
                        self.sizes[source], source.shape[2:], result.shape[2:]
                    )
        return results


def _tensors(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)
