"""Which sizes in a network follow from which."""

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from diffstride.analysis.observing import Observer, Operation, Running, observe, tensors_in
from diffstride.analysis.restoring import check_axes
from diffstride.layers.returning import is_way_up
from diffstride.surgery.map_sizes import (
    MapSizes,
    Resizing,
    Size,
    axes_changed,
    has_stride,
    is_larger,
)

CALLED_WITH = "a layer can be converted where the model calls it with a batch, and not one by one"


@dataclass(eq=False)
class Grid:
    """A size in the network: all tensors whose sizes follow from each other without a change."""

    size: Size
    makers: list[str]
    """What made it: a site by its name, or the input or an operation in brackets."""
    parent: "Grid | None" = None
    """What an operation, not a site, made it of."""
    sites: frozenset[str] = frozenset()
    """The sites that what an operation made it of was computed from."""
    sources: list["Grid"] = field(default_factory=list)
    """All that it was made of, by sites and by operations; those of the joined ones too."""
    joined: "Grid | None" = None
    """What stands for it since both were joined."""

    def root(self) -> "Grid":
        """Return the one that stands for all that are the same."""
        grid = self
        while grid.joined is not None:
            grid = grid.joined
        return grid

    def made_from(self) -> Iterator["Grid"]:
        """Yield what this was made of without a site, and what that was made of, and so on."""
        grid = self.root().parent
        while grid is not None:
            yield grid.root()
            grid = grid.root().parent

    @property
    def is_learned(self) -> bool:
        """Whether a site makes its size."""
        return any(not maker.startswith("[") for maker in self.root().makers)

    def lineage(self) -> Iterator[tuple["Grid", bool]]:
        """Yield all that this was made of, the nearest first, and whether a site lies between."""
        seen: set[tuple[int, bool]] = set()
        waiting = [(self.root(), False)]
        while waiting:
            grid, behind_site = waiting.pop(0)
            behind_site = behind_site or grid.is_learned
            for source in grid.sources:
                step = (source.root(), behind_site)
                if (id(step[0]), behind_site) not in seen:
                    seen.add((id(step[0]), behind_site))
                    waiting.append(step)
                    yield step

    def join(self, other: "Grid") -> None:
        """Keep both of one size from now on."""
        one, two = self.root(), other.root()
        if one is two:
            return
        two.joined = one
        one.makers += two.makers
        one.sites |= two.sites
        one.sources += two.sources
        # Both were made without a site: where what they are made of has one size as well, it
        # must have one whatever strides are learned.
        if one.parent is not None and two.parent is not None:
            if one.parent.root().size == two.parent.root().size:
                one.parent.join(two.parent)


class Use(NamedTuple):
    """One use of a site: its name, the grids that it reads and makes, and which tensor it reads."""

    name: str
    read: Grid
    made: Grid
    tensor: tuple[int, int] = (0, 0)
    """A number that every tensor that a site reads has, and how often it was changed in place."""


class WayUp(NamedTuple):
    """One use of a layer that makes maps larger: its name, sizes, and what can be undone there."""

    name: str
    size_before: Size
    size_after: Size
    undoes: str
    """The site that has read the size that is made; empty if there is none."""
    overtaken: str = ""
    """If there is none: a site that has, but has run again since."""
    nearly: str = ""
    """The site that has read almost this size, if none has read it: it was rounded between."""


