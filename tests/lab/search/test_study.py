"""A study trains networks of one cost from several beginnings, and what comes out of them."""

import json
import re
import sys
from pathlib import Path

import pytest

from diffstride import cost
from diffstride.lab.cli import main
from diffstride.lab.runs.run_folder import Run
from diffstride.lab.search import study
from diffstride.lab.search.study import BUILT_IN, Study
from diffstride.lab.sweeps import engines
from diffstride.lab.sweeps.sweep import parser
from diffstride.lab.training.preparation import build_model, prepare
from diffstride.layers.resizer import learned_strides
from tests.lab.sweeps.test_sweep import STAND_IN

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
HEAD = """
recipe = "digits"
title = "A tiny study"
seeds = [0]
random = 2
"""
SETTINGS = """
[settings]
"model.width" = 0.0625
"data.limit" = 64
"data.batch_size" = 16
"trainer.epochs" = 2
"""
BEGINNINGS = """
[beginnings]
"all alike" = [1, 1, 1, 1, 1, 1]
"coarse along height" = [1, 0.25, 1, 0.25, 1, 0.25]
"""
FIRST = [
    "fixed-all_alike-s0",
    "fixed-coarse_along_height-s0",
    "trials-search-s0",
    "held_out-random_1-s0",
    "held_out-random_2-s0",
]
SECOND = [
    "fixed-search-s0",
    "fixed-search_again-s0",
    "fixed-best_of_2_random-s0",
    "gradient-all_alike-s0",
    "gradient-coarse_along_height-s0",
]


@pytest.fixture(autouse=True)
def _there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("tiny.toml").write_text(HEAD + SETTINGS + BEGINNINGS)


@pytest.fixture
def stand_in(monkeypatch):
    """What takes the place of training: it writes metrics. Returns what was called so far."""
    Path("stand_in.py").write_text(STAND_IN)
    Path("do").mkdir()
    monkeypatch.setattr(engines, "COMMAND", (sys.executable, "stand_in.py"))
    monkeypatch.setattr(engines, "TICK", 0.05)

    def load_model(run):
        return build_model(run.config.model, prepare(run.config).facts)

    monkeypatch.setattr(study, "load_model", load_model)

    def calls():
        return Path("calls").read_text().splitlines() if Path("calls").exists() else []

    return calls


def settings_of(run):
    return Run(Path("runs/tiny") / run).config


