"""A search tries strides, trains with the best anew, and says which network is better."""

import contextlib
import io
import json
import os
import re
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from diffstride.analysis.timings import Timings
from diffstride.lab.cli import main
from diffstride.lab.runs import documents, lock, search_folder
from diffstride.lab.runs.lock import locked
from diffstride.lab.runs.run_folder import Run
from diffstride.lab.runs.search_folder import STAGES, Search
from diffstride.lab.search import stages
from diffstride.lab.search.searched_network import learnable
from diffstride.lab.search.trials import Trials, loss
from diffstride.lab.sweeps import engines
from diffstride.lab.training import recipes, runner
from diffstride.lab.training.callbacks import AFTER_DIVERGENCE
from diffstride.lab.training.preparation import build_model
from diffstride.lab.training.trained_run import evaluate
from diffstride.strides.trials import best
from tests.lab.training.processes import Command, wait

pytestmark = pytest.mark.slow

TINY = "--model.width 0.0625 --data.limit 64 --data.batch_size 16 --trainer.epochs 2".split()
# With one run a core, each has one thread, whatever is said by which command.
SEARCH = ["search", "digits", *TINY, "--trials", "6", "--name", "a", "--seed", "2"]
ONCE = ["search", "digits", *TINY, "--trainer.epochs", "1", "--data.batch_size", "8"]
ONCE += ["--optim.stride_lr", "0.3", "--trials", "6"]
LEARN = [f"learn/00{i}" for i in range(1, 7)]
RUNS = [*LEARN, "compare/begin", "compare/found", "begin", "found"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A search that nothing happened to, and what it printed."""
    folder, said = tmp_path_factory.mktemp("whole"), io.StringIO()
    with contextlib.redirect_stdout(said):
        assert main([*SEARCH, "--out", str(folder)]) == 0
    return Search.open(folder / "a"), said.getvalue()


@pytest.fixture(autouse=True)
def _there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def copy(whole, tmp_path):
    shutil.copytree(whole[0].folder, tmp_path / "runs/a")
    return Search(Path("runs/a"))


@pytest.fixture
def untrained(monkeypatch):
    """Nothing may be trained."""
    never = lambda *_: pytest.fail("something was trained")  # noqa: E731
    monkeypatch.setattr(engines, "on_this_machine", never)
    for name in ("train", "resume"):
        monkeypatch.setattr(runner, name, never)


def refused(words, message, capsys):
    capsys.readouterr()
    assert main(words) == 1
    error = capsys.readouterr().err
    assert re.match(f"diffstride: {message}", error), error
    assert error.count("\n") == 1, error


def test_every_stage_has_its_runs(whole):
    search, _ = whole
    settings, plan = search.settings, search.plan
    assert [
        str(r.folder.relative_to(search.folder)) for s in STAGES for r in search.runs(s)
    ] == RUNS
    assert (settings.unit, settings.limit) == ("macs", plan.begin.macs / 1e6)
    assert (settings.trials, settings.trial_epochs, settings.beginning) == (6, 1, (2.0,) * 6)
    for run in map(search.stage, RUNS):
        config = run.config
        assert (config.model.downsampling, config.macs_budget, config.spend) == (
            *("spectral", None),
            False,
        )
        assert float(run.metrics()[-1]["mmacs"]) == pytest.approx(settings.limit, rel=0.02)
        trial, judged = "learn" in str(run.folder), run.folder.parent != search.folder
        assert run.is_finished(config.trainer.epochs) and config.trainer.epochs == 2 - trial
        assert config.data.held_out == (0.25 if judged else None)
    tried = [search.stage(name).config.model.strides for name in LEARN]
    assert len(set(tried)) == 6
    assert plan.learned in tried
    for stage in ("compare/", ""):
        assert search.stage(f"{stage}begin").config.model.strides == (2.0,) * 6
    assert search.stage("compare/found").config.model.strides == plan.learned
    assert search.stage("found").config.model.strides == plan.found.strides


def test_strides_are_found_by_the_losses_of_trials_and_kept_by_those_that_are_compared(whole):
    search, _ = whole
    network = stages._network(search)
    trials = Trials(network, "macs", search.settings.limit, 6, seed=2, whole=False)
    runs = [search.stage(name) for name in LEARN]
    while wave := trials.next():
        done = len(trials.losses)
        assert wave == [run.config.model.strides for run in runs[done : len(trials.strides)]]
        trials.losses += map(loss, runs[done : len(trials.strides)])
    assert trials.losses == [float(run.metrics()[-1]["test_loss"]) for run in runs]
    points, losses = trials._known()
    assert search.plan.learned == trials.best == trials.strides[best(points, losses)]
    plan = search.plan
    compared = [loss(search.stage(f"compare/{name}")) for name in ("begin", "found")]
    assert list(plan.losses) == compared
    assert plan.found.strides == (plan.learned if compared[1] < compared[0] else (2.0,) * 6)


@pytest.mark.parametrize("losses", [(1.0, 2.0), (1.5, 1.5), (2.0, 1.0)], ids=str)
def test_the_beginning_is_kept_unless_the_strides_that_were_tried_are_better(
    losses, copy, untrained, monkeypatch, capsys
):
    monkeypatch.setattr(
        stages, "loss", lambda run: losses[("begin", "found").index(run.folder.name)]
    )
    monkeypatch.setattr(stages, "_compared", lambda search, result=copy.result: result)
    trained, train_runs = {}, stages.train_runs

    def spied(search, stage, configs, *rest):
        if stage == "compare":
            return train_runs(search, stage, configs, *rest)
        trained.update(configs)

    monkeypatch.setattr(stages, "train_runs", spied)
    if losses[0] <= losses[1]:
        shutil.rmtree(copy.folder / "found")
    copy.plan_file.unlink()
    copy.result_file.unlink()
    assert main(["resume", "runs/a"]) == 0
    plan, kept = copy.plan, losses[0] <= losses[1]
    assert plan.losses == losses
    assert plan.learned != (2.0,) * 6
    assert plan.found.strides == ((2.0,) * 6 if kept else plan.learned)
    assert trained["begin"].model.strides == (2.0,) * 6
    if kept:  # what would come to the same numbers is not trained again
        assert [*trained] == ["begin"]
        assert copy.stage("found").metrics() == copy.stage("begin").metrics()
    else:
        assert trained["found"].model.strides == plan.found.strides
    assert plan.found.macs == pytest.approx(plan.begin.macs, rel=0.02)
    said = capsys.readouterr().out
    assert f"come to a loss of {losses[1]:.2f}, those of the beginning to {losses[0]:.2f}" in said
    assert ("they are kept" in said) == ("it is the same network" in said) == kept


def test_the_result_is_what_the_runs_say(whole):
    search, said = whole
    result = search.result
    for name, accuracy in (("begin", result.begin), ("found", result.found)):
        assert accuracy == pytest.approx(evaluate(search.stage(name).folder)["test_accuracy"])
        last = search.stage(name).metrics()[-1]
        assert accuracy == pytest.approx(float(last["test_accuracy"]))
    assert result.difference == pytest.approx(result.found - result.begin)
    assert result.low <= result.difference <= result.high
    assert result.examples == 64
    assert len(result.seconds) == 4 and min(result.seconds[:3]) > 0
    assert (result.seconds[3] > 0) == (search.plan.found != search.plan.begin)
    told = f"of 64 test examples, and those of the beginning {100 * result.begin:.2f} %"
    assert told in said
    option = " ".join(f"{stride:g}" for stride in search.plan.found.strides)
    assert f"--model.downsampling spectral --model.strides {option}, or" in said
    assert search.plan.code in said
    assert said.endswith(f"search {search.folder}, report {search.folder}/report.html\n")
    for wave in ("1 to 3", "4 to 4", "5 to 5", "6 to 6"):
        assert f"learn: trials {wave} of 6, 1 epoch each\n" in said
    assert "compare: the best strides and the beginning's, on examples that are held out\n" in said
    same = search.plan.found.strides == search.plan.begin.strides
    assert f"begin{', found' * (not same)}: fixed strides from scratch, " in said
    html = (search.folder / "report.html").read_text()
    assert "Loss of each trial, in the order they were made" in html
    assert '<th scope="row">stages.1.0.downsample</th>' in html


@pytest.mark.parametrize("words", [SEARCH, ["resume", "runs/a"]], ids=lambda words: words[0])
def test_a_finished_search_is_printed_again_without_training(words, whole, copy, untrained, capsys):
    assert main(words) == 0
    said = whole[1].replace(str(whole[0].folder), "runs/a")
    assert capsys.readouterr().out == said[said.index("site ") :]


KILLED = {
    "learn/001": "config.yaml",
    "learn/004": "config.yaml",
    "compare/found": "checkpoints/epoch-00001.ckpt",
    "found": "checkpoints/epoch-00001.ckpt",
}


def test_a_search_that_is_killed_in_every_stage_ends_with_the_same_numbers(whole, tmp_path):
    """And all of its runs with it, wherever they are."""
    search = Search(tmp_path / "runs/a")
    for i, (name, file) in enumerate(KILLED.items()):
        command = Command(tmp_path, *(["resume", "runs/a"] if i % 2 else SEARCH))
        wait((search.folder / name / file).exists, command.process, 120)
        assert command.stop(signal.SIGKILL) == -signal.SIGKILL
        assert search.stage(name).config_file.exists() and not search.result_file.exists()
        for run in map(search.stage, RUNS):
            if holder := lock.holder(run.folder):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(re.match(r"process (\d+) ", holder)[1]), signal.SIGKILL)
    last = Command(tmp_path, *SEARCH)
    assert last.end() == 0, last.err
    assert "learn: " not in last.out and "compare: " not in last.out  # what is done is not repeated
    check_same(search, whole[0])
    # A run that was killed when its last epoch was done is left as it is.
    assert not [path.name for path in search.folder.glob(".*")]


def check_same(search, whole):
    assert search.plan == whole.plan
    numbers = [search.result.begin, search.result.found, search.result.low, search.result.high]
    of_whole = [whole.result.begin, whole.result.found, whole.result.low, whole.result.high]
    assert numbers == of_whole
    for name in RUNS:
        one, other = (s.stage(name).metrics_file.read_text() for s in (search, whole))
        assert one == other, name


def test_interrupted_searches_say_how_to_go_on_and_stop_their_runs(tmp_path):
    command = Command(tmp_path, *SEARCH, "--trainer.epochs", "1000")
    search = Search(tmp_path / "runs/a")
    wait(search.stage("learn/001").config_file.exists, command.process, 120)
    assert command.stop(signal.SIGINT) == 1
    assert command.err.endswith("interrupted: the same command goes on from the last epoch\n")
    assert search.settings.trial_epochs == 500
    runs = search.runs("learn")
    assert runs and not any(lock.holder(run.folder) for run in runs)


def test_other_settings_are_named_and_nothing_is_changed(copy, untrained, capsys):
    before = {path: path.read_bytes() for path in copy.folder.rglob("*") if path.is_file()}
    message = r"runs/a has a search with whole_strides False and not True, optim\.lr 0\.001 and "
    message += r"not 0\.1, trainer\.epochs 2 and not 3, trials 6 and not 7: choose another --name"
    words = [*SEARCH, "--optim.lr", "0.1", "--trainer.epochs", "3", "--whole_strides"]
    words += ["--trials", "7"]
    refused(words, message, capsys)
    assert before == {p: p.read_bytes() for p in copy.folder.rglob("*") if p.is_file()}


WRONG = {
    "--macs_budget 0.01": r"--macs_budget 0\.01 can't be met: the network costs from .* to .* mil",
    "--macs_budget 9999": r"--macs_budget 9999 can't be met: the network costs from .* to .* mil",
    "--macs_budget 2 --stride_penalty 1": "--macs_budget and --stride_penalty were both given",
    "--macs_budget 2 --ms_budget 1": "--macs_budget and --ms_budget were both given",
    "--trainer.devices 2": "each run of a search has one process: search with --trainer.devices 1",
    "--trials 5": "--trials must be at least 6, got 5",
    "--trials 0": "--trials must be at least 6, got 0",
    "--jobs 0": "--jobs must be at least 1, got 0",
    "--cores 2": "--cores is for --engine ray",
    "--engine ray --jobs 2": "--jobs is for --engine local",
    "--model.size_multiple 8": "--model.size_multiple is for strides that are learned",
    "--model.strides 2 2": "strides must be 3, one for each of ",
    "--data.held_out 0": r"--data\.held_out must be above 0, got 0\.0",
    "--data.limit 0": "--data.limit must be at least 1, got 0",
    "--name a/b": "--name must be the name of one folder",
}


@pytest.mark.parametrize("words", WRONG)
def test_what_can_not_be_searched_is_told_before_anything_is_made(words, untrained, capsys):
    refused([*SEARCH, *words.split()], WRONG[words], capsys)
    assert not Path("runs").exists()


def test_one_of_several_processes_is_refused(untrained, monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    refused(SEARCH, "each run of a search has one process", capsys)
    assert not Path("runs").exists()


def test_a_search_that_fails_in_its_first_epoch_leaves_nothing(capsys):
    refused(
        [*SEARCH, "--optim.lr", "1e30"],
        "none of 3 trials has a loss that is a finite number: training diverged with all strides",
        capsys,
    )
    assert not Path("runs").exists()


def test_one_process_at_a_time_searches(copy, untrained, capsys):
    with locked(copy.folder):
        for words in (SEARCH, ["resume", "runs/a"]):
            refused(words, "runs/a is being written by process ", capsys)


def test_runs_and_searches_keep_apart(copy, untrained, capsys):
    refused([*SEARCH, "--out", "runs/a", "--name", "found"], "runs/a/found has a run alre", capsys)
    for command in ("evaluate", "strides", "cost"):
        message = "runs/a has no run, but a search: take runs/a/found, or another of its runs"
        refused([command, "runs/a"], message, capsys)
    with pytest.raises(documents.RunError, match="runs/a has a search already: choose another"):
        Run(Path("runs/a")).check_new()


DAMAGED = [
    ("plan.json", "", "line 1 is no JSON"),
    ("plan.json", "[]", "must be a mapping of names to values"),
    ("plan.json", '{"learned": []}', "there is no losses"),
    ("plan.json", {"losses": 3}, "losses must be a list, got 3"),
    ("plan.json", {"losses": [1, "x"]}, "losses must be a number, got 'x'"),
    ("plan.json", {"losses": [1]}, "losses must be two numbers"),
    ("plan.json", {"begin": 3}, "begin must have settings of its own, got 3"),
    ("plan.json", {"found.strides": ["x"]}, "found.strides must be a number, got 'x'"),
    ("plan.json", {"found.strides": [0.5]}, "must have strides of at least 1"),
    ("plan.json", {"begin.sites": [{}]}, "there is no begin.sites.site"),
    ("result.json", {"found": 1.5}, "must have accuracies from 0 to 1"),
    ("result.json", {"found": "nan"}, "found must be a number"),
    ("result.json", {"seconds": [1]}, "must have accuracies from 0 to 1, and the seconds of 4"),
    ("search.json", "{", "line 1 is no JSON"),
    ("search.json", {"unit": "euros"}, "unit must be one of macs, ms, penalty, got 'euros'"),
    ("search.json", {"trials": "x"}, "trials must be a whole number, got 'x'"),
    ("search.json", {"trial_epochs": 1.5}, "trial_epochs must be a whole number, got 1.5"),
    ("search.json", {"config.trainer": 5}, "config.trainer must have settings of its own"),
]


def damage(path, change):
    if isinstance(change, dict):
        content = json.loads(path.read_text())
        for name, value in change.items():
            *outer, last = name.split(".")
            place = content
            for key in outer:
                place = place[key]
            place[last] = value
        change = json.dumps(content)
    path.write_text(change)


@pytest.mark.parametrize(("name", "change", "message"), DAMAGED, ids=[m for *_, m in DAMAGED])
def test_damaged_files_are_named_with_what_to_do(name, change, message, copy, untrained, capsys):
    damage(copy.folder / name, change)
    advice = "`diffstride resume runs/a` writes it again"
    if name == "search.json":
        advice = "give the `diffstride search` of before again"
    found = rf"runs/a/{re.escape(name)}.*{re.escape(message)}.*{advice}"
    for words in (SEARCH, ["resume", "runs/a"]):
        if name != "result.json" or words[0] == "resume":
            refused(words, found, capsys)
    if name != "search.json":
        refused(["report", "runs/a"], found, capsys)


@pytest.mark.parametrize("name", ["plan.json", "result.json", "search.json", "report.html"])
def test_what_was_removed_is_written_again(name, whole, copy, untrained, capsys):
    (copy.folder / name).unlink()
    assert main(SEARCH) == 0
    assert copy.settings.beginning == whole[0].settings.beginning
    check_same(copy, whole[0])
    assert (copy.folder / "report.html").is_file()


def test_a_stage_of_another_search_is_named(copy, untrained, capsys):
    copy.search_file.unlink()
    message = r"runs/a/learn/001 has trainer\.epochs 1, and this search 2: remove it, or choose"
    refused([*SEARCH, "--trainer.epochs", "3"], message, capsys)
    assert not copy.search_file.exists()
    assert main(SEARCH) == 0  # that one is as it was


def test_a_full_disk_is_told_and_the_search_goes_on_later(copy, whole, monkeypatch, capsys):
    for path in (copy.plan_file, copy.result_file):
        path.unlink()
    shutil.rmtree(copy.folder / "found")

    def full(path, *_, **__):
        raise OSError(28, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(search_folder, "write_json", full)
        refused(SEARCH, r"\[Errno 28\] No space left on device: 'runs/a/plan\.json'", capsys)
    assert not copy.plan_file.exists()
    assert main(["resume", "runs/a"]) == 0
    check_same(copy, whole[0])


def test_penalties_and_whole_strides_of_a_network_with_other_layers(capsys):
    words = "--model.downsampling strided --stride_penalty 1 --whole_strides --name b --seed 3"
    assert main([*ONCE, *words.split()]) == 0
    search = Search.open("runs/b")
    assert (search.settings.unit, search.settings.trials) == ("penalty", 0)
    learn = search.stage("learn/penalty").config
    assert (learn.stride_penalty, learn.macs_budget, learn.spend) == (1.0, None, False)
    assert (learn.data.held_out, learn.model.downsampling) == (None, "diffstride")
    names = [str(run.folder.relative_to("runs/b")) for s in STAGES for run in search.runs(s)]
    assert names == ["learn/penalty", "begin", "found"]
    plan = search.plan
    assert plan.losses is None
    for network in (plan.begin, plan.found):
        assert all(stride == round(stride) for stride in network.strides)
    assert plan.learned != plan.found.strides
    assert plan.begin.macs <= 1.02 * plan.found.macs
    assert "On held-out examples" not in capsys.readouterr().out
    html = (search.folder / "report.html").read_text()
    assert "Strides of each site while they were learned" in html
    assert "Loss of each trial" not in html


def config_of(*words):
    return recipes.override(recipes.RECIPES["digits"].config, [*TINY, *words], "test")


def begun(config, **options):
    """A search whose runs are not trained."""
    stages.begin(config, "digits", stages.Options(trials=6, **options), lambda search: None)
    return Search.open(Path("runs", config.name))


def test_of_whole_strides_all_that_are_tried_are_whole(stand_in):
    stand_in.aim_at([1.0, 1.0, 3.0, 3.0, 2.0, 2.0])
    budget = ("--macs_budget", "1.9", "--name", "w")
    search = begun(config_of(*budget), whole_strides=True)
    runs = [run for stage in STAGES for run in search.runs(stage)]
    assert len(runs) >= 6
    for run in runs:
        strides = run.config.model.strides
        assert all(stride == round(stride) for stride in strides)
    assert search.plan.learned in [run.config.model.strides for run in search.runs("learn")]
    for network in (search.plan.begin, search.plan.found):
        assert network.macs <= 1.9e6 * 1.03  # that of a network whose sizes are whole as well
    # Strides that came to the same were trained once, and each has a number of its own.
    assert len({run.config.model.strides for run in search.runs("learn")}) == len(
        search.runs("learn")
    )
    calls = stand_in.calls
    search.plan_file.unlink()
    begun(config_of(*budget), whole_strides=True)
    assert stand_in.calls == calls


def test_trials_have_half_of_the_epochs_and_the_schedule_ends_there(stand_in):
    part = 0.5
    words = ["--trainer.epochs", "5", "--optim.warmup_steps", "10", "--data.held_out", f"{part}"]
    search = begun(config_of(*words, "--seed", "7", "--name", "b"))
    assert search.settings.trial_epochs == 3
    for run in search.runs("learn"):
        config = run.config
        assert (config.trainer.epochs, config.optim.warmup_steps, config.seed) == (3, 6, 7)
        assert config.data.held_out == part
    for run in search.runs("compare"):
        assert (run.config.trainer.epochs, run.config.optim.warmup_steps) == (5, 10)
        assert run.config.data.held_out == part
    assert search.stage("found").config.data.held_out is None


def test_trials_find_what_is_best(stand_in):
    target = [1.0, 6.0, 1.0, 5.0, 1.0, 4.0]
    stand_in.aim_at(target)
    search = begun(config_of("--name", "b"))
    begin, found = search.plan.losses
    assert found < begin and search.plan.found.strides == search.plan.learned
    assert loss(search.stage("found")) < loss(search.stage("begin"))


def test_a_trial_that_fails_is_told_by_name_and_the_same_search_goes_on(stand_in):
    Path("do/002").write_text("sys.exit('something\\nit broke here')")
    config = config_of("--name", "b")
    with pytest.raises(documents.RunError, match=r"^runs/b/learn/002 failed: it broke here$"):
        begun(config)
    search = Search.open("runs/b")
    assert not search.plan_file.exists()
    assert sorted(stand_in.calls) == ["resume 002", "train 001", "train 002", "train 003"]
    Path("do/002").unlink()
    assert begun(config).plan
    assert stand_in.calls[4] == "resume 002"
    assert stand_in.calls[5:8] == ["train 004", "train 005", "train 006"]


DIVERGES = """
if (left := {left}):
    (run / "metrics.csv").write_text("epoch,step,test_loss,test_accuracy\\n1,2,0.01,1.0\\n")
else:
    shutil.rmtree(run)
sys.exit("diffstride: the loss became nan in epoch 1: {advice}; what was learned is kept")
"""


def test_a_trial_that_diverges_is_as_bad_as_the_worst_and_is_not_tried_again(stand_in):
    for name, left in (("002", True), ("005", False)):
        Path("do", name).write_text(DIVERGES.format(left=left, advice=AFTER_DIVERGENCE))
    Path("do/found").write_text("sys.exit('it broke here')")
    config = config_of("--name", "b", "--trainer.epochs", "4")
    with pytest.raises(documents.RunError, match="compare/found failed: it broke here"):
        begun(config)
    trained = ["train 001", "train 002", "resume 002", "train 003", "train 004", "train 005"]
    trained += ["train 005", "train 006"]
    assert sorted(stand_in.calls[:8]) == sorted(trained)
    for name in ("002", "005", "found"):
        Path("do", name).unlink()
    search = begun(config)
    assert not {"train 005", "resume 002"} & {*stand_in.calls[8:]}
    learned = {run.name: run.config.model.strides for run in search.runs("learn")}
    assert search.plan.learned in [learned[name] for name in ("001", "003", "004", "006")]


@pytest.mark.parametrize("name", ["begin", "found"])
def test_other_runs_that_fail_are_told_by_name(name, stand_in):
    """In the stage in which they come first."""
    Path("do", name).write_text("sys.exit('it broke here')")
    with pytest.raises(documents.RunError, match=rf"^runs/b/compare/{name} failed: it broke here$"):
        begun(config_of("--name", "b"))
    assert not Search.open("runs/b").plan_file.exists()


def test_budgets_in_milliseconds_are_of_the_timings_in_the_folder(stand_in):
    config = config_of("--name", "m")
    facts = {"size": (1, 32, 32), "classes": list("0123456789")}
    model = build_model(learnable(config.model), facts)
    settings = dict(batch=16, settings=8, seconds=0, progress=lambda part: None)
    timings = Timings.measure(model, (1, 32, 32), **settings)
    timings.save("t.json")
    network = stages.SearchedNetwork(config, facts, timings)
    limit = float(f"{1.2 * network.cost((2.0,) * 6, 'ms'):.5g}")
    search = begun(replace(config, ms_budget=limit, timings="t.json"))
    assert (search.settings.unit, search.settings.limit) == ("ms", limit)
    assert search.timings_file.is_file()
    Path("t.json").unlink()  # from now on it is that in the folder
    runs = [run for stage in STAGES for run in search.runs(stage)]
    assert len(runs) == 10
    for run in runs:
        assert (run.config.ms_budget, run.config.timings) == (None, None)
        assert network.cost(run.config.model.strides, "ms") == pytest.approx(limit, rel=0.05)
    for network_of_plan in (search.plan.begin, search.plan.found):
        assert network_of_plan.ms == pytest.approx(limit, rel=0.05)
    calls, plan = stand_in.calls, search.plan
    search.plan_file.unlink()
    stages.go_on("runs/m", lambda search: None)
    assert stand_in.calls == calls and search.plan == plan


def test_the_config_of_a_run_is_a_recipe(copy, untrained, capsys):
    message = r"--macs_budget 9999 can't be met: the network costs from \d"
    for place in ("runs/a/learn/001", "runs/a/found/config.yaml"):
        refused(["search", place, "--macs_budget", "9999", "--out", "."], message, capsys)
    assert main(["search", "nothing"]) == 2
    assert "diffstride search: no recipe 'nothing'" in capsys.readouterr().err
