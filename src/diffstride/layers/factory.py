"""The one factory by which networks ask for downsampling, whatever kind it is."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from torch import nn

from diffstride.core import arguments
from diffstride.core.rule import Rule
from diffstride.layers.blur import BlurPool1d, BlurPool2d, BlurPool3d
from diffstride.layers.diffstride import DiffStride1d, DiffStride2d, DiffStride3d
from diffstride.layers.learned_resize import LearnedResize1d, LearnedResize2d, LearnedResize3d
from diffstride.layers.low_cut import FrequencyLowCut1d, FrequencyLowCut2d, FrequencyLowCut3d
from diffstride.layers.polyphase import PolyphaseSample1d, PolyphaseSample2d, PolyphaseSample3d
from diffstride.layers.resizer import Resizer
from diffstride.layers.shape_adaptor import ShapeAdaptor1d, ShapeAdaptor2d, ShapeAdaptor3d
from diffstride.layers.spectral_pool import SpectralPool1d, SpectralPool2d, SpectralPool3d


class Kind(NamedTuple):
    """A kind of downsampling: its layers in 1, 2 and 3 dimensions, and what they are given."""

    layers: tuple[Any, Any, Any] | None
    """None if a convolution does it with its stride."""
    options: tuple[str, ...] = ()
    takes_any_stride: bool = False


_RULE_OPTIONS = tuple(sorted({f.name for f in fields(Rule)} - {"smoothness", "output_size", "way"}))
_RANGE = ("learnable", "min_stride", "max_stride")
_KINDS = {
    "strided": Kind(None),
    "average": Kind((nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)),
    "max": Kind((nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)),
    "spectral": Kind(
        (SpectralPool1d, SpectralPool2d, SpectralPool3d), ("norm", "basis", "path"), True
    ),
    "diffstride": Kind(
        (DiffStride1d, DiffStride2d, DiffStride3d),
        ("smoothness", "shared", *_RULE_OPTIONS, *_RANGE),
        True,
    ),
    "blur": Kind((BlurPool1d, BlurPool2d, BlurPool3d), ("taps",)),
    "flc": Kind((FrequencyLowCut1d, FrequencyLowCut2d, FrequencyLowCut3d)),
    "polyphase": Kind((PolyphaseSample1d, PolyphaseSample2d, PolyphaseSample3d)),
    "shape_adaptor": Kind(
        (ShapeAdaptor1d, ShapeAdaptor2d, ShapeAdaptor3d),
        ("per_axis", "max_stride", "learnable"),
        True,
    ),
    "bilinear": Kind(
        (LearnedResize1d, LearnedResize2d, LearnedResize3d), ("shared", *_RANGE), True
    ),
}
KINDS = tuple(_KINDS)
"""Names of the kinds there are; ``docs/rivals.md`` describes those from "blur" on."""
OPTIONS = [
    *dict.fromkeys(["norm", "path", "convention", *_RULE_OPTIONS, *_RANGE, "taps", "per_axis"])
]
"""What layers may be given besides smoothness and whether axes share a stride."""


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
            ``"blur"``, ``"flc"``, ``"polyphase"``, ``"shape_adaptor"`` and ``"bilinear"`` are
            methods of others, see :class:`BlurPool2d`, :class:`FrequencyLowCut2d`,
            :class:`PolyphaseSample2d`, :class:`ShapeAdaptor2d` and :class:`LearnedResize2d`; the
            last two learn.
        stride: one number, or one per axis. Kinds but ``"spectral"`` and those that learn need
            whole numbers.
        dims: how many spatial axes there are, from 1 to 3.
        smoothness, shared, options: arguments of the layer. Kinds that have no such argument leave
            it aside, so that networks can be compared.

    Raises:
        ValueError: for an unknown kind, or a stride that it can't have.
        TypeError: for an option that no kind has.

    >>> downsample("strided", 2, dims=2)
    Downsampling(layer=Identity(), conv_stride=(2, 2))
    >>> downsample("diffstride", (2.0, 1.5), dims=2, smoothness=1.0).layer
    DiffStride2d(stride=(2, 1.5), learnable=True, smoothness=1)
    >>> downsample("blur", 2, dims=2, smoothness=1.0).layer
    BlurPool2d(stride=(2, 2), taps=3)
    """
    arguments.check_choice(kind, KINDS, "downsampling")
    if dims not in (1, 2, 3):
        raise ValueError(f"dims must be 1, 2 or 3, got {dims}")
    if unknown := sorted(set(options) - set(OPTIONS)):
        raise TypeError(f"unknown options {', '.join(unknown)}: known are {', '.join(OPTIONS)}")
    strides = arguments.per_axis(stride, dims, "stride")
    arguments.check_strides(strides)
    layers, known, takes_any_stride = _KINDS[kind]
    whole = tuple(int(s) for s in strides)
    if whole != strides and not takes_any_stride:
        others = " or ".join(repr(name) for name, other in _KINDS.items() if other.takes_any_stride)
        raise ValueError(
            f"stride must be whole for downsampling={kind!r}, got {strides}: round it, or use "
            f"{others}, which take any stride"
        )
    if layers is None:
        return Downsampling(nn.Identity(), whole)
    given = {"smoothness": smoothness, "shared": shared, **options}
    arguments_ = {name: value for name, value in given.items() if name in known}
    layer = layers[dims - 1](strides if takes_any_stride else whole, **arguments_)
    return Downsampling(layer, (1,) * dims)


def options_of(kind: str) -> tuple[str, ...]:
    """Return the names of what the layers of a kind may be given besides their stride."""
    return _KINDS[kind].options


def layer_class(kind: str, dims: int) -> type[Resizer]:
    """Return the class of the layers of a kind that is one of ours.

    >>> layer_class("blur", 1).__name__
    'BlurPool1d'
    """
    layers = _KINDS[kind].layers
    assert layers is not None
    return layers[dims - 1]  # type: ignore[no-any-return]
