"""One recording: from the bytes of a file to samples of one channel at 16 kHz."""

import io
from typing import Any

import numpy as np

from diffstride.lab.data.audio_headers import check_format, require_complete
from diffstride.lab.data.labelled_files import DataError
from diffstride.lab.data.spectrogram import RATE


def to_samples(name: str, data: bytes) -> Any:
    """Return what :func:`decode` does in 16 bits, which is what nearly all recordings have."""
    wave = np.rint(decode(name, data) * 32768)
    return np.clip(wave, -32768, 32767).astype(np.int16)


def decode(name: str, data: bytes) -> Any:
    """Return the samples of an audio file as float32, one channel at 16 kHz.

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
        with soundfile.SoundFile(io.BytesIO(require_complete(data))) as file:
            rate = file.samplerate
            check_format(rate, file.channels, file.frames)
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
    """Return the mean of all channels, reading by blocks: many channels need much memory."""
    blocks = [np.zeros(0, np.float32)]
    while len(block := file.read(max(1, 2**20 // file.channels), "float32", always_2d=True)):
        if not np.isfinite(block).all():
            raise ValueError("it has samples that are no finite numbers")
        blocks.append(block.mean(1))
    mono = np.concatenate(blocks)
    # The length of an MP3 is a guess unless its encoder wrote it down.
    if len(mono) < file.frames and file.format != "MP3":
        raise ValueError(
            f"it was cut off: its header says {file.frames:,} samples, and there are {len(mono):,}"
        )
    return mono
