"""What a network is told of files and tells of them: their preparation, the names of classes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from diffstride.lab.data import images, spectrogram
from diffstride.lab.data.image_decoding import MOST_PIXELS
from diffstride.lab.data.recordings import WINDOW_LENGTH
from diffstride.lab.runs.config import DataConfig

_CONSTANTS = ("RATE", "HOP", "WINDOW", "FFT", "CHANNELS", "LOWEST", "HIGHEST", "FLOOR")


@dataclass(frozen=True)
class Preparation:
    """How files become inputs of a network, and what its outputs are called."""

    kind: str
    """Images or audio."""
    classes: Mapping[str, tuple[str, ...]]
    """Their names by task, in the order of the outputs; a single task has no name."""
    size: tuple[int, int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    margin: float | None = None
    """Of images: how much more than ``size`` a picture is scaled to cover, before its middle is
    cut out; None if they are used as they are."""


def describe(told: DataConfig, facts: Mapping[str, Any]) -> dict[str, Any]:
    """What a file with the network of a run has to say of it, as JSON has it.

    Args:
        told: which data the run was trained on, and how.
        facts: what its folder knows of them.
    """
    preprocessing: dict[str, Any] = {
        "kind": told.kind,
        "size": facts["size"],
        "mean": facts["mean"],
        "std": facts["std"],
    }
    if told.kind == "audio":
        preprocessing |= {"seconds": WINDOW_LENGTH / spectrogram.RATE, "spectrogram": constants()}
    elif told.path is None or told.image_size is None:
        preprocessing["resize"] = None
    else:
        margin = images.MARGIN if told.inception_crop else 1.0
        preprocessing["resize"] = {"margin": margin, "interpolation": "bicubic"}
    return {"classes": facts["classes"], "preprocessing": preprocessing}


def constants() -> dict[str, float]:
    """Of the spectrograms that are made here."""
    return {name.lower(): getattr(spectrogram, name) for name in _CONSTANTS}


def read(metadata: Mapping[str, Any], where: str) -> Preparation:
    """What :func:`describe` said.

    Raises:
        ValueError: if it did not say this, or of something that is not made here; ``where`` is
            what the message speaks of.
    """
    try:
        classes, told = metadata["classes"], metadata["preprocessing"]
        tasks = classes if isinstance(classes, Mapping) else {"": classes}
        channels, height, width = (int(n) for n in told["size"])
        found = Preparation(
            kind=told["kind"],
            classes={task: tuple(map(str, names)) for task, names in tasks.items()},
            size=(channels, height, width),
            mean=tuple(map(float, told["mean"])),
            std=tuple(map(float, told["std"])),
            margin=float(told["resize"]["margin"]) if told.get("resize") else None,
        )
        if found.kind not in ("images", "audio"):
            raise ValueError(f"kind {found.kind!r}")
        _check_numbers(found)
        made = told["spectrogram"] if found.kind == "audio" else None
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ValueError(
            f"{where} does not say its classes and how files are prepared for it ({error}): use "
            f"what `diffstride export` wrote"
        ) from error
    if made is not None and made != constants():
        raise ValueError(
            f"{where} was trained on spectrograms with {made}, and those made here have "
            f"{constants()}"
        )
    return found


def _check_numbers(found: Preparation) -> None:
    """Raise a ValueError for numbers that no input can be made with."""
    channels, height, width = found.size
    if channels not in (1, 3) or min(height, width) < 1 or height * width > MOST_PIXELS:
        raise ValueError(f"size {list(found.size)}")
    for name, values in (("mean", found.mean), ("std", found.std)):
        usable = all(math.isfinite(value) and (value > 0 or name == "mean") for value in values)
        if len(values) not in (1, channels) or not usable:
            raise ValueError(f"{name} {list(values)} for {channels} channels")
    if found.margin is not None and not 1 <= found.margin <= 10:
        raise ValueError(f"margin {found.margin}")
