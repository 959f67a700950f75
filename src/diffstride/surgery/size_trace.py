"""Which sizes in a network follow from which, and whether it still fits once it is converted."""

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from diffstride.analysis.observing import Observer, Operation, Running, observe, tensors_in
from diffstride.analysis.restoring import check_axes
from diffstride.layers.resizer import learned_strides
from diffstride.surgery.map_sizes import MapSizes, Output, Resizing, Size, axes_changed, has_stride
from diffstride.text import times

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

    def join(self, other: "Grid") -> None:
        """Keep both of one size from now on."""
        one, two = self.root(), other.root()
        if one is two:
            return
        two.joined = one
        one.makers += two.makers
        one.sites |= two.sites
        # Both were made without a site: where what they are made of has one size as well, it
        # must have one whatever strides are learned.
        if one.parent is not None and two.parent is not None:
            if one.parent.root().size == two.parent.root().size:
                one.parent.join(two.parent)


class Use(NamedTuple):
    """One use of a site: its name, and the grids that it reads and makes."""

    name: str
    read: Grid
    made: Grid


class SizeTrace(Observer):
    """Runs a network, and notes on which grid every tensor lies and which operations change sizes.

    A tensor lies on the grid of what it is computed from if it has its size; two of one size that
    are added, multiplied or put side by side are joined. Sites, and what changes the size
    otherwise, make new grids.
    """

    def __init__(self, model: nn.Module, example: Tensor, sites: Mapping[str, nn.Module]) -> None:
        self.names = {module: name for name, module in sites.items()}
        self.grids: MutableMapping[Tensor, Grid] = WeakIdKeyDictionary()
        self.sites: MutableMapping[Tensor, frozenset[str]] = WeakIdKeyDictionary()
        """The sites that a tensor was computed from, whatever the number of its axes."""
        self.uses: list[Use] = []
        """Every use of a site in the order they run."""
        self.resizings: list[Resizing] = []
        self.strided: list[Resizing] = []
        """Those that took one of several samples, and could have been learned."""
        self._inside = 0
        """How many sites are running, whose operations do not count."""
        self.maps, self.running = MapSizes(example.ndim - 2), Running(model)
        output = observe(model, example, self.running, self, self.maps)
        self.outputs = list(zip(self.maps.outputs(output), self._origins(output), strict=True))
        """Every tensor that came out, and the sites that it was computed from."""

    def _origins(self, output: Any) -> list[frozenset[str]]:
        return [self.sites.get(x, frozenset()) for x in tensors_in(output)]

    def begin(self, x: Tensor) -> None:
        self.grids[x], self.sites[x] = Grid(tuple(x.shape[2:]), ["[input]"]), frozenset()

    def enter(self, layer: nn.Module, x: Tensor) -> None:
        if layer in self.names:
            check_axes(self.names[layer], layer, x, CALLED_WITH)
            self._inside += 1

    def leave(self, layer: nn.Module, x: Tensor, output: Any) -> None:
        if layer not in self.names:
            return
        self._inside -= 1
        name = self.names[layer]
        read = self.grids.get(x) or Grid(tuple(x.shape[2:]), ["[input]"])
        self.grids[output] = made = Grid(tuple(output.shape[2:]), [name])
        self.sites[output] = self.sites.get(x, frozenset()) | {name}
        self.uses.append(Use(name, read, made))

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
        if output.ndim != self.maps.axes + 2 or not grids:
            return
        size = tuple(output.shape[2:])
        same = [grid for grid in grids if grid.size == size]
        if not same:  # padded and then shortened, or permuted there and back
            same = [grid for x in grids for grid in x.made_from() if grid.size == size][:1]
        if same:
            for other in same[1:]:
                same[0].join(other)
            self.grids[output] = same[0]
        elif any(n > 1 for n in size):  # the mean over everything is of no size
            self.grids[output] = Grid(size, [f"[{operation.name}]"], grids[0], sites)


