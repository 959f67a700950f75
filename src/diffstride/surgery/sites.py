"""Which layers of a network are to be converted, and which of them share a stride."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from diffstride.layers.conversion_record import any_site, check_convertible
from diffstride.layers.converted import CONVERTED, shortening, torch_class, whole_strides
from diffstride.layers.siblings import may_be_siblings
from diffstride.surgery.size_trace import Grid, SizeTrace, Use
from diffstride.surgery.ways_up import INSTEAD

KINDS = ("conv", "maxpool", "avgpool")


class Site(NamedTuple):
    """A layer to convert: how its entry in the record begins, and what it is compared by."""

    entry: dict[str, Any]
    use: Use
    strides: tuple[int, ...]
    taken: tuple[int, ...]
    """How many samples it takes away by itself, without padding enough."""

    @property
    def reads(self) -> Any:
        """Two sites that have the same here make the same size."""
        return self.use.read.root(), self.taken, self.strides


def begin_site(name: str, module: nn.Module, uses: list[Use], pooling: str, placement: str) -> Site:
    """Return a site whose entry says what it is, and not yet what it becomes."""
    base = torch_class(module)
    assert base is not None
    kind, axes, _ = CONVERTED[base]
    kept = "keep" if kind == "conv" else pooling
    taken = shortening(module, axes) if kept == "keep" else (0,) * axes
    # Others would make other sizes of a map that is downsampled before.
    is_first = placement == "before" and kind == "conv" and not any(taken)
    use = next(use for use in uses if use.name == name)
    return Site(any_site(name, base, kept, is_first), use, whole_strides(module), taken)


def find_sites(
    model: nn.Module, kinds: Sequence[str], include: Sequence[str] | None, exclude: Sequence[str]
) -> dict[str, nn.Module]:
    """Return the layers to convert, by name; raise a ValueError if one can't be."""
    sites = {}
    for name, module in strided_layers(model).items():
        wanted = include is None or any(fnmatch(name, pattern) for pattern in include)
        if wanted and not any(fnmatch(name, pattern) for pattern in exclude):
            base = torch_class(module)
            if base is not None and CONVERTED[base][0] in kinds:
                check_convertible(name, module)
                sites[name] = module
    return sites


def strided_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Return all layers that could be converted, by name."""
    return {
        name: module
        for name, module in model.named_modules()
        if torch_class(module) is not None and max(whole_strides(module)) > 1
    }


def check_example(example: Tensor, sites: Mapping[str, nn.Module]) -> None:
    """Raise a ValueError unless the example is a batch for one of the layers at least."""
    axes = {name: len(whole_strides(module)) for name, module in sites.items()}
    if axes and example.ndim - 2 not in axes.values():
        name, some = next(iter(axes.items()))
        raise ValueError(
            f"example_input must be a batch, of {some + 2} axes for {name or 'the model'} "
            f"({type(sites[name]).__name__}): (batch, channels, and {some} more); got the shape "
            f"{tuple(example.shape)}. A single example becomes a batch by example_input[None]"
        )


def find_groups(
    uses: list[Use],
    sites: Mapping[str, nn.Module],
    traced: SizeTrace,
    wanted: Sequence[Sequence[str]] | None,
) -> list[list[str]]:
    """Return names of sites that must make one size, group by group in the order they run."""
    for name, read, made, _ in uses:
        strides = whole_strides(sites[name])
        if any(m == 1 and s > 1 for m, s in zip(made.size, strides, strict=True)):
            raise ValueError(
                f"example_input is too small: {name} makes {'×'.join(map(str, made.size))} of "
                f"{'×'.join(map(str, read.size))}, and what meets it can't be told from its size; "
                f"give a larger one, or leave the layer out with exclude=[{name!r}]"
            )
    grids: dict[str, Grid] = {}
    for name, _, made, _ in uses:
        grid = made.root()
        _check_makers(name, grid, traced)
        if name in grids:  # one layer, used again
            grids[name].root().join(grid)
        grids[name] = grid
    numbers = {name: i for i, names in enumerate(wanted or ()) for name in names}
    for name in numbers:
        if name not in grids:
            raise ValueError(
                f"groups has {name!r}, which is no layer that is converted: the names of those "
                f"are {', '.join(map(repr, grids)) or 'none'}"
            )
    for (name, grid), (other, also) in itertools.combinations(grids.items(), 2):
        apart = wanted is not None and numbers.get(name, name) != numbers.get(other, other)
        if apart and grid.root() is also.root():
            raise ValueError(
                f"the outputs of {name} and {other} meet, so both must be in one group; groups "
                f"has them in different ones"
            )
    groups: dict[Any, list[str]] = {}
    for name, grid in grids.items():
        groups.setdefault(numbers.get(name, grid.root()), []).append(name)
    return list(groups.values())


def note_siblings(
    record: Sequence[dict[str, Any]], uses: list[Use], sites: Mapping[str, nn.Module]
) -> None:
    """Note of each convolution which earlier one reads the same map, so that both can run as one.

    They are alike in all but their weights, and have one stride.
    """
    times = Counter(use.name for use in uses)
    read = {use.name: use.tensor for use in uses if times[use.name] == 1}
    earlier: list[str] = []
    for site in record:
        name, of_one_plan = site["name"], site.get("same_size", True) and "placement" not in site
        if not of_one_plan or name not in read or not isinstance(sites[name], _ConvNd):
            continue
        for first in earlier:
            if read[first] == read[name] and may_be_siblings(sites[first], sites[name]):
                site["beside"] = first
                break
        else:
            earlier.append(name)


def _check_makers(name: str, grid: Grid, traced: SizeTrace) -> None:
    """Raise a ValueError if something else than sites makes the same size."""
    stranger = next((maker[1:-1] for maker in grid.makers if maker.startswith("[")), None)
    if stranger is None:
        return
    enlarged = [(r.operation, r.size_after) for r in traced.resizings if r.enlarges]
    goes_up = (stranger, grid.size) in enlarged
    # What makes maps larger needs every size before it as it was, all else only the one it meets.
    needed = {*grid.makers, *(grid.sites if goes_up else ())}
    left_out = list(dict.fromkeys(use.name for use in traced.uses if use.name in needed))
    instead = f". {INSTEAD}" if goes_up else ""
    raise ValueError(
        f"the output of {name} meets that of {stranger}, which no stride can make agree with it: "
        f"leave out exclude={left_out}{instead}"
    )
