"""Labelled recordings: decoded to one channel at 16 kHz, into a file that is mapped into memory."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from diffstride.lab.data.decoded_cache import Coding, load_decoded
from diffstride.lab.data.labelled_files import AUDIO, FileSet
from diffstride.lab.data.sound_files import decode_sound
from diffstride.lab.data.spectrogram import RATE

WINDOW_LENGTH = RATE  # samples of a window: one second
# In samples a second. Resampled to 16,000, a file that says 1 would be 16,000 times as long.
LOWEST_RATE = 1_000


@dataclass(frozen=True)
class Recordings:
    """The samples of all recordings of a set one after another, and the class of each."""

    samples: Any  # 16-bit, in a memory-mapped file
    starts: Any  # where each recording starts, and where the last one ends
    labels: Tensor
    skipped: tuple[str, ...] = ()  # names of recordings that could not be read and were left out

    def __len__(self) -> int:
        return len(self.labels)

    def length(self, recording: int) -> int:
        """Return the number of samples of a recording."""
        return int(self.starts[recording + 1] - self.starts[recording])

    def windows(self, places: list[tuple[int, int]]) -> Tensor:
        """Return a second (batch, samples) from each (recording, first sample), then zeros."""
        windows = np.zeros((len(places), WINDOW_LENGTH), dtype=np.int16)
        for window, (recording, first) in zip(windows, places, strict=True):
            start = self.starts[recording] + first
            samples = self.samples[start : min(start + WINDOW_LENGTH, self.starts[recording + 1])]
            window[: len(samples)] = samples
        return torch.from_numpy(windows).float() / 32768


def load(files: FileSet, cache: str | Path, path: str, *, skip_corrupt: bool = False) -> Recordings:
    """Return all recordings of the dataset at ``path``, decoded by :func:`load_decoded`."""
    coding = Coding(AUDIO, lambda *file: (to_samples(*file)[:, None], RATE), np.int16)
    decoded = load_decoded(files, cache, path, coding, skip_corrupt=skip_corrupt)
    return Recordings(decoded.samples[:, 0], decoded.starts, decoded.labels, decoded.skipped)


def to_samples(name: str, data: bytes) -> Any:
    """Return what :func:`decode` does in 16 bits, which is what nearly all recordings have."""
    wave = np.rint(decode(name, data) * 32768)
    return np.clip(wave, -32768, 32767).astype(np.int16)


def decode(name: str, data: bytes) -> Any:
    """Return the samples of a file as float32, one channel at 16 kHz, or raise a DataError."""
    return decode_sound(name, data, RATE, mono=True, lowest=LOWEST_RATE)[0][:, 0]
