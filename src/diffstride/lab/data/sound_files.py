"""Sound files as samples, and samples at another rate.

The headers of WAV and AIFF files are read by hand: libsndfile takes what is left of a file that was
cut off for all of it, and no library says how long such a file should be.
"""

import io
from typing import Any, Literal

import numpy as np

from diffstride.lab.data.labelled_files import DataError

HIGHEST_RATE = 768_000  # in samples a second
MOST_CHANNELS = 1024  # what libsndfile can read
MOST_SAMPLES = 2**30  # of all channels together: over three hours of stereo at 44.1 kHz
# Sizes that programs write while they do not know how long a recording will be.
UNKNOWN = (range(0x7FFF_0000, 0x8000_0001), range(0xFFFF_0000, 0x1_0000_0000))


def decode_sound(
    name: str, data: bytes, rate: float | None = None, *, mono: bool = False, lowest: int = 1
) -> tuple[Any, float]:
    """Return the samples (samples, channels) of a file as float32, and how many a second are.

    Args:
        name: what the file is called in messages.
        data: its content.
        rate: what it is resampled to; its own unless given.
        mono: make one channel of all, their mean.
        lowest: the lowest rate that it may have; a slow recording may be of a heart.

    Raises:
        DataError: if it can't be read, or has no samples, or some that are no finite numbers.
    """
    try:
        import soundfile
    except ImportError as error:
        raise ImportError(f"audio needs {error.name}: pip install 'diffstride[audio]'") from error

    try:
        with soundfile.SoundFile(io.BytesIO(_require_complete(data, lowest))) as file:
            own_rate = file.samplerate
            channels = 1 if mono else file.channels
            growth = (rate or own_rate) / max(own_rate, 1) * channels
            _check_format(own_rate, file.channels, file.frames, lowest, growth)
            blocks = [np.zeros((0, channels), np.float32)]  # by blocks: channels need much memory
            length = max(1, 2**20 // file.channels)
            while len(block := file.read(length, "float32", always_2d=True)):
                if not np.isfinite(block).all():
                    raise ValueError("it has samples that are NaN or infinite")
                blocks.append(block.mean(1, keepdims=True) if mono else block)
            samples = np.concatenate(blocks)
            # The length of an MP3 is a guess unless its encoder wrote it down.
            if len(samples) < file.frames and file.format != "MP3":
                there = f"{file.frames:,} samples, and there are {len(samples):,}"
                raise ValueError(f"it was cut off: its header says {there}")
        samples = resample(samples, own_rate, rate or own_rate)
        if not len(samples):
            raise ValueError("it has no samples")
        return samples, float(rate or own_rate)
    except Exception as error:
        # What soundfile says of itself begins with where the file is in memory.
        reason = getattr(error, "error_string", error) if data else "no such file, or it is empty"
        raise DataError(f"{name} can't be read as audio ({reason})") from error


def resample(samples: Any, rate: float, wanted: float) -> Any:
    """Return samples (samples, channels) at another rate; a ValueError for too many, or none.

    soxr takes what is above half of the lower rate out.
    """
    if rate == wanted or not len(samples):
        return samples
    try:
        import soxr
    except ImportError as error:
        raise ImportError(f"audio needs {error.name}: pip install 'diffstride[audio]'") from error
    if samples.size * max(1, wanted / rate) > MOST_SAMPLES:
        number = f"{samples.size:,} samples would become {samples.size * wanted / rate:,.0f}"
        raise ValueError(f"at {wanted:g} instead of {rate:g} samples a second, its {number}")
    resampled = soxr.resample(np.ascontiguousarray(samples), rate, wanted)
    if not len(resampled):
        raise ValueError(f"at {wanted:g} instead of {rate:g} samples a second, it has no samples")
    return resampled


def _check_format(rate: int, channels: int, frames: int, lowest: int, growth: float = 0) -> None:
    """Raise a ValueError for a rate or channels that no recording has, or for too many samples.

    ``growth`` is how many samples there will be for one of all channels.
    """
    if not lowest <= rate <= HIGHEST_RATE:
        expected = f"from {lowest:,} to {HIGHEST_RATE:,}"
        raise ValueError(f"it has {rate:,} samples a second, and must have {expected}")
    if not 1 <= channels <= MOST_CHANNELS:
        raise ValueError(f"it has {channels:,} channels, and must have from 1 to {MOST_CHANNELS:,}")
    if frames * max(channels, growth) > MOST_SAMPLES:
        length = f"{frames:,} samples of {channels:,} channels at {rate:,} Hz"
        hours = f"{frames / rate / 3600:,.1f} hours"
        raise ValueError(f"it has {length}, {hours}: cut it into shorter files")


def _require_complete(data: bytes, lowest: int) -> bytes:
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
            rate, channels = number(start + 4, start + 8), number(start + 2, start + 4)
            _check_format(rate, channels, frames=0, lowest=lowest)
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
