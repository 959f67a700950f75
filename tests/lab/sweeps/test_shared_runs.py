"""Cells of a grid that come to the same are trained once, and shown wherever they belong."""

import csv
import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from diffstride.lab.cli import main
from diffstride.lab.runs.config import Config
from diffstride.lab.runs.config_file import write_config
from diffstride.lab.sweeps import engines, forecast, starting, sweep
from diffstride.lab.sweeps.plan import effective, with_model
from tests.lab.sweeps.test_sweep import STAND_IN

GRID = """
recipe = "digits"
seeds = [0]
[settings]
"model.width" = 0.0625
"data.limit" = 64
"data.batch_size" = 32
"trainer.epochs" = 2
[grid]
"model.downsampling" = ["strided", "diffstride"]
"model.smoothness" = [1, 2]
"""
STRIDED = ["strided-smoothness1-s0", "strided-smoothness2-s0"]
LEARNED = ["diffstride-smoothness1-s0", "diffstride-smoothness2-s0"]


@pytest.fixture
def calls(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("grid.toml").write_text(GRID)
    Path("stand_in.py").write_text(STAND_IN)
    stand_in_runs = partial(starting.by_itself, command=(sys.executable, "stand_in.py"))
    monkeypatch.setattr(starting, "HERE", stand_in_runs)
    monkeypatch.setattr(engines, "TICK", 0.05)
    path = Path("calls")
    return lambda: sorted(path.read_text().splitlines()) if path.exists() else []


def plan(path="grid.toml", seeds=None):
    return sweep.plan_sweep(path, "small", seeds, [])


def trained(path, config, accuracy=0.5):
    """A run as if it had been trained, by any version."""
    path.mkdir(parents=True)
    write_config(path / "config.yaml", replace(config, name=path.name))
    (path / "metrics.csv").write_text(f"epoch,test_accuracy\n1,0.1\n2,{accuracy}\n")
    (path / "times.csv").write_text("epoch,step,seconds\n1,2,3\n2,4,3\n")


def shown(out):
    rows = csv.DictReader(Path(out, "table.csv").read_text().splitlines())
    return {
        (row["row"], row["column"]): (row["n"], row["mean"])
        for row in rows
        if row["row"] != "Mean accuracy"
    }


BY_GRADIENT = replace(Config().optim, strides_by="gradient")
STRIDED_CONFIG = with_model(Config(), downsampling="strided")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (STRIDED_CONFIG, with_model(STRIDED_CONFIG, convention="tight"), True),
        (STRIDED_CONFIG, with_model(STRIDED_CONFIG, shared_stride=True), True),
        (STRIDED_CONFIG, replace(STRIDED_CONFIG, stride_penalty=0.1), True),
        (STRIDED_CONFIG, replace(STRIDED_CONFIG, optim=BY_GRADIENT), True),
        (Config(), replace(Config(), optim=BY_GRADIENT), False),
        (STRIDED_CONFIG, replace(STRIDED_CONFIG, name="other", out="elsewhere"), True),
        (STRIDED_CONFIG, with_model(STRIDED_CONFIG, placement="before"), False),
        (STRIDED_CONFIG, with_model(STRIDED_CONFIG, strides=(3.0, 2.0, 2.0)), False),
        (STRIDED_CONFIG, replace(STRIDED_CONFIG, seed=1), False),
        (STRIDED_CONFIG, with_model(STRIDED_CONFIG, downsampling="max"), False),
        (Config(), with_model(Config(), convention="tight"), False),
        (Config(), replace(Config(), stride_penalty=0.1), False),
    ],
)
def test_what_makes_no_difference_is_left_aside(one, other, same):
    assert (effective(one) == effective(other)) == same


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["strided", "average", "spectral"])
def test_runs_that_are_taken_for_the_same_learn_the_same(kind, tmp_path, monkeypatch):
    """Number for number: only then may one stand for the other."""
    monkeypatch.chdir(tmp_path)
    words = "--model.width 0.0625 --data.limit 64 --data.batch_size 32 --trainer.epochs 1".split()
    words = ["train", "digits", *words, "--model.downsampling", kind]
    other = "--model.smoothness 3 --model.convention symmetric --model.shared_stride".split()
    other += "--optim.stride_lr 0.7 --stride_penalty 0.5 --optim.momentum 0.1".split()
    assert main([*words, "--name", "a"]) == 0
    assert main([*words, *other, "--name", "b"]) == 0
    assert Path("runs/a/metrics.csv").read_bytes() == Path("runs/b/metrics.csv").read_bytes()


