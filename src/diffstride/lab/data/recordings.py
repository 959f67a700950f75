"""Labelled recordings: decoded to one channel at 16 kHz, into a file that is mapped into memory.

The headers of WAV and AIFF files are read by hand: libsndfile takes what is left of a file that was
cut off for all of it, and no library says how long such a file should be.
"""

import hashlib
import io
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

from diffstride.files import replacing
from diffstride.lab.data.labelled_files import AUDIO, DataError, FileSet, decode_all
from diffstride.lab.data.spectrogram import RATE

WINDOW_LENGTH = RATE  # samples of a window: one second
VERSION = 2  # of the cache; a cache of another version is made again
# In samples a second. Resampled to 16,000, a file that says 1 would be 16,000 times as long.
LOWEST_RATE, HIGHEST_RATE = 1_000, 768_000
MOST_CHANNELS = 1024  # what libsndfile can read
MOST_SAMPLES = 2**30  # of all channels together: over three hours of stereo at 44.1 kHz
# Sizes that programs write while they do not know how long a recording will be.
UNKNOWN = (range(0x7FFF_0000, 0x8000_0001), range(0xFFFF_0000, 0x1_0000_0000))


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
        content = _make_cache(files, fingerprint, samples, index, skip_corrupt)
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


def _make_cache(
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


def to_samples(name: str, data: bytes) -> Any:
    """Return what :func:`decode` does in 16 bits, which is what nearly all recordings have."""
    wave = np.rint(decode(name, data) * 32768)
    return np.clip(wave, -32768, 32767).astype(np.int16)


def decode(name: str, data: bytes) -> Any:
    """Return the samples of a file as float32, one channel at 16 kHz, or raise a DataError."""
    try:
        import soundfile
        import soxr
    except ImportError as error:
        raise ImportError(f"audio needs {error.name}: pip install 'diffstride[audio]'") from error

    try:
        with soundfile.SoundFile(io.BytesIO(_require_complete(data))) as file:
            rate = file.samplerate
            _check_format(rate, file.channels, file.frames)
            blocks = [np.zeros(0, np.float32)]  # by blocks: many channels need much memory
            length = max(1, 2**20 // file.channels)
            while len(block := file.read(length, "float32", always_2d=True)):
                if not np.isfinite(block).all():
                    raise ValueError("it has samples that are no finite numbers")
                blocks.append(block.mean(1))
            mono = np.concatenate(blocks)
            # The length of an MP3 is a guess unless its encoder wrote it down.
            if len(mono) < file.frames and file.format != "MP3":
                there = f"{file.frames:,} samples, and there are {len(mono):,}"
                raise ValueError(f"it was cut off: its header says {there}")
        mono = mono if rate == RATE else soxr.resample(mono, rate, RATE)
        if not len(mono):
            raise ValueError("it has no samples")
        return mono
    except Exception as error:
        # What soundfile says of itself begins with where the file is in memory.
        reason = getattr(error, "error_string", error) if data else "no such file, or it is empty"
        raise DataError(f"{name} can't be read as audio ({reason})") from error


def _check_format(rate: int, channels: int, frames: int) -> None:
    """Raise a ValueError for a rate or channels that no recording has, or for too many samples."""
    if not LOWEST_RATE <= rate <= HIGHEST_RATE:
        expected = f"from {LOWEST_RATE:,} to {HIGHEST_RATE:,}"
        raise ValueError(f"it has {rate:,} samples a second, and must have {expected}")
    if not 1 <= channels <= MOST_CHANNELS:
        raise ValueError(f"it has {channels:,} channels, and must have from 1 to {MOST_CHANNELS:,}")
    if frames * max(channels, RATE / rate) > MOST_SAMPLES:
        length = f"{frames:,} samples of {channels:,} channels at {rate:,} Hz"
        hours = f"{frames / rate / 3600:,.1f} hours"
        raise ValueError(f"it has {length}, {hours}: cut it into shorter files")


def _require_complete(data: bytes) -> bytes:
    """Return a file that is as long as its header says, or of a format that is not checked here.

    Files that were written into a pipe do not say how long they are, and end where they end. If
    such a file says 0, that is replaced by what libsndfile understands as unknown. Raises a
    ValueError for a file that was cut off, or says what no recording has.
    """
    form = data[:4]
    if form not in (b"RIFF", b"RIFX", b"RF64", b"BW64", b"FORM"):
        return data
    order: Literal["little", "big"] = "big" if form in (b"RIFX", b"FORM") else "little"

    def number(first: int, end: int) -> int:
        return int.from_bytes(data[first:end], order)

    place, size_above_4_gb = 12, 0
    while place + 8 <= len(data):
        name, size, start = data[place : place + 4], number(place + 4, place + 8), place + 8
        place = start + size + size % 2  # of an odd size, a byte is added
        if name == b"ds64":
            size_above_4_gb = number(start + 8, start + 16)
        elif name == b"fmt ":
            _check_format(number(start + 4, start + 8), number(start + 2, start + 4), frames=0)
        elif name in (b"data", b"SSND"):
            there, file_end = len(data) - start, 8 + number(4, 8)
            unfinished = file_end <= start or file_end - 8 in UNKNOWN[1]
            if name == b"data" and size == 0 < there and unfinished:
                return data[: start - 4] + b"\xff" * 4 + data[start:]
            if size == 0xFFFF_FFFF and 0 < size_above_4_gb < 2**63:
                size = size_above_4_gb
            if size > there and not any(size in sizes for sizes in UNKNOWN):
                wrong = f"its header says {size:,} bytes of samples, and there are {there:,}"
                raise ValueError(f"it was cut off: {wrong}")
            break
    return data
