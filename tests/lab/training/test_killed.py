"""A run that is stopped, at any moment and again and again, ends as if it had not been."""

import os
import random
import signal
import time
from collections import Counter

import pytest
import torch

from diffstride.lab.runs.documents import read_rows
from diffstride.lab.runs.run_folder import Run
from diffstride.lab.training.trained_run import read_checkpoint
from tests.lab.training.processes import Command, wait

pytestmark = pytest.mark.slow

OPTIONS = "--model.width 0.03125 --data.limit 128 --data.batch_size 32 --trainer.epochs 4".split()
KILLS = int(os.environ.get("DIFFSTRIDE_KILLS", "8"))
"""More of them, for an afternoon: DIFFSTRIDE_KILLS=50."""
SIGNALS = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)
INTERRUPTED = "interrupted: diffstride resume RUN goes on from the last epoch"


def unfinished_files(run):
    """Files that are being written."""
    return list(run.folder.rglob(".*.part"))


def moment(kind, run, process, moments, duration):
    """Wait for a moment of this kind."""
    if kind == "start":
        time.sleep(moments.uniform(0, 0.1 * duration))
    elif kind == "anywhere":
        time.sleep(moments.uniform(0, 0.6 * duration))
    elif kind == "writing":
        time.sleep(moments.uniform(0, 0.4 * duration))
        wait(lambda: unfinished_files(run), process, duration)
    else:
        wait(run.checkpoint_file(4).exists, process, 2 * duration)
        time.sleep(moments.uniform(0, 0.2 * duration))


KINDS = ("start", "anywhere", "writing", "report")


def check_whole(run):
    """Every file of a run can be read, whatever happened to who wrote it. Returns its epochs."""
    for path in [*run.checkpoint_files(), *run.checkpoints.glob("best.ckpt")]:
        read_checkpoint(path)
    for name in ("metrics.csv", "times.csv", "strides.csv"):
        if (run.folder / name).exists():
            read_rows(run.folder / name, "epoch")
    return max((path.name for path in run.checkpoint_files()), default="")


def check_same(run, whole):
    """A run ended as one that nothing happened to."""
    for name in ("metrics.csv", "strides.csv"):
        assert (run.folder / name).read_text() == (whole.folder / name).read_text()
    for one, other in (
        (run.checkpoint_file(4), whole.checkpoint_file(4)),
        (run.best_file, whole.best_file),
    ):
        states = [read_checkpoint(path)["state_dict"] for path in (one, other)]
        assert states[0].keys() == states[1].keys()
        for name, value in states[0].items():
            assert torch.equal(value, states[1][name]), name
    assert not unfinished_files(run)
    assert not (run.folder / ".lock").exists()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing happened to, and how long it took."""
    folder = tmp_path_factory.mktemp("whole")
    for name in ("first", "whole"):  # the first has to wait for the imports
        began = time.monotonic()
        assert Command(folder, "train", "digits", *OPTIONS, "--name", name).end() == 0
    return Run.open(folder / "runs/whole"), time.monotonic() - began


def test_a_run_that_is_stopped_at_any_moment_ends_with_the_same_numbers(whole, tmp_path):
    whole, duration = whole
    moments = random.Random(0)
    seen, finished = Counter(), []
    name, reached = "run0", ""
    for i in range(3 * KILLS):  # some have ended before their signal comes
        if sum(seen.values()) == KILLS:
            break
        run = Run(tmp_path / "runs" / name)
        began = run.config_file.exists()
        words = ["resume", f"runs/{name}"] if began else ["train", "digits", *OPTIONS]
        words += [] if began else ["--name", name]
        kind, number = KINDS[i % len(KINDS)], SIGNALS[i % len(SIGNALS)]
        commands = [Command(tmp_path, *words) for _ in range(1 + (i % 5 == 2))]  # two at times
        moment(kind, run, commands[0].process, moments, duration)
        codes = [command.stop(number) for command in commands]
        for command, code in zip(commands, codes, strict=True):
            assert code in (0, 1, -signal.SIGKILL)
            assert "Traceback" not in command.err
            if code == 1 and "is being written by process" not in command.err:
                assert INTERRUPTED in command.err, command.err
                assert number != signal.SIGKILL
        assert check_whole(run) >= reached, "an epoch was lost"
        reached = check_whole(run)
        if 0 not in codes:
            seen[kind, signal.Signals(number).name, reached] += 1
        else:
            check_same(run, whole)
            finished.append(name)
            name, reached = f"run{i + 1}", ""
    print(f"{sum(seen.values())} times stopped: {dict(seen)}; finished: {finished}")
    assert sum(seen.values()) == KILLS
    run = Run(tmp_path / "runs" / name)
    if not run.config_file.exists():
        assert Command(tmp_path, "train", "digits", *OPTIONS, "--name", name).end() == 0
    else:
        assert (last := Command(tmp_path, "resume", f"runs/{name}")).end() == 0, last.err
        assert "test accuracy" in last.out
    check_same(run, whole)


TRAIN = ["train", "digits", *OPTIONS, "--name", "a"]
RESUME = ["resume", "runs/a"]


@pytest.mark.parametrize(
    ("first", "second"),
    [(TRAIN, TRAIN), (TRAIN, RESUME), (RESUME, TRAIN), (RESUME, RESUME)],
    ids=lambda words: words[0],
)
def test_of_two_processes_one_trains_and_the_other_says_so(first, second, whole, tmp_path):
    run = Run(tmp_path / "runs/a")
    if first is RESUME:
        before = Command(tmp_path, *TRAIN)
        wait(run.checkpoint_file(1).exists, before.process, 60)
        before.stop(signal.SIGKILL)
    both = [Command(tmp_path, *first)]
    if second is RESUME and first is TRAIN:
        wait(run.config_file.exists, both[0].process, 60)
    both.append(Command(tmp_path, *second))
    codes = [command.end() for command in both]
    assert sorted(codes) == [0, 1], [command.err for command in both]
    refused, other = (both[codes.index(code)] for code in (1, 0))
    message = f"diffstride: runs/a is being written by process {other.process.pid} on "
    assert refused.err.startswith(message), refused.err
    assert refused.out == ""
    check_same(run, whole[0])
