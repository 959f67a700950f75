"""Recordings, decoded once into a file of samples that is mapped into memory."""

import hashlib
import io
import itertools
import os
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

from diffstride.lab.data import layouts
from diffstride.lab.data.headers import check_format, whole
from diffstride.lab.data.layouts import LAYOUTS
from diffstride.lab.data.opening import open_files
from diffstride.lab.data.sources import AUDIO, DataError, Files, Opened, each, require_seen
from diffstride.lab.data.spectrogram import RATE

WINDOW = RATE
"""Samples of a window: one second."""
VERSION = 2
"""Of the cache; another one is made anew."""


def decode(name: str, data: bytes) -> Any:
    """The samples of an audio file as float32, one channel at 16 kHz, whatever it was before.

    Raises:
        DataError: if it can't be read, was cut off, is empty or far too long, or holds values that
            are no numbers.
    """
    try:
        import soundfile
        import soxr
    except ImportError as error:
        raise ImportError(f"audio needs {error.name}: pip install 'diffstride[audio]'") from error

    try:
        with soundfile.SoundFile(io.BytesIO(whole(data, RATE))) as file:
            rate = file.samplerate
            check_format(rate, file.channels, file.frames, RATE)
            mono = _mono(file)
        mono = mono if rate == RATE else soxr.resample(mono, rate, RATE)
        if not len(mono):
            raise ValueError("it has no samples")
        return mono
    except Exception as error:
        # What soundfile says of itself begins with where the file is in memory.
        reason = getattr(error, "error_string", error)
        if not data:
            reason = "there is no such file, or it is empty"
        raise DataError(f"{name} can't be read as audio ({reason})") from error


