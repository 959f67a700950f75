"""The places of a network that have a stride: what they do, and the layers that do it for good."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from diffstride.analysis.cost_model import CostModel
from diffstride.analysis.cost_record import Cost, LayerCost
from diffstride.analysis.restoring import unwrapped
from diffstride.core import arguments
from diffstride.core.rule import CHOICES
from diffstride.core.windows import kept_length
from diffstride.layers import SpectralPool1d, SpectralPool2d, SpectralPool3d, SpectralPoolNd
from diffstride.layers.conv import DiffStrideConvNd
from diffstride.layers.diffstride import DiffStrideNd
from diffstride.layers.resizer import Resizer
from diffstride.layers.undo import Undo

POOLS: dict[int, type[SpectralPoolNd]] = {1: SpectralPool1d, 2: SpectralPool2d, 3: SpectralPool3d}
OPTIONS = ("norm", "basis", "path")
"""What a fixed layer has in common with the learnable one in whose place it is."""
_DECIMALS = range(4, 13)


@dataclass(frozen=True)
class StrideSite:
    """One layer that has a stride, for an input of one size."""

    name: str
    """Of the layer in its network."""
    strides: tuple[float, ...]
    """One for each axis."""
    input_size: tuple[int, ...]
    output_size: tuple[int, ...]
    macs: int
    """Multiply-accumulates of this layer and all that run after it, up to the next site."""
    norm: str = "ortho"
    basis: str = "fourier"
    path: str = "auto"
    other_names: tuple[str, ...] = ()
    """Of the same layer, where a network has it in several places."""
    undone_by: tuple[str, ...] = ()
    """The names of layers on the way up that undo this one."""

    def __post_init__(self) -> None:
        where = f"of layer {self.name!r}"
        others = (*self.other_names, *self.undone_by)
        if not all(isinstance(name, str) for name in (self.name, *others)):
            raise TypeError(f"names must be text, got {self.name!r} and {others}")
        strides = arguments.to_numbers(self.strides, f"strides {where}")
        strides = strides if isinstance(strides, tuple) else (strides,)
        object.__setattr__(self, "strides", strides)  # as plain numbers
        axes = len(strides)
        if axes not in POOLS:
            raise ValueError(f"strides {where} must be 1 to 3, one for each axis, got {axes}")
        arguments.check_strides(self.strides, f"stride {where}")
        for kind in ("input_size", "output_size"):
            size = getattr(self, kind)
            if len(size) != axes or not all(_is_whole(n) and n >= 1 for n in size):
                expected = f"one whole number of at least 1 for each stride {self.strides}"
                raise ValueError(f"{kind} {where} must be {expected}, got {size}")
        if any(m > n for n, m in zip(self.input_size, self.output_size, strict=True)):
            both = f"{self.output_size} from {self.input_size}"
            raise ValueError(f"output_size {where} must be at most its input_size, got {both}")
        if not _is_whole(self.macs) or self.macs < 0:
            raise ValueError(f"macs {where} must be a whole number from 0 on, got {self.macs!r}")
        for kind in OPTIONS:
            arguments.check_choice(getattr(self, kind), CHOICES[kind], f"{kind} {where}")

    @property
    def fixed_strides(self) -> tuple[float, ...]:
        """The strides with which a spectral pooling makes ``output_size`` of ``input_size``.

        Each is the stride of the site, to four decimals, where cutting the spectrum there makes
        this size: with tight windows, and of whole strides. Windows that need room beyond the
        cut-off make N/S + 2R samples; there it is N/M, rounded down.
        """
        axes = zip(self.input_size, self.output_size, self.strides, strict=True)
        return tuple(fixed_stride(*axis) for axis in axes)

    def layer(self) -> SpectralPoolNd:
        """Return the layer that makes the sizes of the site with nothing to learn."""
        return POOLS[len(self.strides)](self.fixed_strides, **self.options)

    @property
    def needs_room(self) -> bool:
        """Whether a window keeps more samples than size / stride."""
        axes = zip(self.input_size, self.output_size, self.strides, strict=True)
        return any(m > n / s + 1 for n, m, s in axes)

    @property
    def is_whole(self) -> bool:
        """Whether strides are whole, and sizes those that spectral pooling makes with them."""
        whole = all(s.is_integer() for s in self.strides)
        return whole and self.fixed_strides == self.strides

    @property
    def options(self) -> dict[str, Any]:
        return {kind: getattr(self, kind) for kind in OPTIONS}


def _is_whole(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)


def fixed_stride(size: int, kept: int, stride: float) -> float:
    """Return a number with few decimals by which spectral pooling makes M of N samples."""
    tried = [round(stride, 4)]
    for scale in (10**decimals for decimals in _DECIMALS):
        whole = math.floor(scale * size / kept)
        tried += [whole / scale, max(scale, whole - 1) / scale]
    return next(number for number in tried if kept_length(size, number, 0.0) == kept)


def find_sites(model: nn.Module, input_size: Sequence[int]) -> tuple[tuple[StrideSite, ...], Cost]:
    """Return the places of a network that have a stride, in the order they run, and its cost.

    Spectral poolings to a given size have none, nor do layers that make the size of another one.

    Raises:
        ValueError: if there are none, or one can't be described by one size.
    """
    cost = CostModel(model, input_size).at()
    names: dict[nn.Module, list[str]] = {}
    for name, module in unwrapped(model).named_modules(remove_duplicate=False):
        names.setdefault(module, []).append(name)
    starts: dict[Resizer, int] = {}
    sizes: dict[Resizer, tuple[tuple[int, ...], tuple[int, ...]]] = {}
    for i, use in enumerate(cost.layers):
        layer, size = _downsampling(use)
        if layer is None:
            continue
        starts.setdefault(layer, i)
        both = (size, use.output_size)
        if sizes.setdefault(layer, both) != both:
            raise ValueError(
                f"{names[layer][0]} is used at several sizes, {sizes[layer][0]} and {size}, and a "
                f"plan has one for each layer: use another layer in each place"
            )
    if not starts:
        raise ValueError(
            "model must have a layer with a stride, DiffStride, DiffStrideConv or SpectralPool, "
            "and has none: diffstride.convert gives learnable strides to a network of torch"
        )
    sites = []
    ends = itertools.pairwise([*starts.values(), len(cost.layers)])
    for layer, (start, end) in zip(starts, ends, strict=True):
        macs = int(sum(use.macs for use in cost.layers[start:end]))
        options: dict[str, Any] = {kind: getattr(layer.rule, kind) for kind in OPTIONS}
        name, *others = names[layer]
        before, after = sizes[layer]
        options["other_names"] = tuple(others)
        undo = (i for i in names if isinstance(i, Undo) and i.undoes(layer))
        options["undone_by"] = tuple(names[i][0] for i in undo)
        sites.append(StrideSite(name, layer.strides, before, after, macs, **options))
    return tuple(sites), cost


def _downsampling(use: LayerCost) -> tuple[Resizer | None, tuple[int, ...]]:
    """Return the layer with a stride that is used, if it is one, and the size that comes to it."""
    layer: nn.Module = use.layer
    size = use.input_size
    if isinstance(layer, DiffStrideConvNd):
        size = layer.convolved_size(size)
        layer = layer.downsample
    if isinstance(layer, DiffStrideNd) and layer.rule.way == "down" and layer.is_planned:
        return layer, size
    if isinstance(layer, SpectralPoolNd) and layer.stride:
        return layer, size
    return None, size
