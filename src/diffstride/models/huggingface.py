"""Folders that transformers wrote of a converted network, read back with what was learned."""

import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from diffstride.layers import apply_conversion
from diffstride.layers.converted import recast

WEIGHTS = ("model.safetensors", "model.safetensors.index.json")


def is_converted(config: Any) -> bool:
    """Whether a ``config.json`` is one of transformers, of a network that was converted."""
    return isinstance(config, dict) and "architectures" in config and "diffstride" in config


def load_converted(folder: str | os.PathLike[str], config: Mapping[str, Any]) -> nn.Module:
    """The network in a folder that the ``save_pretrained`` of transformers wrote.

    The class that ``config`` names is built by transformers, converted as the record in ``config``
    says, and given the weights of the folder, all of them.

    Raises:
        ImportError: if transformers is not installed.
        FileNotFoundError: if the folder has no weights as safetensors.
        ValueError: if transformers has no such network, or the weights are of another one.
    """
    path = Path(folder).expanduser()
    network = _architecture(config["architectures"], path)
    if not any((path / name).is_file() for name in WEIGHTS):
        raise FileNotFoundError(
            f"{folder} has none of {' and '.join(WEIGHTS)}: save the network with "
            f"model.save_pretrained(folder), or copy the whole folder"
        )
    record = config["diffstride"]

    class Converted(network):  # type: ignore[misc, valid-type]
        """Converted before transformers loads the weights: it knows how, sharded ones and all."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            apply_conversion(self, record)

    try:
        model, found = Converted.from_pretrained(
            path, use_safetensors=True, local_files_only=True, output_loading_info=True
        )
    except (RuntimeError, OSError, KeyError, TypeError) as error:
        raise ValueError(f"{folder} can't be loaded as a {network.__name__}: {error}") from error
    wrong = [
        f"{kind.removesuffix('_keys')} {name}"
        for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")
        for name in sorted(map(str, found[kind]))
    ]
    if wrong:
        more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise ValueError(f"{folder} has the weights of another network: {wrong[0]}{more}")
    loaded: nn.Module = recast(model.eval(), network)
    return loaded


def _architecture(names: Any, path: Path) -> Any:
    try:
        transformers = importlib.import_module("transformers")
    except ImportError as error:
        raise ImportError(
            f"{path} was written by transformers, and {error.name} is not installed: "
            f"pip install transformers"
        ) from error
    name = names[0] if isinstance(names, list) and names else None
    found = getattr(transformers, name, None) if isinstance(name, str) else None
    if not isinstance(found, type) or not issubclass(found, transformers.PreTrainedModel):
        raise ValueError(
            f"config.json in {path} has architectures {names!r}, and transformers "
            f"{transformers.__version__} has no network of that name"
        )
    return found
