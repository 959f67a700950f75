"""What a network costs at its present strides, and in which direction that changes with them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from diffstride.analysis.network_checks import check_axes, check_runnable
from diffstride.analysis.observing import Observer, observe_example
from diffstride.analysis.restoring import unwrapped
from diffstride.analysis.soft_sizes import Soft, SoftSizes, scaled
from diffstride.layers.converted import Converted
from diffstride.layers.resizer import Counted, Size


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
        counts = (self.macs, self.activations, self.parameters)
        macs, activations, parameters = (_short(count) for count in counts)
        return f"{macs} MACs, {activations} activations, {parameters} parameters"


def _short(count: int) -> str:
    """Three digits and a prefix.

    >>> _short(665), _short(1234), _short(555_419_648), _short(4_100_000_000)
    ('665', '1.23 k', '555 M', '4.1 G')
    """
    for size, prefix in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if count >= size:
            return f"{count / size:.3g}{prefix}"
    return str(count)


def cost(model: nn.Module, input_size: Sequence[int]) -> Cost:
    """Multiply-accumulates, activations and parameters of a network at its present strides.

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
    model = unwrapped(model)
    names = {module: name for name, module in model.named_modules()}
    uses: list[LayerCost] = []

    class Counting(Observer):
        def begin(self, x: Tensor) -> None:
            uses.clear()

        def enter(self, layer: nn.Module, x: Tensor) -> None:
            check_axes(names[layer], layer, x)

        def leave(self, layer: nn.Module, x: Tensor, output: Any) -> None:
            made = _own_output(layer, x, output)
            macs = _macs(layer, x, output, x.shape[2:], made[2:])
            sizes = (tuple(x.shape[2:]), tuple(made[2:]))
            uses.append(LayerCost(names[layer], layer, *sizes, macs, math.prod(made[1:])))

    _run(model, input_size, Counting)
    return Cost(
        macs=sum(use.macs for use in uses),
        activations=sum(use.activations for use in uses),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        layers=tuple(uses),
    )


def soft_macs(model: nn.Module, input_size: Sequence[int]) -> Tensor:
    """The multiply-accumulates of :func:`cost`, with a gradient in the strides.

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
    model = unwrapped(model)
    names = {module: name for name, module in model.named_modules()}
    total: list[Any] = []

    class Counting(SoftSizes):
        def enter(self, layer: nn.Module, x: Tensor) -> None:
            check_axes(names[layer], layer, x)

        def leave(self, layer: nn.Module, x: Tensor, output: Any) -> None:
            size, kept = self.of(x), self.resized(layer, x, output)
            if isinstance(layer, Converted):
                kept = scaled(size, x.shape[2:], _own_output(layer, x, output)[2:])
            total.append(_macs(layer, x, output, size, kept))

        def begin(self, x: Tensor) -> None:
            total.clear()

    _run(model, input_size, Counting)
    macs = sum(total, start=Soft(0.0))
    # Counts are exact: single precision would round those above 2²⁴.
    result = torch.tensor(macs.value, dtype=torch.float64)
    for layer, slopes in macs.slopes.items():
        strides = layer.differentiable_strides()
        if strides.device.type == "mps":  # has no double precision
            result = result.float()
        strides = strides.to(result.dtype)
        # Exactly the value that was counted, with the slope that was found.
        change = (strides - strides.detach()) * torch.tensor(slopes).to(strides)
        result = result.to(strides) + change.sum()
    return result


def _run(model: nn.Module, input_size: Sequence[int], make: Callable[[], Observer]) -> None:
    """Run one example through the model, and show the counted layers to an observer."""
    if len(input_size) < 2 or not all(isinstance(n, int) and n >= 1 for n in input_size):
        raise ValueError(
            f"input_size must be (channels, *spatial) of one example, got {tuple(input_size)}"
        )
    check_runnable(model)
    counted = [module for module in model.modules() if _is_counted(module)]
    observe_example(model, input_size, make, counted)


def _is_counted(module: nn.Module) -> bool:
    return isinstance(module, Counted | _ConvNd | nn.Linear) and getattr(module, "counts", True)


def _macs(layer: nn.Module, x: Tensor, y: Tensor, size: Size, kept: Size) -> Any:
    """Return the multiply-accumulates of one use, with sizes whole or soft."""
    if isinstance(layer, Counted):
        return layer.macs(x.shape[1], y.shape[1], size, kept)
    if isinstance(layer, nn.Linear):
        return layer.weight.numel() * (y[0].numel() // layer.out_features)
    assert isinstance(layer, _ConvNd)
    return layer.weight.numel() * math.prod(size if isinstance(layer, _ConvTransposeNd) else kept)


def _own_output(layer: nn.Module, x: Tensor, output: Tensor) -> tuple[int, ...]:
    """Return the shape of what a layer makes itself, without a downsampling that is part of it."""
    if isinstance(layer, Converted) and not layer.downsample_first:
        return (*output.shape[:2], *layer.size_before_downsampling(x.shape[2:]))
    return tuple(output.shape)
