"""Finds strides nearby at which a network costs what it may.

Strides are moved by their logarithms. Along the slope of the cost, the nearest point where a smooth
cost would be met is found; there, because sizes are whole, the cost jumps. So which of the sizes
that change there do so, and which of all sizes might be larger or smaller by one, is tried as well.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from diffstride.analysis.cost_model import CostModel
from diffstride.analysis.uses import Unit
from diffstride.layers.diffstride import DiffStrideNd

TOLERANCE = 0.01
"""How far a cost may be from the budget, as a part of it, before strides are moved."""
_FAR = 0.1
"""A change of logarithms after which the slope is looked at again."""
_NEAR = 1e-4
"""A change of logarithms that changes no size but by chance."""
_TOGETHER = 4
"""How many sizes that change at one place are tried in all combinations."""
_TRIED = 8
"""How many of the changes by one sample, and of pairs of these, are tried."""
_ROUNDS = 20
LARGEST = 1e6
"""A stride that leaves one sample of any axis."""
_LARGEST_UP = 1e3
"""A stride by which no axis grows."""

Point = tuple[float, ...]


def largest(layer: DiffStrideNd) -> float:
    """Return a stride that is larger than any that a layer could need."""
    return LARGEST if layer.rule.way == "down" else _LARGEST_UP


class Variables:
    """The strides that may be moved: logarithms in a row, one for each element of a parameter."""

    def __init__(self, model: CostModel, layers: Mapping[str, DiffStrideNd]) -> None:
        self.model, self.layers = model, list(layers.values())
        starts = itertools.accumulate(
            (layer.axes for layer in model.layers.values()), initial=len(model.input_size)
        )
        first = dict(zip(model.layers.values(), starts, strict=False))
        self.places: list[list[int]] = []
        """Where each variable stands among the numbers that a cost model is given."""
        self.bounds: list[tuple[float, float]] = []
        self._ranges: list[tuple[float, float]] = []
        """The same in strides, as their parameters can have them."""
        self.multiples: list[int] = []
        """By how many samples the size of each changes at once."""
        self.saves: list[bool] = []
        """Whether more of each makes maps smaller: on the way up it makes them larger."""
        for layer in self.layers:
            every = list(range(first[layer], first[layer] + layer.axes))
            groups = [every] if layer.shared else [[i] for i in every]
            self.places += groups
            self.multiples += [layer.rule.size_multiple] * len(groups)
            self.saves += [layer.rule.way == "down"] * len(groups)
            highest = min(layer.max_stride or largest(layer), torch.finfo(layer.stride.dtype).max)
            ends = (layer.in_range((x,) * len(groups))[0] for x in (layer.min_stride, highest))
            low, high = ends
            self._ranges += [(low, high)] * len(groups)
            self.bounds += [(math.log(low), math.log(high))] * len(groups)
        types = {layer.stride.dtype for layer in self.layers}
        self._dtype = types.pop() if len(types) == 1 else None
        self._given, self._read = model.given(), tuple([math.nan] * len(self.places))

    def __len__(self) -> int:
        return len(self.places)

    def read(self) -> Point:
        """Return the logarithms of the strides in use."""
        self._given = self.model.given()
        self._read = tuple([math.log(self._given[places[0]]) for places in self.places])
        return self._read

    def clipped(self, point: Sequence[float]) -> Point:
        """Return the nearest point within all bounds."""
        both = zip(point, self.bounds, strict=True)
        return tuple([low if x < low else min(x, high) for x, (low, high) in both])

    def ends(self, cheapest: bool) -> Point:
        """Return the point within all bounds at which maps are smallest, or largest."""
        both = zip(self.saves, self.bounds, strict=True)
        return tuple([high if saves == cheapest else low for saves, (low, high) in both])

    def given(self, point: Sequence[float]) -> list[float]:
        """Return what a cost model is given, with strides as their parameters can have them."""
        given = list(self._given)
        rows = zip(self.places, self._rounded(point), self._ranges, point, self._read, strict=True)
        for places, stride, (low, high), new, old in rows:
            if new != old:  # what is not moved stays to the last digit
                for place in places:
                    given[place] = low if stride < low else min(stride, high)
        return given

    def _rounded(self, point: Sequence[float]) -> list[float]:
        """Return strides in the precision of their parameters."""
        strides = [math.exp(x) for x in point]
        if self._dtype == torch.float64:
            return strides
        if self._dtype is not None:
            return torch.tensor(strides, dtype=self._dtype, device="cpu").tolist()
        found: list[float] = []
        for layer in self.layers:
            some = strides[len(found) : len(found) + layer.stride.numel()]
            found += torch.tensor(some, dtype=layer.stride.dtype, device="cpu").tolist()
        return found

    @torch.no_grad()
    def write(self, point: Sequence[float]) -> None:
        """Set the parameters."""
        given = self.given(point)
        strides = iter([given[places[0]] for places in self.places])
        for layer in self.layers:
            values = [next(strides) for _ in range(layer.stride.numel())]
            layer.stride.copy_(torch.tensor(values, dtype=torch.float64, device="cpu"))


class Search:
    """Looks for the point nearest to another at which a cost is met."""

    def __init__(
        self, model: CostModel, variables: Variables, unit: str | Unit, limit: float, spend: bool
    ) -> None:
        self.model, self.variables = model, variables
        self.unit, self.limit, self.spend = unit, limit, spend

    def _cost(self, point: Point) -> Any:
        return self.model.value_at(self.variables.given(point), self.unit)

    def slopes(self, point: Point) -> tuple[Any, list[float]]:
        """Return the cost, and how it changes with the logarithm of each stride."""
        given = self.variables.given(point)
        cost, slopes = self.model.gradient_at(given, self.unit)
        first = len(self.model.input_size)
        return cost, [
            sum(slopes[i - first] * given[i] for i in places) for places in self.variables.places
        ]

    def _miss(self, cost: float) -> float:
        """Return by how much a cost misses the budget, as a part of it; more is worse."""
        part = cost / self.limit - 1
        if self.spend:
            return abs(part)
        return math.inf if part > 0 else -part

    def is_met(self, cost: float) -> bool:
        """Return whether a cost is what it may be, or near enough."""
        return self._miss(cost) <= TOLERANCE if self.spend else cost <= self.limit

    def _is_close(self, cost: float) -> bool:
        """Return whether there is no need to look further."""
        return self.spend and self._miss(cost) <= TOLERANCE / 2

    def nearest(self, start: Point) -> tuple[Point, Any]:
        """Return the start itself if the budget is met there, or the nearest; and what it costs.

        From what is returned, nothing better is found: to look again changes nothing.
        """
        cost = self._cost(start)
        point = start
        for _ in range(_ROUNDS):
            if self.is_met(cost):
                break
            better, its_cost = self._better(point, cost)
            if not self._miss(its_cost) < self._miss(cost) - 1e-12:
                break
            point, cost = better, its_cost
        return point, cost

    def _better(self, start: Point, cost: Any) -> tuple[Point, Any]:
        found = self._along_the_slope(start, cost)
        if self.spend and not self.is_met(found[1]):
            found = min(found, self._one_size_more_or_less(*found), key=lambda x: self._miss(x[1]))
        return found

    def _along_the_slope(self, start: Point, cost: Any) -> tuple[Point, Any]:
        """Return where the cost is met with the least change, as far as slopes can tell."""
        sign = 1.0 if cost > self.limit else -1.0  # strides grow, or become smaller
        point = start
        dear, cheap = (start, cost), (start, cost)
        for _ in range(3):
            _, slopes = self.slopes(point)
            steepest = max((abs(s) for s in slopes), default=0.0)
            if steepest == 0:
                break
            direction = [-sign * s / steepest for s in slopes]
            dear, cheap = self._bracket(start, cost, direction, slopes)
            point, before = cheap[0], point
            if max(abs(a - b) for a, b in zip(point, before, strict=True)) < _FAR:
                break
        return self._combined(dear, cheap)

    def _bracket(
        self, start: Point, cost: Any, direction: list[float], slopes: list[float]
    ) -> tuple[tuple[Point, Any], tuple[Point, Any]]:
        """Return the last point on a line that costs more than the budget, and the first less."""
        limit, clipped = self.limit, self.variables.clipped
        too_dear = cost > limit

        def at(step: float) -> tuple[Point, Any]:
            point = clipped([x + step * d for x, d in zip(start, direction, strict=True)])
            return point, self._cost(point)

        falls = sum(abs(s * d) for s, d in zip(slopes, direction, strict=True))
        near, near_step, far_step = (start, cost), 0.0, max(abs(cost - limit) / falls, _NEAR)
        far = at(far_step)
        while (far[1] > limit) == too_dear:
            if self._is_close(far[1]) or far[0] == near[0]:  # or all are at their bounds
                return far, far
            near, near_step, far_step = far, far_step, 2 * far_step
            far = at(far_step)
        halve = False
        while far_step - near_step > _NEAR:
            if self._is_close(near[1]) or self._is_close(far[1]):
                break
            # Where a straight line between both would be at the budget; every other time halfway.
            share = 0.5 if halve else (near[1] - limit) / (near[1] - far[1])
            middle = near_step + min(max(share, 0.1), 0.9) * (far_step - near_step)
            halve, found = not halve, at(middle)
            if (found[1] > limit) == too_dear:
                near, near_step = found, middle
            else:
                far, far_step = found, middle
        return (near, far) if too_dear else (far, near)

    def _combined(self, dear: tuple[Point, Any], cheap: tuple[Point, Any]) -> tuple[Point, Any]:
        """Return the best of what takes some strides from one point and some from the other."""
        if not self.spend:  # all strides have their part in it
            return cheap
        found = min(dear, cheap, key=lambda x: self._miss(x[1]))
        if self._is_close(found[1]):
            return found
        changed = self._sizes_changed(dear[0], cheap[0])
        if not 2 <= len(changed) <= _TOGETHER:
            return found
        for choice in itertools.product((False, True), repeat=len(changed)):
            chosen = {i for i, taken in zip(changed, choice, strict=True) if taken}
            both = enumerate(zip(dear[0], cheap[0], strict=True))
            point = tuple(b if i in chosen or i not in changed else a for i, (a, b) in both)
            cost = self._cost(point)
            if self._miss(cost) < self._miss(found[1]):
                found = point, cost
        return found

    def _sizes_changed(self, one: Point, other: Point) -> list[int]:
        """Return the variables whose layers make other sizes at another point."""
        made = [self.model.made_at(self.variables.given(point)) for point in (one, other)]
        return [
            i
            for i, places in enumerate(self.variables.places)
            if any(made[0].get(place) != made[1].get(place) for place in places)
        ]

    def _one_size_more_or_less(self, point: Point, cost: Any) -> tuple[Point, Any]:
        """Return the best of what makes one size, or two, larger or smaller by a sample.

        Those are tried that should come nearest, going by slopes.
        """
        samples = self.model.samples_at(self.variables.given(point))
        _, slopes = self.slopes(point)
        found, needed = (point, cost), self.limit - cost
        moves: list[tuple[float, dict[int, float]]] = []
        for i, places in enumerate(self.variables.places):
            count = max(samples.get(place, 0.0) for place in places) / self.variables.multiples[i]
            for change in (1, -1):
                if count > 1:  # of which there shall be one more or less
                    moved = -math.log1p(change / count)
                    moves.append((slopes[i] * moved, {i: point[i] + moved}))
        pairs = [
            (a + b, one | other)
            for (a, one), (b, other) in itertools.combinations(moves, 2)
            if one.keys() != other.keys()
        ]
        for some in (moves, pairs):
            for _, changes in sorted(some, key=lambda move: abs(move[0] - needed))[:_TRIED]:
                moved_point = [changes.get(i, x) for i, x in enumerate(point)]
                clipped = self.variables.clipped(moved_point)
                its_cost = self._cost(clipped)
                if self._miss(its_cost) < self._miss(found[1]):
                    found = clipped, its_cost
            if self.is_met(found[1]):
                break
        return found
