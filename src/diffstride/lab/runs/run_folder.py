"""The folder of a run: everything that is known of it, written so that it is never half there."""

import contextlib
import dataclasses
import json
import os
import platform
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from diffstride.lab.runs.documents import DamagedFile, read_json, read_yaml
from diffstride.files import write
from diffstride.lab.runs.config import Config, check_name

T = TypeVar("T")
WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}


class RunError(ValueError):
    """Something is wrong with the folder of a run; the message says what."""


@dataclasses.dataclass(frozen=True)
class Run:
    """A folder ``runs/<name>`` and the files in it."""

    folder: Path

    @classmethod
    def create(
        cls,
        config: Config,
        recipe: str,
        data: Mapping[str, Any],
        examples: Sequence[Mapping[str, Any]] = (),
    ) -> "Run":
        """Make the folder of a new run, with its config, its environment, and its data in short.

        Of the data it keeps facts and some examples, each a label and rows of grey values.

        Raises:
            RunError: if there is a run in it already.
        """
        run = cls.of(config, recipe)
        run.check_new()
        run.folder.mkdir(parents=True, exist_ok=True)
        write(run.folder / "environment.json", json.dumps(environment(config), indent=1) + "\n")
        write(run.folder / "data.json", json.dumps(data, indent=1) + "\n")
        write(run.folder / "examples.json", json.dumps({"images": examples}) + "\n")
        write(run.config_file, dump(config))  # the last: with it, the folder is a run
        return run

    @classmethod
    def of(cls, config: Config, recipe: str) -> "Run":
        """Where the run of a config is, or will be.

        Raises:
            ValueError: if its name is not that of a folder.
        """
        default = f"{recipe}-{config.model.downsampling}-{config.seed}"
        name = default if config.name is None else config.name
        check_name(name)
        return cls(Path(config.out).expanduser() / name)

    @classmethod
    def open(cls, folder: str | Path) -> "Run":
        """The run in a folder.

        Raises:
            RunError: if there is none.
        """
        run = cls(Path(folder).expanduser())
        if not run.config_file.is_file():
            raise RunError(f"{folder} has no run: it must have a config.yaml")
        return run

    def check_new(self) -> None:
        """Raise a RunError if there is a run in the folder already."""
        if self.config_file.exists():
            raise RunError(
                f"{self.folder} has a run already: continue it with `diffstride resume "
                f"{self.folder}`, remove it, or choose another --name"
            )

    @property
    def config_file(self) -> Path:
        return self.folder / "config.yaml"

    @property
    def config(self) -> Config:
        return load(self.config_file)

    @property
    def data(self) -> dict[str, Any]:
        """What is known of the data: the size of one example, classes, mean and std, numbers.

        Raises:
            ValueError: if the file is not there, or damaged.
        """
        path = self.folder / "data.json"
        try:
            found = read_json(path, "size", "classes", "mean", "std")
        except OSError as error:
            raise RunError(f"{path} can't be read: {error}") from error
        kinds = {"size": int, "mean": int | float, "std": int | float}
        for name, kind in kinds.items():
            values = found[name]
            if not (isinstance(values, list) and all(isinstance(x, kind) for x in values)):
                raise DamagedFile(f"{path}: {name} must be a list of numbers, got {values!r}")
        if not isinstance(found["classes"], list | dict):
            raise DamagedFile(f"{path}: classes must be a list, or one for each task")
        return found

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    def checkpoint_files(self) -> list[Path]:
        """All checkpoints of epochs, the newest first."""
        return sorted(self.checkpoints.glob("epoch-*.ckpt"), reverse=True)

    def checkpoint_file(self, epoch: int) -> Path:
        return self.checkpoints / f"epoch-{epoch:05}.ckpt"

    @property
    def best_file(self) -> Path:
        return self.checkpoints / "best.ckpt"


def dump(config: Config) -> str:
    """A config as YAML that :func:`load` reads again."""
    import yaml

    plain = json.loads(json.dumps(dataclasses.asdict(config)))  # tuples to lists
    return str(yaml.safe_dump(plain, sort_keys=False))


def load(path: Path) -> Config:
    """Read a config.

    Raises:
        ValueError: if it is no YAML, or has a name or value that a config has not.
    """
    try:
        values = read_yaml(path)
        return _build(Config, values, "")
    except DamagedFile:
        raise
    except (OSError, ValueError) as error:
        raise RunError(f"{path} can't be read as a config: {error}") from error


def _build(kind: type[T], values: Mapping[str, Any], prefix: str) -> T:
    hints = get_type_hints(kind)
    fields = {f.name for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    if unknown := sorted(set(values) - fields, key=str):
        raise ValueError(f"unknown names {', '.join(f'{prefix}{name}' for name in unknown)}")
    made = {}
    for name, value in values.items():
        if not dataclasses.is_dataclass(hints[name]):
            made[name] = _value(value, hints[name], f"{prefix}{name}")
        elif isinstance(value, dict):
            made[name] = _build(hints[name], value, f"{prefix}{name}.")
        else:
            raise ValueError(f"{prefix}{name} must have settings of its own, got {value!r}")
    return kind(**made)


def _value(value: Any, hint: Any, name: str) -> Any:
    """A value of a config, if it is one that its type allows."""
    kind, choices = get_origin(hint), get_args(hint)
    if kind is Literal:
        if value in choices:
            return value
        raise ValueError(f"{name} must be one of {', '.join(map(str, choices))}, got {value!r}")
    if kind in (Union, UnionType):
        if value is None:
            return None
        (hint,) = (choice for choice in choices if choice is not NoneType)
        return _value(value, hint, name)
    if kind is tuple:
        if isinstance(value, list):
            return tuple(_value(item, choices[0], name) for item in value)
        raise ValueError(f"{name} must be a list, got {value!r}")
    if hint is float and not isinstance(value, bool):
        # YAML takes 1e-3, without a point, for a word.
        with contextlib.suppress(TypeError, ValueError):
            return float(value)
    if type(value) is hint:
        return value
    raise ValueError(f"{name} must be {WORDS[hint]}, got {value!r}")


def environment(config: Config) -> dict[str, Any]:
    """What a run depends on besides its config."""
    import torch

    import diffstride

    return {
        "diffstride": diffstride.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "seed": config.seed,
        "commit": _commit(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def _commit() -> str | None:
    command = ["git", "rev-parse", "HEAD"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()
