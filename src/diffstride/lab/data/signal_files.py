"""One signal as float32 (samples, channels): from numbers, or from a file of one signal."""

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from diffstride.lab.data.labelled_files import SOUNDS, DataError, Kind
from diffstride.lab.data.sound_files import decode_sound

SIGNAL = Kind("signal", ("signal", "audio", "file", "wav"), [".wav", ".npy", *SOUNDS[1:]])
TEXTS = (".csv", ".tsv", ".txt", ".dat")
NPY = b"\x93NUMPY"


def check_signal(name: str, values: Any) -> Any:
    """Return numbers (samples,) or (channels, samples) as float32 (samples, channels).

    Where all channels are NaN up to the end, the signal has ended.

    >>> check_signal("a", [1, 2, np.nan]).T
    array([[1., 2.]], dtype=float32)
    """
    numbers = np.asarray(values)
    if numbers.dtype.kind not in "buif":
        raise DataError(f"{name} must have numbers, got {numbers.dtype.name}")
    if numbers.ndim not in (1, 2):
        wanted = "a row of samples, or channels × samples"
        raise DataError(f"{name} must be {wanted}, got the shape {numbers.shape}")
    with np.errstate(over="ignore"):
        samples = np.atleast_2d(numbers).T.astype(np.float32)
    missing = np.isnan(samples)
    there = np.flatnonzero(~missing.all(1))
    samples = samples[: there[-1] + 1 if len(there) else 0]
    if not samples.size:
        raise DataError(f"{name} has no samples")
    if wrong := np.argwhere(~np.isfinite(samples)).tolist():
        sample, channel = wrong[0]
        where = f"sample {sample}" + (f" of channel {channel}" if samples.shape[1] > 1 else "")
        what = "missing (NaN)" if missing[sample, channel] else "no finite number of 32 bits"
        raise DataError(f"{name}: {where}, counted from 0, is {what}")
    return samples


def read_array(name: str, read: Callable[[], Any]) -> Any:
    """Return what numpy reads without executing anything in it, or raise a DataError."""
    try:
        return read()
    except Exception as error:  # a damaged header raises nearly anything
        reason = str(error)
        if "pickle" in reason:
            reason = "it has no numbers but Python objects, or is no array: save numbers or words"
        raise DataError(f"{name} can't be read as an array ({reason})") from error


def decode_signal(name: str, data: bytes, rate: float | None = None) -> tuple[Any, float | None]:
    """Return the samples (samples, channels) of a file, and how many a second are if it says so.

    Args:
        name: what it is called: its ending says that it is text.
        data: its content: sound, an array of numpy, or numbers in text, a row for each channel.
        rate: what sound is resampled to.
    """
    if data.startswith(NPY) or Path(name).suffix.lower() == ".npy":
        if not data:
            raise DataError(f"{name} can't be read as an array (no such file, or it is empty)")
        file = io.BytesIO(data)
        array = read_array(name, lambda: np.load(file, allow_pickle=False))
        return check_signal(name, array), None
    if Path(name).suffix.lower() in TEXTS:
        return check_signal(name, _numbers(name, data)), None
    return decode_sound(name, data, rate)


def _numbers(name: str, data: bytes) -> Any:
    """Return the numbers of a text: a row for each channel, or a number in each row."""
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"{name} can't be read as numbers: it is no text in UTF-8") from error
    rows = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            cells = re.split(r"[,;\t]", line) if re.search(r"[,;\t]", line) else line.split()
            try:
                rows.append([float(cell) if cell.strip() else np.nan for cell in cells])
            except ValueError as error:
                wanted = "the numbers of one signal and nothing else"
                raise DataError(f"{name}, line {number}: it must have {wanted}: {error}") from error
    if not rows:
        raise DataError(f"{name} has no samples")
    if all(len(row) == 1 for row in rows):
        return [row[0] for row in rows]
    lengths = {len(row) for row in rows}
    if len(lengths) > 1:
        wrong = f"rows of {min(lengths)} and of {max(lengths)} numbers"
        raise DataError(f"{name} must have a row of as many numbers for each channel, got {wrong}")
    if len(rows) > max(lengths):
        shape = f"{len(rows)} rows of {max(lengths)} numbers"
        wanted = "a row for each channel, or one number in each row"
        raise DataError(f"{name} must have {wanted}, got {shape}: turn rows into columns")
    return rows
