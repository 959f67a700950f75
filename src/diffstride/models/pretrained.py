"""Networks as folders to keep and to share: their weights, and how to build them; no pickle."""

import hashlib
import importlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from diffstride.core.rule import Rule
from diffstride.files import replacing
from diffstride.layers.conversion_record import apply_conversion
from diffstride.layers.converted import Converted, recast
from diffstride.models.registry import create

CONFIG, WEIGHTS = "config.json", "model.safetensors"
FORMAT = 2  # of config.json; a higher one is of a later version of this library


def save_pretrained(
    model: nn.Module, folder: str | os.PathLike[str], metadata: Mapping[str, Any] | None = None
) -> Path:
    """Write a network into a folder, from which :func:`from_pretrained` reads it again.

    ``model.safetensors`` has weights and learned strides. ``config.json``, which is written last,
    has ``metadata``, and what :func:`create` was asked for if the network is still what it made.

    Args:
        model: any network.
        folder: made if it is not there; of one that is, only these two files are replaced.
        metadata: what else to say of the network, such as the names of classes: all that JSON has.

    Raises:
        ImportError: if safetensors is not installed.

    >>> import tempfile
    >>> model = create("resnet18", num_classes=10, width=0.25)
    >>> sorted(path.name for path in save_pretrained(model, tempfile.mkdtemp()).iterdir())
    ['config.json', 'model.safetensors']
    """
    safetensors = _safetensors()
    model = getattr(model, "_orig_mod", model)  # of a compiled one, whose names are others
    arguments, metadata = _arguments(model), dict(metadata or {})
    content = {"format": "diffstride", "version": FORMAT, "model": arguments, "metadata": metadata}
    # Before anything is made: what JSON has not is an error, and what it writes otherwise (a number
    # that is a name, a tuple) is what a reader gets, so the digest is of that.
    content = json.loads(json.dumps(content))
    path = Path(folder).expanduser()
    # What makes the folder complete goes first and comes last.
    with replacing(path / CONFIG) as config, replacing(path / WEIGHTS) as weights:
        safetensors.torch.save_model(model, str(weights))
        content["weights_sha256"] = _digest(weights.read_bytes())
        content["sha256"] = _digest(content)
        config.write_text(json.dumps(content, indent=1) + "\n")
        # safetensors makes files for their owner alone, and this one is to be shared.
        weights.chmod(config.stat().st_mode)
        (path / CONFIG).unlink(missing_ok=True)
    return path


def from_pretrained(folder: str | os.PathLike[str], model: nn.Module | None = None) -> nn.Module:
    """Return the network in a folder that :func:`save_pretrained` wrote, in eval mode.

    Or that the method of that name of a network of transformers wrote, after
    :func:`diffstride.convert`: its class is built, converted alike, and given its weights.

    Args:
        folder: on this machine.
        model: the network to load into, for one that :func:`create` did not make: built as the
            saved one was, by the same call of :func:`diffstride.convert` for example. One whose
            class you derived from one of transformers is converted if it is not yet.

    Raises:
        FileNotFoundError: if there is no such folder, or files are missing in it.
        ValueError: if a file is damaged, or has the weights of another network; if the folder does
            not say how to build the network and ``model`` is not given.
        ImportError: if safetensors is not installed, or transformers for a network of it.

    >>> import tempfile
    >>> model = create("resnet18", num_classes=10, width=0.25, strides=(2, 2, 2.5))
    >>> from_pretrained(save_pretrained(model, tempfile.mkdtemp())).stages[3][0].downsample.strides
    (2.5, 2.5)
    """
    _safetensors()
    path, config = _read_json(folder)
    if isinstance(config, dict) and "architectures" in config and "diffstride" in config:
        return _load_converted(path.parent, config, model)
    config = read_config(folder)
    path = path.with_name(WEIGHTS)
    if not path.is_file():
        raise FileNotFoundError(f"{folder} has no {WEIGHTS}: it was not saved whole, or not copied")
    if model is None and config["model"] is None:
        raise ValueError(
            f"{folder} has a network that diffstride.models.create did not make, or that was "
            f"changed since: build it as it was when it was saved, and give it as model="
        )
    weights = _read_weights(path, config["weights_sha256"])
    made = _without_values(config["model"], folder) if model is None else model
    _check_weights(weights, made, path)
    # What has no values takes those of the file, with the precision that they have there.
    made.load_state_dict(weights, assign=model is None)
    return made.eval()


