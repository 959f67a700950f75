"""Images are restored as in evaluation, at any size, and nothing that is there is replaced."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from PIL import Image

from diffstride.lab.cli import main
from diffstride.lab.inference import predict
from diffstride.lab.inference.trained_model import open_model
from diffstride.lab.runs.run_folder import Run
from diffstride.lab.training.trained_run import load_model
from tests.lab.inference.tiny_onnx import tiny_onnx
from tests.lab.training.generated_data import image_pack

pytestmark = pytest.mark.slow

TINY = "--model.width 0.03 --data.limit 24 --data.batch_size 8 --data.patch 16 --trainer.epochs 1"
SIZES = [(16, 16), (1, 1), (2, 5), (7, 13), (33, 20)]


@pytest.fixture(autouse=True)
def _there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    assert main(["train", "denoise", *TINY.split(), "--out", str(folder), "--name", "a"]) == 0
    return str(folder / "a")


@pytest.fixture
def pictures():
    """Grey images of several sizes, by their path."""
    generator, folder = np.random.default_rng(0), Path("in")
    folder.mkdir()
    arrays = {}
    for size in SIZES:
        path = folder / f"{size[0]}x{size[1]}.png"
        arrays[str(path)] = generator.integers(0, 256, size, dtype=np.uint8)
        Image.fromarray(arrays[str(path)]).save(path)
    return arrays


def expected(folder, values):
    """What the network of a run leaves of bytes (height, width) or (height, width, colours)."""
    facts, model = Run.open(folder).data, load_model(Run.open(folder))
    mean, std = (torch.tensor(facts[name]).reshape(-1, 1, 1) for name in ("mean", "std"))
    pixels = torch.from_numpy(values.reshape(*values.shape[:2], -1)).permute(2, 0, 1) / 255
    inputs = (pixels - mean) / std
    with torch.inference_mode():
        restored = (inputs - model(inputs[None])[0]) * std + mean
    return (255 * restored.clamp(0, 1)).round().permute(1, 2, 0).numpy().reshape(values.shape)


def near(path, values):
    """Whether a picture has these values, but for rounding."""
    found = np.array(Image.open(path)).astype(float)
    return found.shape == values.shape and np.abs(found - values).max() <= 1


def test_images_of_any_size_are_restored_by_run_and_by_what_is_exported(run, pictures, capsys):
    assert main(["predict", run, *pictures, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    places = [{"file": name, "restored": f"restored/{Path(name).name}"} for name in pictures]
    assert found == places
    for name, values in pictures.items():
        assert near(f"restored/{Path(name).name}", expected(run, values)), name

    assert main(["export", run, "-o", "shared"]) == 0
    assert main(["predict", "shared", *pictures, "--out", "again"]) == 0
    for name in pictures:
        same = [Path(folder, Path(name).name).read_bytes() for folder in ("restored", "again")]
        assert same[0] == same[1]

    assert main(["export", run, "-o", "a.onnx"]) == 0
    props = {p.key: json.loads(p.value) for p in onnx.load("a.onnx").metadata_props}
    facts = Run.open(run).data
    assert props["classes"] == []
    assert props["preprocessing"] == {
        "kind": "images",
        "size": [1, 16, 16],
        "mean": facts["mean"],
        "std": facts["std"],
        "resize": None,
        "noise": 0.2,
        "restored": "(input - output) * std + mean",
    }
    capsys.readouterr()
    assert main(["predict", "a.onnx", *pictures, "--out", "third", "--json"]) == 1
    out, err = capsys.readouterr()
    assert [line["file"] for line in json.loads(out)] == ["in/16x16.png"]
    assert near("third/16x16.png", expected(run, pictures["in/16x16.png"]))
    assert "diffstride: in/7x13.png is 7×13, and a.onnx takes images of 16×16 alone: a run " in err
    assert len(err.splitlines()) == len(SIZES) - 1


def test_what_is_there_is_not_replaced(run, pictures, capsys):
    name = "in/7x13.png"
    assert main(["predict", run, name, "--csv"]) == 0
    found = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert found == [["file", "restored"], [name, "restored/7x13.png"]]
    Path("restored/7x13.png").write_bytes(b"mine")
    assert main(["predict", run, name, "in/2x5.png"]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines() == ["file        restored", "in/2x5.png  restored/2x5.png"]
    assert (
        err == "diffstride: restored/7x13.png is there already: remove it, or give another --out\n"
    )
    assert Path("restored/7x13.png").read_bytes() == b"mine"


def test_a_folder_is_restored_as_it_lies(run, pictures, capsys):
    Path("in/deep").mkdir()
    Image.new("L", (8, 9), 100).save("in/deep/a.jpg")
    Image.new("L", (8, 9), 200).save("in/deep/a.bmp")
    Path("in/wrong.png").write_text("no picture")
    assert main(["predict", run, "in", "--out", "out"]) == 1
    found = {str(path.relative_to("out")) for path in Path("out").rglob("*.*")}
    assert found == {*(Path(name).name for name in pictures), "deep/a.png"}
    with Image.open("out/deep/a.png") as image:
        assert image.size == (8, 9)
    err = capsys.readouterr().err
    assert "in/deep/a.jpg would be out/deep/a.png as well: restore it with another --out" in err
    assert "in/wrong.png can't be read as an image" in err
    assert main(["predict", run, "nowhere.png", "out"]) == 1
    assert "nowhere.png does not exist" in capsys.readouterr().err


def test_colours_are_kept_or_made_as_the_network_has_them(run, tmp_path):
    pack = image_pack(tmp_path / "pack", size=16)
    words = [*TINY.split(), "--data.path", pack, "--name", "colour"]
    assert main(["train", "denoise", *words]) == 0
    colours = np.random.default_rng(1).integers(0, 256, (9, 6, 3), dtype=np.uint8)
    Image.fromarray(colours).save("c.png")
    Image.fromarray(colours[..., 0]).save("g.png")
    assert main(["predict", "runs/colour", "c.png", "g.png"]) == 0
    assert near("restored/c.png", expected("runs/colour", colours))
    grey = np.repeat(colours[..., :1], 3, 2)
    assert near("restored/g.png", expected("runs/colour", grey))
    assert main(["predict", run, "c.png", "--out", "grey"]) == 0
    assert np.array(Image.open("grey/c.png")).shape == (9, 6)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--top", "2"], "--top is for networks that classify, and {} restores images of any size"),
        (["--resize"], "--resize is for networks that classify, and {} restores images"),
    ],
)
def test_options_of_classes_are_refused(run, words, message, capsys):
    assert main(["predict", run, "a.png", *words]) == 1
    assert message.format(run) in capsys.readouterr().err
    with pytest.raises(ValueError, match="restores images, and has no classes for them"):
        predict.predict_files(run, ["a.png"])


def test_what_classifies_does_not_write_images(capsys):
    tiny_onnx("a.onnx")
    assert main(["predict", "a.onnx", "a.png", "--out", "b"]) == 1
    assert "--out is for networks that restore images, and a.onnx classifies" in (
        capsys.readouterr().err
    )
    told = {"kind": "images", "size": [1, 2, 3], "mean": [0.5], "std": [0.5], "noise": 3}
    with pytest.raises(ValueError, match="does not say its classes and how files are prepared"):
        open_model(tiny_onnx("b.onnx", preprocessing=told))
