"""How long a sweep takes is told from a step of each of its networks, without its data."""

import json
from pathlib import Path

import pytest
import torch

from diffstride.lab.cli import main
from diffstride.lab.runs.config_file import write_config
from diffstride.lab.sweeps import forecast, step_cost, sweep

GRID = """
recipe = "digits"
seeds = [0, 1]
[settings]
"model.width" = 0.0625
"trainer.epochs" = 3
"data.batch_size" = 50
[grid]
"model.downsampling" = ["strided", "diffstride"]
"model.strides" = [[2, 2, 2], [3, 2, 3]]
"""


@pytest.fixture(autouse=True)
def _there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(forecast, "_has_gpu", lambda: False)
    monkeypatch.setattr(forecast, "usable_cores", lambda: 4)


@pytest.fixture
def timed(monkeypatch):
    """The networks that were timed: each takes 100 seconds a step."""
    found = []

    def step_seconds(config, facts):
        found.append((config, facts))
        return 100.0

    monkeypatch.setattr(step_cost, "step_seconds", step_seconds)
    return found


def last_line(grid, *words, out="out"):
    Path("grid.toml").write_text(grid)
    told = sweep.plan_sweep("grid.toml", "small", None, words)
    return list(forecast.dry_run(told, out))[-1]


def test_every_network_is_timed_once_and_all_steps_are_counted(timed):
    # 1347 digits are 26 batches of 50 in each of 3 epochs of 8 runs; 100 seconds each.
    line = last_line(GRID)
    hours = 26 * 3 * 8 * 100 / 3600
    assert line == (
        f"on this machine: about {int(hours)} h {round(hours % 1 * 60)} min of one core, "
        f"4 h 20 min on its 4 cores (4 of 4 networks timed with random inputs; "
        "testing comes on top)"
    )
    assert [facts["size"] for _, facts in timed] == [(1, 32, 32)] * 4
    assert len({config.model for config, _ in timed}) == 4


def test_networks_that_take_noise_away_are_timed_on_patches(timed):
    grid = GRID.replace('"digits"', '"denoise"').replace("[grid]", '"data.patch" = 16\n[grid]')
    assert "4 of 4 networks timed" in last_line(grid)
    assert [facts["size"] for _, facts in timed] == [(1, 16, 16)] * 4
    timed.clear()
    named = grid.replace("[grid]", '"data.path" = "a/b"\n"data.limit" = 100\n[grid]')
    assert "4 of 4 networks timed" in last_line(named)
    assert [facts["size"] for _, facts in timed] == [(3, 16, 16)] * 4


def test_what_is_done_is_not_counted_again(timed):
    Path("grid.toml").write_text(GRID)
    runs = sweep.plan_sweep("grid.toml", "small", None, []).runs
    for run in runs[1:]:
        folder = Path("out", run.name)
        folder.mkdir(parents=True)
        write_config(folder / "config.yaml", run.config)
        (folder / "metrics.csv").write_text(
            "epoch,test_accuracy\n" + "".join(f"{e},0.5\n" for e in (1, 2, 3))
        )
    assert "about 2 h 10 min of one core" in last_line(GRID)  # 26 · 3 · 100 s
    assert len(timed) == 1


def test_the_number_of_steps_follows_from_what_limits_it(timed):
    few = GRID.replace('"trainer.epochs" = 3', '"trainer.epochs" = 1\n"data.limit" = 100')
    assert "about 27 min of one core" in last_line(few)  # 2 · 8 · 100 s


OWN = """
seeds = [0]
recipe = "cifar10"
[settings]
"data.path" = "./pictures"
"data.batch_size" = 100
"trainer.epochs" = 1
[grid]
"model.downsampling" = ["strided"]
"""


def test_data_of_which_nothing_is_known_are_asked_for(timed, capsys):
    line = last_line(OWN)
    assert line == (
        "on this machine: how long strided-s0 takes can't be told without reading its data: give "
        "the size of one with --size, such as --size 3 32 32, and their number with --examples N"
    )
    words = ["sweep", "grid.toml", "--dry_run", "--size", "1", "28", "28"]
    assert main(words) == 0
    assert (
        capsys.readouterr()
        .out.splitlines()[-1]
        .endswith(
            "strided-s0 takes depends on how many examples there are: say so with --examples N"
        )
    )
    assert timed == []
    assert main([*words, "--examples", "3600"]) == 0
    assert "about 1 h 0 min of one core" in capsys.readouterr().out
    assert [facts["size"] for _, facts in timed] == [(1, 28, 28)]
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--size", "3"], "--size must be channels and 1 to 3 sizes, such as 3 32 32, got 3"),
        (["--size", "3", "0", "4"], "--size must be channels and 1 to 3 sizes"),
        (["--examples", "0"], "--examples must be at least 1, got 0"),
    ],
)
def test_what_no_data_can_have_is_refused(words, message, timed, capsys):
    Path("grid.toml").write_text(OWN)
    assert main(["sweep", "grid.toml", "--dry_run", *words]) == 1
    assert message in capsys.readouterr().err
    assert timed == []