class SizeTrace(Observer):
    """Runs a network, and notes on which grid every tensor lies and which operations change sizes.

    A tensor lies on the grid of what it is computed from if it has its size; two of one size that
    are added, multiplied or put side by side are joined. Sites, and what changes the size
    otherwise, make new grids.
    """

    def __init__(
        self,
        model: nn.Module,
        example: Tensor,
        sites: Mapping[str, nn.Module],
        ups: Mapping[str, nn.Module],
    ) -> None:
        self.names = {module: name for name, module in sites.items()}
        self.ups = {module: name for name, module in ups.items()}
        self.grids: MutableMapping[Tensor, Grid] = WeakIdKeyDictionary()
        self.sites: MutableMapping[Tensor, frozenset[str]] = WeakIdKeyDictionary()
        """The sites that a tensor was computed from, whatever the number of its axes."""
        self.flat: MutableMapping[Tensor, Grid] = WeakIdKeyDictionary()
        """The grids of maps that tensors with other axes were computed from."""
        self.uses: list[Use] = []
        """Every use of a site in the order they run."""
        self.ways_up: list[WayUp] = []
        """Every use of a layer that makes maps larger behind a site, in the order they run."""
        self.resizings: list[Resizing] = []
        self.strided: list[Resizing] = []
        """Those that took one of several samples, and could have been learned."""
        self._inside = 0
        """How many sites are running, whose operations do not count."""
        self._numbers: MutableMapping[Tensor, int] = WeakIdKeyDictionary()
        self._last_number = 0
        self.maps, self.running = MapSizes(example.ndim - 2), Running(model)
        output = observe(model, example, self.running, self, self.maps)
        self.outputs = list(zip(self.maps.outputs(output), self._origins(output), strict=True))
        """Every tensor that came out, and the sites that it was computed from."""
        self.learned_outputs = [self._is_learned(x) for x in tensors_in(output)]
        """Which of them have a size that a site makes, and so one that is learned."""

    def _origins(self, output: Any) -> list[frozenset[str]]:
        return [self.sites.get(x, frozenset()) for x in tensors_in(output)]

    def _is_learned(self, x: Tensor) -> bool:
        grid = self.grids.get(x) or self.flat.get(x)
        return grid is not None and grid.is_learned

    def begin(self, x: Tensor) -> None:
        self.grids[x], self.sites[x] = Grid(tuple(x.shape[2:]), ["[input]"]), frozenset()

    def enter(self, layer: nn.Module, x: Tensor) -> None:
        if layer in self.names:
            check_axes(self.names[layer], layer, x, CALLED_WITH)
            self._inside += 1
            if x not in self._numbers:
                self._last_number += 1
                self._numbers[x] = self._last_number

    def leave(self, layer: nn.Module, x: Tensor, output: Any) -> None:
        if layer in self.ups:
            self._go_up(layer, x, output)
        if layer not in self.names:
            return
        self._inside -= 1
        name = self.names[layer]
        read = self.grids.get(x) or Grid(tuple(x.shape[2:]), ["[input]"])
        # The same layer makes the same size of the same.
        before = [u.made for u in self.uses if u.name == name and u.read.root() is read.root()]
        made = before[0] if before else Grid(tuple(output.shape[2:]), [name], sources=[read])
        self.grids[output] = made
        self.sites[output] = self.sites.get(x, frozenset()) | {name}
        self.uses.append(Use(name, read, made, (self._numbers[x], x._version)))

    def _go_up(self, layer: nn.Module, x: Any, output: Any) -> None:
        """Have what makes maps larger make the nearest size before a site that it can undo."""
        name, axes = self.ups[layer], self.maps.axes
        if self._inside or x not in self.grids or not isinstance(output, Tensor):
            return
        read, size = self.grids[x].root(), tuple(output.shape[2:])
        if output.ndim != axes + 2 or not is_larger(read.size, size):
            return
        lineage, made = list(read.lineage()), self.grids.get(output)
        behind = [grid for grid, behind_site in lineage if behind_site]
        followed = made is not None and (
            made.is_learned
            or not made.root().makers
            or any(grid is made.root() for grid, _ in lineage)
        )
        if followed or not behind:
            return
        target = next((grid for grid in behind if grid.size == size), None)
        last = {use.name: use for use in self.uses}  # of those that ran several times
        readers = [u.name for u in last.values() if target and u.read.root() is target.root()]
        if target is not None and readers:
            self.grids[output] = target.root()
            parts = f"{name}."
            self.resizings = [r for r in self.resizings if not f"{r.name}.".startswith(parts)]
            self.ways_up.append(WayUp(name, read.size, size, readers[-1]))
            return
        near = [
            use.name
            for use in last.values()
            if any(use.read.root() is grid for grid in behind)
            # By less than the factor: that many samples may be lost where sizes are rounded.
            and all(
                abs(n - m) * k < m for n, m, k in zip(use.read.size, size, read.size, strict=True)
            )
        ]
        if not near and not is_way_up(layer):
            return
        earlier = [u.name for u in self.uses if target and u.read.root() is target.root()]
        overtaken, nearly = (found[-1] if found else "" for found in (earlier, near))
        self.ways_up.append(WayUp(name, read.size, size, "", overtaken, nearly))

    def operation(self, operation: Operation) -> None:
        given = [x for x in operation.inputs if x in self.sites]
        if self._inside or not given:
            return
        sites = frozenset().union(*(self.sites[x] for x in given))
        for output in operation.outputs:
            self._note_size(operation, given, output, sites)
            self.sites[output] = sites
            self._place(operation, given, output, sites)

    def _note_size(
        self, operation: Operation, given: list[Tensor], output: Tensor, sites: frozenset[str]
    ) -> None:
        """Note an operation that changes the size of maps, or of what was one."""
        inputs = [tuple(x.shape[2:]) for x in given if x.ndim == self.maps.axes + 2]
        are_maps = output.ndim == self.maps.axes + 2 and bool(inputs)
        if are_maps:
            before, after = tuple(map(max, zip(*inputs, strict=True))), tuple(output.shape[2:])
        else:
            x = given[0]
            axes, known = axes_changed(operation, x.ndim, output.ndim), self.maps.known.get(x)
            if axes is None or known is None or (known.is_map and axes.start < 2):
                return
            before, after = tuple(x.shape[axes]), tuple(output.shape[axes])
            if not known.has_places(before):
                return
        name = operation.name.removesuffix("_with_indices")
        resizing = Resizing(self.running.name, name, before, after, sites)
        if before == after or resizing in (self.resizings if are_maps else self.strided):
            return
        if are_maps:
            self.resizings.append(resizing)
        if has_stride(operation, before, after):
            self.strided.append(resizing)

    def _place(
        self, operation: Operation, given: list[Tensor], output: Tensor, sites: frozenset[str]
    ) -> None:
        """Note on which grid the output of an operation lies."""
        grids = [self.grids[x].root() for x in given if x in self.grids]
        size = tuple(output.shape[2:])
        if not grids:
            self._place_flat(given, output, size)
            return
        if output.ndim != self.maps.axes + 2:
            self.flat[output] = grids[0]
            return
        same = [grid for grid in grids if grid.size == size]
        if not same:  # padded and then shortened, or permuted there and back
            same = [grid for x in grids for grid in x.made_from() if grid.size == size][:1]
        if same:
            for other in same[1:]:
                same[0].join(other)
            self.grids[output] = same[0]
        elif operation.name == "interpolate" and operation.argument("size", 1) is not None:
            # It follows whatever size it is given: made by nothing, until it meets another.
            self.grids[output] = Grid(size, [], sources=[grids[0]])
        elif any(n > 1 for n in size):  # the mean over everything is of no size
            maker = [f"[{operation.name}]"]
            self.grids[output] = Grid(size, maker, grids[0], sites, [grids[0]])

    def _place_flat(self, given: list[Tensor], output: Tensor, size: Size) -> None:
        """Note the grid of what was computed from a map that has other axes now."""
        flat = [self.flat[x].root() for x in given if x in self.flat]
        if not flat:
            return
        back = next((grid for grid in flat if grid.size == size), None)
        if back is not None and output.ndim == self.maps.axes + 2:
            self.grids[output] = back
        else:
            self.flat[output] = flat[0]
