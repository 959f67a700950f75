"""The one factory by which networks ask for downsampling, whatever kind it is."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from torch import nn

from diffstride.core import arguments
from diffstride.core.rule import Rule
from diffstride.layers.diffstride import DiffStride1d, DiffStride2d, DiffStride3d
from diffstride.layers.spectral_pool import SpectralPool1d, SpectralPool2d, SpectralPool3d

# What else layers may be given: spectral poolings some of it, learnable ones all.
_RULE_OPTIONS = {f.name for f in fields(Rule)} - {"smoothness", "output_size", "way"}
_LAYER_OPTIONS = ("learnable", "min_stride", "max_stride")
OPTIONS = [*dict.fromkeys(["norm", "path", "convention", *sorted(_RULE_OPTIONS)]), *_LAYER_OPTIONS]
KINDS = ("strided", "average", "max", "spectral", "diffstride")
_LAYERS: dict[str, tuple[Any, Any, Any]] = {
    "average": (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d),
    "max": (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d),
    "spectral": (SpectralPool1d, SpectralPool2d, SpectralPool3d),
    "diffstride": (DiffStride1d, DiffStride2d, DiffStride3d),
}


class Downsampling(NamedTuple):
    """A way to downsample what a convolution makes: one of the two does it, the other nothing.

    The layer comes after the convolution, and before that of a shortcut; it may be used in both.
    """

    layer: nn.Module
    conv_stride: tuple[int, ...]


def downsample(
    kind: str,
    stride: float | Sequence[float],
    dims: int,
    *,
    smoothness: float = 4.0,
    shared: bool = False,
    **options: Any,
) -> Downsampling:
    """Return what downsamples by a stride: a layer, or the stride of a convolution.

    Args:
        kind: ``"strided"`` leaves it to the convolution; ``"average"`` and ``"max"`` pool windows
            as large as the stride; ``"spectral"`` cuts the spectrum; ``"diffstride"`` learns.
        stride: one number, or one per axis. The first three kinds need whole numbers.
        dims: how many spatial axes there are, from 1 to 3.
        smoothness, shared, options: arguments of a learnable layer. Kinds that have no such
            argument leave it aside, so that networks can be compared.

    Raises:
        ValueError: for an unknown kind, or a stride that it can't have.
        TypeError: for an option that no kind has.

    >>> downsample("strided", 2, dims=2)
    Downsampling(layer=Identity(), conv_stride=(2, 2))
    >>> downsample("diffstride", (2.0, 1.5), dims=2, smoothness=1.0).layer
    DiffStride2d(stride=(2, 1.5), learnable=True, smoothness=1)
    """
    arguments.check_choice(kind, KINDS, "downsampling")
    if dims not in (1, 2, 3):
        raise ValueError(f"dims must be 1, 2 or 3, got {dims}")
    if unknown := sorted(set(options) - set(OPTIONS)):
        raise TypeError(f"unknown options {', '.join(unknown)}: known are {', '.join(OPTIONS)}")
    strides = arguments.per_axis(stride, dims, "stride")
    arguments.check_strides(strides)
    whole = tuple(int(s) for s in strides)
    if kind == "diffstride":
        options |= {"smoothness": smoothness, "shared": shared}
    elif kind == "spectral":
        options = {name: options[name] for name in ("norm", "basis", "path") if name in options}
    elif whole != strides:
        raise ValueError(
            f"stride must be whole for downsampling={kind!r}, got {strides}: round it, or use "
            f"'spectral' or 'diffstride', which take any stride"
        )
    elif kind == "strided":
        return Downsampling(nn.Identity(), whole)
    else:
        strides, options = whole, {}
    return Downsampling(_LAYERS[kind][dims - 1](strides, **options), (1,) * dims)
