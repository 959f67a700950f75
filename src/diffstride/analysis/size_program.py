"""Sizes as a small program: how each follows from the input's size and the strides.

A program is a list of steps, each of which computes a number from earlier ones. The first numbers
are given: the size of an example, then the strides. Running the program for other sizes and strides
takes microseconds. What it could not follow is written into it as a number that must not change:
where it would, the program does not hold, and says so.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from diffstride.analysis.soft_numbers import Soft, soft
from diffstride.layers.resizer import Resizer

Slopes = Iterable[tuple[int, float]]
_REMEMBERED = 4096
"""How many results are remembered before all are forgotten."""


@dataclass(frozen=True)
class Linear:
    """⌊(Σ factor·number + plus) / over⌋: convolutions, poolings, borders, sums."""

    terms: tuple[tuple[int, int], ...]
    plus: int = 0
    over: int = 1

    def value(self, numbers: list[Any]) -> Any:
        total = self.plus
        for index, factor in self.terms:
            total += factor * numbers[index]
        return total // self.over

    def slopes(self, numbers: list[Any]) -> Slopes:
        return [(index, factor / self.over) for index, factor in self.terms]


@dataclass(frozen=True)
class Product:
    """A product of numbers: axes that are flattened into one."""

    indices: tuple[int, ...]
    factor: int = 1

    def value(self, numbers: list[Any]) -> Any:
        return self.factor * math.prod([numbers[i] for i in self.indices])

    def slopes(self, numbers: list[Any]) -> Slopes:
        whole = self.value(numbers)
        return [(i, whole / numbers[i]) for i in self.indices]


@dataclass(frozen=True)
class Quotient:
    """⌊one number / another⌋."""

    top: int
    bottom: int

    def value(self, numbers: list[Any]) -> Any:
        return numbers[self.top] // numbers[self.bottom]

    def slopes(self, numbers: list[Any]) -> Slopes:
        top, bottom = numbers[self.top], numbers[self.bottom]
        return [(self.top, 1 / bottom), (self.bottom, -top / bottom**2)]


@dataclass(frozen=True)
class Scaled:
    """⌊factor · number⌋, for a factor that need not be whole."""

    index: int
    factor: float

    def value(self, numbers: list[Any]) -> Any:
        return math.floor(numbers[self.index] * self.factor)

    def slopes(self, numbers: list[Any]) -> Slopes:
        return [(self.index, self.factor)]


@dataclass(frozen=True)
class Computed:
    """Anything else that Python makes of numbers, such as a remainder; it has no slope."""

    function: Callable[..., Any]
    indices: tuple[int, ...]
    constant: Any = None

    def value(self, numbers: list[Any]) -> Any:
        given = [numbers[i] for i in self.indices]
        return self.function(*given, *([] if self.constant is None else [self.constant]))

    def slopes(self, numbers: list[Any]) -> Slopes:
        return ()


@dataclass(frozen=True)
class Constant:
    number: int

    def value(self, numbers: list[Any]) -> Any:
        return self.number

    def slopes(self, numbers: list[Any]) -> Slopes:
        return ()


@dataclass(frozen=True)
class Smaller:
    """The smaller of two numbers; it changes as the first one does."""

    one: int
    other: int

    def value(self, numbers: list[Any]) -> Any:
        return min(numbers[self.one], numbers[self.other])

    def slopes(self, numbers: list[Any]) -> Slopes:
        return [(self.one, 1.0)]


@dataclass(frozen=True)
class Site:
    """The sizes that a layer with strides makes, all axes at once; they are picked from it."""

    layer: Resizer
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    """None, if the layer's strides are not learned."""
    made: dict[Any, Any] = field(default_factory=dict, compare=False)
    changes: dict[Any, Any] = field(default_factory=dict, compare=False)
    """What was computed before."""

    def value(self, numbers: list[Any]) -> Any:
        size = tuple([numbers[i] for i in self.sizes])
        strides = tuple([numbers[i] for i in self.strides])
        key = (size, strides)
        if key not in self.made:
            if len(self.made) >= _REMEMBERED:
                self.made.clear()
            layer = self.layer
            plain = layer.stride_owner is None
            self.made[key] = (
                tuple(layer.output_size(size)) if plain else layer.size_after(size, strides)
            )
        return self.made[key]

    def changes_of(self, numbers: list[Any], axis: int) -> Slopes:
        """Return how one of the sizes changes, were it not rounded nor bounded."""
        size = tuple([numbers[i] for i in self.sizes])
        strides = tuple([numbers[i] for i in self.strides])
        key = (size, strides)
        if key not in self.changes:
            if len(self.changes) >= _REMEMBERED:
                self.changes.clear()
            self.changes[key] = self._changes(size, strides, self.value(numbers))
        return self.changes[key][axis]  # type: ignore[no-any-return]

    def _changes(self, size: Any, strides: Any, whole: Any) -> list[Slopes]:
        sizes = [Soft(n, {i: 1.0}) for i, n in zip(self.sizes, size, strict=True)]
        if self.strides:
            steps = [Soft(s, {i: 1.0}) for i, s in zip(self.strides, strides, strict=True)]
        else:
            steps = [Soft(s) for s in self.layer.strides]
        made = self.layer.soft_size(sizes, whole, steps)
        return [list(soft(m).slopes.items()) for m in made]

    def slopes(self, numbers: list[Any]) -> Slopes:
        return ()  # those who pick from it have them

    def forget(self) -> None:
        """Compute everything again, by the rule that the layer has now."""
        self.made.clear()
        self.changes.clear()


