"""A table is a list of runs that come to their end once each, whatever happens meanwhile."""

import csv
import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from diffstride.analysis.cost import cost
from diffstride.lab.cli import main
from diffstride.lab.runs import lock, same_settings
from diffstride.lab.runs.config_file import flat, write_config
from diffstride.lab.runs.run_folder import Run
from diffstride.lab.sweeps import engines, forecast, starting, sweep, tables
from diffstride.lab.sweeps.plan import as_words
from diffstride.lab.sweeps.progress import SweepProgress
from diffstride.lab.training import preparation, recipes

pytestmark = pytest.mark.slow

TASKS = [word for name in tables.PAPER["tasks"] for word in ("--data.task", f"{name}=/data/{name}")]
TOY = """
recipe = "digits"
seeds = [0]
[settings]
"model.width" = 0.0625
"data.limit" = 64
"data.batch_size" = 32
"trainer.epochs" = 2
[grid]
"model.downsampling" = ["strided", "diffstride"]
"model.strides" = [[2, 2, 2]]
"""
NAMES = ["strided-2-2-2-s0", "diffstride-2-2-2-s0"]


@pytest.fixture(autouse=True)
def _there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.toml").write_text(TOY)


def plan(table, scale="small", seeds=2, words=()):
    sound = tables.TABLES.get(table, {}).get("kind") in ("audio", "shared_stride")
    return sweep.plan_sweep(table, scale, seeds, [*words, *(TASKS if sound else [])])


# Every table has a row a setting and, besides the paper's methods, one at the first one's cost.
RUNS = {
    "cifar10": 6 * 4,
    "cifar100": 6 * 4,
    "imagenet": 6 * 4,
    "densenet_cifar10": 5 * 4,
    "densenet_cifar100": 5 * 4,
    "efficientnet_cifar10": 4 * 4,
    "efficientnet_cifar100": 4 * 4,
    "audio": (5 + 1) * 4,
    "audio_shared_stride": 2,
    "regularisation": 5 + 6,
    "cost": 0,
}


@pytest.mark.parametrize("table", tables.TABLES)
def test_every_table_is_a_list_of_runs(table):
    told = plan(table)
    assert len(told.runs) == 2 * RUNS[table]
    assert len({run.name for run in told.runs}) == len(told.runs)
    assert {run.row for run in told.runs} <= set(told.rows)
    assert {run.column for run in told.runs} == (set(told.columns) if told.runs else set())
    assert set(told.paper) <= {*told.rows, tables.MEAN}
    for run in told.runs:
        run.config.check()
        assert run.config.seed == run.seed
    figures = [value for row in told.paper.values() for pair in row.values() for value in pair]
    assert figures and {type(value) for value in figures} <= {int, float}
    assert json.loads(json.dumps(told.document(told.runs)))["columns"] == list(told.columns)


def test_what_a_table_takes_is_told_before():
    """By hand: three passes forward for every example that every run sees."""
    told = plan("cifar10", "paper", seeds=2)
    facts = {"classes": range(10), "size": (3, 32, 32)}
    once = sum(
        cost(preparation.build_model(run.config.model, facts), facts["size"]).macs
        for run in told.runs
        if run.seed == 0
    )
    total = 2 * once * 3 * 400 * 50_000
    assert forecast.forecast_line(told) == (
        f"48 runs, {total:.2g} multiply-accumulates in training: about "
        f"{total / 3e12 / 86_400:.0f} days on a GPU that does 3·10¹² a second"
    )
    short = plan("audio")
    assert re.fullmatch(r"48 runs, .* about \d+ min on a GPU .*", forecast.forecast_line(short))
    assert forecast.forecast_line(sweep.plan_sweep("toy.toml", "small", None, [])) == "2 runs"


