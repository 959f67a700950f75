"""The YAML file of the settings of a run: written, and read with every type checked."""

import contextlib
import dataclasses
import json
import math
import typing
from collections.abc import Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union

from diffstride.files import write
from diffstride.lab.runs.config import Config
from diffstride.lab.runs.documents import DamagedFile, RunError, read_yaml, short

RECORDED = "recorded"
"""The word in config.yaml of a training of one's own, which has no recipe."""
TYPE_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}


def flat(settings: Config | Mapping[Any, Any]) -> dict[str, Any]:
    """Return settings by their names on the command line, such as model.strides."""
    values: dict[str, Any] = {}
    sections = settings if isinstance(settings, Mapping) else dataclasses.asdict(settings)
    for name, value in sections.items():
        inside = flat(value) if isinstance(value, dict) else {"": value}
        values |= {f"{name}.{key}" if key else str(name): x for key, x in inside.items()}
    return values


def write_config(path: Path, config: Config) -> None:
    """Write a config as YAML that :func:`read_config` reads again."""
    import yaml

    plain = json.loads(json.dumps(dataclasses.asdict(config)))  # tuples to lists
    write(path, yaml.safe_dump(plain, sort_keys=False))


def read_config(path: Path) -> Config:
    """Return the config in a file, with defaults for what it lacks; a ValueError if it is none."""
    try:
        settings = read_yaml(path)
        check_has_network(path, settings)
        return typing.cast(Config, typed(settings, Config, ""))
    except (DamagedFile, RunError):
        raise
    except (OSError, ValueError) as error:
        raise RunError(f"{path} can't be read as a config: {error}") from error


def check_has_network(path: Path, settings: Mapping[str, Any]) -> None:
    """Raise a RunError for the config of a training that was recorded, as nobody else has it."""
    if settings.get(RECORDED):
        wrong = f"{path.parent} is the record of a training of one's own, without its network"
        advice = "`diffstride report` and `diffstride table` can show it, other commands can't"
        raise RunError(f"{wrong}: {advice}")


# By hand, because nothing that we depend on does it: tyro reads the words of a command line, and
# ends the command with its usage if they are wrong; PyYAML knows no types.
def typed(value: Any, hint: Any, name: str) -> Any:
    """Return a value from YAML as the type of a setting, or raise a ValueError that names it."""
    kind, choices = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        if not isinstance(value, dict):
            raise ValueError(f"{name} must have settings of its own, got {short(value)}")
        prefix, hints = f"{name}." if name else "", typing.get_type_hints(hint)
        if unknown := sorted(set(value) - set(hints), key=str):
            raise ValueError(f"unknown names {', '.join(f'{prefix}{key}' for key in unknown)}")
        for one in dataclasses.fields(hint):
            usual = (one.default, one.default_factory)
            if one.name not in value and usual == (dataclasses.MISSING, dataclasses.MISSING):
                raise ValueError(f"there is no {prefix}{one.name}")
        return hint(**{key: typed(x, hints[key], f"{prefix}{key}") for key, x in value.items()})
    if kind in (Union, UnionType):  # with None, always
        (hint,) = set(choices) - {NoneType}
        return None if value is None else typed(value, hint, name)
    if kind is tuple and isinstance(value, list):
        return tuple(typed(item, choices[0], name) for item in value)
    if hint is float and not isinstance(value, bool):
        # YAML takes 1e-3, without a point, for a word.
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            if math.isfinite(number := float(value)):
                return number
    elif (kind is Literal and value in choices) or type(value) is hint:
        return value
    expected = {Literal: f"one of {', '.join(map(str, choices))}", tuple: "a list"}
    raise ValueError(f"{name} must be {expected.get(kind) or TYPE_NAMES[hint]}, got {short(value)}")
