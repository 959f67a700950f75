"""What a conversion changed, as a table."""

from dataclasses import dataclass


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
class ConversionReport:
    """What was changed; prints as a table."""

    sites: tuple[ConvertedSite, ...]
    macs_before: int
    macs_after: int

    def __str__(self) -> str:
        if not self.sites:
            return "nothing was converted"
        lines: list[tuple[str, ...]] = [
            ("site", "before", "now followed by", "group", "size before", "size now")
        ]
        for site in self.sites:
            sizes = (" × ".join(map(str, s)) for s in (site.size_before, site.size_after))
            lines.append((site.name, site.before, site.after, str(site.group), *sizes))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        ]
        macs = f"{self.macs_before / 1e6:.4g} M MACs before, {self.macs_after / 1e6:.4g} M now"
        return "\n".join([*text, macs])
