"""Which layers of a decoder make maps as large again as they were, and what each of them undoes."""

from collections.abc import Collection, Sequence
from fnmatch import fnmatch

from torch import nn

from diffstride.layers.conversion_record import replaced_method
from diffstride.layers.converted import torch_class
from diffstride.layers.returning import may_be_way_up
from diffstride.surgery.map_sizes import Size
from diffstride.surgery.size_trace import Use, WayUp
from diffstride.text import times

INSTEAD = (
    "Have nn.Upsample or nn.ConvTranspose in its place, or give it the size to make, "
    "F.interpolate(x, size=skip.shape[2:])"
)
"""What to do about a function that makes maps larger by a factor."""


def find_ways_up(model: nn.Module, exclude: Sequence[str]) -> dict[str, nn.Module]:
    """Return all modules that can go back to a size, by name: not the network as a whole."""
    return {
        name: module
        for name, module in model.named_modules()
        if name
        and may_be_way_up(module)
        and torch_class(module) is None
        and not any(fnmatch(name, pattern) for pattern in exclude)
    }


def find_undone(
    ways: Sequence[WayUp], layers: dict[str, nn.Module], sites: Collection[str]
) -> dict[str, WayUp]:
    """Return for every layer that goes back to what a site has read how it does, by its name.

    Args:
        ways: every use of such a layer that was seen.
        layers: these layers by name.
        sites: the names of what is converted.

    Raises:
        ValueError: for a layer that goes back to several sites, or whose method was replaced.
    """
    undone: dict[str, WayUp] = {}
    for way in ways:
        first = undone.setdefault(way.name, way)
        if first.undoes != way.undoes:
            goals = f"{first.undoes or 'nothing'} and {way.undoes or 'nothing'}"
            raise ValueError(
                f"{way.name} is used several times, and undoes {goals}: have a layer of its own in "
                f"each place, or leave out what comes before it with exclude={sorted(sites)}"
            )
    followed = {name: way for name, way in undone.items() if way.undoes in sites}
    for name in followed:
        if method := replaced_method(layers[name]):
            raise ValueError(
                f"{name} ({type(layers[name]).__name__}) had its method {method} replaced by "
                f"another function, so that its output can't be made to fit: leave out what comes "
                f"before it with exclude={sorted(sites)}"
            )
    return followed


def check_none_is_rounded(ways: Sequence[WayUp]) -> None:
    """Raise a ValueError for a layer that makes nearly the size that a site has read.

    Something pads or crops what it makes, which fits at the initial strides alone: with others,
    maps would lie beside each other that do not belong together, and nobody would notice.
    """
    for way in ways:
        if way.nearly:
            raise ValueError(
                f"{way.name} makes {times(way.size_after)} of {times(way.size_before)}, almost "
                f"what {way.nearly} has read, so it can't be told what it undoes: give an example "
                f"whose sizes can be divided by all strides, or leave it as it is with "
                f"exclude=[{way.name!r}]"
            )


def padded_before(uses: Sequence[Use], size: Size) -> str:
    """Return which site reads a map of this size padded by a function; empty if none does.

    It reads another size then, and what goes back would make that.
    """
    for use in uses:
        read = use.read.root()
        if read.parent is not None and read.parent.root().size == size and read.makers == ["[pad]"]:
            return (
                f"{use.name} reads {times(size)} padded by a function to {times(read.size)}, and "
                f"only what a layer reads can be gone back to: have its own padding instead"
            )
    return ""


def why_not(ways: Sequence[WayUp], name: str) -> str:
    """Return why a layer that makes maps larger undoes nothing; empty if that is not so."""
    way = next((way for way in ways if way.name == name and not way.undoes), None)
    if way is None:
        return ""
    sizes = f"{times(way.size_after)} of {times(way.size_before)}"
    if way.overtaken:
        return (
            f"{name} makes {sizes}, as {way.overtaken} has read, which has run again since, so "
            f"that there is no way back: have a layer of its own in each place where it runs"
        )
    return (
        f"{name} makes {sizes}, and nothing that is converted before it has read a map of "
        f"{times(way.size_after)}: an input whose sizes can be divided by all strides may help"
    )
