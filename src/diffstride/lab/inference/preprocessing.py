"""From files to inputs of a network: as a run prepared them, and as its export describes it."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import Tensor

from diffstride.lab.data import image_decoding, images, spectrogram
from diffstride.lab.data.labelled_files import DataError
from diffstride.lab.data.recordings import WINDOW_LENGTH
from diffstride.lab.runs.config import DataConfig

_CONSTANTS = ("RATE", "HOP", "WINDOW", "FFT", "CHANNELS", "LOWEST", "HIGHEST", "FLOOR")


class Preparation(NamedTuple):
    """How files become inputs of a network, and what its outputs are called."""

    kind: str
    """Images or audio."""
    classes: Mapping[str, tuple[str, ...]]
    """Their names by task, in the order of the outputs; a single task has no name."""
    size: tuple[int, int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    margin: float | None = None
    """For images: how much more than ``size`` a picture is scaled to cover, before its middle is
    cut out; None if pictures are used as they are."""

    def check(self) -> None:
        """Raise a ValueError for values that no input can be made with."""
        channels, height, width = self.size
        if self.kind not in ("images", "audio"):
            raise ValueError(f"kind {self.kind!r}")
        if (
            channels not in (1, 3)
            or min(height, width) < 1
            or height * width > image_decoding.MOST_PIXELS
        ):
            raise ValueError(f"size {list(self.size)}")
        for name, values in (("mean", self.mean), ("std", self.std)):
            usable = all(math.isfinite(value) and (value > 0 or name == "mean") for value in values)
            if len(values) not in (1, channels) or not usable:
                raise ValueError(f"{name} {list(values)} for {channels} channels")
        if self.margin is not None and not 1 <= self.margin <= 10:
            raise ValueError(f"margin {self.margin}")

    def pixels(self, name: str, data: bytes, resize: bool) -> Tensor:
        """Return the image in a file as bytes (channels, height, width).

        Raises:
            DataError: if it can't be read, or has another size and is not to be resized.
        """
        channels, height, width = self.size
        picture = image_decoding.open_picture(name, data).convert("L" if channels == 1 else "RGB")
        margin = self.margin
        if margin is None and picture.size != (width, height):
            if not resize:
                raise DataError(
                    f"{name} is {picture.height}×{picture.width}, and the network was trained on "
                    f"{height}×{width}: --resize scales it, and takes its middle"
                )
            margin = 1.0
        if margin is not None:
            picture = image_decoding.middle(name, picture, (height, width), margin)
        return image_decoding.to_pixels(picture)


def describe(config: DataConfig, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an exported network says about its data, of which data.json has the facts."""
    preprocessing = {"kind": config.kind, **{name: facts[name] for name in ("size", "mean", "std")}}
    if config.kind == "audio":
        seconds = WINDOW_LENGTH / spectrogram.RATE
        preprocessing |= {"seconds": seconds, "spectrogram": constants()}
    elif config.path is None or config.image_size is None:
        preprocessing["resize"] = None
    else:
        margin = images.MARGIN if config.inception_crop else 1.0
        preprocessing["resize"] = {"margin": margin, "interpolation": "bicubic"}
    return {"classes": facts["classes"], "preprocessing": preprocessing}


def constants() -> dict[str, float]:
    """Return the constants of the spectrograms that this version makes."""
    return {name.lower(): getattr(spectrogram, name) for name in _CONSTANTS}


def read(metadata: Mapping[str, Any], where: str) -> Preparation:
    """Return what :func:`describe` said.

    Raises:
        ValueError: if this is something else, or about inputs that this version does not make;
            ``where`` is what the message calls it.
    """
    try:
        classes, described = metadata["classes"], metadata["preprocessing"]
        tasks = classes if isinstance(classes, Mapping) else {"": classes}
        channels, height, width = map(int, described["size"])
        preparation = Preparation(
            described["kind"],
            {task: tuple(map(str, names)) for task, names in tasks.items()},
            (channels, height, width),
            tuple(map(float, described["mean"])),
            tuple(map(float, described["std"])),
            float(described["resize"]["margin"]) if described.get("resize") else None,
        )
        preparation.check()
        made_with = described["spectrogram"] if preparation.kind == "audio" else constants()
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ValueError(
            f"{where} does not say its classes and how files are prepared for it ({error}): use "
            f"what `diffstride export` wrote"
        ) from error
    if made_with != constants():
        raise ValueError(
            f"{where} was trained on spectrograms with {made_with}, and those made here have "
            f"{constants()}"
        )
    return preparation
