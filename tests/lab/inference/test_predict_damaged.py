"""Files that are damaged, or would fill memory, are named; the others are classified."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from diffstride import models
from diffstride.lab.data.labelled_files import DataError
from diffstride.lab.inference import predict
from diffstride.lab.inference import trained_model as preparation
from diffstride.lab.runs.data_config import DataConfig
from tests.lab.data.example_files import (
    blank_picture,
    encode_picture,
    encode_sound,
    exif,
    tone,
    wav,
)
from tests.lab.inference.tiny_onnx import tiny_onnx


@pytest.fixture(autouse=True)
def _there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_images():
    tiny_onnx("tiny.onnx")
    Path("dark.png").write_bytes(encode_picture(Image.new("L", (3, 2))))
    Path("line.png").write_bytes(blank_picture(60_000_000, 1))
    with Path("long.png").open("wb") as file:
        file.truncate(2**32 + 1)  # of which there is nothing on the disk
    # To be turned, and nothing but white, though what can't be seen is black.
    clear = Image.new("LA", (2, 3), (0, 0))
    Path("clear.png").write_bytes(encode_picture(clear, exif=exif(6)))
    files = ["line.png", "long.png", "/dev/zero", "dark.png", "clear.png"]
    found, errors = predict.predict_files("tiny.onnx", files)
    expected = [("dark.png", "cat"), ("clear.png", "dog")]
    assert [(p.file, p.classes[0][0]) for p in found] == expected
    line, long, device = errors
    assert "line.png can't be read as an image (it has 1×60,000,000 pixels, and 65,535 al" in line
    assert long == "long.png has 4,294,967,297 bytes, and 4,294,967,296 is the most"
    assert device == "/dev/zero is no file"


def test_an_image_that_is_too_narrow_to_be_scaled():
    facts = {"size": [1, 200, 300], "classes": ["a", "b"], "mean": [0.0], "std": [1.0]}
    told = preparation.read(preparation.describe(DataConfig(), facts), "here")
    message = r"narrow\.png has 1×60,000 pixels, and would have 200×12,000,000 to cover 200×300"
    with pytest.raises(DataError, match=message):
        told.pixels("narrow.png", blank_picture(60_000, 1), resize=True)


def test_recordings():
    facts = {"size": [1, 100, 64], "classes": ["a", "b"], "mean": [0.0], "std": [1.0]}
    network = models.create("audio_cnn", num_classes=2, in_channels=1, width=0.02)
    models.save_pretrained(network, "model", preparation.describe(DataConfig(kind="audio"), facts))
    whole = encode_sound(tone(1.5))
    pcm = np.zeros(1000, "<i2").tobytes()
    for name, data in {
        "whole.wav": whole,
        "cut.wav": whole[:-1000],
        "slow.wav": wav(pcm, rate=1),
        "wide.wav": wav(pcm, channels=65_535),
        "piped.wav": wav(pcm, size=0xFFFF_FFFF, riff=0xFFFF_FFFF),
    }.items():
        Path(name).write_bytes(data)
    found, errors = predict.predict_files("model", sorted(Path().glob("*.wav")))
    assert [p.file for p in found] == ["piped.wav", "whole.wav"]
    cut, slow, wide = errors
    assert "cut.wav can't be read as audio (it was cut off: its header says 48,000 bytes" in cut
    assert "slow.wav can't be read as audio (it has 1 samples a second, and must have" in slow
    assert "wide.wav can't be read as audio (it has 65,535 channels, and must have" in wide


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("size", [float("inf"), 2, 3]),
        ("size", [float("nan"), 2, 3]),
        ("size", [1, 0, 3]),
        ("size", [1, -2, 3]),
        ("size", [2, 2, 3]),
        ("size", [1, 10**6, 10**6]),
        ("mean", [float("nan")]),
        ("mean", [0.5, 0.5]),
        ("std", [0.0]),
        ("std", [float("inf")]),
        ("std", []),
        ("resize", {"margin": float("nan")}),
        ("resize", {"margin": 1e9}),
    ],
)
def test_numbers_that_no_input_can_be_made_with_are_refused(name, value):
    told = {"kind": "images", "size": [1, 2, 3], "mean": [0.5], "std": [0.5], "resize": None}
    text = json.dumps({"classes": ["cat", "dog"], "preprocessing": told | {name: value}})
    with pytest.raises(ValueError, match="model does not say its classes and how files are prep"):
        preparation.read(json.loads(text), "model")


def test_signals_may_have_any_number_of_channels():
    """One of the sets of the UEA archive has 1,345."""
    told = {"kind": "signals", "size": [1345, 270], "mean": [0.5], "std": [0.5], "rate": None}
    metadata = {"classes": ["cat", "dog"], "preprocessing": told}
    assert preparation.read(metadata, "model").size == (1345, 270)
    with pytest.raises(ValueError, match=r"model does not say .*size \[0, 270\]"):
        preparation.read({**metadata, "preprocessing": told | {"size": [0, 270]}}, "model")
