"""What a network does, use by use, and what each use costs as a function of sizes."""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from diffstride.analysis.lengths import Length, Size
from diffstride.analysis.soft_numbers import Soft, soft

Sizes = tuple[Size, ...]
_REMEMBERED = 4096


@dataclass(frozen=True, eq=False)
class Amount:
    """A number of something: a factor times a product of sizes."""

    factor: float = 0
    sizes: Sizes = ()

    def of(self, numbers: Sequence[Any]) -> Any:
        return self.factor * math.prod(resolved(self.sizes, numbers))

    def times(self, factor: float) -> "Amount":
        """Return so many times as much."""
        return Amount(factor * self.factor, self.sizes)


class FunctionAmount:
    """A number of something: any function of some sizes, each a tuple with one number an axis.

    The function is given whole numbers, or :class:`Soft` ones where slopes are asked for. What it
    has returned for some sizes is remembered. One that returns several numbers has :meth:`parts`.
    """

    def __init__(self, function: Callable[..., Any], sizes: tuple[Sizes, ...]) -> None:
        self.function, self.sizes = function, sizes
        self._part: int | None = None
        self._factor: float = 1
        self._places = list({n.place: 0 for size in sizes for n in size if type(n) is Length})
        self._known: dict[Any, Any] = {}
        self._known_slopes: dict[Any, list[dict[int, float]]] = {}

    def parts(self, count: int) -> "list[FunctionAmount]":
        """Return each of the numbers by itself; they are computed together."""
        made = [copy.copy(self) for _ in range(count)]
        for part, amount in enumerate(made):
            amount._part = part
        return made

    def times(self, factor: float) -> "FunctionAmount":
        """Return so many times as much; it is computed and remembered once for both."""
        made = copy.copy(self)
        made._factor = factor * self._factor
        return made

    def of(self, numbers: Sequence[Any]) -> Any:
        key = tuple([numbers[place] for place in self._places])
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            found = self.function(*(tuple(resolved(size, numbers)) for size in self.sizes))
            self._known[key] = found
        return self._factor * (found if self._part is None else found[self._part])

    def forget(self) -> None:
        """Compute everything again from now on."""
        self._known.clear()
        self._known_slopes.clear()

    def slopes(self, numbers: Sequence[Any]) -> dict[int, float]:
        """Return how it changes with each number."""
        key = tuple([numbers[place] for place in self._places])
        found = self._known_slopes.get(key)
        if found is None:
            if len(self._known_slopes) >= _REMEMBERED:
                self._known_slopes.clear()
            sizes = [
                [Soft(numbers[n.place], {n.place: 1.0}) if type(n) is Length else n for n in size]
                for size in self.sizes
            ]
            made = self.function(*sizes)
            each = [made] if self._part is None else made
            found = self._known_slopes[key] = [soft(number).slopes for number in each]
        slopes = found[self._part or 0]
        if self._factor == 1:
            return slopes
        return {place: self._factor * slope for place, slope in slopes.items()}


AnyAmount = Amount | FunctionAmount


def resolved(sizes: Sizes, numbers: Sequence[Any]) -> list[Any]:
    """Return sizes as numbers, from all numbers of a program."""
    return [numbers[n.place] if type(n) is Length else n for n in sizes]


@dataclass(eq=False)
class Use:
    """One use of a layer, or an operation that is no layer that counts, for one example."""

    name: str
    """Of the layer; of an operation, what torch calls it."""
    layer: nn.Module | None
    input_sizes: Sizes
    """The whole shape that it reads, with the batch."""
    output_sizes: Sizes
    """The whole shape that it puts out."""
    made: Sizes = ()
    """The spatial size that it makes, before a downsampling that was converted into it."""
    macs: AnyAmount = Amount()
    activations: Amount = Amount()
    saved: list[Amount] = field(default_factory=list)
    """The bytes that are kept for the backward pass, tensor by tensor."""

    @property
    def is_counted(self) -> bool:
        """Whether it is a layer that :func:`diffstride.cost` lists."""
        return self.layer is not None


Unit = Callable[[Use], Sequence[AnyAmount]]
"""What is counted of a use: any function from uses to amounts, which are added."""

UNITS: dict[str, Unit] = {
    "macs": lambda use: [use.macs],
    "activations": lambda use: [use.activations],
    "bytes": lambda use: use.saved,
}


class Total:
    """The sum of a unit over all uses. Products of the same sizes are added up beforehand."""

    def __init__(self, unit: Unit, uses: Sequence[Use]) -> None:
        products: dict[tuple[int, ...], float] = {}
        self.functions: list[FunctionAmount] = []
        for amount in (amount for use in uses for amount in unit(use)):
            if isinstance(amount, FunctionAmount):
                self.functions.append(amount)
                continue
            lengths = [n for n in amount.sizes if type(n) is Length]
            factor = amount.factor * math.prod([n for n in amount.sizes if type(n) is not Length])
            places = tuple(sorted(n.place for n in lengths))
            products[places] = products.get(places, 0) + factor
        self.constant = products.pop((), 0)
        self.products = [(places, factor) for places, factor in products.items() if factor]

    def of(self, numbers: Sequence[Any]) -> Any:
        total = self.constant
        for places, factor in self.products:
            for place in places:
                factor *= numbers[place]
            total += factor
        for function in self.functions:
            total += function.of(numbers)
        return total

    def slopes(self, numbers: Sequence[Any]) -> dict[int, float]:
        """Return how the total changes with each number."""
        slopes: dict[int, float] = {}
        for places, factor in self.products:
            whole = factor * math.prod([numbers[place] for place in places])
            for place in places:
                slopes[place] = slopes.get(place, 0.0) + whole / numbers[place]
        for function in self.functions:
            for place, slope in function.slopes(numbers).items():
                slopes[place] = slopes.get(place, 0.0) + slope
        return slopes
