"""A study trains networks of one cost from several beginnings, and what comes out of them."""

import json
import re
from pathlib import Path

import pytest

from diffstride import cost
from diffstride.lab.cli import main
from diffstride.lab.runs.run_folder import Run
from diffstride.lab.search import study
from diffstride.lab.search.study import BUILT_IN, Study
from diffstride.lab.sweeps.sweep import parser
from diffstride.lab.training.preparation import build_model

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
HEAD = """
recipe = "digits"
title = "A tiny study"
seeds = [0]
random = 2
trials = 6
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
ROWS = ("all_alike", "coarse_along_height")
FIRST = [
    *(f"{column}-{row}-s0" for row in ROWS for column in ("fixed", "held_out")),
    "held_out-random_1-s0",
    "held_out-random_2-s0",
    "trials-trial_1-s0",
    "trials-trial_2-s0",
    "trials-trial_3-s0",
]
LATER = [f"trials-trial_{i}-s0" for i in (4, 5, 6)]
COMPARED = ["held_out-best_of_the_trials-s0"]
LAST = [
    "fixed-best_of_the_trials-s0",
    "fixed-best_of_the_trials_another_seed-s0",
    *(f"search-{row}-s0" for row in ROWS),
    "fixed-best_of_2_random-s0",
    *(f"gradient-{row}-s0" for row in ROWS),
]
ALL = [*FIRST, *LATER, *COMPARED, *LAST]


@pytest.fixture(autouse=True)
def _there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("tiny.toml").write_text(HEAD + SETTINGS + BEGINNINGS)


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
        for name in (
            "best of the trials",
            "best of the trials, another seed",
            "best of 2 random",
            "a/b",
        )
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
    assert not stand_in.calls


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--seeds 0", "--seeds must be at least 1, got 0"),
        ("--dry_run", "--dry_run is not for a study"),
        ("--seed 3", "--seed is not for `diffstride sweep tiny.toml`, which chooses it"),
        ("--data.held_out 0.5", "--data.held_out is not for `diffstride sweep tiny.toml`"),
        ("--model.strides 2 2 2.5", "--model.strides is not for `diffstride sweep tiny.toml`"),
        ("--macs_budget 0.0001", "--macs_budget 0.0001 can't be met: the network costs from"),
        ("--model.size_multiple 2", "--model.size_multiple is for strides that are learned"),
    ],
)
def test_options_that_make_no_sense_are_refused(words, message, stand_in, capsys):
    assert main(["sweep", "tiny.toml", *words.split()]) == 1
    assert message in capsys.readouterr().err
    assert not Path("runs").exists()
    assert not stand_in.calls


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


def first(made):
    """The runs that depend on no others."""
    return next(made.plans(Path("runs/tiny"))).runs


def test_the_first_part_has_runs_of_one_cost():
    made = Study(Path("tiny.toml"), 3, ())
    runs = first(made)
    assert [run.name for run in runs if run.seed == 0] == FIRST
    assert len({run.name for run in runs}) == len(runs) == 3 * len(FIRST)
    check_costs(made, runs)
    by_name = {run.name: run.config for run in runs}
    trial = by_name["trials-trial_1-s1"]
    assert (trial.trainer.epochs, trial.data.held_out, trial.seed) == (1, 0.25, 1)
    held = {run.column: run.config.data.held_out for run in runs}
    assert held == {"fixed": None, "trials": 0.25, "held_out": 0.25}
    of_random = [run.config.model.strides for run in runs if run.row.startswith("random")]
    assert len(set(of_random)) == 6  # other ones for each seed
    starts = {run.config.model.strides for run in runs if run.column == "fixed"}
    assert len(starts) == 2  # the same for each seed
    again = Study(Path("tiny.toml"), 3, ())
    assert first(again) == runs


def test_a_budget_of_one_s_own_and_settings_of_the_search_itself():
    text = SETTINGS + "macs_budget = 0.9\nspend = true\n"
    Path("own.toml").write_text(HEAD + text + '"data.held_out" = 0.5\n' + BEGINNINGS)
    made = Study(Path("own.toml"), None, ())
    assert made.macs == 0.9
    runs = first(made)
    check_costs(made, runs)
    held = {run.column: run.config.data.held_out for run in runs}
    assert held == {"fixed": None, "trials": 0.5, "held_out": 0.5}


def test_a_network_with_one_stride_for_both_axes():
    text = SETTINGS + '"model.shared_stride" = true\n[beginnings]\na = [1, 1, 1]\nb = [1, 0.5, 0.5]'
    Path("shared.toml").write_text(HEAD + text)
    made = Study(Path("shared.toml"), None, ())
    runs = first(made)
    check_costs(made, runs)
    for run in runs:
        heights, widths = run.config.model.strides[::2], run.config.model.strides[1::2]
        assert heights == widths


def losses(**by_run):
    """Let runs end with these losses on what they are judged on."""
    for name, loss in by_run.items():
        Path("do", name.replace("_s0", "-s0").replace("__", "-")).write_text(
            f'(run / "metrics.csv").write_text("epoch,test_accuracy,test_loss\\n2,0.8,{loss}\\n")\n'
            '(run / "times.csv").write_text("epoch,step,seconds\\n1,2,3\\n2,4,3\\n")\n'
            "sys.exit(0)"
        )


def test_each_part_follows_from_those_before(stand_in, capsys):
    losses(
        held_out__random_2_s0=0.1,
        trials__trial_3_s0=0.2,
        held_out__best_of_the_trials_s0=0.3,
        held_out__coarse_along_height_s0=0.25,
    )
    assert main(["sweep", "tiny.toml", "--jobs", "1"]) == 0
    trained = [f"train {name}" for name in ALL if name not in LAST[2:4]]
    assert stand_in.calls == trained
    told = json.loads(Path("runs/tiny/sweep.json").read_text())
    names = {(run["row"], run["column"]): run["name"] for run in told["runs"]}
    strides = {place: settings_of(name).model.strides for place, name in names.items()}
    tried = strides["best of the trials", "fixed"]
    assert tried == strides["trial 3", "trials"]
    assert tried == strides["best of the trials", "held_out"]
    assert tried == strides["best of the trials, another seed", "fixed"]
    # From one beginning a search ends with what was tried, and the other is better than that.
    assert names["all alike", "search"] == names["best of the trials", "fixed"]
    assert names["coarse along height", "search"] == names["coarse along height", "fixed"]
    assert strides["best of 2 random", "fixed"] == strides["random 2", "held_out"]
    assert [settings_of(name).seed for name in LAST[:2]] == [0, 100]
    for row in ("all alike", "coarse along height"):
        assert strides[row, "gradient"] == strides[row, "fixed"]
        assert settings_of(names[row, "gradient"]).optim.strides_by == "gradient"
    assert {settings_of(name).data.held_out for name in (*LAST[:2], *LAST[4:])} == {None}
    assert set(told["columns"]) == set(study.COLUMNS)
    # The same command again does nothing.
    calls, capsys_out = stand_in.calls, capsys.readouterr().out
    assert main(["sweep", "tiny.toml", "--jobs", "1"]) == 0
    assert stand_in.calls == calls
    table = "A tiny study"
    assert table in capsys_out and table in capsys.readouterr().out


def test_a_run_that_fails_in_the_first_part_stops_before_the_second(stand_in, capsys):
    Path("do", FIRST[0]).write_text("sys.exit('it broke here')")
    assert main(["sweep", "tiny.toml", "--jobs", "1"]) == 1
    assert f"{FIRST[0]} failed: it broke here" in capsys.readouterr().err
    assert {call.split()[1] for call in stand_in.calls} == set(FIRST)
    Path("do", FIRST[0]).unlink()
    assert main(["sweep", "tiny.toml", "--jobs", "1"]) == 0
    assert {call.split()[1] for call in stand_in.calls} >= {*FIRST, *LAST[:2]}


def test_random_strides_that_come_to_the_same_are_trained_once(stand_in, monkeypatch):
    monkeypatch.setattr(Study, "_random", lambda *_: (2.5, 2.0, 2.0, 2.0, 2.0, 2.0))
    assert main(["sweep", "tiny.toml", "--jobs", "1"]) == 0
    names = [call.split()[1] for call in stand_in.calls]
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
    runs = first(made)
    check_costs(made, runs)
    strides = {run.row: run.config.model.strides for run in runs}
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
    told = json.loads(Path("out/sweep.json").read_text())["runs"]
    assert [run["row"] for run in told] == [
        *["coarse along height"] * 2,
        "random 1",
        "random 2",
        *(f"trial {i + 1}" for i in range(6)),
        *["best of the trials"] * 2,
        "best of the trials, another seed",
        "coarse along height",
        "best of 2 random",
        "coarse along height",
    ]
    runs = {run["name"]: Run.open(f"out/{run['name']}") for run in told}
    assert all(run.is_finished(run.config.trainer.epochs) for run in runs.values())
    mmacs = [float(run.metrics()[-1]["mmacs"]) for run in runs.values()]
    assert mmacs == pytest.approx([mmacs[0]] * len(mmacs), rel=0.03)  # 2 % on either side
    out = capsys.readouterr().out
    for text in ("coarse along height", "best of the trials, another seed", "best of 2 random"):
        assert text in out
    before = {path: path.stat().st_mtime_ns for path in Path("out").rglob("*.ckpt")}
    assert main(["sweep", "tiny.toml", "--out", "out"]) == 0
    assert {path: path.stat().st_mtime_ns for path in Path("out").rglob("*.ckpt")} == before
