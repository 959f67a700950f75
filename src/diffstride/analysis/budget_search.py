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
_TOGETHER = 5
"""How many sizes that change at one place are tried in all combinations."""
_ROUNDS = 20
LARGEST = 1e6
"""A stride that leaves one sample of any axis."""

Point = tuple[float, ...]


class Variables:
    """The strides that may be moved: logarithms in a row, one for each element of a parameter."""

    def __init__(self, model: CostModel, layers: Mapping[str, DiffStrideNd]) -> None:
        self.model, self.layers = model, list(layers.values())
        self._first = len(model.input_size)
        places, self._of = {}, {}
        place = self._first
        for layer in model.layers.values():
            places[layer] = place
            place += layer.axes
        self.places: list[list[int]] = []
        """Where each variable stands among the numbers that a cost model is given."""
        self.bounds: list[tuple[float, float]] = []
        for layer in self.layers:
            start = places[layer]
            every = list(range(start, start + layer.axes))
            groups = [every] if layer.shared else [[i] for i in every]
            self.places += groups
            low = math.log(max(1.0, layer.min_stride))
            high = math.log(min(layer.max_stride or LARGEST, torch.finfo(layer.stride.dtype).max))
            self.bounds += [(low, high)] * len(groups)

    def __len__(self) -> int:
        return len(self.places)

    def read(self) -> Point:
        """Return the logarithms of the strides in use."""
        found: list[float] = []
        for layer in self.layers:
            strides = layer.strides[:1] if layer.shared else layer.strides
            found += [math.log(s) for s in strides]
        return tuple(found)

    def clipped(self, point: Sequence[float]) -> Point:
        """Return the nearest point within all bounds."""
        return tuple(
            [low if x < low else min(x, high) for x, (low, high) in zip(point, self.bounds)]  # noqa: B905
        )

    def given(self, point: Sequence[float]) -> list[float]:
        """Return what a cost model is given, with strides as their parameters can have them."""
        given, start = self.model.given(), 0
        strides = [math.exp(x) for x in point]
        for layer in self.layers:
            count = 1 if layer.shared else layer.axes
            some = strides[start : start + count]
            if layer.stride.dtype != torch.float64:
                some = torch.tensor(some, dtype=layer.stride.dtype, device="cpu").tolist()
            inside = layer.in_range(some)
            for places, stride in zip(self.places[start : start + count], inside, strict=False):
                for place in places:
                    given[place] = stride
            start += count
        return given

    @torch.no_grad()
    def write(self, point: Sequence[float]) -> None:
        """Set the parameters."""
        start = 0
        for layer in self.layers:
            count = layer.stride.numel()
            strides = [math.exp(x) for x in point[start : start + count]]
            start += count
            value = torch.tensor(strides, dtype=layer.stride.dtype, device="cpu")
            layer.stride.copy_(value)


class Search:
    """Looks for the point nearest to another at which a cost is met."""

    def __init__(
        self, model: CostModel, variables: Variables, unit: str | Unit, limit: float, spend: bool
    ) -> None:
        self.model, self.variables = model, variables
        self.unit, self.limit, self.spend = unit, limit, spend

    def _cost(self, point: Point) -> Any:
        return self.model.value_at(self.variables.given(point), self.unit)

    def _slopes(self, point: Point) -> tuple[Any, list[float]]:
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

    def _is_met(self, cost: float) -> bool:
        return self._miss(cost) <= (TOLERANCE if self.spend else math.inf) and (
            self.spend or cost <= self.limit
        )

    def nearest(self, start: Point) -> Point:
        """Return the start itself if the budget is met there, or the nearest that is found.

        From what is returned, nothing better is found: to look again changes nothing.
        """
        cost = self._cost(start)
        point = start
        for _ in range(_ROUNDS):
            if self._is_met(cost):
                break
            better, its_cost = self._better(point, cost)
            if not self._miss(its_cost) < self._miss(cost) - 1e-12:
                break
            point, cost = better, its_cost
        return point

    def _better(self, start: Point, cost: Any) -> tuple[Point, Any]:
        found = self._along_the_slope(start, cost)
        if self.spend and not self._is_met(found[1]):
            found = min(found, self._one_size_more_or_less(*found), key=lambda x: self._miss(x[1]))
        return found

    def _along_the_slope(self, start: Point, cost: Any) -> tuple[Point, Any]:
        """Return where the cost is met with the least change, as far as slopes can tell."""
        sign = 1.0 if cost > self.limit else -1.0  # strides grow, or become smaller
        point = start
        dear, cheap = (start, cost), (start, cost)
        for _ in range(3):
            _, slopes = self._slopes(point)
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
        near, near_step, step = (start, cost), 0.0, max(abs(cost - limit) / falls, _NEAR)
        far = at(step)
        while (far[1] > limit) == too_dear:
            if far[0] == at(2 * step)[0]:  # all are at their bounds
                return far, far
            near, near_step, step = far, step, 2 * step
            far = at(step)
        far_step = step
        while far_step - near_step > _NEAR:
            if self.spend and min(self._miss(near[1]), self._miss(far[1])) < TOLERANCE / 4:
                break
            middle = (near_step + far_step) / 2
            found = at(middle)
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
        if self._miss(found[1]) < TOLERANCE / 4:
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
        """Return the variables that make a difference by themselves between two points."""
        cost = self._cost(other)
        changed = []
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            if a != b and self._cost((*other[:i], a, *other[i + 1 :])) != cost:
                changed.append(i)
        return changed

    def _one_size_more_or_less(self, point: Point, cost: Any) -> tuple[Point, Any]:
        """Return the best of what makes one size, or two, larger or smaller by a sample."""
        samples = self.model.samples_at(self.variables.given(point))
        found = point, cost
        moves: list[Point] = []
        for i, places in enumerate(self.variables.places):
            count = max(samples.get(place, 0.0) for place in places)
            for change in (1, -1):
                if count > 1:  # samples of size, of which there shall be one more or less
                    moved = point[i] - math.log1p(change / count)
                    moves.append(self.variables.clipped((*point[:i], moved, *point[i + 1 :])))
        for moved_point in moves:
            its_cost = self._cost(moved_point)
            if self._miss(its_cost) < self._miss(found[1]):
                found = moved_point, its_cost
        if self._is_met(found[1]):
            return found
        for one, other in itertools.combinations(moves, 2):
            both = tuple(
                b if b != x else a for x, a, b in zip(point, one, other, strict=True)
            )
            its_cost = self._cost(both)
            if self._miss(its_cost) < self._miss(found[1]):
                found = both, its_cost
        return found
