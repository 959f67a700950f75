"""A config as a YAML file."""

import contextlib
import dataclasses
import json
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from diffstride.files import write
from diffstride.lab.runs.config import Config
from diffstride.lab.runs.documents import TYPE_NAMES, DamagedFile, RunError, read_yaml


def write_config(path: Path, config: Config) -> None:
    """Write a config as YAML that :func:`read_config` reads again."""
    import yaml

    plain = json.loads(json.dumps(dataclasses.asdict(config)))  # tuples to lists
    write(path, yaml.safe_dump(plain, sort_keys=False))


def read_config(path: Path) -> Config:
    """Return the config in a file; settings that it does not have are at their defaults.

    Raises:
        ValueError: if it is no YAML, or has a name or value that a config has not.
    """
    try:
        config: Config = _typed(read_yaml(path), Config, "")
        return config
    except DamagedFile:
        raise
    except (OSError, ValueError) as error:
        raise RunError(f"{path} can't be read as a config: {error}") from error


# By hand, because nothing that we depend on does it: tyro reads the words of a command line, and
# ends the command with its usage if they are wrong; PyYAML knows no types.
def _typed(value: Any, hint: Any, name: str) -> Any:
    """Return a value from a YAML file as the type that a config has in its place.

    Raises:
        ValueError: if the type does not allow it; the message names the setting.
    """
    kind, choices = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        if not isinstance(value, dict):
            raise ValueError(f"{name} must have settings of its own, got {value!r}")
        prefix, hints = f"{name}." if name else "", get_type_hints(hint)
        if unknown := sorted(set(value) - set(hints), key=str):
            raise ValueError(f"unknown names {', '.join(f'{prefix}{key}' for key in unknown)}")
        return hint(**{key: _typed(x, hints[key], f"{prefix}{key}") for key, x in value.items()})
    if kind is Literal and value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(str, choices))}, got {value!r}")
    if kind is tuple:
        if not isinstance(value, list):
            raise ValueError(f"{name} must be a list, got {value!r}")
        return tuple(_typed(item, choices[0], name) for item in value)
    if kind in (Union, UnionType):  # with None, always
        (hint,) = set(choices) - {NoneType}
        return None if value is None else _typed(value, hint, name)
    if hint is float and not isinstance(value, bool):
        # YAML takes 1e-3, without a point, for a word.
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            return float(value)
    if kind is not Literal and type(value) is not hint:
        raise ValueError(f"{name} must be {TYPE_NAMES[hint]}, got {value!r}")
    return value