WRONG = {
    "names": (HEAD + "other = 1" + SETTINGS + BEGINNINGS, r"has other; it may have recipe, title"),
    "recipe": (HEAD.replace("digits", "dogits") + BEGINNINGS, "no recipe 'dogits', nor such a"),
    "recipe of another kind": (HEAD.replace('"digits"', "3") + BEGINNINGS, "recipe must be a text"),
    "settings": ("settings = 3\n" + HEAD + BEGINNINGS, r"\[settings\] must be a table, got 3"),
    "no table": (HEAD + "beginnings = [1, 2]", r"\[beginnings\] must be a table, got \[1, 2\]"),
    "no beginning": (HEAD + "[beginnings]", r"\[beginnings\] must have one at least"),
    "parts": (
        HEAD + SETTINGS + "[beginnings]\na = [1, 1, 1]",
        "'a' must have 6 numbers, one for each site and axis of the network",
    ),
    "one random": (
        HEAD.replace("2", "1") + BEGINNINGS,
        "random must be a whole number, 0 or at least 2",
    ),
    "half": (HEAD.replace("2", "2.5") + BEGINNINGS, r"random must be .* at least 2, got 2\.5"),
    "no seed": (HEAD.replace("[0]", "[]") + BEGINNINGS, r"seeds must be one whole .* got \[\]"),
    "seed below 0": (HEAD.replace("[0]", "[-1]") + BEGINNINGS, "seeds must be one whole number"),
    "seed of words": (HEAD.replace("[0]", '["a"]') + BEGINNINGS, "seeds must be one whole number"),
    "seed twice": (HEAD.replace("[0]", "[1, 1]") + BEGINNINGS, "seeds .* none of them twice"),
    "a seed alone": (HEAD.replace("[0]", "3") + BEGINNINGS, "seeds must be one whole number"),
    "runs": (HEAD.replace("2", "9000") + BEGINNINGS, "would be .* runs, and 5,000 is the most"),
    "budgets": (HEAD + SETTINGS + "ms_budget = 3\n" + BEGINNINGS, "no budget but macs_budget"),
    "penalty": (HEAD + SETTINGS + "stride_penalty = 1\n" + BEGINNINGS, "no budget but macs_budget"),
    **{
        f"beginning {parts}": (
            f"{HEAD}[beginnings]\na = {parts}",
            r"the beginning 'a' must be a list of numbers from 0 on, .* not all of them 0, got",
        )
        for parts in (
            "3",
            "[]",
            "[0, 0, 0, 0, 0, 0]",
            "[1, -1, 1, 1, 1, 1]",
            "[1, nan, 1, 1, 1, 1]",
            "[1, inf, 1, 1, 1, 1]",
            "[1, true, 1, 1, 1, 1]",
            '["1", 1, 1, 1, 1, 1]',
        )
    },
    **{
        f"named {name}": (
            f'{HEAD}[beginnings]\n"a b" = [1, 1, 1, 1, 1, 1]\n"{name}" = [1, 1, 1, 1, 1, 2]',
            rf"'{name}' has the name of another row|'a b' has the name of another row",
        )
        for name in ("search", "search again", "search, another seed", "best of 2 random", "a/b")
    },
}


@pytest.mark.parametrize("name", WRONG)
def test_a_file_that_makes_no_sense_is_refused(name, stand_in, capsys):
    text, message = WRONG[name]
    Path("wrong.toml").write_text(text)
    assert main(["sweep", "wrong.toml"]) == 1
    error = capsys.readouterr().err
    assert re.match(rf"diffstride: wrong\.toml.*({message})", error), error
    assert not Path("runs").exists()
    assert not stand_in()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--seeds 0", "--seeds must be at least 1, got 0"),
        ("--dry_run", "--dry_run is not for a study"),
        ("--seed 3", "--seed is not for `diffstride sweep tiny.toml`, which chooses it"),
        ("--data.held_out 0.5", "--data.held_out is not for `diffstride sweep tiny.toml`"),
        ("--model.strides 2 2 2.5", "--model.strides is not for `diffstride sweep tiny.toml`"),
        ("--macs_budget 0.0001", "a budget of 0.0001 M MACs can't be met"),
        ("--model.size_multiple 2", "--model.size_multiple is for strides that are learned"),
    ],
)
def test_options_that_make_no_sense_are_refused(words, message, stand_in, capsys):
    assert main(["sweep", "tiny.toml", *words.split()]) == 1
    assert message in capsys.readouterr().err
    assert not Path("runs").exists()
    assert not stand_in()


def test_a_file_that_is_no_toml_is_said_to_be_none(capsys):
    Path("broken.toml").write_text("[beginnings\n")
    assert main(["sweep", "broken.toml"]) == 1
    assert "broken.toml can't be read as TOML" in capsys.readouterr().err


def check_costs(made, runs):
    """All networks of runs cost the same."""
    facts = made.network.facts
    for run in runs:
        run.config.check()
        network = build_model(run.config.model, facts)
        macs = cost(network, facts["size"]).macs / 1e6
        assert macs == pytest.approx(made.macs, rel=0.02), run.name
        if run.config.model.downsampling == "diffstride":
            assert (run.config.macs_budget, run.config.spend) == (made.macs, True)


