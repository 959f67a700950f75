"""The plain strided network next to one that has learned its strides."""

from typing import Any

import torch
from torch import Tensor, nn

from diffstride.layers import DiffStrideConvNd, SpectralPoolNd
from diffstride.layers.converted import Following, torch_class
from diffstride.layers.frozen import Subsample
from diffstride.surgery.constants import (
    Downsampling,
    Size,
    find_sizes,
    plain_convolution,
    replace_modules,
)


def with_whole_strides(model: nn.Module, example: Tensor) -> nn.Module:
    """A network, which is changed, with every stride the nearest whole number."""
    sizes = find_sizes(model, example)
    # All is read before anything is changed: layers may follow others.
    strides = {module: _strides(module, size) for module, size in sizes.items()}
    plain = replace_modules(model, {module: _whole(module, strides[module]) for module in sizes})
    try:
        with torch.no_grad():
            plain(example)
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f"with whole strides the network does not fit: {error}. Branches that meet must shrink "
            f"by the same whole number, and a convolution is one of torch now, called as such"
        ) from error
    return plain


def _strides(module: Any, size: Size) -> tuple[int, ...]:
    """The nearest whole numbers."""
    layer = module if isinstance(module, Downsampling) else module.downsample
    if isinstance(layer, Following):
        return layer.whole_strides
    if isinstance(layer, SpectralPoolNd):
        strides = [n / m for n, m in zip(size, layer.output_size(size), strict=True)]
    else:
        strides = list(layer.strides)
    return tuple(max(1, round(s)) for s in strides)


def _whole(module: Any, strides: tuple[int, ...]) -> nn.Module:
    """The same layer with a whole stride."""
    if isinstance(module, DiffStrideConvNd):
        plain: nn.Module = plain_convolution(module, strides)
        return plain
    base: Any = torch_class(module)
    if base is None:  # a layer of ours, or one in the place of a pooling
        return Subsample(strides)
    del module.downsample
    module.__class__ = base
    module.stride = strides
    converted: nn.Module = module
    return converted
