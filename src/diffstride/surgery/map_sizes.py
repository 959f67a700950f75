"""Of which maps a tensor was computed, be it flattened, indexed or reduced since."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from diffstride.analysis.observing import Observer, Operation, tensors_in
from diffstride.surgery.operations import own_axes

Size = tuple[int, ...]


@dataclass(frozen=True)
class Output:
    """A tensor that came out of a network."""

    shape: Size
    maps: frozenset[Size]
    """The sizes of the maps that it was last computed from: its own, if it is one."""
    is_map: bool

    def has_places(self, size: Sequence[int]) -> bool:
        """Whether axes of this size have the places of a map: all of them, or along some axes."""
        number = math.prod(size)
        choices = (
            some
            for map_size in self.maps
            for n in range(1, len(map_size) + 1)
            for some in itertools.combinations(map_size, n)
        )
        return any(math.prod(some) == number for some in choices)


class MapSizes(Observer):
    """While a network runs, knows the sizes of the maps that every tensor was last computed from.

    A map has as many axes as the example, and is computed from another; or it has the size of one,
    and is computed from what that became. Where a convolution or pooling works on fewer or more
    axes, what it makes is a map for it, and the last one with so many.
    """

    def __init__(self, axes: int) -> None:
        self.axes = axes
        self.known: Any = WeakIdKeyDictionary()

    def begin(self, x: Tensor) -> None:
        self.put(x)

    def put(self, tensor: Tensor) -> None:
        self.known[tensor] = Output(
            tuple(tensor.shape), frozenset([tuple(tensor.shape[2:])]), is_map=True
        )

    def operation(self, operation: Operation) -> None:
        given = [self.known[x] for x in operation.inputs if x in self.known]
        if not given:
            return
        sizes = frozenset().union(*(x.maps for x in given))
        from_map = any(x.is_map for x in given)
        axes = own_axes(operation.name)
        for x in operation.outputs:
            # Not all with as many axes: heads of attention are (batch, heads, places, numbers).
            if x.ndim == self.axes + 2 and (from_map or tuple(x.shape[2:]) in sizes):
                self.put(x)
            else:
                last = {tuple(x.shape[2:])} if x.ndim == (axes or 0) + 2 else set()
                kept = {size for size in sizes if not last or len(size) != axes}
                self.known[x] = Output(tuple(x.shape), frozenset(kept | last), is_map=False)

    def outputs(self, values: Any) -> list[Output]:
        """Of whatever a network has returned, what is known of each tensor."""
        found = []
        for x in tensors_in(values):
            if x.ndim == self.axes + 2:
                self.put(x)
            found.append(self.known.get(x, Output(tuple(x.shape), frozenset(), is_map=False)))
        return found
