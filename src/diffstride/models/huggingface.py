"""Folders that transformers wrote of a converted network, read back with what was learned."""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from diffstride.layers import apply_conversion
from diffstride.layers.converted import Converted, recast

WEIGHTS = ("model.safetensors", "model.safetensors.index.json")


def load_converted(path: Path, config: Mapping[str, Any], model: nn.Module | None) -> nn.Module:
    """Return the network in a folder that the ``save_pretrained`` of transformers wrote.

    The class that ``config`` names is built by transformers, converted as the record in ``config``
    says, and given the weights of the folder, all of them. For a class that transformers has not,
    ``model`` is a network of it to load into, converted or not.

    Raises:
        ImportError: if transformers is not installed.
        FileNotFoundError: if the folder has no weights as safetensors.
        ValueError: if transformers has no such network and ``model`` is not one, or the weights are
            of another one.
    """
    network = _architecture(config["architectures"], path, model)
    if not any((path / name).is_file() for name in WEIGHTS):
        raise FileNotFoundError(
            f"{path} has none of {' and '.join(WEIGHTS)}: save the network with "
            f"model.save_pretrained(folder), or copy all of the folder"
        )
    record = config["diffstride"]
    loaded = _load(network, record, path)
    if model is None:
        return loaded
    if not any(isinstance(module, Converted) for module in model.modules()):
        apply_conversion(model, record)
    try:
        model.load_state_dict(loaded.state_dict())
    except RuntimeError as error:
        raise ValueError(f"{path} has the weights of another network: {error}") from error
    config_of_model: Any = model.config
    config_of_model.diffstride = record  # for when it is saved again
    return model.eval()


def _load(network: Any, record: Mapping[str, Any], path: Path) -> nn.Module:
    """Return a network of a class of transformers, converted, with the weights of a folder."""

    class ConvertedNetwork(network):  # type: ignore[misc]
        """Converted before transformers loads the weights: it knows how, sharded ones and all."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            apply_conversion(self, record)

    try:
        model, info = ConvertedNetwork.from_pretrained(
            path, use_safetensors=True, local_files_only=True, output_loading_info=True
        )
    except (RuntimeError, OSError, KeyError, TypeError) as error:
        raise ValueError(f"{path} can't be loaded as a {network.__name__}: {error}") from error
    kinds = ("missing", "unexpected", "mismatched")
    wrong = [f"{kind} {name}" for kind in kinds for name in sorted(map(str, info[f"{kind}_keys"]))]
    if wrong:
        more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise ValueError(f"{path} has the weights of another network: {wrong[0]}{more}")
    loaded: nn.Module = recast(model.eval(), network)
    return loaded


def _architecture(names: Any, path: Path, model: nn.Module | None) -> Any:
    """Return the class to build: the one of transformers, or that of ``model``."""
    try:
        transformers = importlib.import_module("transformers")
    except ImportError as error:
        raise ImportError(
            f"{path} was written by transformers, and {error.name} is not installed: "
            f"pip install transformers"
        ) from error

    def is_network(kind: Any) -> bool:
        return isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel)

    name = names[0] if isinstance(names, list) and names else None
    named = getattr(transformers, name, None) if isinstance(name, str) else None
    if is_network(named):
        if model is not None:
            raise ValueError(f"{path} says itself how its network is built: leave out model=")
        return named
    if model is None:
        raise ValueError(
            f"config.json in {path} has architectures {names!r}, and transformers "
            f"{transformers.__version__} has no network of that name: if the class is yours, build "
            f"one of it and give it as model="
        )
    if not is_network(type(model)):
        raise ValueError(
            f"model must be a network of the class {name} that {path} was saved of, derived from "
            f"one of transformers, got a {type(model).__name__}"
        )
    return type(model)
