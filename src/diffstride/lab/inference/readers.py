"""How files become scores, one reader for each kind of data that networks are trained on.

A kind is added here: a class derived from Reader, and its name in READERS.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from diffstride.lab.data import images, recordings
from diffstride.lab.data.batches import AudioEvaluation, ImageBatches
from diffstride.lab.data.labelled_files import AUDIO, IMAGE
from diffstride.lab.data.spectrogram import LogMel
from diffstride.lab.inference.trained_model import TrainedModel


class Reader(ABC):
    """Reads files of one kind, and lets a network score what was in them."""

    kind: ClassVar[str]
    """In words, for messages: what files of this kind are."""
    suffixes: ClassVar[frozenset[str]]
    """How the names of such files end, in small letters: these are looked for in folders."""
    at_once: int = 32
    """How many files are in memory together, at most."""

    def __init__(self, model: TrainedModel, resize: bool = False) -> None:
        if resize and not isinstance(self, ImageReader):
            raise ValueError(f"--resize is for images, and {model.where} is for {self.kind}")
        self.model, self.resize = model, resize

    @abstractmethod
    def read(self, name: str, data: bytes) -> Any:
        """Return what is in a file, or raise a DataError that says what is wrong with it."""

    @abstractmethod
    def scores(self, batch: Sequence[Any]) -> list[Tensor]:
        """Return the scores of files that were read: (files, classes) for each task in order."""


class ImageReader(Reader):
    """Images, all of the size that the network was trained on."""

    kind = "images"
    suffixes = frozenset(IMAGE.suffixes)

    def __init__(self, model: TrainedModel, resize: bool = False) -> None:
        super().__init__(model, resize)
        *_, height, width = model.preparation.size
        self.at_once = max(1, min(256, 2**20 // (height * width)))

    def read(self, name: str, data: bytes) -> Tensor:
        return self.model.preparation.pixels(name, data, self.resize)

    def scores(self, batch: Sequence[Tensor]) -> list[Tensor]:
        preparation = self.model.preparation
        split = images.DecodedImages(torch.stack(list(batch)), torch.zeros(len(batch)))
        mean, std = map(torch.tensor, (preparation.mean, preparation.std))
        ((inputs, _),) = ImageBatches(split, len(batch), mean=mean, std=std)
        return self.model.scores(inputs)


class AudioReader(Reader):
    """Recordings of any length: the mean score of their windows."""

    kind = "audio"
    suffixes = frozenset(AUDIO.suffixes)
    windows = 128  # that the network is given at once

    def read(self, name: str, data: bytes) -> Any:
        return recordings.to_samples(name, data)

    def scores(self, batch: Sequence[Any]) -> list[Tensor]:
        preparation = self.model.preparation
        starts = np.cumsum([0, *map(len, batch)])
        split = recordings.Recordings(np.concatenate(batch), starts, torch.zeros(len(batch)))
        frontend = LogMel(preparation.mean[0], preparation.std[0])
        classes = preparation.classes.values()
        sums = [torch.zeros(len(batch), len(names), dtype=torch.float64) for names in classes]
        for windows_of_files in AudioEvaluation({"": split}, self.windows):
            windows, recording = windows_of_files[""]
            for total, scores in zip(sums, self.model.scores(frontend(windows)), strict=True):
                total.index_add_(0, recording, scores.double())
        windows_in = torch.from_numpy(np.ceil(np.diff(starts) / recordings.WINDOW_LENGTH))
        return [total / windows_in[:, None] for total in sums]


READERS: dict[str, type[Reader]] = {"images": ImageReader, "audio": AudioReader}
"""By the kind that a network says its data are, as --data.kind has it."""
