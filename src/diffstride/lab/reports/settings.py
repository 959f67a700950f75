"""The settings of a run that reports make use of: config.yaml, checked while it is read."""

import math
from pathlib import Path
from typing import Any

from diffstride.lab.runs.documents import DamagedFile, read_yaml, short

SECTIONS = ("model", "data", "optim", "trainer")
NUMBERS = ("stride_penalty", "macs_budget", "model.smoothness", "model.width")
WHOLE = ("trainer.epochs",)
LISTS = {"model.strides": "numbers", "data.task": "words"}
MAY_BE_NOTHING = ("macs_budget", "model.strides")


def read_settings(path: Path) -> dict[str, Any]:
    """Return what config.yaml says, with numbers where numbers must be.

    Raises:
        DamagedFile: if a setting that a report makes use of is of another kind.
        OSError: if there is no such file.
    """
    config = read_yaml(path)
    for name in SECTIONS:
        if not isinstance(config.setdefault(name, {}), dict):
            raise DamagedFile(f"{path}: {name} must have settings of its own, got {config[name]!r}")
    if not isinstance(config["model"].get("downsampling"), str):
        raise DamagedFile(f"{path} must have a model with a downsampling")
    for name in (*NUMBERS, *WHOLE, *LISTS):
        section, _, key = name.rpartition(".")
        settings = config[section] if section else config
        value = settings.get(key)
        if key not in settings or (value is None and name in MAY_BE_NOTHING):
            continue
        try:
            settings[key] = _value(name, value)
        except (TypeError, ValueError, OverflowError):
            kind = "a whole number" if name in WHOLE else "a number"
            if name in LISTS:
                kind = f"a list of {LISTS[name]}"
            raise DamagedFile(f"{path}: {name} must be {kind}, got {short(value)}") from None
    return config


def _value(name: str, value: Any) -> Any:
    """A value as its setting has it; an error of some kind for what is none."""
    if name in LISTS:
        if not isinstance(value, list):
            raise TypeError
        return [_number(item) if LISTS[name] == "numbers" else str(item) for item in value]
    if name in WHOLE:
        if type(value) is not int:
            raise TypeError
        return value
    return _number(value)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not math.isfinite(number := float(value)):
        raise ValueError
    return number