def test_what_a_run_has_written_down_is_known(timed):
    Path("grid.toml").write_text(OWN + '"model.width" = [0.5, 1]\n')
    told = sweep.plan_sweep("grid.toml", "small", None, [])
    folder = Path("out", told.runs[0].name)
    folder.mkdir(parents=True)
    facts = {"size": [1, 24, 20], "classes": ["a", "b"], "train": 720}
    (folder / "data.json").write_text(json.dumps(facts))
    line = list(forecast.dry_run(told, "out"))[-1]
    assert "about 23 min of one core" in line  # 2 · 7 · 100 s
    assert [facts["size"] for _, facts in timed] == [(1, 24, 20)] * 2


@pytest.mark.parametrize(
    ("settings", "size", "examples"),
    [
        ('recipe = "cifar10"', (3, 32, 32), 50_000),
        ('recipe = "cifar100"', (3, 32, 32), 50_000),
        ('recipe = "imagenet"', (3, 224, 224), 1_281_167),
        ('recipe = "cifar10"\n[settings]\n"data.limit" = 70', (3, 32, 32), 70),
        ('recipe = "cifar10"\n[settings]\n"data.image_size" = 48', (3, 48, 48), 50_000),
        ('recipe = "audio"\n[settings]\n"data.path" = "x"', (1, 100, 64), None),
        ('[settings]\n"data.path" = "x"\n"data.image_size" = 40', (3, 40, 40), None),
    ],
)
def test_data_are_known_by_their_name(settings, size, examples):
    Path("grid.toml").write_text(settings)
    told = sweep.plan_sweep("grid.toml", "small", None, [])
    found = forecast.known_data(told.runs[0], told, Path("out"))
    assert (found.size, found.examples) == (size, examples)


def test_tables_of_the_paper_are_timed_too(timed, capsys):
    words = ["--data.task", "birds=/nowhere", "--data.task", "pitch=/nowhere"]
    told = sweep.plan_sweep("audio", "small", 1, words)
    line = list(forecast.dry_run(told, "out"))[-1]
    # 40 steps in each of 5 epochs of 12 runs.
    assert "about 3 days of one core" in line
    assert [sorted(facts["classes"]) for _, facts in timed][-1] == ["birds", "pitch"]


def test_when_time_is_up_the_rest_is_told_by_multiply_accumulates(timed, monkeypatch):
    monkeypatch.setattr(forecast, "LONGEST", -1.0)
    monkeypatch.setattr(step_cost, "example_macs", lambda config, facts: 5)
    line = last_line(GRID)
    assert len(timed) == 1
    assert "(1 of 4 networks timed" in line
    assert "about 17 h 20 min" in line  # all have as many, and so take as long


def test_with_a_gpu_nothing_is_timed(timed, monkeypatch):
    monkeypatch.setattr(forecast, "_has_gpu", lambda: True)
    assert last_line(GRID) == "8 runs"
    assert timed == []


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--macs_budget", "1.6", "--spend"],
        ["--model.downsampling", "strided", "--optim.name", "sgd"],
    ],
)
def test_a_step_is_timed_and_leaves_everything_as_it_was(words):
    from diffstride.lab.training import recipes

    small = ["--model.width", "0.0625", "--data.batch_size", "4"]
    config = recipes.override(recipes.RECIPES["digits"].config, [*small, *words], "train")
    threads, before = torch.get_num_threads(), torch.get_rng_state()
    assert step_cost.step_seconds(config, {"size": (1, 32, 32), "classes": range(10)}) > 0
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), before)


def test_a_few_examples_stand_for_a_batch_of_a_large_network(monkeypatch):
    from diffstride.lab.runs.config import Config
    from diffstride.lab.sweeps.plan import with_model

    batches = []
    step = step_cost._step

    def counted(model, x, training):
        batches.append(len(x))
        step(model, x, training)

    monkeypatch.setattr(step_cost, "_step", counted)
    config = with_model(Config(), name="audio_cnn", width=0.0625)
    facts = {"size": (1, 100, 64), "classes": {"a": range(3), "b": range(2)}}
    monkeypatch.setattr(step_cost, "MACS_AT_ONCE", 1)
    assert step_cost.step_seconds(config, facts) > 0
    assert set(batches) == {2}
