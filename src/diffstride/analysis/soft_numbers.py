"""Numbers that know how they change with others: values are exact, slopes are carried along."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Soft:
    """A number, and how it changes with each of some others, which are known by a key.

    >>> n, s = Soft(32, {"n": 1.0}), Soft(2.0, {"s": 1.0})
    >>> n / s
    Soft(value=16.0, slopes={'n': 0.5, 's': -8.0})
    """

    value: float
    slopes: dict[Any, float] = field(default_factory=dict)

    def _combined(self, value: float, factor: float, other: "Soft", its: float) -> "Soft":
        """Return a value with the slopes of ``factor * self + its * other``."""
        slopes = {key: factor * slope for key, slope in self.slopes.items()}
        for key, slope in other.slopes.items():
            slopes[key] = slopes.get(key, 0.0) + its * slope
        return Soft(value, slopes)

    def __add__(self, other: "Soft | float") -> "Soft":
        if not isinstance(other, Soft):
            return Soft(self.value + other, self.slopes)
        return self._combined(self.value + other.value, 1.0, other, 1.0)

    def __mul__(self, other: "Soft | float") -> "Soft":
        if not isinstance(other, Soft):
            slopes = {key: other * slope for key, slope in self.slopes.items()}
            return Soft(self.value * other, slopes)
        return self._combined(self.value * other.value, other.value, other, self.value)

    def __truediv__(self, other: "Soft | float") -> "Soft":
        other = soft(other)
        value = self.value / other.value
        return self._combined(value, 1 / other.value, other, -value / other.value)

    def __rtruediv__(self, other: float) -> "Soft":
        return Soft(other) / self

    __radd__, __rmul__ = __add__, __mul__

    def __int__(self) -> int:
        return int(self.value)


def soft(value: Soft | float) -> Soft:
    """Return a number as one that may change with others; a plain number does not."""
    return value if isinstance(value, Soft) else Soft(value)