def _mono(file: Any) -> Any:
    """The mean of all channels, read by parts: of many channels they are never all there."""
    parts = []
    while len(part := file.read(max(1, 2**20 // file.channels), "float32", always_2d=True)):
        if not np.isfinite(part).all():
            raise ValueError("it has samples that are no finite numbers")
        parts.append(part.mean(1))
    mono = np.concatenate(parts) if parts else np.zeros(0, np.float32)
    # The length of an MP3 is a guess unless its encoder wrote it down.
    if len(mono) < file.frames and file.format != "MP3":
        raise ValueError(
            f"it was cut off: its header says {file.frames:,} samples, and there are {len(mono):,}"
        )
    return mono


def to_samples(name: str, data: bytes) -> Any:
    """The same in 16 bits, which is what nearly all recordings have.

    Raises:
        DataError: as :func:`decode`.
    """
    wave = np.rint(decode(name, data) * 32768)
    return np.clip(wave, -32768, 32767).astype(np.int16)


@dataclass(frozen=True)
class Recordings:
    """A split: the samples of all recordings one after another, and the class of each."""

    samples: Any
    """16-bit, in a memory-mapped file."""
    starts: Any
    """Where each recording starts, and where the last one ends."""
    labels: Tensor
    skipped: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.labels)

    def length(self, recording: int) -> int:
        """Of a recording in samples."""
        return int(self.starts[recording + 1] - self.starts[recording])

    def windows(self, places: list[tuple[int, int]]) -> Tensor:
        """A second (batch, samples) from each (recording, first sample), zeros after its end."""
        found = np.zeros((len(places), WINDOW), dtype=np.int16)
        for row, (recording, first) in zip(found, places, strict=True):
            start = self.starts[recording] + first
            part = self.samples[start : min(start + WINDOW, self.starts[recording + 1])]
            row[: len(part)] = part
        return torch.from_numpy(found).float() / 32768


def open_recordings(path: str, layout: str = "auto", label: str | None = None) -> Opened:
    """The audio files of a training and a test set, in the layout of a known dataset or any other.

    Raises:
        DataError: for a missing folder or file, and everything :func:`open_files` raises it for.
    """
    folder = Path(path).expanduser()
    found = layouts.recognise(folder) if layout == "auto" and folder.is_dir() else layout
    if found in LAYOUTS:
        opened = LAYOUTS[found](folder, label)
        require_seen(opened, path)
        return opened
    return open_files(path, AUDIO, label=label)


def load(files: Files, cache: str | Path, where: str, *, skip_corrupt: bool = False) -> Recordings:
    """Decode all files, or find them decoded already.

    The cache has two files for each split, both there whole or not at all: samples, and an index
    that says what they are of. They are made anew when the files change.

    Args:
        files: what to decode.
        cache: the folder of the cache.
        where: what tells these files from others in the cache, their path for one.
        skip_corrupt: leave out files that can't be read, and name them.

    Raises:
        DataError: for a file that can't be read.
    """
    # Taken before anything is decoded: what changes meanwhile is decoded again the next time.
    fingerprint = files.fingerprint
    name = f"{where}\n{files.split}\n{len(files)}"
    stem = f"{Path(where).name}-{files.split}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    folder = Path(cache).expanduser()
    samples, index = folder / f"{stem}.samples", folder / f"{stem}.npz"
    known = _index(index, samples, fingerprint, len(files))
    if known is None or (len(known["skipped"]) and not skip_corrupt):
        folder.mkdir(parents=True, exist_ok=True)
        for part in folder.glob(f".{stem}*.part"):  # of a process that was killed long ago
            if time.time() - part.stat().st_mtime > 86_400:
                part.unlink(missing_ok=True)
        known = _decode_all(files, fingerprint, samples, index, skip_corrupt)
    return Recordings(
        np.memmap(samples, np.int16, "r"),
        known["starts"],
        files.labels[torch.from_numpy(known["kept"])],
        tuple(map(str, known["skipped"])),
    )


def _index(index: Path, samples: Path, fingerprint: str, number: int) -> dict[str, Any] | None:
    """What an index says, if it is one of these files and its samples are there."""
    try:
        with index.open("rb") as file, np.load(file, allow_pickle=False) as content:
            known = dict(content)
        if known["version"] != VERSION or known["fingerprint"] != fingerprint:
            return None
        lengths, kept = np.diff(known["starts"], prepend=0), known["kept"]
        sound = (
            samples.stat().st_size == 2 * known["starts"][-1]
            and len(kept) == len(lengths) - 1 == number - len(known["skipped"]) > 0
            and lengths[0] == 0 < lengths[1:].min()
            and 0 <= kept[0] <= kept[-1] < number
            and (np.diff(kept) > 0).all()
        )
        return known if sound else None
    except (OSError, ValueError, LookupError, TypeError, EOFError, BadZipFile, MemoryError):
        return None


def _decode_all(
    files: Files, fingerprint: str, samples: Path, index: Path, skip_corrupt: bool
) -> dict[str, Any]:
    def attempt(job: tuple[str, bytes]) -> tuple[str, Any]:
        try:
            return job[0], to_samples(*job)
        except DataError as error:
            return job[0], error

    lengths, kept, skipped, seen = [0], [], [], 0
    # Names that no other process has, on this machine or another one that sees the folder.
    part, part_of_index = (
        path.with_name(f".{path.name}.{uuid.uuid4().hex}.part") for path in (samples, index)
    )
    coming = each(files, f"decoding the {files.split} set")
    try:
        with part.open("wb") as file, ThreadPoolExecutor(os.cpu_count()) as threads:
            while jobs := list(itertools.islice(coming, 64)):
                for name, wave in threads.map(attempt, jobs):
                    seen += 1
                    if isinstance(wave, DataError):
                        if not skip_corrupt:
                            raise DataError(
                                f"{wave}: remove it, or leave out such recordings with "
                                f"--data.skip_corrupt"
                            ) from wave
                        skipped.append(name)
                        continue
                    file.write(wave.tobytes())
                    lengths.append(len(wave))
                    kept.append(seen - 1)
        if not kept:
            raise DataError(f"there is nothing to read in the {files.split} set")
        known: dict[str, Any] = {
            "version": np.array(VERSION),
            "fingerprint": np.array(fingerprint),
            "starts": np.cumsum(lengths),
            "kept": np.array(kept, dtype=np.int64),
            "skipped": np.array(skipped, dtype=np.str_),
        }
        # Of the index there is none while samples change; it is what makes a cache one.
        index.unlink(missing_ok=True)
        part.replace(samples)
        with part_of_index.open("wb") as file:
            np.savez(file, **known)
        part_of_index.replace(index)
    finally:
        part.unlink(missing_ok=True)
        part_of_index.unlink(missing_ok=True)
    return known