@pytest.mark.parametrize("table", [name for name in tables.TABLES if name != "cost"])
def test_every_table_can_be_printed_and_shown_before_it_begins(table, tmp_path, capsys):
    """With the paper's figures, which is where one sees what was planned."""
    told = plan(table)
    told = told.document(told.placed())
    (tmp_path / "sweep.json").write_text(json.dumps(told))
    assert main(["table", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert main(["report", str(tmp_path)]) == 0
    page = (tmp_path / "report.html").read_text()
    paper = [pair for row in told["paper"].values() for pair in row.values()]
    digits = 2 if any(round(value, 1) != value for pair in paper for value in pair) else 1
    for pair in paper:
        text = " ± ".join(f"{value:.{digits}f}" for value in pair)
        assert text in out and f"paper {text}" in page


@pytest.mark.parametrize("table", ["cifar10", "densenet_cifar100", "imagenet"])
def test_at_the_scale_of_the_paper_nothing_but_the_table_varies(table):
    told = tables.TABLES[table]
    recipe = flat(recipes.RECIPES[told["recipe"]].config) | told.get("settings", {})
    varied = {"model.downsampling", "model.strides", "seed", "macs_budget", "spend"}
    for run in plan(table, "paper").runs:
        own = {"model.smoothness", "model.convention"} if run.column == "budget" else set()
        assert {k for k, v in flat(run.config).items() if v != recipe[k]} <= varied | own


def test_small_runs_are_named_and_set_as_by_hand():
    runs = {run.name: run for run in plan("cifar10").runs}
    assert list(runs)[:4] == [
        f"{k}-2-2-2-s0" for k in ("strided", "spectral", "diffstride", "budget")
    ]
    assert runs["diffstride-3-1-3-s1"].row == "(3, 1, 3)"
    words = as_words(tables.PAPER["small"]["images"])
    words += "--model.strides 3 2 3 --model.downsampling spectral --seed 1".split()
    by_hand = recipes.override(recipes.RECIPES["cifar10"].config, words, "train")
    assert runs["spectral-3-2-3-s1"].config == by_hand


@pytest.mark.parametrize(
    ("table", "words", "size"),
    [
        ("cifar10", [], (3, 32, 32)),
        ("cifar10", ["--data.image_size", "48"], (3, 48, 48)),
        ("densenet_cifar10", [], (3, 32, 32)),
        ("audio", [], (1, 100, 64)),
    ],
)
def test_the_budget_is_what_the_network_in_the_first_column_costs(table, words, size):
    runs = plan(table, words=words).runs
    first = runs[0]
    budget = next(r for r in runs if (r.row, r.column) == (first.row, "budget"))
    classes = {"scenes": range(10)} if table == "audio" else range(10)
    facts = {"classes": classes, "size": size}
    own = cost(preparation.build_model(first.config.model, facts), size).macs / 1e6
    assert budget.config.macs_budget == pytest.approx(own)
    assert budget.config.model == replace(
        first.config.model, downsampling="diffstride", smoothness=1.0, convention="symmetric"
    )
    assert {r.config.macs_budget for r in runs if "budget" not in r.column} == {None}


def test_the_regulariser_of_fixed_strides_is_that_of_the_library():
    from diffstride import models, stride_penalty

    strides = (3.0, 1.0, 1.5)
    model = models.create("resnet18", num_classes=2, width=0.1, strides=strides)
    assert tables.penalty(strides, 3) == pytest.approx(stride_penalty(model).item())
    axes = (3.0, 2.0, 1.0, 4.0, 1.5, 1.0)
    model = models.create("resnet18", num_classes=2, width=0.1, strides=axes)
    assert tables.penalty(axes, 3) == pytest.approx(stride_penalty(model).item())


GRID = 'recipe = "digits"\n[grid]\n'


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing"], "no table 'nothing': it is a TOML file or one of cifar10"),
        (["missing.toml"], "no table 'missing.toml'"),
        (["cifar10", "--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["cifar10", "--model.strides", "1", "1", "1"], "--model.strides is not for `diffstride"),
        (["cifar10", "--seed", "1"], "--seed is not for"),
        (["regularisation", "--stride_penalty", "1"], "--stride_penalty is not for"),
        (["toy.toml", "--model.downsampling", "max"], "--model.downsampling is not for"),
        (["audio"], "need --data.task NAME=PATH or NAME=PATH:LABEL for each task"),
        (["toy.toml", "--jobs", "0"], "--jobs must be at least 1, got 0"),
        (["toy.toml", "--gpus", "-1"], "--gpus must be at least 0, got -1.0"),
        (["cifar10", "--trainer.epochs", "0"], "--trainer.epochs must be at least 1"),
        (["toy.toml", "--address", "auto"], "--address is for --engine ray"),
        (["toy.toml", "--cores", "2"], "--cores is for --engine ray"),
        (["toy.toml", "--engine", "ray", "--jobs", "2"], "--jobs is for --engine local"),
        (["toy.toml", "--gpus", "2"], "--gpus must be at most 1 with --engine local, got 2"),
        ("recipe = [", "can't be read as TOML"),
        ('recipe = "nothing"', "no recipe 'nothing'"),
        ("colour = 1", "has colour; it may have recipe, title, seeds, settings, grid"),
        (GRID + '"model.width" = 0.5', "model.width must be a list of what to try, got 0.5"),
        (GRID + '"model.strides" = [2, 2, 2]', "model.strides must be a list of lists"),
        (GRID + '"seed" = [5, 6]', "seed is chosen for each run; seeds = [0, 1] is for seeds"),
        ("grid = 3", "[grid] must be a table of options, got 3"),
        ("seeds = 3", "seeds must be one at least, such as [0, 1], got 3"),
        ("seeds = []", "seeds must be one at least"),
        (["toy.toml", "--seeds", "0"], "seeds must be one at least"),
        (["regularisation", "--macs_budget", "5"], "--macs_budget is not for"),
        (GRID + '"data.path" = ["a b", "a/b"]', "would be named diffstride-patha_b-s0"),
        ("variants = 3", "[[variants]] must be tables of options, got 3"),
        ('[[variants]]\n"model.width" = 0.5', "each of [[variants]] must have a title for its row"),
        ('[[variants]]\ntitle = "a"\nseed = 3', "seed is chosen for each run"),
        ('[[variants]]\ntitle = " "', "the title of a variant must not be empty"),
        (
            GRID + '"model.width" = [1]\n[[variants]]\ntitle = "a"\n"model.width" = 2',
            "model.width is in [grid] and in [[variants]]",
        ),
        ('[[variants]]\ntitle = "a"\n[[variants]]\ntitle = "a"', "would be named diffstride-a-s0"),
    ],
)
def test_what_can_not_be_swept_is_said_in_a_line(words, message, tmp_path, capsys):
    if isinstance(words, str):
        (tmp_path / "own.toml").write_text(words)
        words = ["own.toml"]
    assert main(["sweep", *words]) == 1
    assert message in capsys.readouterr().err
    assert not Path("runs").exists()


def test_a_grid_has_methods_for_columns_and_all_else_for_rows(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(TOY + '"model.width" = [0.25, 1]\n"data.flip" = [true, false]')
    told = tables.plan_grid(path, seeds=2)
    assert told.rows[:2] == (
        "(2, 2, 2), width 0.25, flip True",
        "(2, 2, 2), width 0.25, flip False",
    )
    assert list(told.columns) == ["strided", "diffstride"]
    assert told.runs[7].name == "diffstride-2-2-2-width1-flipFalse-s0"
    assert told.runs[7].config.model.width == 1
    assert [run.config.data.flip for run in told.runs[:4]] == [True, False] * 2
    assert [run.seed for run in told.runs] == [0] * 8 + [1] * 8
    assert told.config.trainer.epochs == 2


def test_variants_are_settings_that_go_together(tmp_path):
    path = tmp_path / "own.toml"
    wide, narrow = '"model.width" = 0.5\n"model.placement" = "after"', '"model.width" = 0.25'
    variants = f'[[variants]]\ntitle = "first, wide"\n{wide}\n[[variants]]\ntitle = "b"\n{narrow}'
    path.write_text(f"{TOY}\n{variants}\n")
    told = tables.plan_grid(path, seeds=1)
    assert told.rows == ("first, wide, (2, 2, 2)", "b, (2, 2, 2)")
    assert list(told.columns) == ["strided", "diffstride"]
    assert [run.name for run in told.runs] == [
        "strided-first_wide-2-2-2-s0",
        "diffstride-first_wide-2-2-2-s0",
        "strided-b-2-2-2-s0",
        "diffstride-b-2-2-2-s0",
    ]
    chosen = [(run.config.model.width, run.config.model.placement) for run in told.runs]
    assert chosen == [(0.5, "after")] * 2 + [(0.25, "before")] * 2  # as the recipe has it
    with pytest.raises(ValueError, match=r"--model\.width is not for"):
        tables.plan_grid(path, seeds=1, words=["--model.width", "1"])


def folder(path, config, epochs=None, accuracy=0.5):
    """A run as if it had been trained."""
    path.mkdir(parents=True, exist_ok=True)
    write_config(path / "config.yaml", config)
    lines = [
        f"{i + 1},{accuracy}" for i in range(config.trainer.epochs if epochs is None else epochs)
    ]
    (path / "metrics.csv").write_text("\n".join(["epoch,test_accuracy", *lines]) + "\n")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("data.path", "./pack/../pack", None),
        ("name", "another", None),
        ("data.cache", "elsewhere", None),
        ("macs_budget", 8.0001, None),
        ("macs_budget", 8.1, "run has macs_budget 8.1 and this sweep 8.0"),
        ("data.path", "other", "run has data.path 'other' and this sweep 'pack'"),
        ("trainer.epochs", 7, "has trainer.epochs 7 and this sweep 6"),
        ("model.strides", [3, 2, 2], r"has model.strides \(3.0, 2.0, 2.0\)"),
    ],
)
def test_a_run_of_other_settings_is_named_and_never_touched(name, value, message, tmp_path):
    for pack in ("pack", "other"):
        (tmp_path / pack).mkdir()
    words = ["--data.path", "pack", "--macs_budget", "8"]
    words += as_words(tables.PAPER["small"]["images"])
    wanted = recipes.override(recipes.RECIPES["cifar10"].config, words, "train")
    folder(tmp_path / "run", recipes.override(wanted, as_words({name: value}), "train"))
    if message is None:
        sweep.check_same(tmp_path / "run", wanted)
    else:
        with pytest.raises(ValueError, match=message):
            sweep.check_same(tmp_path / "run", wanted)


def test_the_places_of_tasks_may_be_written_in_other_ways(tmp_path):
    (tmp_path / "notes").mkdir()
    same = ("a=notes:pitch", f"a={tmp_path}/notes:pitch")
    assert same_settings.same_setting("data.task", same[:1], same[1:])
    assert not same_settings.same_setting("data.task", same[:1], ("a=notes:velocity",))
    assert not same_settings.same_setting("data.task", same[:1], ("b=notes:pitch",))


def test_the_folder_of_a_sweep_takes_more_seeds_and_no_other_table(tmp_path):
    def write(told):
        document = sweep.merged(tmp_path, told, told.placed())
        if document is not None:
            (tmp_path / "sweep.json").write_text(json.dumps(document))
        return document

    first = write(plan("regularisation", seeds=1))
    assert first["seeds"] == [0]
    assert write(plan("regularisation", seeds=1)) is None
    more = write(plan("regularisation", seeds=3))
    assert more["seeds"] == [0, 1, 2]
    assert len(more["runs"]) == 3 * RUNS["regularisation"]
    assert write(plan("regularisation", seeds=2)) is None
    with pytest.raises(ValueError, match="has a sweep of table 'regularisation', not 'cost'"):
        write(plan("cost"))
    with pytest.raises(ValueError, match="has a sweep of scale 'small', not 'paper'"):
        write(plan("regularisation", "paper"))


def test_budgets_for_images_of_another_size_are_refused(tmp_path):
    (tmp_path / "data.json").write_text(json.dumps({"size": [1, 28, 28]}))
    sweep.check_size(tmp_path, None)
    sweep.check_size(tmp_path, (1, 28, 28))
    with pytest.raises(ValueError, match=r"for examples of \(3, 32, 32\).* \(1, 28, 28\).*data$"):
        sweep.check_size(tmp_path, (3, 32, 32))
    with pytest.raises(ValueError, match=r"choose other data, or --data.image_size 32$"):
        sweep.check_size(tmp_path, (1, 32, 32))


def test_a_sweep_stops_as_soon_as_it_sees_such_data(tmp_path, stand_in):
    told = replace(sweep.plan_sweep("toy.toml", "small", None, []), size=(1, 32, 32))
    for name in NAMES:
        (tmp_path / "do" / name).write_text(
            "(run / 'data.json').write_text('{\"size\": [1, 28, 28]}'); time.sleep(600)"
        )
    with pytest.raises(ValueError, match="budgets of this table are for"):
        sweep.run_sweep(told, "out", engines.Options())


def test_a_damaged_plan_is_named(tmp_path):
    (tmp_path / "sweep.json").write_text("{")
    with pytest.raises(ValueError, match=r"sweep.json, line 1 is no JSON.*: remove it, and"):
        sweep.merged(tmp_path, plan("cifar10"), plan("cifar10").runs)


@pytest.mark.parametrize("name", ["cost", "imagenet", "audio"])
def test_a_grid_may_have_the_name_of_a_table(name, stand_in, capsys):
    Path(f"{name}.toml").write_text(TOY)
    assert main(["sweep", f"{name}.toml", "--dry_run"]) == 0
    assert capsys.readouterr().out.splitlines()[-2] == "2 runs"
    assert main(["sweep", f"{name}.toml"]) == 0
    assert sorted(stand_in()) == [f"train {run}" for run in sorted(NAMES)]
    assert "75.0" in capsys.readouterr().out


def test_a_file_system_without_locks_is_good_enough(stand_in, monkeypatch):
    def flock(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(lock.fcntl, "flock", flock)
    assert main(["sweep", "toy.toml", "--out", "out"]) == 0
    assert len(stand_in()) == 2


# What stands in for `diffstride` where it does not matter what is learned: an epoch a call at most,
# or whatever the file "do" in its folder says.
STAND_IN = """
import pathlib, shutil, sys, time
command, path, *rest = sys.argv[1:]
path = pathlib.Path(path)
name = rest[1] if rest else path.name
run = path.parents[1] / name if rest else path
with open("calls", "a") as calls:
    print(command, name, file=calls)
run.mkdir(exist_ok=True)
if rest:
    shutil.copy(path, run / "config.yaml")
do = pathlib.Path("do", name)
if do.exists():
    exec(do.read_text())
(run / "metrics.csv").write_text("epoch,test_accuracy\\n1,0.5\\n2,0.75\\n")
(run / "times.csv").write_text("epoch,step,seconds\\n1,2,3\\n2,4,3\\n")
"""


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    (tmp_path / "do").mkdir()
    stand_in_runs = partial(starting.by_itself, command=(sys.executable, "stand_in.py"))
    monkeypatch.setattr(starting, "HERE", stand_in_runs)
    monkeypatch.setattr(engines, "TICK", 0.05)

    def calls():
        return Path("calls").read_text().splitlines() if Path("calls").exists() else []

    return calls


def test_what_fails_is_tried_again_then_told_while_the_others_go_on(tmp_path, stand_in, capsys):
    (tmp_path / "do" / NAMES[0]).write_text("sys.exit('something\\nit broke here')")
    assert main(["sweep", "toy.toml", "--out", "out"]) == 1
    assert sorted(stand_in()) == [
        f"resume {NAMES[0]}",
        f"train {NAMES[1]}",
        f"train {NAMES[0]}",
    ]
    captured = capsys.readouterr()
    assert f"{NAMES[0]} failed: it broke here (out/logs/{NAMES[0]}.log)" in captured.err
    assert f"{NAMES[1]}  75.00 %  (" in captured.out
    assert "1 of 2 runs are finished; missing: strided-2-2-2-s0 (0 of 2 epochs)" in captured.out
    (tmp_path / "do" / NAMES[0]).unlink()
    assert main(["sweep", "toy.toml", "--out", "out"]) == 0
    assert stand_in()[3:] == [f"resume {NAMES[0]}"]
    assert main(["sweep", "toy.toml", "--out", "out"]) == 0
    assert len(stand_in()) == 4


def test_a_run_without_a_word_says_by_which_signal_it_was_killed(tmp_path, stand_in, capsys):
    (tmp_path / "do" / NAMES[0]).write_text("import os; os.kill(os.getpid(), 9)")
    assert main(["sweep", "toy.toml", "--out", "out"]) == 1
    assert f"{NAMES[0]} failed: killed by signal 9" in capsys.readouterr().err


def test_a_run_that_has_its_last_metrics_and_not_their_checkpoint_goes_on(tmp_path, stand_in):
    """It was killed between the two; one whose checkpoints were thrown away is left alone."""
    for run, epochs in zip(plan("toy.toml").runs, ((1,), ()), strict=False):
        folder(tmp_path / "out" / run.name, run.config)
        for epoch in epochs:
            path = Run(tmp_path / "out" / run.name).checkpoints / f"epoch-{epoch:05}.ckpt"
            path.parent.mkdir()
            path.touch()
    assert main(["sweep", "toy.toml", "--out", "out"]) == 0
    assert stand_in() == [f"resume {NAMES[0]}"]


def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)


def test_an_interruption_stops_what_runs_and_says_how_to_go_on(tmp_path, stand_in, capsys):
    pids = tmp_path / "pids"
    wait = f"import os; open({str(pids)!r}, 'a').write(f'{{os.getpid()}}\\n'); time.sleep(600)"
    for name in NAMES:
        (tmp_path / "do" / name).write_text(wait)

    def interrupt():
        until(lambda: pids.exists() and pids.read_text().count("\n") == 2)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=interrupt).start()
    assert main(["sweep", "toy.toml", "--out", "out", "--jobs", "2"]) == 1
    assert "interrupted: the same command goes on where it was" in capsys.readouterr().err
    for pid in pids.read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)
    assert len(stand_in()) == 2  # an interruption is no failure to be tried again


def test_a_run_that_outlived_its_sweep_is_waited_for(tmp_path, stand_in):
    """Whoever trains a run has locked it, and so has a process that lost its parent."""
    run = tmp_path / "out" / NAMES[0]
    code = f"""
import pathlib, time
from diffstride.lab.runs.lock import locked
with locked(pathlib.Path({str(run)!r})):
    print("mine", flush=True)
    time.sleep(1.5)
"""
    orphan = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert orphan.stdout.readline() == "mine\n"
    began = time.monotonic()
    assert main(["sweep", "toy.toml", "--out", "out"]) == 0
    assert time.monotonic() - began > 1
    assert orphan.communicate() == ("", None)
    assert sorted(stand_in()) == [f"train {NAMES[1]}", f"train {NAMES[0]}"]


def test_how_far_a_sweep_is_shows_in_lines_or_in_a_table(tmp_path, monkeypatch, capsys):
    config = plan("toy.toml").runs[0].config
    for name, epochs, accuracy in (("a", 2, 0.25), ("b", 2, 0.75), ("c", 1, 0.4)):
        folder(tmp_path / name, config, epochs, accuracy)
    epochs = dict.fromkeys("abcde", 2)
    progress = SweepProgress(epochs, tmp_path)
    progress.began -= 100
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "c.log").touch()
    with progress.shown():
        progress.ended("d", "no room")
        progress.before["b"] = 0  # two epochs in 100 s, three are to come
    assert capsys.readouterr().out.splitlines() == [
        f"2 of 5 runs are finished, in {tmp_path}",
        "d  failed: no room  (2 of 5 done, 1 running, 1 failed, best b 75.00 %)",
    ]
    assert progress.seconds_left() == pytest.approx(150, abs=5)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "150")
    progress = SweepProgress(epochs, tmp_path)
    progress.began -= 100
    with progress.shown():
        progress.ended("d", "no room")
    out = capsys.readouterr().out
    shown = [line for line in out.splitlines() if "1 of 2" in line or "failed" in line]
    assert any("c" in line and "40.00 %" in line for line in shown)
    assert any("d" in line and "no room" in line for line in shown)
    assert "2 of 5 done, 1 running, 1 failed, best b 75.00 %" in out


def test_a_dry_run_says_what_there_is(capsys):
    folder(Path("runs/toy-own") / NAMES[0], plan("toy.toml").runs[0].config)
    folder(Path("runs/toy-own") / NAMES[1], plan("toy.toml").runs[1].config, epochs=1)
    assert main(["sweep", "toy.toml", "--dry_run", "--seeds", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        f"{NAMES[0]}  finished",
        f"{NAMES[1]}  1 epochs",
        "strided-2-2-2-s1  –",
        "diffstride-2-2-2-s1  –",
        "4 runs",
        lines[-1],
    ]
    assert lines[-1].startswith("on this machine: about 1 min of one core")


def test_costs_are_measured_once(capsys):
    words = ["sweep", "cost", "--data.batch_size", "2", "--model.width", "0.03125"]
    assert main(words) == 0
    path = Path("runs/cost-small/measured.json")
    values = json.loads(path.read_text())["values"]
    assert list(values) == list(tables.COST_ROWS)
    memory = values["Training: peak memory"]
    assert memory["diffstride"] > memory["strided"] > values["Inference: peak memory"]["strided"]
    assert all(time > 0 for time in values["Inference: time per step"].values())
    before = path.read_bytes()
    assert main(words) == 0
    assert path.read_bytes() == before
    assert main([*words, "--model.smoothness", "3"]) == 1
    assert "measured.json was measured with other settings" in capsys.readouterr().err
    assert main(words) == 0
    assert "Training: time per step   1.00" in capsys.readouterr().out


def table(out):
    """The table of a sweep without what depends on the machine."""
    with (Path(out) / "table.csv").open() as file:
        return [{**row, "seconds_per_step": None} for row in csv.DictReader(file)]


def started(out, name):
    return json.loads((Path(out) / name / "environment.json").read_text())["started"]


@pytest.fixture
def by_hand():
    """The runs of the toy grid, trained one by one in this process."""
    for run in plan("toy.toml", seeds=None).runs:
        words = "--model.width 0.0625 --data.limit 64 --data.batch_size 32 --trainer.epochs 2"
        strides = f"--model.strides 2 2 2 --model.downsampling {run.column}"
        names = f"--name {run.name} --out hand"
        assert main(["train", "digits", *words.split(), *strides.split(), *names.split()]) == 0
    times = [started("hand", name) for name in NAMES]
    assert main(["sweep", "toy.toml", "--out", "hand"]) == 0
    assert [started("hand", name) for name in NAMES] == times
    assert all(not math.isnan(float(row["mean"])) for row in table("hand"))
    return table("hand")


def test_a_sweep_that_is_killed_half_way_goes_on_and_repeats_nothing(tmp_path, by_hand):
    command = [sys.executable, "-m", "diffstride", "sweep", "toy.toml", "--out", "out"]
    core = min(os.sched_getaffinity(0))  # one run after the other
    process = subprocess.Popen(
        command,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )
    out = tmp_path / "out"
    until(lambda: (out / NAMES[1] / "config.yaml").exists(), 120)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    first, second = out / NAMES[0], out / NAMES[1]
    assert len(Run.open(first).checkpoint_files()) == 2
    assert Run(second).epochs_done < 2
    times = [started(out, name) for name in NAMES]
    kept = {path: path.stat().st_mtime_ns for path in first.rglob("*") if path.is_file()}
    assert main(["sweep", "toy.toml", "--out", "out", "--jobs", "9"]) == 0
    assert [started(out, name) for name in NAMES] == times
    assert {path: path.stat().st_mtime_ns for path in first.rglob("*") if path.is_file()} == kept
    assert table(out) == by_hand
    for name in NAMES:
        for file in ("metrics.csv", "strides.csv"):
            assert (out / name / file).read_text() == (tmp_path / "hand" / name / file).read_text()


def test_ray_makes_the_same_table_though_a_worker_dies(tmp_path, by_hand):
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    out, killed = tmp_path / "out", []

    def kill():
        until(lambda: (out / NAMES[1] / "config.yaml").exists(), 120)
        log = (out / "logs" / f"{NAMES[1]}.log").read_text()
        killed.append(int(log.partition("from process ")[2].partition(":")[0]))
        os.kill(killed[0], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        assert main(["sweep", "toy.toml", "--out", "out", "--engine", "ray"]) == 0
    finally:
        thread.join()
        ray.shutdown()
    assert killed
    assert killed[0] != os.getpid()
    assert table(out) == by_hand
    for name in NAMES:
        for file in ("metrics.csv", "strides.csv"):
            assert (out / name / file).read_text() == (tmp_path / "hand" / name / file).read_text()


def test_more_than_a_machine_has_is_refused(capsys):
    assert main(["sweep", "toy.toml", "--engine", "ray", "--cores", "4096"]) == 1
    assert "a run wants 4096 CPU, and Ray has" in capsys.readouterr().err
    import ray

    assert not ray.is_initialized()  # what it started, it has stopped


def test_the_page_has_a_command_for_every_table():
    docs = Path(__file__).parents[3] / "docs"
    page = (docs / "paper.md").read_text()
    for scale in ("small", "paper"):
        words = [" --scale paper"] if scale == "paper" else ["`", " TASKS", " --data"]
        for table in tables.TABLES:
            assert any(f"`diffstride sweep {table}{word}" in page for word in words), table
    grid = (docs / "sweeps.md").read_text().partition("```toml\n")[2].partition("```")[0]
    Path("page.toml").write_text(grid)
    assert len(tables.plan_grid(Path("page.toml")).runs) == 2 * 2 * 2
