"""The plain strided network next to one that has learned its strides."""

from typing import Any

import torch
from torch import Tensor, nn

from diffstride.layers.conv import DiffStrideConvNd
from diffstride.layers.converted import recast, torch_class
from diffstride.layers.frozen import Subsample
from diffstride.surgery.constants import (
    find_sizes,
    plain_convolution,
    replace_modules,
    resizer_of,
)


def with_whole_strides(model: nn.Module, example: Tensor) -> nn.Module:
    """A network, which is changed, with every stride the nearest whole number."""
    sizes = find_sizes(model, example)
    # All is read before anything is changed: layers may follow others.
    strides = {module: resizer_of(module).strides_for(size) for module, size in sizes.items()}
    made = {
        module: _whole(module, tuple(max(1, round(s)) for s in own))
        for module, own in strides.items()
        if min(own) >= 1  # what makes maps larger has no stride, and stays as it is
    }
    plain = replace_modules(model, made)
    try:
        with torch.no_grad():
            plain(example)
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f"with whole strides the network does not fit: {error}. Branches that meet must shrink "
            f"by the same whole number, and a convolution is one of torch now, called as such"
        ) from error
    return plain


def _whole(module: Any, strides: tuple[int, ...]) -> nn.Module:
    """The same layer with a whole stride."""
    if isinstance(module, DiffStrideConvNd):
        plain: nn.Module = plain_convolution(module, strides)
        return plain
    base: Any = torch_class(module)
    if base is None:  # a layer of ours, or one in the place of a pooling
        return Subsample(strides)
    unconverted = recast(module, base)
    del unconverted.downsample
    unconverted.stride = strides
    return unconverted  # type: ignore[no-any-return]
