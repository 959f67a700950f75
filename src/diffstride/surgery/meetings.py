"""Which layers of a network must agree on the size of what they make, found by running it once."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from diffstride.analysis.network_checks import check_axes
from diffstride.analysis.running import eval_mode, first_tensor, unchanged
from diffstride.surgery.map_sizes import MapSizes, Output
from diffstride.surgery.pairs import tensors
from diffstride.surgery.resizing import Resizing, has_stride, worked_on

CALLED_WITH = "a layer can be converted where the model calls it with a batch, and not one by one"


class Grid:
    """A size in the network: all tensors whose sizes follow from each other without a change."""

    def __init__(
        self,
        size: tuple[int, ...],
        maker: str,
        parent: "Grid | None" = None,
        sites: frozenset[str] = frozenset(),
    ) -> None:
        self.size = size
        self.makers = [maker]
        """What made it: a site by its name, or the input or an operation in brackets."""
        self.sites = sites
        """The sites that what an operation made it of was computed from."""
        self.parent = parent
        """What an operation, not a site, made it of."""
        self._same: Grid | None = None

    def found(self) -> "Grid":
        """The one that stands for all that are the same."""
        grid = self
        while grid._same is not None:
            grid = grid._same
        return grid

    def made_from(self) -> Iterator["Grid"]:
        """What this was made of without a site, and what that was made of, and so on."""
        grid = self.found().parent
        while grid is not None:
            yield grid.found()
            grid = grid.found().parent

    def join(self, other: "Grid") -> None:
        """Both must stay of one size from now on."""
        one, two = self.found(), other.found()
        if one is two:
            return
        two._same = one
        one.makers += two.makers
        one.sites |= two.sites
        # Both were made without a site: where what they are made of has one size as well, it
        # must have one whatever strides are learned.
        if one.parent is not None and two.parent is not None:
            if one.parent.found().size == two.parent.found().size:
                one.parent.join(two.parent)


class Follow(TorchFunctionMode):
    """While a network runs, notes on which grid every tensor lies.

    A tensor lies on the grid of what it is computed from if it has its size; two of one size that
    are added, multiplied or put side by side are joined. Sites, and what changes the size
    otherwise, make new grids.
    """

    def __init__(self, maps: MapSizes) -> None:
        super().__init__()
        self.axes = maps.axes
        self.maps = maps
        self.grids: dict[int, Grid] = {}
        self.sites: dict[int, frozenset[str]] = {}
        """The sites that a tensor was computed from, whatever the number of its axes."""
        self.resizings: list[Resizing] = []
        self.strided: list[Resizing] = []
        """Those that took one of several samples, and could have been learned."""
        self.running: list[str] = []
        """The modules that are running now, the innermost last."""
        self.tensors: list[Tensor] = []
        """Kept alive: the number of a tensor that is gone is given to another."""
        self.inside = 0

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if self.inside:
            return result
        given = [x for x in tree_leaves((args, kwargs)) if id(x) in self.sites]
        if given:
            name = getattr(func, "__name__", str(func))
            sites = frozenset().union(*(self.sites[id(x)] for x in given))
            for output in tree_leaves(result):
                if isinstance(output, Tensor):
                    self.note_size(name, args, kwargs, given, output, sites)
                    self.place(output, given, f"[{name}]", sites)
        return result

    def note_size(
        self,
        name: str,
        args: Any,
        kwargs: dict[str, Any],
        given: list[Tensor],
        output: Tensor,
        sites: frozenset[str],
    ) -> None:
        """Note an operation that changes the size of maps, or of what was one."""
        name = name.removesuffix("_with_indices")
        inputs = [tuple(x.shape[2:]) for x in given if x.ndim == self.axes + 2]
        are_maps = output.ndim == self.axes + 2 and bool(inputs)
        if are_maps:
            before = tuple(max(sizes) for sizes in zip(*inputs, strict=True))
            after = tuple(output.shape[2:])
        else:
            x = given[0]
            axes = worked_on(name, args, kwargs, x.ndim, output.ndim)
            known = self.maps.known.get(x)
            if axes is None or known is None or (known.is_map and axes.start < 2):
                return
            before, after = tuple(x.shape[axes]), tuple(output.shape[axes])
            if not known.has_places(before):
                return
        found = Resizing(self.running[-1] if self.running else "", name, before, after, sites)
        if before == after or found in (self.resizings if are_maps else self.strided):
            return
        if are_maps:
            self.resizings.append(found)
        if has_stride(name, args, kwargs, before, after):
            self.strided.append(found)

    def place(self, output: Tensor, given: list[Tensor], maker: str, sites: frozenset[str]) -> None:
        self.tensors.append(output)
        self.sites[id(output)] = sites
        inputs = [x for x in given if id(x) in self.grids]
        if output.ndim != self.axes + 2 or not inputs:
            return
        size = tuple(output.shape[2:])
        grids = [self.grids[id(x)].found() for x in inputs]
        same = [grid for grid in grids if grid.size == size]
        if not same:  # padded and then shortened, or permuted there and back
            same = [grid for x in grids for grid in x.made_from() if grid.size == size][:1]
        if same:
            for other in same[1:]:
                same[0].join(other)
            self.put(output, same[0], sites)
        elif any(n > 1 for n in size):  # the mean over everything is of no size
            self.put(output, Grid(size, maker, grids[0], sites), sites)

    def put(self, tensor: Tensor, grid: Grid, sites: frozenset[str] = frozenset()) -> None:
        self.grids[id(tensor)] = grid
        self.sites[id(tensor)] = sites
        self.tensors.append(tensor)


def watch(model: nn.Module, running: list[str]) -> list[Any]:
    """Have the names of modules in a list while they run; returns hooks, to be removed."""

    def leave(*_: Any) -> None:
        running.pop()

    return [
        hook
        for name, module in model.named_modules()
        for hook in (
            module.register_forward_pre_hook(lambda *_, name=name: running.append(name)),
            module.register_forward_hook(leave),
        )
    ]


@dataclass(frozen=True)
class Traced:
    """What was seen of a network in one pass."""

    uses: list[tuple[str, Grid, Grid]]
    """Every use of a site in the order they run: its name, and the grids it reads and makes."""
    resizings: list[Resizing]
    strided: list[Resizing]
    outputs: list[tuple[Output, frozenset[str]]]
    """Every tensor that came out, and the sites that it was computed from."""


def trace(model: nn.Module, example: Tensor, sites: Mapping[str, nn.Module]) -> Traced:
    """Run a network once in eval mode, and see which sizes follow from which."""
    maps = MapSizes(example.ndim - 2)
    follow = Follow(maps)
    names = {module: name for name, module in sites.items()}
    uses: list[tuple[str, Grid, Grid]] = []

    def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
        check_axes(model, module, first_tensor(args, kwargs), CALLED_WITH)
        follow.inside += 1

    def leave(module: nn.Module, args: Any, kwargs: Any, output: Tensor) -> None:
        follow.inside -= 1
        name, x = names[module], first_tensor(args, kwargs)
        read = follow.grids.get(id(x)) or Grid(tuple(x.shape[2:]), "[input]")
        made = Grid(tuple(output.shape[2:]), name)
        follow.put(output, made, follow.sites.get(id(x), frozenset()) | {name})
        uses.append((name, read, made))

    hooks = watch(model, follow.running)
    for module in names:
        hooks += [
            module.register_forward_pre_hook(enter, with_kwargs=True),
            module.register_forward_hook(leave, with_kwargs=True),
        ]
    try:
        with torch.no_grad(), eval_mode(model), unchanged(model), follow, maps:
            example = example.clone()
            follow.put(example, Grid(tuple(example.shape[2:]), "[input]"))
            maps.put(example)
            output = model(example)
    finally:
        for hook in hooks:
            hook.remove()
    origins = [follow.sites.get(id(x), frozenset()) for x in tensors(output)]
    outputs = list(zip(maps.outputs(output), origins, strict=True))
    return Traced(uses, follow.resizings, follow.strided, outputs)
