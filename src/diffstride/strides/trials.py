"""Which strides to try next, and which of those that were tried are best.

A trial is a short training with fixed strides of its own, and its score the loss on examples that
are held out. One score is mostly chance; what all trials say together is less so. By logarithms of
strides scores lie near a plane, even where no two of them have a stride in common: which axis is
better kept, and where, is in all of them. So some strides are tried at random; a plane is laid
through their scores; and of many strides those are tried next that the plane
says are good, again and again.
"""

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from random import Random

import torch

from diffstride.strides.space import Point, StrideSpace

WAVES = (1 / 2, 2 / 3, 5 / 6, 1.0)
"""When a plane is laid, as parts of all trials; the first of them are anywhere."""
RADII = (1.0, 1.2, 1.4)
"""How far from the middle the next ones lie at most, in each wave: in terms of how far strides at
random do, one half of them. A plane says more than is true of what is far away."""
FEWEST = 6
PROPOSED = 200
"""Of how many strides at random within that, each time, the plane says which is best."""
MEASURED = 200
"""How many strides at random tell where the middle is, and how far from it they lie."""
FLATNESS = 0.25
"""How flat the plane is: the part of the differences of scores that is taken for chance."""


class StrideTrials:
    """Chooses strides to try, all of one cost, wave by wave, from the scores of those before.

    What is tried depends on the seed and the scores alone: not on where the network begins.

    Args:
        space: the strides among which to look.
        number: how many trials there will be.
        seed: of what is tried.
    """

    def __init__(self, space: StrideSpace, number: int = 12, *, seed: int = 0) -> None:
        if number < FEWEST:
            raise ValueError(f"a search needs {FEWEST} trials or more, got {number}")
        self.space, self.number, self.seed = space, number, seed

    def next(self, points: Sequence[Point], scores: Sequence[float]) -> list[Point]:
        """Return the strides of the next wave, from those of all waves so far; none after the last.

        The lower a score, the better. What is no finite number is as bad as the worst that is.
        """
        ends = [math.ceil(part * self.number - 1e-9) for part in WAVES]
        left = [end for end in ends if end > len(points)]
        if not left:
            return []
        numbers = Random(f"{self.seed} trials {len(points)}")
        wanted = left[0] - len(points)
        if not points:
            return [self.space.random(numbers) for _ in range(wanted)]
        plane = plane_through(points, finite(scores))
        middle, distance = self._extent
        radius = distance * RADII[len(RADII) - len(left)]

        def proposed() -> Iterator[Point]:
            while True:
                point = self.space.anywhere(numbers)
                if math.dist(point, middle) <= radius:
                    yield point

        def rank(point: Point) -> tuple[bool, float]:
            return not self.space.keeps(point), plane(point)

        return [min(islice(proposed(), PROPOSED), key=rank) for _ in range(wanted)]

    @cached_property
    def _extent(self) -> tuple[Point, float]:
        """Return the middle of all strides, and how far one half of those at random lie from it."""
        numbers = Random(f"{self.seed} extent")
        some = [self.space.anywhere(numbers) for _ in range(MEASURED)]
        middle = tuple(statistics.fmean(column) for column in zip(*some, strict=True))
        return middle, statistics.median(math.dist(point, middle) for point in some)


def best(points: Sequence[Point], scores: Sequence[float]) -> int:
    """Return which point is best by its own score and by what the others say, each counted half.

    It is one whose score is a finite number.
    """
    return _ranked(points, scores)[0]


def _ranked(points: Sequence[Point], scores: Sequence[float]) -> list[int]:
    """Return the places of points, the best first."""
    known = finite(scores)
    plane = plane_through(points, known)
    both = [score + plane(point) for point, score in zip(points, known, strict=True)]
    return sorted(range(len(points)), key=lambda i: (not math.isfinite(scores[i]), both[i]))


def finite(scores: Sequence[float]) -> list[float]:
    """Return scores with the worst finite one in place of those that are none."""
    known = [score for score in scores if math.isfinite(score)]
    if not known:
        raise FloatingPointError(
            f"none of {len(scores)} trials has a loss that is a finite number: training diverged "
            f"with all strides, or the loss is wrong; try a smaller learning rate"
        )
    return [score if math.isfinite(score) else max(known) for score in scores]


def plane_through(points: Sequence[Point], scores: Sequence[float]) -> Callable[[Point], float]:
    """Return the plane that is nearest to scores, by least squares, and flat where few tell it.

    >>> plane = plane_through([(0.0, 0.0), (3.0, 0.0), (0.0, 3.0)], [1.0, 1.0, 4.0])
    >>> round(plane((0.0, 0.0)), 1), round(plane((0.0, 3.0)), 1)
    (1.2, 3.7)
    """
    x, y = torch.tensor(points, dtype=torch.float64), torch.tensor(scores, dtype=torch.float64)
    middle, height = x.mean(0), float(y.mean())
    spread = x.std(0, correction=0).clamp(min=1e-9)  # a stride that never varies says nothing
    x, number = (x - middle) / spread, x.shape[1]
    weighed = x.T @ x + FLATNESS * number * torch.eye(number, dtype=torch.float64)
    slopes = (torch.linalg.solve(weighed, x.T @ (y - height)) / spread).tolist()
    at = middle.tolist()

    def plane(point: Point) -> float:
        return height + math.fsum(s * (p - m) for s, p, m in zip(slopes, point, at, strict=True))

    return plane
