"""Networks as folders to keep and to share: their weights, and how to build them; no pickle."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from diffstride.core.rule import Rule
from diffstride.files import replacing
from diffstride.models import huggingface
from diffstride.models.registry import create

CONFIG, WEIGHTS = "config.json", "model.safetensors"
FORMAT = 2
"""Of config.json; a higher one is of a later version of this library."""


def save_pretrained(
    model: nn.Module,
    folder: str | os.PathLike[str],
    metadata: Mapping[str, Any] | None = None,
) -> Path:
    """Write a network into a folder, from which :func:`from_pretrained` reads it again.

    ``model.safetensors`` has weights and learned strides; ``config.json`` what :func:`create` was
    asked for, if the network is still what it made, and ``metadata``. A folder that is written
    half has no ``config.json``, and is not taken for a whole one.

    Args:
        model: any network.
        folder: made if it is not there; of one that is, only these two files are replaced.
        metadata: what else to say of the network, such as the names of classes: all that JSON has.

    Raises:
        ImportError: if safetensors is not installed.
    """
    torch_files = _safetensors()
    model = getattr(model, "_orig_mod", model)  # of a compiled one, whose names are others
    content: dict[str, Any] = {
        "format": "diffstride",
        "version": FORMAT,
        "model": _arguments(model),
        "metadata": dict(metadata or {}),
    }
    # Before anything is made: what JSON has not is an error, and what it writes otherwise (a number
    # that is a name, a tuple) is what a reader finds, so the digest is of that.
    content = json.loads(json.dumps(content))
    path = Path(folder).expanduser()
    # What makes the folder a whole one goes first and comes last.
    with replacing(path / CONFIG) as config, replacing(path / WEIGHTS) as weights:
        torch_files.save_model(model, str(weights))
        content["weights_sha256"] = _digest(weights.read_bytes())
        content["sha256"] = _digest(_canonical(content))
        config.write_text(json.dumps(content, indent=1) + "\n")
        # safetensors makes files for their owner alone, and this one is to be shared.
        weights.chmod(config.stat().st_mode)
        (path / CONFIG).unlink(missing_ok=True)
    return path


def from_pretrained(folder: str | os.PathLike[str], model: nn.Module | None = None) -> nn.Module:
    """The network in a folder that :func:`save_pretrained` wrote, in eval mode.

    Or that the method of that name of a network of transformers wrote, after
    :func:`diffstride.convert`: its class is built, converted alike, and given its weights.

    Args:
        folder: on this machine.
        model: the network to load into, for one that :func:`create` did not make: built as the
            saved one was, by the same call of :func:`diffstride.convert` for example. For a class
            of your own that is derived from one of transformers, it is converted if it is not yet.

    Raises:
        FileNotFoundError: if there is no such folder, or nothing whole in it.
        ValueError: if a file is damaged, or has the weights of another network; if the network was
            not made by :func:`create` and ``model`` is not given.
        ImportError: if safetensors is not installed, or transformers for a network of it.

    >>> import tempfile
    >>> from diffstride import models
    >>> model = models.create("resnet18", num_classes=10, width=0.25).eval()
    >>> folder = models.save_pretrained(model, tempfile.mkdtemp())
    >>> x = torch.rand(1, 3, 32, 32)
    >>> torch.equal(models.from_pretrained(folder)(x), model(x))
    True
    """
    _safetensors()
    if huggingface.is_converted(config := _read_json(folder)):
        return huggingface.load_converted(folder, config, model)
    config = read_config(folder)
    arguments = config["model"]
    path = Path(folder).expanduser() / WEIGHTS
    if not path.is_file():
        raise FileNotFoundError(f"{folder} has no {WEIGHTS}: it was not saved whole, or not copied")
    if model is None and arguments is None:
        raise ValueError(
            f"{folder} has a network that diffstride.models.create did not make, or that was "
            f"changed since: build it as it was when it was saved, and give it as model="
        )
    weights = _read(path, config["weights_sha256"])
    made = _without_values(arguments, folder) if model is None else model
    _check(weights, made, path)
    # What has no values takes those of the file, with the precision that they have there.
    made.load_state_dict(weights, assign=model is None)
    return made.eval()


def read_config(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """What ``config.json`` says: ``model``, the arguments of :func:`create`, and ``metadata``.

    Raises:
        FileNotFoundError: if there is no such folder, or it has none.
        ValueError: if it is damaged, or not of this library.
    """
    found = _read_json(folder)
    path = Path(folder).expanduser() / CONFIG
    if not isinstance(found, dict) or found.get("format") != "diffstride":
        raise ValueError(f"{path} is not of diffstride: models.save_pretrained did not write it")
    version, arguments, metadata = (found.get(name) for name in ("version", "model", "metadata"))
    if version != FORMAT:
        raise ValueError(
            f"{path} has version {version!r}, and this diffstride reads version {FORMAT}"
        )
    told = {name: value for name, value in found.items() if name != "sha256"}
    if found.get("sha256") != _digest(_canonical(told)):
        raise ValueError(
            f"{path} was damaged or changed since it was saved: its digest is of something else"
        )
    if not isinstance(arguments, dict | None) or not isinstance(metadata, dict):
        raise ValueError(f"{path} must have a model, arguments of create or null, and metadata")
    return found


def _read_json(folder: str | os.PathLike[str]) -> Any:
    """All that ``config.json`` has."""
    path = Path(folder).expanduser() / CONFIG
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}")
    if not path.is_file():
        raise FileNotFoundError(
            f"{folder} has no {CONFIG}: no network was saved in it, or half of one"
        )
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} can't be read as JSON: {error}") from error


def _read(path: Path, digest: str) -> dict[str, Tensor]:
    """All weights of a file by name; those that are one have one tensor."""
    import safetensors.torch

    content = path.read_bytes()  # once: what is read is what was checked
    if _digest(content) != digest:
        raise ValueError(
            f"{path} was damaged or changed since it was saved: {CONFIG} has the digest of others"
        )
    try:
        weights = safetensors.torch.load(content)
        length = int.from_bytes(content[:8], "little")
        others = json.loads(content[8 : 8 + length]).get("__metadata__", {})
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path} can't be read as safetensors: {error}") from error
    # Of several names for one weight, a file has the one, and a note on the others.
    return weights | {name: weights[kept] for name, kept in others.items() if kept in weights}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _canonical(content: Mapping[str, Any]) -> bytes:
    """The same bytes for the same JSON, however it was written."""
    return json.dumps(content, sort_keys=True).encode()


def _check(weights: Mapping[str, Tensor], model: nn.Module, path: Path) -> None:
    """Raise a ValueError unless these are weights of this network, all of them."""
    own = model.state_dict(keep_vars=True)
    missing, unknown = sorted(own.keys() - weights), sorted(weights.keys() - own)
    shapes = [
        f"{name} is {tuple(weights[name].shape)} and not {tuple(x.shape)}"
        for name, x in own.items()
        if name in weights and weights[name].shape != x.shape
    ]
    first: dict[Tensor, str] = {}  # the name of each weight that may have several
    apart = [
        f"{name} and {first[x]} differ and are one"
        for name, x in own.items()
        if weights.get(name) is not weights.get(first.setdefault(x, name))
    ]
    wrong = [f"no {name}" for name in missing] + [f"{name} is not of it" for name in unknown]
    if wrong := wrong + shapes + apart:
        more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise ValueError(f"{path} has the weights of another network: {wrong[0]}{more}")


def _arguments(model: nn.Module) -> dict[str, Any] | None:
    """What :func:`create` was asked for, if it makes this network; it may have changed since."""
    arguments: dict[str, Any] | None = vars(model).get("created_with")
    if arguments is None:
        return None
    made = _without_values(arguments, "created_with")
    found, asked = (dict(network.named_modules()) for network in (model, made))
    same = (
        {name: type(module) for name, module in found.items()}
        == {name: type(module) for name, module in asked.items()}
        and {name: x.shape for name, x in model.state_dict().items()}
        == {name: x.shape for name, x in made.state_dict().items()}
        and all(
            _settings(module).items() <= _settings(found[name]).items()
            for name, module in asked.items()
        )
    )
    return arguments if same else None


def _without_values(arguments: Mapping[str, Any], where: str | os.PathLike[str]) -> nn.Module:
    """The network that :func:`create` makes of these arguments, its weights yet to come."""
    try:
        with torch.device("meta"):
            return create(**arguments)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where} asks for a network that can't be made: {error}") from error


def _settings(module: nn.Module) -> dict[str, Any]:
    """What a module was told, as far as it kept it: kernel sizes, strides, smoothness."""
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_")
        and name != "training"
        and isinstance(value, bool | int | float | str | tuple | Rule | None)
    }


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError as error:
        raise ImportError(
            f"networks as folders need {error.name}: pip install 'diffstride[share]'"
        ) from error
    return safetensors.torch
