"""A search learns strides, fixes them, trains with them anew, and says which network is better."""

import contextlib
import io
import json
import re
import shutil
import signal
from pathlib import Path

import pytest

from diffstride.analysis.timings import Timings
from diffstride.lab.cli import main
from diffstride.lab.runs import documents, search_folder
from diffstride.lab.runs.lock import locked
from diffstride.lab.runs.run_folder import Run
from diffstride.lab.runs.search_folder import STAGES, Search
from diffstride.lab.search import stages
from diffstride.lab.search.searched_network import learnable
from diffstride.lab.training import recipes, runner
from diffstride.lab.training.preparation import build_model
from diffstride.lab.training.trained_run import evaluate
from tests.lab.training.processes import Command, wait

pytestmark = pytest.mark.slow

TINY = "--model.width 0.0625 --data.limit 64 --data.batch_size 16 --trainer.epochs 2".split()
# Steps that are large, for strides that come to other sizes in a few of them.
SEARCH = ["search", "digits", *TINY, "--optim.stride_lr", "0.3", "--name", "a"]
ONCE = ["search", "digits", *TINY, "--trainer.epochs", "1", "--data.batch_size", "8"]
ONCE += ["--optim.stride_lr", "0.3"]


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
    for name in ("train", "resume"):
        monkeypatch.setattr(runner, name, lambda *_: pytest.fail("something was trained"))


def refused(words, message, capsys):
    capsys.readouterr()
    assert main(words) == 1
    error = capsys.readouterr().err
    assert re.match(f"diffstride: {message}", error), error
    assert error.count("\n") == 1, error


def test_every_stage_is_a_run_of_the_search(whole):
    search, _ = whole
    learn, begin, found = (search.stage(name).config for name in STAGES)
    assert (learn.model.downsampling, learn.spend) == ("diffstride", True)
    assert learn.macs_budget == search.settings.limit == search.plan.begin.macs / 1e6
    assert begin.model.strides == (2.0,) * 6
    assert found.model.strides == search.plan.found.strides != begin.model.strides
    for config in (begin, found):
        assert (config.model.downsampling, config.macs_budget) == ("spectral", None)
    assert search.plan.found.macs == pytest.approx(search.plan.begin.macs, rel=0.02)
    sizes = [site.output_size for site in search.plan.found.sites]
    assert sizes != [site.output_size for site in search.plan.begin.sites]


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
    told = f"of 64 test examples, and those of the beginning {100 * result.begin:.2f} %"
    assert told in said
    option = " ".join(f"{stride:g}" for stride in search.plan.found.strides)
    assert f"--model.downsampling spectral --model.strides {option}, or" in said
    assert search.plan.code in said
    assert said.endswith(f"search {search.folder}, report {search.folder}/report.html\n")
    for i, name in enumerate(STAGES):
        assert f"{i + 1} of 3, {name}: " in said
    html = (search.folder / "report.html").read_text()
    assert "Strides of each site while they were learned" in html
    assert '<th scope="row">stages.1.0.downsample</th>' in html


@pytest.mark.parametrize("words", [SEARCH, ["resume", "runs/a"]], ids=lambda words: words[0])
def test_a_finished_search_is_printed_again_without_training(words, whole, copy, untrained, capsys):
    assert main(words) == 0
    said = whole[1].replace(str(whole[0].folder), "runs/a")
    assert capsys.readouterr().out == said[said.index("site ") :]


def test_a_search_that_is_killed_in_every_stage_ends_with_the_same_numbers(whole, tmp_path):
    search = Search(tmp_path / "runs/a")
    for name, words in zip(STAGES, (SEARCH, SEARCH, ["resume", "runs/a"]), strict=True):
        command = Command(tmp_path, *words)
        wait(search.stage(name).checkpoint_file(1).exists, command.process, 60)
        assert command.stop(signal.SIGKILL) == -signal.SIGKILL
        assert search.stage(name).epochs_done >= 1
    last = Command(tmp_path, *SEARCH)
    assert last.end() == 0, last.err
    assert "learn: " not in last.out  # what is done is not repeated
    assert "epoch   1 " not in last.out
    check_same(search, whole[0])
    assert not list(search.folder.rglob(".lock"))
    assert not list(search.folder.rglob(".*.part"))


def check_same(search, whole):
    assert search.plan == whole.plan
    numbers = [search.result.begin, search.result.found, search.result.low, search.result.high]
    of_whole = [whole.result.begin, whole.result.found, whole.result.low, whole.result.high]
    assert numbers == of_whole
    for name in STAGES:
        one, other = (s.stage(name).metrics_file.read_text() for s in (search, whole))
        assert one == other, name


def test_interrupted_searches_say_how_to_go_on(tmp_path):
    command = Command(tmp_path, *SEARCH)
    run = Search(tmp_path / "runs/a").stage("learn")
    wait(run.config_file.exists, command.process, 60)
    assert command.stop(signal.SIGINT) == 1
    assert command.err.endswith("interrupted: the same command goes on from the last epoch\n")


