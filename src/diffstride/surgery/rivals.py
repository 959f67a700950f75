"""What conversion to another method than a learnable window does differently.

Blur pooling, frequency low-cut and polyphase sampling leave ⌈N/S⌉ samples, as a strided layer does:
with them every map keeps its size, so that layers need not agree on a stride, and what goes up
again fits as it did. A shape adaptor and a learnable resize change sizes while they learn, and are
treated like a learnable window. ``docs/rivals.md`` describes them.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from torch import nn

from diffstride.core import arguments
from diffstride.layers import conversion_record
from diffstride.layers.factory import options_of
from diffstride.surgery.sites import Site, begin_site, find_groups
from diffstride.surgery.size_trace import SizeTrace, Use

LEARNING = ("diffstride", "shape_adaptor", "bilinear")
TARGETS = (*LEARNING, "blur", "flc", "polyphase")
"""What layers can be converted to: names of kinds that the factory has."""


def check_options(to: str, options: Collection[str]) -> None:
    """Raise a ValueError or TypeError unless layers can be converted to this, with these."""
    arguments.check_choice(to, TARGETS, "to")
    known = options_of(to)
    if to != "diffstride" and (unknown := sorted(set(options) - set(known))):
        raise TypeError(
            f"to={to!r} does not take {', '.join(unknown)}: it takes "
            f"{', '.join(known) or 'no further arguments'}"
        )


def groups(
    to: str,
    uses: list[Use],
    sites: Mapping[str, nn.Module],
    traced: SizeTrace,
    wanted: Sequence[Sequence[str]] | None,
) -> list[list[str]]:
    """Return names of sites that must agree, group by group in the order they run.

    On a size if they learn it; or, in polyphase sampling, on a grid if their outputs meet.
    """
    if to in LEARNING:
        return find_groups(uses, sites, traced, wanted)
    found: dict[Any, list[str]] = {}
    for name in dict.fromkeys(use.name for use in uses):
        made = next(use.made.root() for use in uses if use.name == name)
        found.setdefault(made if to == "polyphase" else name, []).append(name)
    return list(found.values())


def record(
    to: str,
    names: list[str],
    uses: list[Use],
    sites: Mapping[str, nn.Module],
    stride: float | Sequence[float] | None,
    pooling: str,
    placement: str,
    options: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Return the record of sites that must agree: the first has a layer, others call it again.

    One that reads another map follows a size that is learned, and otherwise has its own layer.
    """
    made: list[dict[str, Any]] = []
    first: Site | None = None
    for name in names:
        site = begin_site(name, sites[name], uses, pooling, placement)
        if first is not None and (to in LEARNING or site.reads == first.reads):
            ratio = [a / b for a, b in zip(site.strides, first.strides, strict=True)]
            same = site.reads == first.reads
            made.append(conversion_record.follower_site(site.entry, names[0], ratio, same))
            continue
        first = first or site
        axes = len(site.strides)
        initial = arguments.per_axis(site.strides if stride is None else stride, axes, "stride")
        made.append({**conversion_record.leader_site(site.entry, initial, options), "to": to})
    return made
