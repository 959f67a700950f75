"""What the header of a recording says, checked before anything is decoded.

The headers of WAV and AIFF files are read by hand: libsndfile takes what is left of a file that was
cut off for all of it, and no library says how long such a file should be.
"""

from collections.abc import Iterator
from typing import Literal, TypeAlias

from diffstride.lab.data.spectrogram import RATE

ByteOrder: TypeAlias = Literal["little", "big"]

LOWEST_RATE, HIGHEST_RATE = 1_000, 768_000
"""Samples a second. Resampled to 16,000, a file that says 1 would be 16,000 times as long."""
MOST_CHANNELS = 1024
"""What libsndfile can read."""
MOST_SAMPLES = 2**30
"""The most samples of all channels together: over three hours of stereo at 44.1 kHz."""
UNKNOWN = (range(0x7FFF_0000, 0x8000_0001), range(0xFFFF_0000, 0x1_0000_0000))
"""Sizes that programs write while they do not know how long a recording will be."""


def check_format(rate: int, channels: int, frames: int) -> None:
    """Raise a ValueError for a rate or channels that no recording has, or for too many samples."""
    if not LOWEST_RATE <= rate <= HIGHEST_RATE:
        raise ValueError(
            f"it has {rate:,} samples a second, and must have from {LOWEST_RATE:,} to "
            f"{HIGHEST_RATE:,}"
        )
    if not 1 <= channels <= MOST_CHANNELS:
        raise ValueError(f"it has {channels:,} channels, and must have from 1 to {MOST_CHANNELS:,}")
    if frames * max(channels, RATE / rate) > MOST_SAMPLES:
        raise ValueError(
            f"it has {frames:,} samples of {channels:,} channels at {rate:,} Hz, "
            f"{frames / rate / 3600:,.1f} hours: cut it into shorter files"
        )


def require_complete(data: bytes) -> bytes:
    """Return a file that is as long as its header says, or of a format that is not checked here.

    Files that were written into a pipe do not say how long they are, and end where they end. If
    such a file says 0, that is replaced by what libsndfile understands as unknown. Raises a
    ValueError for a file that was cut off, and as :func:`check_format` does.
    """
    form = data[:4]
    if form not in (b"RIFF", b"RIFX", b"RF64", b"BW64", b"FORM"):
        return data
    order: ByteOrder = "big" if form in (b"RIFX", b"FORM") else "little"
    size_above_4_gb = 0
    for name, start, size in _chunks(data, order):
        content = data[start : start + 24]
        if name == b"ds64":
            size_above_4_gb = int.from_bytes(content[8:16], order)
        elif name == b"fmt ":
            channels, rate = (int.from_bytes(content[i:j], order) for i, j in ((2, 4), (4, 8)))
            check_format(rate, channels, frames=0)
        elif name in (b"data", b"SSND"):
            there = len(data) - start
            file_end = 8 + int.from_bytes(data[4:8], order)
            unfinished = file_end <= start or file_end - 8 in UNKNOWN[1]
            if name == b"data" and size == 0 < there and unfinished:
                return data[: start - 4] + b"\xff" * 4 + data[start:]
            if size == 0xFFFF_FFFF and 0 < size_above_4_gb < 2**63:
                size = size_above_4_gb
            if size > there and not any(size in sizes for sizes in UNKNOWN):
                raise ValueError(
                    f"it was cut off: its header says {size:,} bytes of samples, and there are "
                    f"{there:,}"
                )
            break
    return data


def _chunks(data: bytes, order: ByteOrder) -> Iterator[tuple[bytes, int, int]]:
    """Yield the name, the first byte and the size of each chunk of a file."""
    place = 12
    while place + 8 <= len(data):
        size = int.from_bytes(data[place + 4 : place + 8], order)
        yield data[place : place + 4], place + 8, size
        place += 8 + size + size % 2  # of an odd size, a byte is added
