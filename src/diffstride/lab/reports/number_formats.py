"""Means and deviations of runs, and numbers as short texts."""

import statistics
from collections.abc import Iterable, Sequence
from typing import TypeAlias

Figures: TypeAlias = Sequence[float]
"""A mean and a standard deviation, a mean alone, or nothing; the paper's figures have this form."""
UNKNOWN = "–"


def mean_sd(values: Sequence[float]) -> Figures:
    """The mean and the standard deviation; of one value the mean alone, of none nothing.

    >>> mean_sd([1.0, 2.0, 3.0]), mean_sd([1.0]), mean_sd([])
    ((2.0, 1.0), (1.0,), ())
    """
    if len(values) > 1:
        return statistics.mean(values), statistics.stdev(values)
    return tuple(values)


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of the known values, if there are any."""
    known = [value for value in values if value is not None]
    return statistics.mean(known) if known else None


def plus_minus(figures: Figures, digits: int) -> str:
    """Figures with so many digits after the point.

    >>> plus_minus((91.42, 0.25), 1), plus_minus((91.42,), 1), plus_minus((), 1)
    ('91.4 ± 0.2', '91.4', '–')
    """
    return " ± ".join(f"{value:.{digits}f}" for value in figures) or UNKNOWN


def percent(value: float | None) -> str:
    """A fraction in percent."""
    return UNKNOWN if value is None else f"{100 * value:.1f} %"


def number(value: float | None) -> str:
    """A number with three digits, or with all digits before the point if they are more."""
    return UNKNOWN if value is None else f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
