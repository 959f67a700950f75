"""Whole folders are classified, and what is found can be read by other programs."""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from diffstride import models
from diffstride.lab.cli import main
from diffstride.lab.inference import given_files, predict
from diffstride.lab.inference import trained_model as preparation
from diffstride.lab.inference.readers import READERS, AudioReader, ImageReader
from diffstride.lab.runs.data_config import DataConfig
from tests.lab.data.example_files import encode_picture, encode_sound, tone
from tests.lab.inference.tiny_onnx import tiny_onnx

DARK, BRIGHT = (encode_picture(Image.new("L", (3, 2), level)) for level in (0, 255))


@pytest.fixture(autouse=True)
def _there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny_onnx("tiny.onnx")


def write(**files):
    for name, data in files.items():
        path = Path("pictures", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def folder():
    """Pictures in folders, some of which do not belong there."""
    write(
        **{
            "b.png": BRIGHT,
            "a.PNG": DARK,
            "in a/deep place/c.jpeg": DARK,
            "notes.txt": b"mine",
            ".hidden.png": b"no image",
            ".git/d.png": b"no image",
            "broken.png": b"no image",
            "two\nlines.png": BRIGHT,
            "two\rlines.png": BRIGHT,
            "a, b\"c'.png": DARK,
        }
    )
    return "pictures"


FOUND = [
    "a, b\"c'.png",
    "a.PNG",
    "b.png",
    "in a/deep place/c.jpeg",
    "two\nlines.png",
    "two\rlines.png",
]


def test_a_folder_stands_for_the_files_of_its_kind_in_order(capsys):
    found, errors = predict.predict_files("tiny.onnx", [folder(), "pictures/b.png"])
    assert [p.file for p in found] == [*(f"pictures/{name}" for name in FOUND), "pictures/b.png"]
    assert [p.classes[0][0] for p in found] == ["cat", "cat", "dog", "cat", "dog", "dog", "dog"]
    assert errors == ["pictures/broken.png can't be read as an image (its format is not known)"]


@pytest.mark.parametrize("form", [[], ["--json"], ["--csv"]])
def test_what_is_wrong_is_on_stderr_and_the_exit_code_is_1(form, capsys):
    folder()
    assert main(["predict", "tiny.onnx", "pictures", *form]) == 1
    out, err = capsys.readouterr()
    assert err.startswith("diffstride: pictures/broken.png can't be read as an image")
    assert err.count("\n") == 1
    assert "broken" not in out
    Path("pictures/broken.png").unlink()
    assert main(["predict", "tiny.onnx", "pictures", *form]) == 0
    assert capsys.readouterr() == (out, "")


def test_json_and_csv_say_what_the_table_says(capsys):
    folder()
    Path("pictures/broken.png").unlink()
    words = ["predict", "tiny.onnx", "pictures", "--top", "2"]
    assert main(words) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split() == ["file", "class", "probability", "class", "2", "probability"]
    assert main([*words, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert [entry["file"] for entry in content] == [f"pictures/{name}" for name in FOUND]
    assert all(list(entry) == ["file", "classes"] for entry in content)  # there is one task
    assert main([*words, "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out, newline="")))
    assert list(rows[0]) == ["file", "task", "class", "probability", "class_2", "probability_2"]
    for line, entry, row in zip(lines, content, rows, strict=True):
        first, second = entry["classes"]
        shown = [cell for c in (first, second) for cell in (c["class"], f"{c['probability']:.4f}")]
        name = entry["file"].replace("\n", "\\n").replace("\r", "\\r")
        assert line.startswith(f"{name}  ")
        assert line[len(name) :].split() == shown
        assert first["probability"] + second["probability"] == pytest.approx(1)
        assert row == {
            "file": entry["file"],
            "task": "",
            "class": first["class"],
            "probability": str(first["probability"]),
            "class_2": second["class"],
            "probability_2": str(second["probability"]),
        }


def test_both_forms_at_once_are_refused(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["predict", "tiny.onnx", "pictures", "--json", "--csv"])
    assert stop.value.code == 2
    assert "--csv: not allowed with argument --json" in capsys.readouterr().err


@pytest.mark.parametrize(("form", "empty"), [("--json", "[]"), ("--csv", "file,task,class,proba")])
def test_nothing_that_can_be_read_is_a_document_all_the_same(form, empty, capsys):
    Path("pictures").mkdir()
    Path("pictures/notes.txt").write_text("mine")
    assert main(["predict", "tiny.onnx", "pictures", form]) == 1
    out, err = capsys.readouterr()
    assert out.startswith(empty)
    assert out.count("\n") == 1
    assert "pictures is a folder without images: no file ends with .png" in err


def test_a_folder_without_such_files_does_not_stop_the_others(capsys):
    write(**{"a.png": DARK})
    Path("empty").mkdir()
    Path("sound").mkdir()
    Path("sound/a.wav").write_bytes(encode_sound(tone(0.5)))
    found, errors = predict.predict_files("tiny.onnx", ["empty", "sound", "pictures"])
    assert [p.file for p in found] == ["pictures/a.png"]
    assert [error.partition(" is a folder without images")[0] for error in errors] == [
        "empty",
        "sound",
    ]


def test_a_name_of_no_encoding_is_printed_as_it_is():
    """CSV has the very bytes, so that other programs find the file; JSON has them escaped."""
    name = b"pictures/\xff.png"
    Path("pictures").mkdir()
    Path(os.fsdecode(name)).write_bytes(DARK)
    command = [sys.executable, "-m", "diffstride", "predict", "tiny.onnx", "pictures"]
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}

    def run(*form):
        words = [*command, *form]
        return subprocess.run(words, capture_output=True, check=True, env=environment).stdout

    assert run("--csv").splitlines()[1].startswith(name + b",,cat,0.99")
    assert json.loads(run("--json"))[0]["file"] == os.fsdecode(name)
    assert run().splitlines()[1].startswith(b"pictures/\\udcff.png  cat")


def test_tasks_are_named_and_have_their_own_number_of_classes(capsys):
    facts = {
        "size": [1, 100, 64],
        "classes": {"pitch": ["low", "mid", "high"], "alone": ["no", "yes"]},
        "mean": [0.0],
        "std": [1.0],
    }
    network = models.create(
        "audio_cnn", num_classes={"pitch": 3, "alone": 2}, in_channels=1, width=0.02
    )
    models.save_pretrained(network, "model", preparation.describe(DataConfig(kind="audio"), facts))
    Path("sound").mkdir()
    for i, seconds in enumerate((0.4, 2.5)):
        Path(f"sound/{i}.wav").write_bytes(encode_sound(tone(seconds)))
    Path("sound/picture.png").write_bytes(DARK)
    words = ["predict", "model", "sound", "--top", "3"]
    assert main([*words, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    places = [(f"sound/{i}.wav", task) for i in (0, 1) for task in ("pitch", "alone")]
    assert [(entry["file"], entry["task"]) for entry in content] == places
    assert [len(entry["classes"]) for entry in content] == [3, 2, 3, 2]
    assert main([*words, "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["file"], row["task"]) for row in rows] == places
    assert [row["class_3"] == "" for row in rows] == [False, True] * 2


def test_files_that_are_large_together_are_not_in_memory_together(monkeypatch):
    write(**{f"{i}.png": BRIGHT for i in range(7)})
    monkeypatch.setattr(given_files, "BYTES_AT_ONCE", 3 * len(BRIGHT))
    sizes = []
    scores = ImageReader.scores

    def counted(self, batch):
        sizes.append(len(batch))
        return scores(self, batch)

    monkeypatch.setattr(ImageReader, "scores", counted)
    assert len(predict.predict_files("tiny.onnx", ["pictures"]).predictions) == 7
    assert sizes == [3, 3, 1]
    sizes.clear()
    monkeypatch.setattr(given_files, "BYTES_AT_ONCE", 1)  # one that is too large goes alone
    assert len(predict.predict_files("tiny.onnx", ["pictures"]).predictions) == 7
    assert sizes == [1] * 7


def test_predictions_come_while_later_files_are_not_read_yet(monkeypatch):
    write(**{f"{i}.png": BRIGHT for i in range(4)})
    monkeypatch.setattr(given_files, "BYTES_AT_ONCE", len(BRIGHT))
    errors = []
    lines = predict.as_csv(predict.predict("tiny.onnx", ["pictures"], errors))
    assert next(lines).startswith("file,")
    assert next(lines).startswith("pictures/0.png")
    Path("pictures/3.png").unlink()
    assert len(list(lines)) == 2
    assert errors == ["pictures/3.png does not exist"]


def test_numbers_that_are_none_are_null(capsys):
    nan = float("nan")
    lines = predict.as_json([predict.Prediction("a", "", [("cat", nan)])])
    assert json.loads("\n".join(lines))[0]["classes"] == [{"class": "cat", "probability": None}]


def test_every_kind_has_a_reader_with_the_suffixes_of_its_files():
    assert list(READERS) == ["images", "audio", "signals"]
    for reader in READERS.values():
        assert reader.suffixes
        assert all(suffix == suffix.lower() and suffix[0] == "." for suffix in reader.suffixes)
    assert ".png" in ImageReader.suffixes
    assert ".wav" in AudioReader.suffixes