def test_they_are_trained_once_and_shown_in_all_their_places(calls, capsys):
    assert main(["sweep", "grid.toml", "--out", "out"]) == 0
    assert calls() == [f"train {name}" for name in sorted([STRIDED[0], *LEARNED])]
    assert not Path("out", STRIDED[1]).exists()
    out = capsys.readouterr().out
    assert "0 of 3 runs are finished" in out
    assert len(shown("out")) == 4
    assert set(shown("out").values()) == {("1", "75.0")}
    entries = json.loads(Path("out/sweep.json").read_text())["runs"]
    assert [(entry["name"], entry["row"]) for entry in entries] == [
        (STRIDED[0], "smoothness 1"),
        (STRIDED[0], "smoothness 2"),
        (LEARNED[0], "smoothness 1"),
        (LEARNED[1], "smoothness 2"),
    ]
    assert main(["sweep", "grid.toml", "--out", "out"]) == 0
    assert len(calls()) == 3
    assert main(["report", "out"]) == 0
    assert main(["sweep", "grid.toml", "--out", "out", "--seeds", "2"]) == 0
    assert len(calls()) == 6
    assert set(shown("out").values()) == {("2", "75.0")}


def test_variants_that_come_to_the_same_are_one_run(calls):
    variants = (
        '[[variants]]\ntitle = "as it is"\n[[variants]]\ntitle = "narrow"\n"model.width" = 0.0625'
    )
    Path("own.toml").write_text(GRID.partition("[grid]")[0] + variants)
    assert main(["sweep", "own.toml", "--out", "out"]) == 0
    assert calls() == ["train diffstride-as_it_is-s0"]
    assert set(shown("out")) == {("as it is", "diffstride"), ("narrow", "diffstride")}


def old_sweep(out, names):
    """As an earlier version left it: each place has a run of its own, of which these are done."""
    told = plan()
    Path(out).mkdir()
    content = told.document(told.runs)
    Path(out, "sweep.json").write_text(json.dumps(content, ensure_ascii=False))
    for i, run in enumerate(told.runs):
        if run.name in names:
            trained(Path(out, run.name), run.config, accuracy=0.5 + i / 100)


def test_a_sweep_of_an_earlier_version_that_is_finished_stays_as_it_is(calls):
    old_sweep("out", [*STRIDED, *LEARNED])
    before = Path("out/sweep.json").read_bytes()
    assert main(["sweep", "grid.toml", "--out", "out"]) == 0
    assert calls() == []
    assert Path("out/sweep.json").read_bytes() == before
    assert shown("out")["smoothness 1", "strided"] == ("1", "50.0")
    assert shown("out")["smoothness 2", "strided"] == ("1", "51.0")


@pytest.mark.parametrize("there", STRIDED)
def test_a_sweep_of_an_earlier_version_goes_on_with_what_it_has(there, calls):
    old_sweep("out", [there, LEARNED[0]])
    assert main(["sweep", "grid.toml", "--out", "out"]) == 0
    assert calls() == [f"train {LEARNED[1]}"]
    figures = shown("out")
    expected = {STRIDED[0]: "50.0", STRIDED[1]: "51.0"}[there]
    assert {figures[row, "strided"] for row in ("smoothness 1", "smoothness 2")} == {
        ("1", expected)
    }


def test_a_run_that_has_begun_is_continued_and_not_shared(calls):
    old_sweep("out", STRIDED)
    Path("out", STRIDED[1], "metrics.csv").write_text("epoch,test_accuracy\n1,0.1\n")
    assert main(["sweep", "grid.toml", "--out", "out"]) == 0
    assert f"resume {STRIDED[1]}" in calls()


def test_a_dry_run_says_how_many_are_shared(calls, monkeypatch, capsys):
    monkeypatch.setattr(forecast, "_has_gpu", lambda: True)  # nothing is timed
    assert main(["sweep", "grid.toml", "--dry_run", "--seeds", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == f"{STRIDED[1]}  the same as {STRIDED[0]}"
    assert lines[-1] == "8 runs; 2 of them are the same as others, and trained once"
    assert calls() == []
