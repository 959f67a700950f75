"""Layers that share a stride, because what they make must be of one size."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from diffstride.layers.converted import whole_strides
from diffstride.surgery.size_trace import Grid, SizeTrace


def find_groups(
    uses: list[tuple[str, Grid, Grid]],
    sites: Mapping[str, nn.Module],
    traced: SizeTrace,
    wanted: Sequence[Sequence[str]] | None,
) -> list[list[str]]:
    """Names of sites that make one size, in the order they run."""
    _check_sizes(uses, sites)
    grids: dict[str, Grid] = {}
    for name, _, made in uses:
        grid = made.root()
        _check_makers(name, grid, traced)
        if name in grids:  # one layer, used again
            grids[name].root().join(grid)
        grids[name] = grid
    for names in wanted or ():
        for name in names:
            if name not in grids:
                raise ValueError(f"groups has {name!r}, which is no layer that is converted")
    own = {name: i for i, names in enumerate(wanted or ()) for name in names}
    for (name, grid), (other, also) in itertools.combinations(grids.items(), 2):
        apart = wanted is not None and own.get(name, name) != own.get(other, other)
        if apart and grid.root() is also.root():
            raise ValueError(
                f"{name} and {other} meet, and must be in one group; groups has them apart"
            )
    together: dict[Any, list[str]] = {}
    for name, grid in grids.items():
        together.setdefault(own.get(name, grid.root()), []).append(name)
    return list(together.values())


def _check_makers(name: str, grid: Grid, traced: SizeTrace) -> None:
    """Raise a ValueError if something else than sites makes the same size."""
    stranger = next((m[1:-1] for m in grid.makers if m.startswith("[")), None)
    if stranger is None:
        return
    made = [(r.operation, r.after) for r in traced.resizings if r.enlarges]
    # What makes maps larger needs every size before it as it was, all else only its own.
    needed = {*grid.makers, *(grid.sites if (stranger, grid.size) in made else ())}
    left_out = list(dict.fromkeys(use for use, _, _ in traced.uses if use in needed))
    raise ValueError(
        f"the output of {name} meets that of {stranger}, which no stride can make agree with it: "
        f"leave out exclude={left_out}"
    )


def _check_sizes(uses: list[tuple[str, Grid, Grid]], sites: Mapping[str, nn.Module]) -> None:
    """Raise a ValueError where a site makes a single sample: that could be of any size."""
    for name, read, made in uses:
        strides = whole_strides(sites[name])
        if any(m == 1 and s > 1 for m, s in zip(made.size, strides, strict=True)):
            raise ValueError(
                f"example_input is too small: {name} makes {'×'.join(map(str, made.size))} of "
                f"{'×'.join(map(str, read.size))}, and what meets it can't be told from its size; "
                f"give a larger one, or leave the layer out with exclude=[{name!r}]"
            )
