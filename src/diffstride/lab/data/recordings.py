"""Labelled recordings, decoded once into a file of samples that is mapped into memory."""

import hashlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

from diffstride.files import replacing
from diffstride.lab.data.audio_decoding import to_samples
from diffstride.lab.data.labelled_files import AUDIO, FileSet, decode_all
from diffstride.lab.data.spectrogram import RATE

WINDOW_LENGTH = RATE  # samples of a window: one second
VERSION = 2  # of the cache; a cache of another version is made again


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
    """Decode all files of the dataset at ``path``, or find them decoded in the folder ``cache``.

    The cache has two files for each set, made again when its files change: samples, and an index of
    them. Files that can't be read are errors, or are left out and named if ``skip_corrupt``.
    """
    # Taken before anything is decoded: what changes meanwhile is decoded again the next time.
    fingerprint = files.fingerprint
    where, folder = Path(path).expanduser().resolve(), Path(cache).expanduser()
    digest = hashlib.sha256(f"{where}\n{files.split}\n{len(files)}".encode()).hexdigest()
    stem = f"{where.name}-{files.split}-{digest[:16]}"
    samples, index = folder / f"{stem}.samples", folder / f"{stem}.npz"
    content = _read_index(index, samples, fingerprint, len(files))
    if content is None or (len(content["skipped"]) and not skip_corrupt):
        for part in folder.glob(f".{stem}*.part"):  # of a process that was killed long ago
            if time.time() - part.stat().st_mtime > 86_400:
                part.unlink(missing_ok=True)
        content = _decode(files, fingerprint, samples, index, skip_corrupt)
    return Recordings(
        np.memmap(samples, np.int16, "r"),
        content["starts"],
        files.labels[torch.from_numpy(content["kept"])],
        tuple(map(str, content["skipped"])),
    )


def _read_index(index: Path, samples: Path, fingerprint: str, number: int) -> Any:
    """Return what an index says, or None if it is not of these files or can't be right."""
    try:
        with index.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            content = dict(arrays)
        lengths, kept = np.diff(content["starts"], prepend=0), content["kept"]
        sound = (
            content["version"] == VERSION
            and content["fingerprint"] == fingerprint
            and samples.stat().st_size == 2 * content["starts"][-1]
            and len(kept) == len(lengths) - 1 == number - len(content["skipped"]) > 0
            and lengths[0] == 0 < lengths[1:].min()
            and 0 <= kept[0] <= kept[-1] < number
            and (np.diff(kept) > 0).all()
        )
        return content if sound else None
    except (OSError, ValueError, LookupError, TypeError, EOFError, BadZipFile, MemoryError):
        return None


def _decode(
    files: FileSet, fingerprint: str, samples: Path, index: Path, skip_corrupt: bool
) -> dict[str, Any]:
    """Decode all files into the samples of a cache, and return its index."""
    lengths, kept = [0], []
    skipped: list[str] = []
    waves = decode_all(files, to_samples, AUDIO, skipped if skip_corrupt else None)
    with replacing(index) as index_part:
        with replacing(samples) as samples_part:
            with samples_part.open("wb") as file:
                for i, _, wave in waves:
                    file.write(wave.tobytes())
                    lengths.append(len(wave))
                    kept.append(i)
            # There is no index while samples change: with one, the cache counts as complete.
            index.unlink(missing_ok=True)
        content: dict[str, Any] = {
            "version": np.array(VERSION),
            "fingerprint": np.array(fingerprint),
            "starts": np.cumsum(lengths),
            "kept": np.array(kept, dtype=np.int64),
            "skipped": np.array(skipped, dtype=np.str_),
        }
        with index_part.open("wb") as file:
            np.savez(file, **content)
    return content
