"""Runs that are judged on a part of their training set, from the command to the report."""

import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from diffstride.lab.cli import main
from diffstride.lab.runs.run_folder import Run
from tests.lab.training.generated_data import TINY_AUDIO, audio_pack, image_pack, rows

pytestmark = pytest.mark.slow

TINY = "--model.width 0.0625 --data.batch_size 32 --trainer.epochs 1".split()


@pytest.fixture(autouse=True)
def _there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))


def test_the_test_set_changes_nothing(tmp_path, capsys):
    pack = image_pack(tmp_path / "pack", size=16)
    held = ["--data.path", pack, "--data.held_out", "0.25", *TINY]
    assert main(["train", "cifar10", *held, "--name", "a"]) == 0
    out = capsys.readouterr().out
    assert "accuracy on the held-out part of the training set" in out
    assert "test accuracy" not in out
    run = Run.open("runs/a")
    assert (run.data["train"], run.data["test"]) == (18, 6)
    (Path(pack) / "test-00000-of-00001.parquet").unlink()
    assert main(["train", "cifar10", *held, "--name", "b"]) == 0
    assert rows("runs/a/metrics.csv") == rows("runs/b/metrics.csv")
    page = (run.folder / "report.html").read_text()
    assert "Held-out accuracy" in page
    assert "held-out examples" in page


def test_a_run_is_evaluated_on_what_it_held_out(tmp_path, capsys):
    pack = image_pack(tmp_path / "pack", size=16)
    words = ["--data.path", pack, "--data.held_out", "0.25", *TINY, "--name", "a"]
    assert main(["train", "cifar10", *words]) == 0
    capsys.readouterr()
    assert main(["evaluate", "runs/a", "--json"]) == 0
    found = capsys.readouterr()
    last = float(rows("runs/a/metrics.csv")[-1]["test_accuracy"])
    assert json.loads(found.out)["test_accuracy"] == pytest.approx(last)
    said = "runs/a is judged on the held-out part of the training set (--data.held_out 0.25)"
    assert said in found.err
    # The data by their path: their own test set, here one without the third class.
    table = pyarrow.parquet.read_table(f"{pack}/test-00000-of-00001.parquet").slice(0, 2)
    pyarrow.parquet.write_table(table, f"{pack}/test-00000-of-00001.parquet")
    assert main(["evaluate", "runs/a", "--data.path", pack, "--json"]) == 0
    found = capsys.readouterr()
    assert json.loads(found.out)["test_accuracy"] in (0, 0.5, 1)  # of two images
    assert "held" not in found.err
    assert main(["resume", "runs/a"]) == 0
    assert "was trained on other data" not in capsys.readouterr().err
    settings = Path("runs/a/config.yaml")
    settings.write_text(settings.read_text().replace("held_out: 0.25", "held_out: 0.5"))
    assert main(["resume", "runs/a"]) == 1
    assert "was trained on other data: train was 18 and is 12 now" in capsys.readouterr().err


def test_resolution_says_what_it_was_measured_on(capsys):
    words = ["--data.held_out", "0.2", "--data.limit", "64", *TINY, "--name", "a"]
    assert main(["train", "digits", *words]) == 0
    assert (Run.open("runs/a").data["train"], Run.open("runs/a").data["test"]) == (64, 64)
    assert main(["resolution", "runs/a", "--steps", "2"]) == 0
    assert "is judged on the held-out part" in capsys.readouterr().err
    (data,) = {row["data"] for row in rows("runs/a/resolution.csv")}
    assert data == "the held-out part of the training set"
    assert f"Measured on {data}" in Path("runs/a/report.html").read_text()


def test_tasks_of_the_same_recordings(tmp_path):
    path = audio_pack(tmp_path / "pack", family=2, pitch=3)
    tasks = ["--data.task", f"family={path}:family", "--data.task", f"pitch={path}:pitch"]
    words = [*tasks, *TINY_AUDIO, "--data.held_out", "0.3", "--trainer.epochs", "1", "--name", "a"]
    assert main(["train", "audio_multitask", *words]) == 0
    data = Run.open("runs/a").data
    assert data["train"]["family"] == data["train"]["pitch"]
    assert {name: data["train"][name] + data["test"][name] for name in data["test"]} == {
        "family": 12,
        "pitch": 12,
    }
    # Recordings that are held out of one task are those of the other: decoded once.
    assert len(list(Path("cache").glob("*-held-out-*.samples"))) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--data.held_out 0", "--data.held_out must be above 0, got 0.0"),
        ("--data.held_out 1", "--data.held_out must be below 1: something must be trained on"),
        ("--data.held_out 1.5", "--data.held_out must be at most 1, got 1.5"),
        ("--data.held_out nan", "--data.held_out must be a finite number, got nan"),
        ("--data.group who", "--data.group is what --data.test_fraction or --data.held_out keeps"),
        ("--data.group who --data.held_out 0.2", "--data.group is for data of --data.path"),
        ("--data.test_fraction 0.2", "--data.test_fraction is for data of --data.path: the digits"),
    ],
)
def test_parts_that_make_no_sense_are_refused(words, message, capsys):
    assert main(["train", "digits", *words.split()]) == 1
    assert message in capsys.readouterr().err
    assert not Path("runs").exists()
