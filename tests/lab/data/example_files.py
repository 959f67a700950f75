"""Small images and recordings as the bytes of files, and datasets of them on disk."""

import io
import json
import struct
import zlib

import numpy as np
import soundfile
import torch
from PIL import Image

from diffstride.lab.data.labelled_files import FilePaths


def encode_picture(picture, kind="png", **options):
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def grey_picture(value, size=(6, 8), mode="RGB"):
    """A picture of one grey, as the bytes of a PNG."""
    shape = (*size, 3) if mode == "RGB" else size
    return encode_picture(Image.fromarray(np.full(shape, value, dtype=np.uint8)))


def blank_picture(width, height):
    """A PNG of so many black pixels, a bit each, that is small whatever its size."""

    def chunk(name, content):
        crc = zlib.crc32(name + content)
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", crc)

    compressor = zlib.compressobj()
    row = bytes(1 + -(-width // 8))
    rows = b"".join(compressor.compress(row) for _ in range(min(height, 10_000)))
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0))
        + chunk(b"IDAT", rows + compressor.flush())
        + chunk(b"IEND", b"")
    )


def exif(orientation):
    entries = Image.Exif()
    entries[0x0112] = orientation
    return entries


def write_parquet(folder, train, test=None, classes=("cat", "dog"), label="label"):
    """Parquet files of (bytes, label) pairs."""
    import pyarrow
    import pyarrow.parquet

    folder.mkdir()
    for split, rows in (("train", train), ("test", train if test is None else test)):
        column = [{"bytes": data, "path": f"{split}{i}.png"} for i, (data, _) in enumerate(rows)]
        table = pyarrow.table({"img": column, label: [target for _, target in rows]})
        pyarrow.parquet.write_table(table, folder / f"{split}-00000-of-00001.parquet")
    if classes:
        (folder / "classes.json").write_text(json.dumps(classes))
    return str(folder)


def tone(seconds, rate=16_000, hertz=440.0):
    return 0.5 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)


def encode_sound(samples, rate=16_000, kind="WAV", subtype=None):
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=kind, subtype=subtype)
    return file.getvalue()


def wav(content, *, rate=16_000, channels=1, size=None, riff=None, before=b"", after=b""):
    """A WAV file of 16 bits, by hand: its header may say what it likes."""
    size = len(content) if size is None else size
    frame = 2 * channels % 2**16
    numbers = struct.pack("<HHIIHH", 1, channels, rate, rate * frame % 2**32, frame, 16)
    chunks = b"WAVEfmt " + struct.pack("<I", 16) + numbers + before
    chunks += b"data" + struct.pack("<I", size) + content + after
    return b"RIFF" + struct.pack("<I", len(chunks) if riff is None else riff) + chunks


def write_recordings(folder, contents, split="train"):
    """Paths to files with these contents, of classes 0, 1, 0, ..."""
    folder.mkdir(exist_ok=True)
    paths = []
    for i, content in enumerate(contents):
        path = folder / f"{split}{i}.wav"
        path.write_bytes(content)
        paths.append(path)
    return FilePaths(split, torch.arange(len(paths)) % 2, tuple(paths))
