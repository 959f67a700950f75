"""The least and the most that the numbers of a config may be."""

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import field
from typing import Any, TypeVar

T = TypeVar("T")


def limited(default: T, least: float = -math.inf, most: float = math.inf) -> T:
    """Return a field with a default and limits, which :func:`check_limits` enforces."""
    return field(default=default, metadata={"limits": (least, most)})


def check_limits(config: Any) -> None:
    """Raise a ValueError if a number is not within its limits; the message names the option."""
    for option, number, (least, most) in _numbers(config):
        if isinstance(number, float) and not math.isfinite(number):
            raise ValueError(f"--{option} must be a finite number, got {number}")
        if number < least:
            raise ValueError(f"--{option} must be at least {least}, got {number}")
        if number > most:
            raise ValueError(f"--{option} must be at most {most:,}, got {number:,}")


def _numbers(config: Any, prefix: str = "") -> Iterator[tuple[str, float, tuple[float, float]]]:
    """Yield every number of a config, with the name of its option and its limits."""
    for setting in dataclasses.fields(config):
        option, value = f"{prefix}{setting.name}", getattr(config, setting.name)
        if dataclasses.is_dataclass(value):
            yield from _numbers(value, f"{option}.")
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, int | float):
                yield option, number, setting.metadata.get("limits", (-math.inf, math.inf))
