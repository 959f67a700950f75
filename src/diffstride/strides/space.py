"""All strides at which a network costs the same: chosen at random, near others, or in between.

A point is a tuple of logarithms, one for each stride that can be moved by itself.
"""

import math
from collections.abc import Sequence
from random import Random

from diffstride.analysis.budget import Budget

Point = tuple[float, ...]

LARGEST = 16.0
"""No stride is chosen at random that is larger than this."""
MISSED = 0.02
"""By what part of the budget strides that are tried may miss it."""
_HALVINGS = 30
_DRAWS = 100


class StrideSpace:
    """The strides at which a network costs what a budget says.

    >>> from random import Random
    >>> from torch import nn
    >>> from diffstride import Budget, DiffStride2d
    >>> model = nn.Sequential(DiffStride2d(2.0, smoothness=0.0), nn.Conv2d(8, 8, 3, padding=1))
    >>> space = StrideSpace(Budget(model, (8, 32, 32), macs=160_000))
    >>> space.write(space.random(Random(3)))
    >>> model[0].output_size((32, 32)), space.budget.cost
    ((18, 7), 162176)
    """

    def __init__(self, budget: Budget) -> None:
        if not budget.spend:
            raise ValueError(
                "strides of one cost need a budget that is spent, got one with spend=False, which "
                "is only a limit: make it with spend=True"
            )
        self.budget = budget

    def __len__(self) -> int:
        return len(self.budget.variables)

    def read(self) -> Point:
        """Return where the network is."""
        return self.budget.variables.read()

    def write(self, point: Sequence[float]) -> None:
        """Set the strides of the network."""
        self.budget.variables.write(point)

    def fitted(self, point: Sequence[float]) -> Point:
        """Return the nearest point that costs what the budget says."""
        return self.budget.nearest(point)

    def towards(self, direction: Sequence[float]) -> Point:
        """Return the point in a direction, from strides of 1, that costs what the budget says.

        The logarithms of strides there are in the ratios that the direction says, as far as their
        ranges allow.
        """
        variables, limit = self.budget.variables, self.budget.limit
        most = math.log(LARGEST)
        low, high = 0.0, most / max([*direction, 1e-9])
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            point = variables.clipped([middle * part for part in direction])
            low, high = (middle, high) if self.budget.cost_at(point) > limit else (low, middle)
        return self.fitted([high * part for part in direction])

    def keeps(self, point: Sequence[float]) -> bool:
        """Return whether the network costs what the budget says at a point, to two per cent.

        Where maps are tiny, one size more or less is a jump of the cost, and some points lie at it.
        """
        return bool(abs(self.budget.cost_at(point) / self.budget.limit - 1) <= MISSED)

    def anywhere(self, numbers: Random) -> Point:
        """Return any point: each stride has a random part in what is downsampled."""
        return self.towards([numbers.random() for _ in range(len(self))])

    def random(self, numbers: Random) -> Point:
        """Return any point at which the budget is kept, if there is one among many."""
        points = [self.anywhere(numbers)]
        while not self.keeps(points[-1]):
            if len(points) == _DRAWS:
                return points[0]
            points.append(self.anywhere(numbers))
        return points[-1]

    def between(self, one: Point, other: Point, spread: float, numbers: Random) -> Point:
        """Return a point somewhere between two, and as far off as ``spread`` says."""
        part = numbers.random()
        pairs = zip(one, other, strict=True)
        return self.fitted([a + part * (b - a) + numbers.gauss(0, spread) for a, b in pairs])
