"""How files become scores, one reader for each kind of data that networks are trained on.

A kind is added here: a class derived from Reader, and its name in READERS.
"""

import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from diffstride.lab.data import images, recordings
from diffstride.lab.data.batches import AudioEvaluation, ImageBatches
from diffstride.lab.data.labelled_files import AUDIO, IMAGE, DataError
from diffstride.lab.data.signal_batches import SignalEvaluation
from diffstride.lab.data.signal_files import SIGNAL
from diffstride.lab.data.signals import Signals, read_signal
from diffstride.lab.data.spectrogram import LogMel
from diffstride.lab.inference.trained_model import TrainedModel


class Reader(ABC):
    """Reads files of one kind, and lets a network score what was in them."""

    kind: ClassVar[str]
    """In words, for messages: what files of this kind are."""
    suffixes: ClassVar[Sequence[str]]
    """How the names of such files end, in small letters, the usual ones first: these are looked for
    in folders."""
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
    suffixes = IMAGE.suffixes

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
    suffixes = AUDIO.suffixes
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


class SignalReader(Reader):
    """Signals of any length and sampling rate: the mean score of their windows.

    A network that begins with a stride is brought to the rate of a file. Signals are not resampled.
    """

    kind = "signals"
    suffixes = SIGNAL.suffixes
    windows = 64  # that the network is given at once

    def __init__(self, model: TrainedModel, resize: bool = False) -> None:
        super().__init__(model, resize)
        self.networks = {1.0: model}  # by how many times the samples a second files have
        self.lock = threading.Lock()  # files are read at the same time

    def read(self, name: str, data: bytes) -> tuple[Any, float]:
        preparation = self.model.preparation
        signal, rate = read_signal(name, data)
        channels, wanted = len(signal), preparation.size[0]
        if channels != wanted:
            wrong = f"has {channels} channels, and the network was trained on {wanted}"
            raise DataError(f"{name} {wrong}")
        ratio = rate / preparation.rate if rate and preparation.rate else 1.0
        if isinstance(self.model.outputs, nn.Module):
            try:
                self.at_rate(ratio)
            except ValueError as error:
                raise DataError(f"{name} has {rate:g} samples a second: {error}") from error
        elif ratio != 1:
            wrong = f"has {rate:g} samples a second, and {self.model.where} takes"
            advice = "use the run, or a folder that `diffstride export` writes"
            raise DataError(f"{name} {wrong} {preparation.rate:g} only: {advice}")
        elif signal.shape[-1] < preparation.size[1]:
            wrong = f"has {signal.shape[-1]:,} samples, and {self.model.where} takes no fewer than"
            advice = "use the run, or a folder that `diffstride export` writes"
            raise DataError(f"{name} {wrong} {preparation.size[1]:,}: {advice}")
        return signal, ratio

    def at_rate(self, ratio: float) -> TrainedModel:
        """Return the network for signals of so many times the samples a second."""
        with self.lock:
            if ratio not in self.networks:
                rate = self.model.preparation.rate or 1.0
                changed = self.model.outputs.at_rate(ratio)  # type: ignore[attr-defined]
                self.networks[ratio] = self.model._replace(outputs=changed)
                rates = f"{ratio * rate:g} samples a second, and the network was trained on"
                stride = f"its first stride is {ratio:g} times as large for them"
                print(f"some files have {rates} {rate:g}: {stride}", file=sys.stderr)
            return self.networks[ratio]

    def scores(self, batch: Sequence[Any]) -> list[Tensor]:
        (classes,) = self.model.preparation.classes.values()
        found = torch.zeros(len(batch), len(classes), dtype=torch.float64)
        for ratio in {ratio for _, ratio in batch}:
            chosen = [i for i, (_, each) in enumerate(batch) if each == ratio]
            found[chosen] = self._scores_at([batch[i][0] for i in chosen], ratio)
        return [found]

    def _scores_at(self, signals: Sequence[Any], ratio: float) -> Tensor:
        """Return the scores of signals that all have the same sampling rate."""
        preparation, model = self.model.preparation, self.at_rate(ratio)
        length = max(1, round(preparation.size[1] * ratio))
        scale: dict[str, Tensor] = {}
        if not preparation.each:
            scale = {n: torch.tensor(getattr(preparation, n)) for n in ("mean", "std")}
        (classes,) = preparation.classes.values()
        # The last column counts real samples.
        sums = torch.zeros(len(signals), len(classes) + 1, dtype=torch.float64)
        split = Signals.of(signals, torch.zeros(len(signals)))
        for x, real, number in SignalEvaluation(split, self.windows, length, **scale):
            if isinstance(model.outputs, nn.Module):
                (scores,) = model.scores(x, real)
            else:  # a network that was exported knows full windows only
                x, real, number = (values[real == length] for values in (x, real, number))
                if not len(x):  # the rest of a long signal, alone in its batch
                    continue
                (scores,) = model.scores(x)
            weights = real[:, None].double()
            sums.index_add_(0, number, torch.cat([scores.double() * weights, weights], 1))
        return sums[:, :-1] / sums[:, -1:]


READERS: dict[str, type[Reader]] = {
    "images": ImageReader,
    "audio": AudioReader,
    "signals": SignalReader,
}
"""By the kind that a network says its data are, as --data.kind has it."""