class CantTake(ValueError):
    """Raised for a layer that can't take the size that comes to it after conversion."""

    def __init__(self, name: str, kind: str, error: Exception) -> None:
        self.name = name
        super().__init__(
            f"{name or 'the model'} ({kind}) can't take what comes to it now: sizes are others "
            f"after conversion, and change while strides learn. Keep them with "
            f"output_size='keep', put a pooling over everything before it "
            f"(nn.AdaptiveAvgPool2d(1)), give size_multiple if sizes must be divisible, or leave "
            f"out layers with exclude. It said: {error}"
        )


@torch.no_grad()
def check_sizes(
    model: nn.Module, example: Tensor, traced: SizeTrace, names: Sequence[str]
) -> tuple[dict[str, Size], str | None]:
    """Return the sizes that converted layers make, and a linear layer that can't take others.

    ``traced`` is what was seen of it before the layers with these names were converted. Raises a
    ValueError if something else can't take other sizes, or the network not even these.
    """
    sizes, reader = _check_run(model, example, traced, names), None
    layers = [m for m in learned_strides(model).values() if m.stride.requires_grad]
    before = [layer.stride.detach().clone() for layer in layers]
    try:  # with strides as they might be learned
        for layer in layers:
            # Smaller ones where there are any: maps become larger, which leaves none empty.
            smaller = layer.stride > 1.05 * layer.min_stride
            layer.stride.mul_(torch.where(smaller, 0.8, 1.25))
        _check_run(model, example, traced, names)
    except CantTake as error:
        if not isinstance(model.get_submodule(error.name), nn.Linear):
            raise
        reader = error.name
    finally:
        for layer, stride in zip(layers, before, strict=True):
            layer.stride.copy_(stride)
    return sizes, reader


def _check_run(
    model: nn.Module, example: Tensor, traced: SizeTrace, names: Sequence[str]
) -> dict[str, Size]:
    """Run a converted network, and return the sizes that some layers make."""
    sizes: dict[str, Size] = {}

    class Sizes(Observer):
        def leave(self, layer: nn.Module, x: Tensor, output: Any) -> None:
            if (name := running.name) in names:
                sizes[name] = tuple(output.shape[2:])

    maps, running = MapSizes(example.ndim - 2), Running(model)
    try:
        output = observe(model, example, Sizes(), running, maps)
    except (RuntimeError, ValueError) as error:
        kind = type(model.get_submodule(running.name)).__name__
        raise CantTake(running.name, kind, error) from error
    if missing := [name for name in names if name not in sizes]:
        raise ValueError(
            f"{missing[0]} is converted, and the model calls another layer in its place: does it "
            f"keep a reference to its layers besides those that it registers? Leave it out with "
            f"exclude={missing}"
        )
    _check_outputs(traced, maps.outputs(output), names)
    return sizes


def _check_outputs(traced: SizeTrace, outputs: Sequence[Output], names: Sequence[str]) -> None:
    """Raise a ValueError if maps were made larger again, to a size that they now miss."""
    made = {use.name: use.made.size for use in traced.uses if use.name in names}
    as_many = len(traced.outputs) == len(outputs)  # one for every row of a map, for instance
    for (expected, sites), output in zip(traced.outputs, outputs, strict=False):
        # How many numbers some outputs have depends on values, such as those over a threshold.
        same = output.maps == expected.maps and not expected.is_map
        if as_many and (output.shape == expected.shape or same):
            continue
        small = [n for n in names if n in sites and expected.is_larger_than(made[n])]
        if not small:
            continue
        larger = [r for r in traced.resizings if r.enlarges and r.sites & set(small)]
        before = [name for name in names if name in small or any(name in r.sites for r in larger)]
        what = str(larger[0]) if larger else "something"
        skip = 2 if expected.is_map else 0
        raise ValueError(
            f"{what} makes maps larger after {small[0]}, and can't know which stride is learned "
            f"there: the model would put out {times(output.shape[skip:])} and not "
            f"{times(expected.shape[skip:])}. Leave out what comes before it with exclude={before}"
        )