def test_the_first_part_has_runs_of_one_cost():
    made = Study(Path("tiny.toml"), 3, ())
    runs = made.first.runs
    assert [run.name for run in runs if run.seed == 0] == FIRST
    assert len({run.name for run in runs}) == len(runs) == 3 * 5
    check_costs(made, [run for run in runs if run.column != "trials"])
    by_name = {run.name: run.config for run in runs}
    trials = by_name["trials-search-s1"]
    assert (trials.optim.strides_by, trials.data.held_out, trials.seed) == ("trials", 0.25, 1)
    assert (trials.macs_budget, trials.spend) == (made.macs, True)
    held = {run.column: run.config.data.held_out for run in runs}
    assert held == {"fixed": None, "trials": 0.25, "held_out": 0.25}
    of_random = [run.config.model.strides for run in runs if run.column == "held_out"]
    assert len(set(of_random)) == 6  # other ones for each seed
    starts = {run.config.model.strides for run in runs if run.column == "fixed"}
    assert len(starts) == 2  # the same for each seed
    again = Study(Path("tiny.toml"), 3, ())
    assert again.first.runs == runs


def test_a_budget_of_one_s_own_and_settings_of_the_search_itself():
    text = SETTINGS + 'macs_budget = 0.9\nspend = true\n"optim.strides_by" = "trials"\n'
    Path("own.toml").write_text(HEAD + text + '"data.held_out" = 0.5\n' + BEGINNINGS)
    made = Study(Path("own.toml"), None, ())
    assert made.macs == 0.9
    check_costs(made, [run for run in made.first.runs if run.column != "trials"])
    held = {run.column: run.config.data.held_out for run in made.first.runs}
    assert held == {"fixed": None, "trials": 0.5, "held_out": 0.5}


def test_a_network_with_one_stride_for_both_axes():
    text = SETTINGS + '"model.shared_stride" = true\n[beginnings]\na = [1, 1, 1]\nb = [1, 0.5, 0.5]'
    Path("shared.toml").write_text(HEAD + text)
    made = Study(Path("shared.toml"), None, ())
    runs = made.first.runs
    check_costs(made, [run for run in runs if run.column != "trials"])
    trials = next(run.config for run in runs if run.column == "trials")
    network = build_model(trials.model, made.network.facts)
    assert [layer.stride.numel() for layer in learned_strides(network).values()] == [1, 1, 1]


def test_the_second_part_follows_from_the_first(stand_in, capsys):
    Path("do", "held_out-random_2-s0").write_text(
        '(run / "metrics.csv").write_text("epoch,test_accuracy\\n1,0.5\\n2,0.8\\n")\n'
        '(run / "times.csv").write_text("epoch,step,seconds\\n1,2,3\\n2,4,3\\n")\n'
        "sys.exit(0)"
    )
    assert main(["sweep", "tiny.toml", "--jobs", "1"]) == 0
    assert stand_in() == [f"train {name}" for name in (*FIRST, *SECOND)]
    strides = {name: settings_of(name).model.strides for name in (*FIRST, *SECOND)}
    assert strides["fixed-best_of_2_random-s0"] == strides["held_out-random_2-s0"]
    assert strides["fixed-search-s0"] == strides["fixed-search_again-s0"]
    assert [settings_of(name).seed for name in SECOND[:2]] == [0, 100]
    for name in ("all_alike", "coarse_along_height"):
        assert strides[f"gradient-{name}-s0"] == strides[f"fixed-{name}-s0"]
        assert settings_of(f"gradient-{name}-s0").optim.strides_by == "gradient"
    assert {settings_of(name).data.held_out for name in SECOND} == {None}
    made = Study(Path("tiny.toml"), None, ())
    check_costs(made, made.second(Path("runs/tiny")).runs)
    told = json.loads(Path("runs/tiny/sweep.json").read_text())
    assert [run["name"] for run in told["runs"]] == [*FIRST, *SECOND]
    assert set(told["columns"]) == set(study.COLUMNS)
    # The same command again does nothing.
    calls, capsys_out = stand_in(), capsys.readouterr().out
    assert main(["sweep", "tiny.toml", "--jobs", "1"]) == 0
    assert stand_in() == calls
    table = "A tiny study"
    assert table in capsys_out and table in capsys.readouterr().out
    assert main(["sweep", "tiny.toml", "--jobs", "1", "--seeds", "2"]) == 0  # one seed more
    assert len(stand_in()) == 2 * len(calls)


