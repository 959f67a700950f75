"""What a network is given when it reads a size: a number that knows how it follows from others.

Sums, products and quotients of such numbers are followed. Whatever needs to know the number itself,
a comparison, a loop, a list of so many, gets it, and the program of sizes holds from then on only
while the answer stays.
"""

import operator
from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from torch.utils._pytree import tree_leaves

from diffstride.analysis.size_program import Computed, Linear, Product, Program, Quotient

Size = Any
"""An axis of a tensor: a plain number if it never changes, or a :class:`Length`."""


class Length(torch.SymInt):
    """A number of samples, to Python a whole number like any other.

    It is a ``torch.SymInt`` in name alone, so that functions of torch take it as an argument.
    """

    def __init__(self, program: Program, place: int) -> None:
        self.program, self.place = program, place

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # for ``isinstance(size, int)``
        return int

    @property
    def traced(self) -> int:
        """What it was when the network was run."""
        return self.program.traced[self.place]  # type: ignore[no-any-return]

    def read(self) -> int:
        """Return the number; the program holds only while it is this one."""
        return self.program.expect(self.place)  # type: ignore[no-any-return]

    def __add__(self, other: Any) -> Any:
        return self._linear(other, 1) if is_whole(other) else self.read() + other

    def __sub__(self, other: Any) -> Any:
        return self._linear(other, -1) if is_whole(other) else self.read() - other

    def __rsub__(self, other: Any) -> Any:
        return (-self) + other

    def __neg__(self) -> Any:
        return linear(self.program, [(self, -1)])

    def __mul__(self, other: Any) -> Any:
        if not is_whole(other):
            return self.read() * other
        return product([self, other])

    __radd__, __rmul__ = __add__, __mul__

    def __floordiv__(self, other: Any) -> Any:
        if not is_whole(other):
            return self.read() // other
        if type(other) is Length:
            return made(self.program, Quotient(self.place, other.place))
        return linear(self.program, [(self, 1)], 0, other) if other > 0 else self.read() // other

    def __mod__(self, other: Any) -> Any:
        if type(other) is int and other > 0:
            return made(self.program, Computed(operator.mod, (self.place,), other))
        return self.read() % plain(other)

    def _linear(self, other: Any, factor: int) -> Any:
        if type(other) is Length:
            return linear(self.program, [(self, 1), (other, factor)])
        return linear(self.program, [(self, 1)], factor * other)

    def _compare(self, other: Any, function: Callable[..., bool]) -> bool:
        if not is_whole(other):
            return function(self.read(), other)
        places = (self.place, other.place) if type(other) is Length else (self.place,)
        constant = None if type(other) is Length else other
        place = self.program.add(Computed(function, places, constant))
        return bool(self.program.expect(place))

    def __eq__(self, other: object) -> bool:
        return self._compare(other, operator.eq)

    def __ne__(self, other: object) -> bool:
        return self._compare(other, operator.ne)

    def __lt__(self, other: Any) -> bool:
        return self._compare(other, operator.lt)

    def __le__(self, other: Any) -> bool:
        return self._compare(other, operator.le)

    def __gt__(self, other: Any) -> bool:
        return self._compare(other, operator.gt)

    def __ge__(self, other: Any) -> bool:
        return self._compare(other, operator.ge)

    def __bool__(self) -> bool:
        return self._compare(0, operator.ne)

    def __getattr__(self, name: str) -> Any:  # real, bit_count() ...
        if not hasattr(int, name):  # torch asks for methods that it might have
            raise AttributeError(f"a size has no attribute {name!r}")
        return getattr(self.read(), name)


def _reading(name: str, function: Callable[..., Any] | None = None) -> Callable[..., Any]:
    function = function or getattr(int, name)

    def method(self: Length, *others: Any) -> Any:
        return function(self.read(), *map(plain, others))

    return method


