"""Small generated datasets as the hub has them, and the tables that runs write."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import soundfile
from PIL import Image

TINY_AUDIO = (
    "--model.width 0.0625 --model.smoothness 2 --data.batch_size 8 --data.cache cache "
    "--trainer.epochs 2 --trainer.steps 3 --optim.lr 1e-3 --optim.stride_lr 0.1"
).split()


def rows(path):
    """The rows of a CSV file."""
    with Path(path).open() as file:
        return list(csv.DictReader(file))


def image_pack(folder, size=32, classes=3, number=24, channels=3):
    """A pack of generated images, as the hub has them."""
    folder.mkdir()
    generator = np.random.default_rng(0)
    for split in ("train", "test"):
        rows = []
        for i in range(number):
            pixels = generator.integers(0, 256, (size, size, channels), dtype=np.uint8)
            file = io.BytesIO()
            Image.fromarray(pixels.squeeze()).save(file, "png")
            rows.append({"bytes": file.getvalue(), "path": f"{split}{i}.png"})
        table = pyarrow.table({"image": rows, "label": [i % classes for i in range(number)]})
        pyarrow.parquet.write_table(table, folder / f"{split}-00000-of-00001.parquet")
    (folder / "classes.json").write_text(json.dumps([f"class {i}" for i in range(classes)]))
    return str(folder)


def sound(seconds=0.3, hertz=440.0, rate=16_000, channels=1, seed=0):
    """A WAV file of a tone with a little noise."""
    time = np.arange(round(seconds * rate)) / rate
    noise = np.random.default_rng(seed).standard_normal(len(time))
    wave = 0.3 * np.sin(2 * np.pi * hertz * time) + 0.02 * noise
    file = io.BytesIO()
    soundfile.write(file, np.stack([wave] * channels, 1), rate, format="WAV")
    return file.getvalue()


def audio_pack(folder, **labels):
    """Parquet files of tones, two or more columns of labels; lengths, rates and channels vary."""
    folder.mkdir()
    labels = labels or {"label": 2}
    for split, number in (("train", 12), ("test", 5)):
        kinds = [(0.3, 8_000, 1), (1.0, 16_000, 2), (2.37, 44_100, 1), (1.4, 48_000, 2)]
        rows = [
            {"bytes": sound(s, 300 * (1 + i % 2), r, c, seed=i), "path": f"{split}{i}.wav"}
            for i in range(number)
            for s, r, c in [kinds[i % 4]]
        ]
        columns = {name: [i % n for i in range(number)] for name, n in labels.items()}
        table = pyarrow.table({"audio": rows, **columns})
        pyarrow.parquet.write_table(table, folder / f"{split}-00000-of-00001.parquet")
    return str(folder)