def test_a_run_that_fails_in_the_first_part_stops_before_the_second(stand_in, capsys):
    Path("do", FIRST[0]).write_text("sys.exit('it broke here')")
    assert main(["sweep", "tiny.toml", "--jobs", "1"]) == 1
    assert f"{FIRST[0]} failed: it broke here" in capsys.readouterr().err
    assert {call.split()[1] for call in stand_in()} == set(FIRST)
    Path("do", FIRST[0]).unlink()
    assert main(["sweep", "tiny.toml", "--jobs", "1"]) == 0
    assert {call.split()[1] for call in stand_in()} == {*FIRST, *SECOND}


def test_random_strides_that_come_to_the_same_are_trained_once(stand_in, monkeypatch):
    monkeypatch.setattr(Study, "_random", lambda *_: (2.0, 2.0, 2.0, 2.0, 2.0, 2.0))
    assert main(["sweep", "tiny.toml", "--jobs", "1"]) == 0
    names = [call.split()[1] for call in stand_in()]
    assert "held_out-random_1-s0" in names
    assert "held_out-random_2-s0" not in names


def test_the_built_in_study_is_named_beside_the_tables(capsys):
    with pytest.raises(SystemExit):
        parser().parse_args(["--help"])
    assert re.search(r"^  search +\w", capsys.readouterr().out, re.M)
    assert study.find("search") == BUILT_IN
    assert study.find("cifar10") is None
    made = Study(BUILT_IN, None, ["--data.limit", "64"])
    assert (made.recipe, len(made.beginnings)) == ("digits", 5)
    check_costs(made, [run for run in made.first.runs if run.column != "trials"])
    strides = {run.row: run.config.model.strides for run in made.first.runs}
    for row, fine in (("coarse along height", 1), ("coarse along width", 0)):
        of_row = strides[row]
        assert max(of_row[fine::2]) < min(of_row[1 - fine :: 2])
    early, late = strides["all early"], strides["all late"]
    assert early[0] > 1.5 * early[4] and late[4] > 1.5 * late[0]


def test_studies_of_the_documentation_can_be_read():
    paths = sorted((ROOT / "docs/results").glob("search-*.toml"))
    assert paths
    for path in paths:
        assert study.find(str(path)) == path
        made = Study(path, None, ())
        assert made.beginnings and made.config.macs_budget


def test_a_tiny_study_from_end_to_end(capsys):
    """One beginning, with everything that is trained."""
    Path("tiny.toml").write_text(
        HEAD + SETTINGS + '[beginnings]\n"coarse along height" = [1, 0.25, 1, 0.25, 1, 0.25]'
    )
    assert main(["sweep", "tiny.toml", "--out", "out"]) == 0
    names = [name for name in (*FIRST, *SECOND) if "alike" not in name]
    runs = {name: Run.open(f"out/{name}") for name in names}
    assert all(run.is_finished(2) for run in runs.values())
    mmacs = [float(run.metrics()[-1]["mmacs"]) for run in runs.values()]
    assert mmacs == pytest.approx([mmacs[0]] * len(mmacs), rel=0.03)  # 2 % on either side
    out = capsys.readouterr().out
    for text in ("coarse along height", "search, another seed", "best of 2 random"):
        assert text in out
    before = {path: path.stat().st_mtime_ns for path in Path("out").rglob("*.ckpt")}
    assert main(["sweep", "tiny.toml", "--out", "out"]) == 0
    assert {path: path.stat().st_mtime_ns for path in Path("out").rglob("*.ckpt")} == before