@dataclass(frozen=True)
class Pick:
    """One axis of what a site makes."""

    site: Site
    place: int
    axis: int

    def value(self, numbers: list[Any]) -> Any:
        return numbers[self.place][self.axis]

    def slopes(self, numbers: list[Any]) -> Slopes:
        return self.site.changes_of(numbers, self.axis)


Step = Linear | Product | Quotient | Scaled | Computed | Constant | Smaller | Site | Pick


class Program:
    """Steps in the order they are computed, and what they gave when they were written down."""

    def __init__(self, given: Sequence[Any]) -> None:
        self.given = len(given)
        self.traced: list[Any] = list(given)
        self.steps: list[Step] = []
        self._places: dict[Step, int] = {}
        self._sizes: set[int] = set()
        self.expected: dict[int, Any] = {}
        """What numbers must be for the program to hold, by their places."""
        self._checked: list[tuple[Step, Any, bool]] | None = None

    def add(self, step: Step) -> int:
        """Return the place of what a step computes, which is written down once."""
        place = self._places.get(step)
        if place is None:
            self.traced.append(step.value(self.traced))
            self.steps.append(step)
            place = self._places[step] = len(self.traced) - 1
            self._checked = None
        return place

    def expect(self, place: int) -> Any:
        """Have the program hold only while a number is what it was; return that."""
        self.expected[place] = self.traced[place]
        self._checked = None
        return self.traced[place]

    def expect_everything(self) -> None:
        """Have the program hold for the sizes and strides alone that it was written for."""
        for place in range(self.given):
            self.expect(place)

    def is_size(self, place: int) -> None:
        """Note that a number is the size of a tensor: at least 1, or the network fails."""
        if place not in self._sizes and self.traced[place] >= 1:
            self._sizes.add(place)
            self._checked = None

    def run(self, given: Sequence[Any]) -> list[Any] | None:
        """Return all numbers for other sizes and strides; None where the program does not hold."""
        if self._checked is None:
            places = enumerate(self.steps, self.given)
            self._checked = [(x, self.expected.get(i), i in self._sizes) for i, x in places]
        numbers = list(given)
        for place in range(self.given):
            if place in self.expected and numbers[place] != self.expected[place]:
                return None
        try:
            for step, expected, is_size in self._checked:
                number = step.value(numbers)
                if (expected is not None and number != expected) or (is_size and number < 1):
                    return None
                numbers.append(number)
        except (ValueError, ArithmeticError):  # a size that no layer takes
            return None
        return numbers

    def gradient(self, numbers: list[Any], slopes: dict[int, float]) -> list[float]:
        """Return how something changes with what is given, from how it changes with any number."""
        total = [0.0] * len(numbers)
        for place, slope in slopes.items():
            total[place] += slope
        for place in range(len(numbers) - 1, self.given - 1, -1):
            if slope := total[place]:
                for index, factor in self.steps[place - self.given].slopes(numbers):
                    total[index] += slope * factor
        return total[: self.given]