def read_config(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what ``config.json`` says: ``model``, arguments of :func:`create`, and ``metadata``.

    Raises a FileNotFoundError if there is none, a ValueError if it is damaged or not of diffstride.
    """
    path, content = _read_json(folder)
    if not isinstance(content, dict) or content.get("format") != "diffstride":
        raise ValueError(f"{path} is not of diffstride: models.save_pretrained did not write it")
    if (version := content.get("version")) != FORMAT:
        raise ValueError(
            f"{path} has version {version!r}, and this diffstride reads version {FORMAT}"
        )
    sealed = {name: value for name, value in content.items() if name != "sha256"}
    if content.get("sha256") != _digest(sealed):
        raise ValueError(f"{path} was damaged or changed since it was saved: its digest is another")
    arguments, metadata = content.get("model"), content.get("metadata")
    if not isinstance(arguments, dict | None) or not isinstance(metadata, dict):
        raise ValueError(f"{path} must have a model, arguments of create or null, and metadata")
    return content


def _read_json(folder: str | os.PathLike[str]) -> tuple[Path, Any]:
    """Return the path of ``config.json`` and all that it has."""
    path = Path(folder).expanduser() / CONFIG
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}")
    if not path.is_file():
        raise FileNotFoundError(f"{folder} has no {CONFIG}: no network is in it, or half of one")
    try:
        return path, json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} can't be read as JSON: {error}") from error


def _read_weights(path: Path, digest: str) -> dict[str, Tensor]:
    """Return all weights of a file by name; names that share a weight get one tensor."""
    safetensors = _safetensors()
    content = path.read_bytes()  # once: what is read is what was checked
    if _digest(content) != digest:
        raise ValueError(f"{path} was damaged or changed since it was saved: its digest is another")
    try:
        weights: dict[str, Tensor] = safetensors.torch.load(content)
        length = int.from_bytes(content[:8], "little")
        others = json.loads(content[8 : 8 + length]).get("__metadata__", {})
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path} can't be read as safetensors: {error}") from error
    # Of several names for one weight, a file has the one, and a note on the others.
    return weights | {name: weights[kept] for name, kept in others.items() if kept in weights}


def _digest(content: bytes | Mapping[str, Any]) -> str:
    """Return the digest of bytes, or of JSON, the same however it was written."""
    data = content if isinstance(content, bytes) else json.dumps(content, sort_keys=True).encode()
    return hashlib.sha256(data).hexdigest()


def _check_weights(weights: Mapping[str, Tensor], model: nn.Module, path: Path) -> None:
    """Raise a ValueError unless these are weights of this network, all of them."""
    state = model.state_dict(keep_vars=True)
    wrong = [f"no {name}" for name in sorted(state.keys() - weights)]
    wrong += [f"{name} is not of it" for name in sorted(weights.keys() - state)]
    wrong += [
        f"{name} is {tuple(weights[name].shape)} and not {tuple(x.shape)}"
        for name, x in state.items()
        if name in weights and weights[name].shape != x.shape
    ]
    first: dict[Tensor, str] = {}  # the name of each weight that may have several
    wrong += [
        f"{name} and {first[x]} differ and are one"
        for name, x in state.items()
        if weights.get(name) is not weights.get(first.setdefault(x, name))
    ]
    _refuse_any(wrong, path)


def _refuse_any(wrong: Sequence[str], path: Path) -> None:
    """Raise a ValueError with the first of several reasons, if there are any."""
    if wrong:
        more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise ValueError(f"{path} has the weights of another network: {wrong[0]}{more}")


def _arguments(model: nn.Module) -> dict[str, Any] | None:
    """Return what :func:`create` was asked for, unless the network was changed since."""
    arguments: dict[str, Any] | None = vars(model).get("created_with")
    if arguments is None:
        return None
    both = (model, _without_values(arguments, "created_with"))
    shapes, asked_shapes = ({n: x.shape for n, x in one.state_dict().items()} for one in both)
    settings, asked = ({n: _settings(m) for n, m in one.named_modules()} for one in both)
    same = settings.keys() == asked.keys() and shapes == asked_shapes
    same = same and all(asked[name].items() <= settings[name].items() for name in asked)
    return arguments if same else None


def _settings(module: nn.Module) -> dict[str, Any]:
    """Return a module's class and what it was made with, as far as it kept it: stride, kernel."""
    kinds = (int, float, str, tuple, Rule, type(None))
    return {"class": type(module)} | {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_") and name != "training" and isinstance(value, kinds)
    }


def _without_values(arguments: Mapping[str, Any], where: str | os.PathLike[str]) -> nn.Module:
    """Return the network that :func:`create` makes of these arguments, its weights yet to come."""
    try:
        with torch.device("meta"):
            return create(**arguments)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where} asks for a network that can't be made: {error}") from error


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError as error:
        needed = f"networks as folders need {error.name}: pip install 'diffstride[share]'"
        raise ImportError(needed) from error
    return safetensors


