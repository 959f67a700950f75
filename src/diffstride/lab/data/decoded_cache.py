"""The samples of many files, decoded once into a file that is mapped into memory."""

import hashlib
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

from diffstride.files import replacing
from diffstride.lab.data.labelled_files import DataError, FileSet, Kind, decode_all

VERSION = 3  # of the cache; a cache of another version is made again


class Coding(NamedTuple):
    """How files are decoded, and kept."""

    kind: Kind
    decode: Callable[[str, bytes], tuple[Any, float | None]]  # (samples, channels), and their rate
    dtype: type[Any]
    key: str = ""  # tells caches of the same files apart


class Decoded(NamedTuple):
    """The samples of all files of a set one after another, and the class of each file."""

    samples: Any  # (samples, channels)
    starts: Any  # where each file starts, and where the last one ends
    labels: Tensor
    rate: float | None  # samples a second
    skipped: tuple[str, ...]  # names of files that could not be read and were left out


def load_decoded(
    files: FileSet, cache: str | Path, path: str, coding: Coding, *, skip_corrupt: bool = False
) -> Decoded:
    """Decode all files of the dataset at ``path``, or find them decoded in the folder ``cache``.

    The cache has two files for each set, made again when its files change: samples, and an index of
    them. Files that can't be read are errors, or are left out and named if ``skip_corrupt``; files
    that differ in their rate or number of channels are errors.
    """
    # Taken before anything is decoded: what changes meanwhile is decoded again the next time.
    fingerprint = files.fingerprint
    where, folder = Path(path).expanduser().resolve(), Path(cache).expanduser()
    which = f"{where}\n{files.split}\n{len(files)}{coding.key}"
    digest = hashlib.sha256(which.encode()).hexdigest()
    stem = f"{where.name}-{files.split}-{digest[:16]}"
    samples, index = folder / f"{stem}.samples", folder / f"{stem}.npz"
    content = _read_index(index, samples, fingerprint, len(files), coding)
    if content is None or (len(content["skipped"]) and not skip_corrupt):
        for part in folder.glob(f".{stem}*.part"):  # of a process that was killed long ago
            if time.time() - part.stat().st_mtime > 86_400:
                part.unlink(missing_ok=True)
        content = _make_cache(files, fingerprint, samples, index, coding, skip_corrupt)
    rate = float(content["rate"])
    return Decoded(
        np.memmap(samples, coding.dtype, "r").reshape(-1, int(content["channels"])),
        content["starts"],
        files.labels[torch.from_numpy(content["kept"])],
        None if math.isnan(rate) else rate,
        tuple(map(str, content["skipped"])),
    )


def _read_index(
    index: Path, samples: Path, fingerprint: str, number: int, coding: Coding
) -> dict[str, Any] | None:
    """Return what an index says, or None if it is not of these files or can't be right."""
    try:
        with index.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            content = dict(arrays)
        lengths, kept = np.diff(content["starts"], prepend=0), content["kept"]
        size = np.dtype(coding.dtype).itemsize * int(content["channels"])
        sound = (
            content["version"] == VERSION
            and content["fingerprint"] == fingerprint
            and samples.stat().st_size == size * content["starts"][-1]
            and len(kept) == len(lengths) - 1 == number - len(content["skipped"]) > 0
            and lengths[0] == 0 < lengths[1:].min()
            and 0 <= kept[0] <= kept[-1] < number
            and (np.diff(kept) > 0).all()
            and (math.isnan(rate := float(content["rate"])) or rate > 0)
        )
        return content if sound else None
    except (OSError, ValueError, LookupError, TypeError, EOFError, BadZipFile, MemoryError):
        return None


def _make_cache(
    files: FileSet, fingerprint: str, samples: Path, index: Path, coding: Coding, skip_corrupt: bool
) -> dict[str, Any]:
    """Decode all files into the samples of a cache, and return its index."""
    lengths, kept = [0], []
    skipped: list[str] = []
    first: tuple[str, float | None, int] | None = None
    waves = decode_all(files, coding.decode, coding.kind, skipped if skip_corrupt else None)
    with replacing(index) as index_part:
        with replacing(samples) as samples_part:
            with samples_part.open("wb") as file:
                for i, name, (wave, rate) in waves:
                    first = first or (name, rate, wave.shape[1])
                    require_alike(first, (name, rate, wave.shape[1]))
                    file.write(wave.tobytes())
                    lengths.append(len(wave))
                    kept.append(i)
            # There is no index while samples change: with one, the cache counts as complete.
            index.unlink(missing_ok=True)
        _, rate, channels = first or ("", None, 1)
        content: dict[str, Any] = {
            "version": np.array(VERSION),
            "fingerprint": np.array(fingerprint),
            "starts": np.cumsum(lengths),
            "kept": np.array(kept, dtype=np.int64),
            "skipped": np.array(skipped, dtype=np.str_),
            "rate": np.array(math.nan if rate is None else rate),
            "channels": np.array(channels),
        }
        with index_part.open("wb") as file:
            np.savez(file, **content)
    return content


def require_alike(
    first: tuple[str, float | None, int], second: tuple[str, float | None, int]
) -> None:
    """Raise a DataError if two files, or sets, differ in their rate or number of channels."""
    for place, unit, advice in (
        (1, "samples a second", "bring them to one rate with --data.rate"),
        (2, "channels", "all must have as many"),
    ):
        values = [first[place], second[place]]
        if values[0] != values[1]:
            known = ["an unknown number of" if v is None else f"{v:g}" for v in values]
            found = f"{first[0]} has {known[0]} {unit} and {second[0]} {known[1]}"
            raise DataError(f"signals differ, {found}: {advice}")