def _reading_reflected(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, other: function(plain(other), self.read())


for _name in (
    *("__index__", "__int__", "__float__", "__hash__", "__repr__", "__str__", "__format__"),
    *("__abs__", "__pos__", "__round__", "__trunc__", "__floor__", "__ceil__", "__invert__"),
    *("bit_length", "as_integer_ratio", "conjugate"),
):
    setattr(Length, _name, _reading(_name))
for _name in ("truediv", "floordiv", "mod", "pow", "and_", "or_", "xor", "lshift", "rshift"):
    _operator = getattr(operator, _name)
    _dunder = _name.strip("_")
    if _name not in ("floordiv", "mod"):
        setattr(Length, f"__{_dunder}__", _reading(_name, _operator))
    setattr(Length, f"__r{_dunder}__", _reading_reflected(_operator))
setattr(Length, "__divmod__", _reading("divmod", divmod))  # noqa: B010
setattr(Length, "__rdivmod__", _reading_reflected(divmod))  # noqa: B010


class Shape(tuple[Any, ...]):
    """The shape of a tensor, of which some axes are lengths."""

    __slots__ = ()

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return torch.Size

    def numel(self) -> Any:
        return product(self)


def is_whole(value: Any) -> bool:
    return type(value) is int or type(value) is Length


def plain(value: Any) -> Any:
    """Return a length as the number that it was, which must not change from then on."""
    return value.read() if type(value) is Length else value


def traced(size: Size) -> int:
    """Return what a size was when the network was run."""
    return size.traced if type(size) is Length else cast("int", size)


def made(program: Program, step: Any) -> Length:
    return Length(program, program.add(step))


def linear(
    program: Program, terms: Iterable[tuple[Size, int]], plus: int = 0, over: int = 1
) -> Size:
    """Return ⌊(Σ factor·size + plus) / over⌋ of sizes, some of which may be plain numbers."""
    factors: dict[int, int] = {}
    for size, factor in terms:
        if type(size) is Length:
            factors[size.place] = factors.get(size.place, 0) + factor
        else:
            plus += factor * size
    factors = {place: factor for place, factor in factors.items() if factor}
    if not factors:
        return plus // over
    if list(factors.values()) == [1] and plus == 0 and over == 1:
        return Length(program, next(iter(factors)))
    if over == 1 and len(factors) == 1:  # n + 1 − 1 is n again, however it came about
        ((place, factor),) = factors.items()
        step = program.steps[place - program.given] if place >= program.given else None
        if isinstance(step, Linear) and step.over == 1:
            inner = [(Length(program, i), factor * f) for i, f in step.terms]
            return linear(program, inner, plus + factor * step.plus)
    return made(program, Linear(tuple(sorted(factors.items())), plus, over))


def product(sizes: Iterable[Size]) -> Size:
    """Return the product of sizes, some of which may be plain numbers."""
    places: list[int] = []
    factor, program = 1, None
    for size in sizes:
        if type(size) is not Length:
            factor *= size
            continue
        program = size.program
        step = program.steps[size.place - program.given] if size.place >= program.given else None
        if isinstance(step, Product):
            factor, places = factor * step.factor, [*places, *step.indices]
        else:
            places.append(size.place)
    if program is None or factor == 0:
        return factor
    if len(places) == 1 and factor == 1:
        return Length(program, places[0])
    if len(places) == 1:
        return linear(program, [(Length(program, places[0]), factor)])
    return made(program, Product(tuple(sorted(places)), factor))


def same(one: Size, other: Size) -> Size:
    """Return one of two sizes that must be equal, and are."""
    if type(one) is Length and type(other) is Length and one.place == other.place:
        return one
    if type(one) is not Length and type(other) is not Length:
        return one
    _ = one == other  # read, and so expected
    return one if type(one) is Length else other


def leaves_in(values: Any) -> list[Any]:
    """Return everything in arguments, also the sizes in shapes and slices."""
    leaves = tree_leaves(values)
    if any(type(x) is Shape or type(x) is slice for x in leaves):
        return [part for x in leaves for part in _parts(x)]
    return leaves


def _parts(value: Any) -> Iterable[Any]:
    if type(value) is slice:
        return (value.start, value.stop, value.step)
    return value if type(value) is Shape else (value,)


def as_traced(value: Any) -> Any:
    """Return lengths as the numbers that they were."""
    return _replaced(value, traced)


def as_read(value: Any) -> Any:
    """Return lengths as numbers that must not change."""
    return _replaced(value, plain)


def _replaced(value: Any, number: Callable[[Any], Any]) -> Any:
    if type(value) is slice:
        return slice(number(value.start), number(value.stop), number(value.step))
    if type(value) is Shape:
        return torch.Size([number(n) for n in value])
    return number(value)
