"""Which layers of a network must agree on the size of what they make, found by running it once."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from diffstride.analysis.network_checks import check_axes
from diffstride.analysis.observing import Observer, Operation, Running, observe, tensors_in
from diffstride.surgery.map_sizes import MapSizes, Output
from diffstride.surgery.operations import Resizing, has_stride, worked_on

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

    def root(self) -> "Grid":
        """The one that stands for all that are the same."""
        grid = self
        while grid._same is not None:
            grid = grid._same
        return grid

    def made_from(self) -> Iterator["Grid"]:
        """What this was made of without a site, and what that was made of, and so on."""
        grid = self.root().parent
        while grid is not None:
            yield grid.root()
            grid = grid.root().parent

    def join(self, other: "Grid") -> None:
        """Both must stay of one size from now on."""
        one, two = self.root(), other.root()
        if one is two:
            return
        two._same = one
        one.makers += two.makers
        one.sites |= two.sites
        # Both were made without a site: where what they are made of has one size as well, it
        # must have one whatever strides are learned.
        if one.parent is not None and two.parent is not None:
            if one.parent.root().size == two.parent.root().size:
                one.parent.join(two.parent)


class GridTracer(Observer):
    """Notes on which grid every tensor lies, and which operations change sizes.

    A tensor lies on the grid of what it is computed from if it has its size; two of one size that
    are added, multiplied or put side by side are joined. Sites, and what changes the size
    otherwise, make new grids.
    """

    def __init__(self, sites: Mapping[str, nn.Module], maps: MapSizes, running: Running) -> None:
        self.axes = maps.axes
        self.maps, self.running = maps, running
        self.names = {module: name for name, module in sites.items()}
        self.grids: Any = WeakIdKeyDictionary()
        self.sites: Any = WeakIdKeyDictionary()
        """The sites that a tensor was computed from, whatever the number of its axes."""
        self.uses: list[tuple[str, Grid, Grid]] = []
        self.resizings: list[Resizing] = []
        self.strided: list[Resizing] = []
        """Those that took one of several samples, and could have been learned."""
        self._inside = 0
        """How many sites are running, whose operations do not count."""

    def begin(self, x: Tensor) -> None:
        self._put(x, Grid(tuple(x.shape[2:]), "[input]"), frozenset())

    def enter(self, layer: nn.Module, x: Tensor) -> None:
        if layer in self.names:
            check_axes(self.names[layer], layer, x, CALLED_WITH)
            self._inside += 1

    def leave(self, layer: nn.Module, x: Tensor, output: Any) -> None:
        if layer not in self.names:
            return
        self._inside -= 1
        name = self.names[layer]
        read = self.grids.get(x) or Grid(tuple(x.shape[2:]), "[input]")
        made = Grid(tuple(output.shape[2:]), name)
        self._put(output, made, self.sites.get(x, frozenset()) | {name})
        self.uses.append((name, read, made))

    def operation(self, operation: Operation) -> None:
        given = [x for x in operation.inputs if x in self.sites]
        if self._inside or not given:
            return
        sites = frozenset().union(*(self.sites[x] for x in given))
        for output in operation.outputs:
            self._note_size(operation, given, output, sites)
            self._place(operation, given, output, sites)

    def _note_size(
        self, operation: Operation, given: list[Tensor], output: Tensor, sites: frozenset[str]
    ) -> None:
        """Note an operation that changes the size of maps, or of what was one."""
        name = operation.name.removesuffix("_with_indices")
        inputs = [tuple(x.shape[2:]) for x in given if x.ndim == self.axes + 2]
        are_maps = output.ndim == self.axes + 2 and bool(inputs)
        if are_maps:
            before = tuple(max(sizes) for sizes in zip(*inputs, strict=True))
            after = tuple(output.shape[2:])
        else:
            x = given[0]
            axes = worked_on(name, operation.args, operation.kwargs, x.ndim, output.ndim)
            known = self.maps.known.get(x)
            if axes is None or known is None or (known.is_map and axes.start < 2):
                return
            before, after = tuple(x.shape[axes]), tuple(output.shape[axes])
            if not known.has_places(before):
                return
        resizing = Resizing(self.running.name, name, before, after, sites)
        if before == after or resizing in (self.resizings if are_maps else self.strided):
            return
        if are_maps:
            self.resizings.append(resizing)
        if has_stride(name, operation.args, operation.kwargs, before, after):
            self.strided.append(resizing)

    def _place(
        self, operation: Operation, given: list[Tensor], output: Tensor, sites: frozenset[str]
    ) -> None:
        """Note on which grid the output of an operation lies."""
        self.sites[output] = sites
        inputs = [x for x in given if x in self.grids]
        if output.ndim != self.axes + 2 or not inputs:
            return
        size = tuple(output.shape[2:])
        grids = [self.grids[x].root() for x in inputs]
        same = [grid for grid in grids if grid.size == size]
        if not same:  # padded and then shortened, or permuted there and back
            same = [grid for x in grids for grid in x.made_from() if grid.size == size][:1]
        if same:
            for other in same[1:]:
                same[0].join(other)
            self._put(output, same[0], sites)
        elif any(n > 1 for n in size):  # the mean over everything is of no size
            self._put(output, Grid(size, f"[{operation.name}]", grids[0], sites), sites)

    def _put(self, tensor: Tensor, grid: Grid, sites: frozenset[str]) -> None:
        self.grids[tensor] = grid
        self.sites[tensor] = sites


@dataclass(frozen=True)
class SizeTrace:
    """What was seen of a network in one pass."""

    uses: list[tuple[str, Grid, Grid]]
    """Every use of a site in the order they run: its name, and the grids it reads and makes."""
    resizings: list[Resizing]
    strided: list[Resizing]
    outputs: list[tuple[Output, frozenset[str]]]
    """Every tensor that came out, and the sites that it was computed from."""


def trace_sizes(model: nn.Module, example: Tensor, sites: Mapping[str, nn.Module]) -> SizeTrace:
    """Run a network once, and return which sizes follow from which."""
    maps, running = MapSizes(example.ndim - 2), Running(model)
    tracer = GridTracer(sites, maps, running)
    output = observe(model, example, running, tracer, maps)
    origins = [tracer.sites.get(x, frozenset()) for x in tensors_in(output)]
    outputs = list(zip(maps.outputs(output), origins, strict=True))
    return SizeTrace(tracer.uses, tracer.resizings, tracer.strided, outputs)