def _load_converted(path: Path, config: Mapping[str, Any], model: nn.Module | None) -> nn.Module:
    """Return the network in a folder that the ``save_pretrained`` of transformers wrote.

    The class that ``config`` names is built by transformers, converted as the record in ``config``
    says, and given the weights of the folder, all of them.
    """
    network: Any = _architecture(config["architectures"], path, model)
    files = (WEIGHTS, f"{WEIGHTS}.index.json")
    if not any((path / name).is_file() for name in files):
        raise FileNotFoundError(
            f"{path} has none of {' and '.join(files)}: save the network with "
            f"model.save_pretrained(folder), or copy all of the folder"
        )
    record = config["diffstride"]

    class ConvertedNetwork(network):  # type: ignore[misc]
        """Converted before transformers loads the weights: it knows how, sharded ones and all."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            apply_conversion(self, record)

    try:
        loaded, info = ConvertedNetwork.from_pretrained(
            path, use_safetensors=True, local_files_only=True, output_loading_info=True
        )
    except (RuntimeError, OSError, KeyError, TypeError) as error:
        raise ValueError(f"{path} can't be loaded as a {network.__name__}: {error}") from error
    kinds = ("missing", "unexpected", "mismatched")
    wrong = [f"{kind} {name}" for kind in kinds for name in sorted(map(str, info[f"{kind}_keys"]))]
    _refuse_any(wrong, path)
    if model is None:
        return recast(loaded.eval(), network)  # type: ignore[no-any-return]
    if not any(isinstance(module, Converted) for module in model.modules()):
        apply_conversion(model, record)
    try:
        model.load_state_dict(loaded.state_dict())
    except RuntimeError as error:
        raise ValueError(f"{path} has the weights of another network: {error}") from error
    config_of_model: Any = model.config
    config_of_model.diffstride = record  # for when it is saved again
    return model.eval()


def _architecture(names: Any, path: Path, model: nn.Module | None) -> Any:
    """Return the class to build: the one of transformers, or that of ``model``."""
    try:
        transformers = importlib.import_module("transformers")
    except ImportError as error:
        missing = f"{path} needs transformers, and {error.name} is not installed"
        raise ImportError(f"{missing}: pip install transformers") from error
    name = names[0] if isinstance(names, list) and names else None
    named = getattr(transformers, name, None) if isinstance(name, str) else None
    if isinstance(named, type) and issubclass(named, transformers.PreTrainedModel):
        if model is not None:
            raise ValueError(f"{path} says itself how its network is built: leave out model=")
        return named
    if model is None:
        raise ValueError(
            f"config.json in {path} has architectures {names!r}, and transformers "
            f"{transformers.__version__} has no network of that name: if the class is yours, build "
            f"one of it and give it as model="
        )
    if not isinstance(model, transformers.PreTrainedModel):
        raise ValueError(
            f"model must be a network of the class {name} that {path} was saved of, derived from "
            f"one of transformers, got a {type(model).__name__}"
        )
    return type(model)
