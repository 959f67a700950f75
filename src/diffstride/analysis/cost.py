"""What a network costs at its present strides, and in which direction that changes with them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.utils.weak import WeakIdKeyDictionary

from diffstride.analysis.observing import Observer, Operation, SomeObserver, observe_example
from diffstride.analysis.restoring import check_axes, check_runnable, unwrapped
from diffstride.core.conv import work_of
from diffstride.layers.converted import Converted
from diffstride.layers.diffstride import DiffStrideNd
from diffstride.layers.joined import running
from diffstride.layers.resizer import Counted, Resizer, Size


@dataclass(frozen=True)
class LayerCost:
    """One use of a layer, for one example."""

    name: str
    layer: nn.Module
    input_size: tuple[int, ...]
    output_size: tuple[int, ...]
    macs: int
    activations: int


@dataclass(frozen=True)
class Cost:
    """What one example costs, in all and use by use in the order they run."""

    macs: int
    activations: int
    parameters: int
    layers: tuple[LayerCost, ...]

    def __str__(self) -> str:
        return (
            f"{_short(self.macs)} MACs, {_short(self.activations)} activations, "
            f"{_short(self.parameters)} parameters"
        )


def _short(count: int) -> str:
    """Return three digits and a prefix.

    >>> _short(665), _short(1234), _short(555_419_648), _short(4_100_000_000)
    ('665', '1.23 k', '555 M', '4.1 G')
    """
    for size, prefix in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if count >= size:
            return f"{count / size:.3g}{prefix}"
    return str(count)


def cost(model: nn.Module, input_size: Sequence[int]) -> Cost:
    """Return multiply-accumulates, activations and parameters of a network at its present strides.

    Counted for one example in eval mode, at the sizes that really come out: convolutions, linear
    layers and the downsampling itself, which is one matrix product an axis, or on a long axis an
    FFT, counted as N·log₂N. Activations are what these layers put out. Normalisations, activation
    functions and poolings count nothing, nor do products that are no layer.

    Args:
        model: any module that takes one tensor. It is run once, without computing where that is
            possible, and left as it was: the same tensors, modes and hooks. Of a network that is
            wrapped for training in parallel, or compiled, the one inside is counted.
        input_size: of one example, (channels, *spatial).

    >>> from diffstride import DiffStride2d
    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), DiffStride2d(2.0), nn.Conv2d(8, 8, 1))
    >>> print(cost(model, (3, 32, 32)))
    602 k MACs, 17.4 k activations, 298 parameters
    >>> [layer.macs for layer in cost(model, (3, 32, 32)).layers]
    [221184, 344064, 36864]
    """
    uses = _count(model, input_size, _Counting).uses
    return Cost(
        macs=sum(use.macs for use in uses),
        activations=sum(use.activations for use in uses),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        layers=tuple(uses),
    )


def soft_macs(model: nn.Module, input_size: Sequence[int]) -> Tensor:
    """Return the multiply-accumulates of :func:`cost`, with a gradient in the strides.

    The value is the exact count. The gradient is that of sizes N/S + 2R that need not be whole nor
    stop at N, so that it points towards larger strides everywhere, also where a small step changes
    no size. For a budget of B multiply-accumulates, add ``(soft_macs(model, size) / B - 1).relu()``
    to the loss.

    Sizes are followed through everything that keeps (batch, channels, *spatial); what comes after a
    reshape to another number of axes counts as constant.

    >>> from diffstride import DiffStride2d
    >>> model = nn.Sequential(DiffStride2d(2.0), nn.Conv2d(8, 8, 3))
    >>> macs = soft_macs(model, (8, 32, 32))
    >>> macs.item() == cost(model, (8, 32, 32)).macs
    True
    >>> macs.backward()
    >>> bool((model[0].stride.grad < 0).all())
    True
    """
    macs = _count(model, input_size, _SoftCounting).macs
    # Counts are exact: single precision would round those above 2²⁴.
    result = torch.tensor(macs.value, dtype=torch.float64)
    for (layer, axis), slope in macs.slopes.items():
        stride = layer.differentiable_strides()[axis]
        # Apple's GPUs (mps) have no double precision.
        stride = stride.to(torch.float32 if stride.device.type == "mps" else result.dtype)
        result = result.to(stride) + (stride - stride.detach()) * slope  # plus 0, with a slope
    return result


def _count(
    model: nn.Module, input_size: Sequence[int], observer: Callable[[nn.Module], SomeObserver]
) -> SomeObserver:
    """Run one example through the model, and return an observer that saw the counted layers."""
    if len(input_size) < 2 or not all(isinstance(n, int) and n >= 1 for n in input_size):
        raise ValueError(
            f"input_size must be (channels, *spatial) of one example, got {tuple(input_size)}"
        )
    model = unwrapped(model)
    check_runnable(model)
    kinds = (Counted, _ConvNd, nn.Linear)
    counted = [m for m in model.modules() if isinstance(m, kinds) and getattr(m, "counts", True)]
    return observe_example(model, input_size, lambda: observer(model), counted)


class _Counting(Observer):
    """Notes what every use of a layer costs."""

    def __init__(self, model: nn.Module) -> None:
        self.names = {module: name for name, module in model.named_modules()}
        self.uses: list[LayerCost] = []
        self._around: list[tuple[Converted, Tensor]] = []
        """Converted convolutions that are running, and what they read."""

    def enter(self, layer: nn.Module, x: Tensor) -> None:
        check_axes(self.names[layer], layer, x)
        if isinstance(layer, Converted) and layer.is_reorderable:
            self._around.append((layer, x))

    def leave(self, layer: nn.Module, x: Tensor, output: Any) -> None:
        size, made = tuple(x.shape[2:]), _size_made(layer, x, output)
        macs = self._macs(layer, x, output, size, made, output.shape[2:])
        activations = math.prod((*output.shape[1:2], *made))
        self.uses.append(LayerCost(self.names[layer], layer, size, made, macs, activations))

    def _size(self, x: Tensor) -> Size:
        return x.shape[2:]

    def _macs(
        self, layer: nn.Module, x: Tensor, output: Tensor, size: Size, made: Size, kept: Size
    ) -> Any:
        """Return the multiply-accumulates of one use, with sizes whole or soft.

        A convolution and the downsampling after it that are run as one count as in the order that
        they are run in when nobody looks on.
        """
        if pair := running():
            if layer is pair.convolution:
                return 0  # until it is known what the downsampling makes
            if layer is pair.layer:
                sizes = self._size(pair.x), size, kept
                both = pair.convolution, pair.layer.rule, pair.x.shape[1]
                return self._shared(work_of(*both, *sizes))
        if self._around and isinstance(layer, Converted | Resizer):
            convolution, read = self._around[-1]
            work = convolution.work(read.shape[1], self._size(read), kept)
            if layer is convolution:
                self._around.pop()
            return work[layer is convolution]
        return _macs(layer, x, output, size, made)

    def _shared(self, work: tuple[Any, Any]) -> Any:
        """Return the work of a downsampling, and give the other to the convolution before it."""
        self.uses[-1] = replace(self.uses[-1], macs=work[1])
        return work[0]


def _size_made(layer: nn.Module, x: Tensor, output: Tensor) -> tuple[int, ...]:
    """Return the size that a layer makes before a downsampling that was converted into it."""
    if isinstance(layer, Converted) and not layer.downsample_first:
        return layer.size_before_downsampling(x.shape[2:])
    return tuple(output.shape[2:])


def _macs(layer: nn.Module, x: Tensor, y: Tensor, size: Size, kept: Size) -> Any:
    """Return the multiply-accumulates of one use, with sizes whole or soft."""
    if isinstance(layer, Counted):
        return layer.macs(x.shape[1], y.shape[1], size, kept)
    if isinstance(layer, nn.Linear):
        return layer.weight.numel() * (y[0].numel() // layer.out_features)
    assert isinstance(layer, _ConvNd)
    return layer.weight.numel() * math.prod(size if isinstance(layer, _ConvTransposeNd) else kept)


@dataclass
class _Soft:
    """A number that knows how it changes with each stride: with the axes of layers."""

    value: float
    slopes: dict[tuple[DiffStrideNd, int], float] = field(default_factory=dict)

    def _combined(self, value: float, factor: float, other: "_Soft", its: float) -> "_Soft":
        """Return a value with the slopes of ``factor * self + its * other``."""
        slopes = {stride: factor * slope for stride, slope in self.slopes.items()}
        for stride, slope in other.slopes.items():
            slopes[stride] = slopes.get(stride, 0.0) + its * slope
        return _Soft(value, slopes)

    def __add__(self, other: "_Soft | float") -> "_Soft":
        other = _soft(other)
        return self._combined(self.value + other.value, 1.0, other, 1.0)

    def __mul__(self, other: "_Soft | float") -> "_Soft":
        other = _soft(other)
        return self._combined(self.value * other.value, other.value, other, self.value)

    def __truediv__(self, other: "_Soft | float") -> "_Soft":
        other = _soft(other)
        value = self.value / other.value
        return self._combined(value, 1 / other.value, other, -value / other.value)

    def __rtruediv__(self, other: float) -> "_Soft":
        return _soft(other) / self

    __radd__, __rmul__ = __add__, __mul__

    def __int__(self) -> int:
        return int(self.value)


def _soft(value: _Soft | float) -> _Soft:
    """Return a number as one that may change with strides; a plain number does not."""
    return value if isinstance(value, _Soft) else _Soft(value)


def _scaled(sizes: Size, before: Size, after: Size) -> Size:
    """Return soft sizes after what changed whole ones from ``before`` to ``after``."""
    # Of the product only the slopes: where the factor is rounded, the size is not.
    return [
        _Soft(m, (s * (m / n)).slopes) if isinstance(s, _Soft) else m
        for s, n, m in zip(sizes, before, after, strict=True)
    ]


class _SoftCounting(_Counting):
    """Carries soft sizes from the input of every operation to its output, and counts with them.

    What an operation does to the number of samples is taken as a factor: a convolution with
    stride 2 halves soft sizes as it does whole ones.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.macs = _Soft(0.0)
        self._sizes: Any = WeakIdKeyDictionary()
        self._made: dict[nn.Module | None, Size] = {}
        """The size that each layer has made last."""

    def leave(self, layer: nn.Module, x: Tensor, output: Any) -> None:
        size, whole = self._size(x), output.shape[2:]
        if isinstance(layer, Resizer) and (owner := layer.stride_owner) is not None:
            if layer.follows:
                self._sizes[output] = self._made[owner]
            else:
                strides = [_Soft(s, {(owner, i): 1.0}) for i, s in enumerate(owner.strides)]
                sizes = zip(whole, layer.soft_size(size, whole, strides), strict=True)
                self._sizes[output] = [_Soft(m, _soft(n).slopes) for m, n in sizes]
        kept = self._made[layer] = self._sizes.get(output, whole)
        made = kept
        if isinstance(layer, Converted) and not layer.downsample_first:
            made = _scaled(size, x.shape[2:], _size_made(layer, x, output))
        self.macs += self._macs(layer, x, output, size, made, kept)

    def _size(self, x: Tensor) -> Size:
        return self._sizes.get(x, x.shape[2:])  # type: ignore[no-any-return]

    def _shared(self, work: tuple[Any, Any]) -> Any:
        return sum(work)

    def operation(self, operation: Operation) -> None:
        source = next((x for x in operation.inputs if x in self._sizes), None)
        if source is None:
            return
        for result in operation.outputs:
            if result.ndim == source.ndim and result not in self._sizes:
                size = self._sizes[source]
                self._sizes[result] = _scaled(size, source.shape[2:], result.shape[2:])
