"""What a conversion changed and what it left, as a table."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from diffstride.text import aligned, times


@dataclass(frozen=True)
class ConvertedSite:
    """One layer that was converted."""

    name: str
    before: str
    """What it was: its class and stride."""
    after: str
    """What comes after it now."""
    group: int
    """Sites of one group make one size."""
    size_before: tuple[int, ...]
    size_after: tuple[int, ...]


@dataclass(frozen=True)
class LeftAlone:
    """Something that has a stride and keeps it."""

    name: str
    """The module in which it happens."""
    operation: str
    size_before: tuple[int, ...]
    size_after: tuple[int, ...]
    reason: str

    def __str__(self) -> str:
        sizes = f"{times(self.size_before)} → {times(self.size_after)}"
        sizes = f" ({sizes})" if self.size_before else ""
        return f"{self.operation} in {self.name or 'the model'}{sizes}, {self.reason}"


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

    def __str__(self) -> str:
        text = ["nothing was converted"]
        if self.sites:
            lines: list[tuple[str, ...]] = [
                ("site", "before", "now followed by", "group", "size before", "size now")
            ]
            for site in self.sites:
                sizes = (times(site.size_before), times(site.size_after))
                lines.append((site.name, site.before, site.after, str(site.group), *sizes))
            macs = f"{self.macs_before / 1e6:.4g} M MACs before, {self.macs_after / 1e6:.4g} M now"
            text = [*aligned(lines), macs]
        if self.left_alone:
            lines = [("left alone in", "what", "size before", "size after", "why")]
            for left in self.left_alone:
                sizes = (times(left.size_before), times(left.size_after))
                lines.append((left.name or "the model", left.operation, *sizes, left.reason))
            text += aligned(lines)
        return "\n".join(text)
