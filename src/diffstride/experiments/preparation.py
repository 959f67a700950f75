"""What a network is told of files and tells of them: their preparation, the names of classes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from diffstride.data import audio, images, spectrogram
from diffstride.training.config import DataConfig

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
        preprocessing |= {"seconds": audio.WINDOW / spectrogram.RATE, "spectrogram": constants()}
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
        made = told["spectrogram"] if found.kind == "audio" else None
    except (LookupError, TypeError, ValueError, AttributeError) as error:
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
