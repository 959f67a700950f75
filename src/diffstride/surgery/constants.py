"""Layers of this library as constants: which they are, what comes to them, what replaces them."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from diffstride.analysis.observing import Observer, observe
from diffstride.layers.conv import DiffStrideConvNd
from diffstride.layers.converted import CONVERTED, Converted, recast
from diffstride.layers.frozen import Frozen, FrozenConv, spread
from diffstride.layers.resizer import AxisConstants, Resizer, work
from diffstride.surgery.mergeable import find_mergeable, has_hooks

Size = tuple[int, ...]


def find_sizes(model: nn.Module, example: Tensor) -> dict[nn.Module, Size]:
    """Layers to replace, and the spatial size that comes to each."""
    names = {module: name for name, module in model.named_modules()}
    layers = [module for module in model.modules() if isinstance(module, Converted | Resizer)]
    found: dict[nn.Module, Size] = {}

    class Sizes(Observer):
        inside = 0

        def enter(self, layer: nn.Module, x: Tensor) -> None:
            if not self.inside:
                size = tuple(x.shape[-resizer_of(layer).axes :])
                if found.setdefault(layer, size) != size:
                    raise ValueError(
                        f"{names[layer]} is used at several sizes, {found[layer]} and {size}, and "
                        f"constants are for one: give each place a layer of its own"
                    )
            self.inside += 1

        def leave(self, layer: nn.Module, x: Tensor, output: Any) -> None:
            self.inside -= 1

    observe(model, example, Sizes(), layers=layers)
    if not found:
        raise ValueError(
            "the model has no DiffStride or other layer of this library that changes sizes, and so "
            "nothing to freeze"
        )
    return found


def resizer_of(module: nn.Module) -> Resizer:
    """Return the layer that changes the size: the module itself, or what a converted one has."""
    layer = module.downsample if isinstance(module, Converted) else module
    assert isinstance(layer, Resizer)
    return layer


def replace_by_constants(model: nn.Module, example: Tensor, merging: bool) -> nn.Module:
    """A network, which is changed, with constants in the places of what it learned.

    With ``merging``, a downsampling that follows a convolution at once may come before it.
    """
    sizes = find_sizes(model, example)
    # All is read before anything is changed: layers may follow others.
    constants = {module: _read(module, size, example) for module, size in sizes.items()}
    alone = [m for m in sizes if not isinstance(m, Converted | DiffStrideConvNd)]
    mergeable = find_mergeable(model, example, alone) if merging else {}
    made = {
        module: _constant(module, size, constants[module], example)
        for module, size in sizes.items()
    }
    for convolution, (layer, size) in mergeable.items():
        constant = made[layer]
        assert isinstance(constant, Frozen)
        if constant.size == constant.output_size:  # it could not tell what is done already
            continue
        before = _before(convolution, size, constants[layer], example)
        if before is not None:
            merged = recast(convolution, CONVERTED[type(convolution)][2])
            merged.downsample, merged.downsample_first = before, True
            made[convolution] = merged
            constant.done_before = True
    return replace_modules(model, made)


def replace_modules(model: nn.Module, made: Mapping[nn.Module, nn.Module]) -> nn.Module:
    """A network with other modules in the places of some; what hooks do there is done still."""
    places = [
        (model.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2], module)
        for name, module in model.named_modules(remove_duplicate=False)
        if module in made and name
    ]
    for parent, child, module in places:
        if parent not in made:  # whose parts are replaced with it
            setattr(parent, child, made[module])
    for old, new in made.items():
        _move_hooks(old, new)
    return made.get(model, model)


def _move_hooks(old: nn.Module, new: nn.Module) -> None:
    for name in (
        "_forward_pre_hooks",
        "_forward_pre_hooks_with_kwargs",
        "_forward_hooks",
        "_forward_hooks_with_kwargs",
        "_forward_hooks_always_called",
    ):
        setattr(new, name, getattr(old, name))


def _read(module: nn.Module, size: Size, like: Tensor) -> list[AxisConstants]:
    """Return what a layer's downsampling does along each axis."""
    if isinstance(module, Converted):
        size = module.size_before_downsampling(size)
    return resizer_of(module).constants(size, like)


