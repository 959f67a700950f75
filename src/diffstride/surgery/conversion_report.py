"""What a conversion has changed, to be printed and to be carried out again."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from diffstride.layers.converted import whole_strides
from diffstride.surgery.map_sizes import Size, SizeChange
from diffstride.text import aligned, times


@dataclass(frozen=True)
class ConvertedSite:
    """One layer that was converted."""

    name: str
    before: str
    """What it was: its class and stride."""
    after: str
    """The layer that downsamples now: after it, unless it says before."""
    group: int
    """Sites of one group make one size."""
    size_before: Size
    size_after: Size


@dataclass(frozen=True)
class ConvertedWayUp:
    """One layer that makes maps larger, and from now on as large as one was on the way down."""

    name: str
    kind: str
    """Its class, which it still has."""
    undoes: str
    """The site to whose input it goes back."""
    size_before: Size
    size_after: Size


@dataclass(frozen=True)
class LeftAlone(SizeChange):
    """Something that has a stride and keeps it."""

    reason: str

    def __str__(self) -> str:
        return f"{super().__str__()}, {self.reason}"


@dataclass(frozen=True)
class ConversionReport:
    """What was changed; prints as a table."""

    sites: tuple[ConvertedSite, ...]
    macs_before: int
    macs_after: int
    left_alone: tuple[LeftAlone, ...] = ()
    record: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """The conversion as data, for :func:`diffstride.layers.apply_conversion`; JSON can hold it
    unless an option can't be."""
    ways_up: tuple[ConvertedWayUp, ...] = ()

    def __str__(self) -> str:
        text = ["nothing was converted"]
        if self.sites:
            lines = [("site", "before", "now with", "group", "size before", "size now")]
            for site in self.sites:
                sizes = times(site.size_before), times(site.size_after)
                lines.append((site.name, site.before, site.after, str(site.group), *sizes))
            macs = f"{self.macs_before / 1e6:.4g} M MACs before, {self.macs_after / 1e6:.4g} M now"
            text = [*aligned(lines), macs]
        if self.ways_up:
            ups = [("way up", "what", "undoes", "from size", "to size")]
            for up in self.ways_up:
                ups.append(
                    (up.name, up.kind, up.undoes, times(up.size_before), times(up.size_after))
                )
            text += aligned(ups)
        if self.left_alone:
            kept = [("left alone in", "what", "size before", "size after", "why")]
            for left in self.left_alone:
                sizes = times(left.size_before), times(left.size_after)
                kept.append((left.name or "the model", left.operation, *sizes, left.reason))
            text += aligned(kept)
        return "\n".join(text)


def describe(module: nn.Module) -> str:
    """Return the class and stride of a layer that can be converted."""
    strides = whole_strides(module)
    stride = str(strides[0]) if len(set(strides)) == 1 else "×".join(map(str, strides))
    return f"{type(module).__name__}, stride {stride}"


def describe_new(module: nn.Module) -> str:
    """Return what downsamples in a layer that was converted."""
    layer: Any = module.downsample
    order = ", before it" if module.downsample_first else ""
    if layer.counts and layer.follows:
        return f"what its group makes{order}"
    strides = ", ".join(f"{s:.4g}" for s in layer.leading.strides)
    return f"{type(layer.leading).__name__}({strides}){order}"