def test_other_settings_are_named_and_nothing_is_changed(copy, untrained, capsys):
    before = {path: path.read_bytes() for path in copy.folder.rglob("*") if path.is_file()}
    message = r"runs/a has a search with whole_strides False and not True, optim\.lr 0\.001 and "
    message += r"not 0\.1, trainer\.epochs 2 and not 3: choose another --name, or remove it"
    words = [*SEARCH, "--optim.lr", "0.1", "--trainer.epochs", "3", "--whole_strides"]
    refused(words, message, capsys)
    assert before == {p: p.read_bytes() for p in copy.folder.rglob("*") if p.is_file()}


WRONG = {
    "--macs_budget 0.01": r"--macs_budget 0\.01 can't be met: the network costs from .* to .* mil",
    "--macs_budget 9999": r"--macs_budget 9999 can't be met: the network costs from .* to .* mil",
    "--macs_budget 2 --stride_penalty 1": "--macs_budget and --stride_penalty were both given",
    "--macs_budget 2 --ms_budget 1": "--macs_budget and --ms_budget were both given",
    "--trainer.devices 2": "a search runs in one process: search with --trainer.devices 1",
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
    refused(SEARCH, "a search runs in one process", capsys)
    assert not Path("runs").exists()


def test_a_search_that_fails_in_its_first_epoch_leaves_nothing(capsys):
    refused(
        [*SEARCH, "--optim.lr", "1e30"],
        "the loss with all strides that were tried became nan in epoch 1",
        capsys,
    )
    assert not Path("runs").exists()


def test_one_process_at_a_time_searches(copy, untrained, capsys):
    with locked(copy.folder):
        for words in (SEARCH, ["resume", "runs/a"]):
            refused(words, "runs/a is being written by process ", capsys)


def test_runs_and_searches_keep_apart(copy, untrained, capsys):
    refused([*SEARCH, "--out", "runs/a", "--name", "learn"], "runs/a/learn has a run alre", capsys)
    for command in ("evaluate", "strides", "cost"):
        message = "runs/a has no run, but a search: take runs/a/found, or another of its runs"
        refused([command, "runs/a"], message, capsys)
    with pytest.raises(documents.RunError, match="runs/a has a search already: choose another"):
        Run(Path("runs/a")).check_new()


DAMAGED = [
    ("plan.json", "", "line 1 is no JSON"),
    ("plan.json", "[]", "must be a mapping of names to values"),
    ("plan.json", '{"learned": []}', "there is no begin"),
    ("plan.json", {"begin": 3}, "begin must have settings of its own, got 3"),
    ("plan.json", {"found.strides": ["x"]}, "found.strides must be a number, got 'x'"),
    ("plan.json", {"found.strides": [0.5]}, "must have strides of at least 1"),
    ("plan.json", {"begin.sites": [{}]}, "there is no begin.sites.site"),
    ("result.json", {"found": 1.5}, "must have accuracies from 0 to 1"),
    ("result.json", {"found": "nan"}, "found must be a number"),
    ("result.json", {"seconds": [1]}, "must have accuracies from 0 to 1, and the seconds of 3"),
    ("search.json", "{", "line 1 is no JSON"),
    ("search.json", {"unit": "euros"}, "unit must be one of macs, ms, penalty, got 'euros'"),
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
    message = r"runs/a/learn has trainer\.epochs 2, and this search 3: remove it, or choose"
    refused([*SEARCH, "--trainer.epochs", "3"], message, capsys)
    assert not copy.search_file.exists()


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
    assert search.settings.unit == "penalty"
    learn = search.stage("learn").config
    assert (learn.stride_penalty, learn.macs_budget, learn.spend) == (1.0, None, False)
    plan = search.plan
    for network in (plan.begin, plan.found):
        assert all(stride == round(stride) for stride in network.strides)
    assert plan.learned != plan.found.strides
    assert plan.begin.macs <= 1.02 * plan.found.macs


def test_budgets_in_milliseconds_are_of_the_timings_in_the_folder(capsys):
    config = recipes.override(recipes.RECIPES["digits"].config, TINY, "test")
    facts = {"size": (1, 32, 32), "classes": list("0123456789")}
    model = build_model(learnable(config.model), facts)
    settings = dict(batch=16, settings=8, seconds=0, progress=lambda part: None)
    timings = Timings.measure(model, (1, 32, 32), **settings)
    timings.save("t.json")
    now = stages.SearchedNetwork(config, facts, timings).cost((2.0,) * 6, "ms")
    budget = ["--ms_budget", f"{1.2 * now:.5g}", "--timings", "t.json"]
    assert main([*ONCE, *budget, "--name", "m"]) == 0
    search = Search.open("runs/m")
    assert search.timings_file.is_file()
    assert search.plan.begin.ms == pytest.approx(1.2 * now, rel=0.05)
    assert search.plan.found.ms == pytest.approx(1.2 * now, rel=0.05)
    assert " ms a batch" in capsys.readouterr().out


def test_the_config_of_a_run_is_a_recipe(copy, untrained, capsys):
    message = r"--macs_budget 9999 can't be met: the network costs from \d"
    for place in ("runs/a/learn", "runs/a/found/config.yaml"):
        refused(["search", place, "--macs_budget", "9999", "--out", "."], message, capsys)
    assert main(["search", "nothing"]) == 2
    assert "diffstride search: no recipe 'nothing'" in capsys.readouterr().err