def _constant(module: Any, size: Size, axes: list[AxisConstants], like: Tensor) -> nn.Module:
    """Return the same layer with constants in the place of what it learned."""
    if not isinstance(module, Converted | DiffStrideConvNd):
        return Frozen(axes, like)
    if isinstance(module, DiffStrideConvNd):
        convolution = plain_convolution(module, 1)
    else:
        convolution = recast(module, type(module))
    before = None
    if isinstance(convolution, _ConvNd) and not has_hooks(module.downsample):
        before = _before(convolution, size, axes, like)
    downsample = before or Frozen(axes, like)
    if isinstance(module, DiffStrideConvNd):
        return FrozenConv(convolution, downsample, before is not None)
    _move_hooks(module.downsample, downsample)
    convolution.downsample, convolution.downsample_first = downsample, before is not None
    converted: nn.Module = convolution
    return converted


def _before(convolution: Any, size: Size, axes: list[AxisConstants], like: Tensor) -> Frozen | None:
    """The downsampling for before a convolution instead of after it, if that is less work.

    The convolution is changed to read what it makes; otherwise nothing is.
    """
    mode = convolution.padding_mode
    plain = mode == "zeros" and not isinstance(convolution.padding, str)
    if plain:
        paddings = [(p, p) for p in convolution.padding]
    else:
        both = convolution._reversed_padding_repeated_twice  # the last axis first
        paddings = [(both[-2 * i - 2], both[-2 * i - 1]) for i in range(len(size))]
    dilation = list(convolution.dilation)
    first = []
    for i, axis in enumerate(axes):
        kernel = convolution.kernel_size[i]
        if plain and axis.is_identity:  # the convolution does as ever along this axis
            first.append(AxisConstants(size[i], size[i]))
            continue
        if kernel == 1 and paddings[i] == (0, 0):
            first.append(axis)
        elif axis.weights is not None:  # each tap would need a matrix, and long ones are large
            return None
        else:
            matrix = axis.matrix
            if matrix is None:
                matrix = torch.eye(axis.size, dtype=like.dtype, device=like.device)
            taps = spread(matrix, size[i], kernel, dilation[i], paddings[i], mode)
            first.append(AxisConstants(size[i], len(taps), matrix=taps))
        dilation[i], paddings[i] = axis.kept, (0, 0)
    weights = convolution.weight.numel()
    inside = math.prod(axis.kept for axis in axes) * weights
    inside += convolution.in_channels * work(first)
    outside = math.prod(axis.size for axis in axes) * weights
    outside += convolution.out_channels * work(axes)
    # Taps that lie far apart take a convolution longer.
    slower = 1 if set(convolution.kernel_size) == {1} else 2
    if slower * inside >= outside:
        return None
    if convolution.bias is not None:
        # The bias, a constant, becomes what downsampling makes of it.
        gain = math.prod(axis.gain for axis in axes)
        convolution.bias = nn.Parameter(convolution.bias.detach() * gain)
    convolution.dilation = tuple(dilation)
    convolution.padding = tuple(left for left, _ in paddings)
    convolution.padding_mode = "zeros"
    return Frozen(first, like)


def plain_convolution(module: DiffStrideConvNd, stride: Any) -> Any:
    """A convolution of torch with the weights of one of ours."""
    make: Any = module.convolution
    convolution = make(
        module.weight.shape[1] * module.groups,
        module.weight.shape[0],
        module.kernel_size,
        stride=stride,
        padding=module.padding,
        dilation=module.dilation,
        groups=module.groups,
        bias=module.bias is not None,
        padding_mode=module.padding_mode,
        device="meta",
    )
    convolution.weight = module.weight
    convolution.bias = module.bias
    return convolution
