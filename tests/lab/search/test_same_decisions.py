"""A study decides as the command of a search does: for its figures to be those of searches."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from diffstride.lab.cli import main
from diffstride.lab.runs.config_file import flat
from diffstride.lab.runs.run_folder import Run
from diffstride.lab.runs.same_settings import differing
from diffstride.lab.runs.search_folder import Search
from diffstride.lab.search import stages
from diffstride.lab.search.study import Study
from diffstride.lab.search.trials import loss

pytestmark = pytest.mark.slow

STUDY = """
recipe = "digits"
seeds = [SEED]
random = 0
trials = 6
learned = []
[settings]
"model.width" = 0.0625
"data.limit" = 64
"data.batch_size" = 16
"trainer.epochs" = 2
MORE
[beginnings]
"all alike" = [1, 1, 1, 1, 1, 1]
"coarse along height" = [1, 0.25, 1, 0.25, 1, 0.25]
"""
ROWS = ("all alike", "coarse along height")


def write_study(seed=0, more=""):
    text = STUDY.replace("SEED", str(seed)).replace("MORE", more)
    Path("tiny.toml").write_text(text)
    return Study(Path("tiny.toml"), None, ())


@pytest.mark.parametrize(
    ("best", "kept"),
    [
        ("all alike", {"all alike": True, "coarse along height": False}),
        ("trial 2", {"all alike": False, "coarse along height": False}),
    ],
)
def test_a_study_tries_and_finds_what_searches_do(best, kept, stand_in):
    """From both beginnings, one of which may be better than all that is tried."""
    made = write_study(seed=3, more='"optim.warmup_steps" = 4')
    starts = dict(made._starts)
    first = next(made.plans(Path("runs/tiny")))
    tried = {cell.row: cell.config.model.strides for cell in first.runs}
    stand_in.aim_at(tried[best])
    assert main(["sweep", "tiny.toml", "--jobs", "2"]) == 0
    told = json.loads(Path("runs/tiny/sweep.json").read_text())["runs"]
    cells = {(c["row"], c["column"]): Run(Path("runs/tiny", c["name"])) for c in told}
    trials = [cells[f"trial {i}", "trials"].config for i in range(1, 7)]
    assert len({config.model.strides for config in trials}) == 6
    for row in ROWS:
        model = replace(made.config.model, strides=starts[row])
        name = row.replace(" ", "_")
        config = replace(made.config, seed=3, macs_budget=made.macs, model=model, name=name)
        stages.begin(config, "digits", stages.Options(trials=6), lambda search: None)
        search = Search.open(Path("runs", name))
        pairs = [*zip((run.config for run in search.runs("learn")), trials, strict=True)]
        in_study = {
            "compare/begin": cells[row, "held_out"],
            "compare/found": cells["best of the trials", "held_out"],
            "begin": cells[row, "fixed"],
            "found": cells[row, "search"],
        }
        pairs += [(search.stage(name).config, run.config) for name, run in in_study.items()]
        for one, other in pairs:
            assert differing(flat(one), flat(other)) == []
        plan = search.plan
        assert plan.losses == tuple(
            loss(cells[row_, "held_out"]) for row_ in (row, "best of the trials")
        )
        assert plan.learned == cells["best of the trials", "fixed"].config.model.strides
        assert plan.found.strides == cells[row, "search"].config.model.strides
        assert (plan.found.strides == starts[row]) == kept[row]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("random = 0", "random = 2", "'random 1' has the name of another row"),
        ("trials = 6", "trials = 5", "trials must be a whole number of at least 6, got 5"),
        ("trials = 6", "trials = 6.0", "trials must be a whole number of at least 6, got 6.0"),
        ("learned = []", 'learned = ["other"]', "learned must be a list of beginnings, got"),
        ("learned = []", "learned = [[1]]", "learned must be a list of beginnings, got"),
        ("learned = []", "learned = 3", "learned must be a list of beginnings, got 3"),
    ],
)
def test_a_study_of_which_two_runs_would_be_one_or_none_is_refused(
    old, new, message, stand_in, capsys
):
    text = STUDY.replace("SEED", "0").replace("MORE", "").replace('"all alike"', '"random 1"')
    Path("wrong.toml").write_text(text.replace(old, new))
    assert main(["sweep", "wrong.toml"]) == 1
    error = capsys.readouterr().err
    assert re.match(rf"diffstride: wrong\.toml: .*{re.escape(message)}", error), error
    assert not Path("runs").exists() and not stand_in.calls
