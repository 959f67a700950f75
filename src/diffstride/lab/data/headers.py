"""What the header of a recording says of it, before any of it is decoded."""

from collections.abc import Iterator
from typing import Literal, TypeAlias

Order: TypeAlias = Literal["little", "big"]

LOWEST_RATE, HIGHEST_RATE = 1_000, 768_000
"""Samples a second. Resampled to 16,000, a file that says 1 would be 16,000 times as long."""
MOST_CHANNELS = 1024
"""What libsndfile can read."""
MOST_SAMPLES = 2**30
"""Of all channels together: more than three hours of stereo at 44.1 kHz."""
STREAM = (range(0x7FFF_0000, 0x8000_0001), range(0xFFFF_0000, 0x1_0000_0000))
"""Sizes that programs write while they do not know how long a recording will be."""


def check_format(rate: int, channels: int, frames: int, wanted: int) -> None:
    """Raise a ValueError for a recording that nobody made, or that is too long to be decoded.

    Args:
        rate: samples a second of a channel.
        channels: how many there are.
        frames: samples of each.
        wanted: the rate that it will be brought to.
    """
    if not LOWEST_RATE <= rate <= HIGHEST_RATE:
        raise ValueError(
            f"it has {rate:,} samples a second, and must have from {LOWEST_RATE:,} to "
            f"{HIGHEST_RATE:,}"
        )
    if not 1 <= channels <= MOST_CHANNELS:
        raise ValueError(f"it has {channels:,} channels, and must have from 1 to {MOST_CHANNELS:,}")
    if frames * max(channels, wanted / rate) > MOST_SAMPLES:
        raise ValueError(
            f"it has {frames:,} samples of {channels:,} channels at {rate:,} Hz, "
            f"{frames / rate / 3600:,.1f} hours: cut it into shorter files"
        )


def whole(data: bytes, wanted: int) -> bytes:
    """A file that may be WAV or AIFF, if it is as long as it says itself.

    Files that were written into a pipe do not say how long they are, and end where they end. In
    those that say 0 that is replaced by what is understood as unknown.

    Raises:
        ValueError: if it was cut off, or :func:`check_format` raises it.
    """
    form = data[:4]
    if form not in (b"RIFF", b"RIFX", b"RF64", b"BW64", b"FORM"):
        return data
    order: Order = "big" if form in (b"RIFX", b"FORM") else "little"
    long = 0
    for name, start, size in _chunks(data, order):
        content = data[start : start + 24]
        if name == b"ds64":  # of files above 4 GB, which have their sizes here
            long = int.from_bytes(content[8:16], order)
        elif name == b"fmt ":
            channels, rate = (int.from_bytes(content[i:j], order) for i, j in ((2, 4), (4, 8)))
            check_format(rate, channels, 0, wanted)
        elif name in (b"data", b"SSND"):
            there = len(data) - start
            if name == b"data" and size == 0 and _unfinished(data, order, start):
                return data[: start - 4] + b"\xff" * 4 + data[start:]
            said = long if size == 0xFFFF_FFFF and 0 < long < 2**63 else size
            if said > there and not any(said in sizes for sizes in STREAM):
                raise ValueError(
                    f"it was cut off: its header says {said:,} bytes of samples, and there are "
                    f"{there:,}"
                )
            break
    return data


def _chunks(data: bytes, order: Order) -> Iterator[tuple[bytes, int, int]]:
    """Name, first byte and size of each part of a file."""
    place = 12
    while place + 8 <= len(data):
        size = int.from_bytes(data[place + 4 : place + 8], order)
        yield data[place : place + 4], place + 8, size
        place += 8 + size + size % 2  # of an odd size, a byte is added


def _unfinished(data: bytes, order: Order, start: int) -> bool:
    """Whether samples follow though the file says that it ends there."""
    end = 8 + int.from_bytes(data[4:8], order)
    return len(data) > start and (end <= start or end - 8 in STREAM[1])
