"""Runs are started as copies of one process, or each by itself, and nobody sees a difference."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from diffstride.lab.sweeps import starting

TELLING = """
import json, os, sys, time
def tell(threads):
    print("on stderr", file=sys.stderr)
    given = {name: os.environ.get(name) for name in ("GIVEN", "OURS", "GONE")}
    told = dict(words=sys.argv[1:], folder=os.getcwd(), stdin=sys.stdin.read(), threads=threads)
    print(json.dumps(told | given), flush=True)
    if "wait" in sys.argv:
        time.sleep(600)
    return int(sys.argv[-1])
"""
exec(TELLING)
ITSELF = (sys.executable, "-c", f"{TELLING}\nsys.exit(tell(os.environ['OMP_NUM_THREADS']))")


def carry_out_telling(*given):
    """What a copy does here: all but the command, which tells what it was given."""
    import runpy

    import torch

    def told_instead(name, **_):
        assert name == "diffstride"
        sys.exit(tell(str(torch.get_num_threads())))  # noqa: F821

    runpy.run_module = told_instead
    starting._carry_out(*given)


@pytest.fixture(params=["copied", "by itself"])
def start(request, monkeypatch):
    """A way to start a process that tells what it was given."""
    if request.param == "by itself":
        return partial(starting.by_itself, command=ITSELF)
    monkeypatch.setattr(starting, "_carry_out", carry_out_telling)
    return starting.Copied


def told(log):
    """What processes have told in a log, those that have come so far."""
    lines = log.read_text().splitlines() if log.exists() else []
    return [json.loads(line) for line in lines if line.startswith("{")]


def until(condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)


def test_a_process_gets_what_it_is_given(start, tmp_path, monkeypatch):
    folder, log = tmp_path / "some where", tmp_path / "a.log"
    folder.mkdir()
    log.write_text("before\n")
    monkeypatch.setenv("OURS", "1")
    monkeypatch.setenv("GONE", "1")
    start(["0"], log, folder, {"OMP_NUM_THREADS": "1"}).wait(120)
    # As things are now, not as they were when the first one was started.
    monkeypatch.setenv("OURS", "2")
    monkeypatch.delenv("GONE")
    words = ["train", "a b", "--x", "ä", "0"]
    process = start(words, log, folder, {"OMP_NUM_THREADS": "3", "GIVEN": "é"})
    assert process.wait() == 0
    first, second = told(log)
    assert (first["OURS"], first["GONE"], first["GIVEN"], first["threads"]) == ("1", "1", None, "1")
    wanted = dict(words=words, folder=str(folder), stdin="", threads="3")
    assert second == wanted | {"GIVEN": "é", "OURS": "2", "GONE": None}
    lines = log.read_text().splitlines()
    assert lines[0] == "before" and lines.count("on stderr") == 2 and len(lines) == 5
    assert Path.cwd() != folder and "GIVEN" not in os.environ


@pytest.mark.parametrize("code", [0, 1, 3])
def test_the_exit_code_comes_through_however_often_it_is_asked_for(code, start, tmp_path):
    process = start([str(code)], tmp_path / "log", tmp_path, {"OMP_NUM_THREADS": "1"})
    assert [process.wait(120), process.wait(), process.wait(0.1)] == [code] * 3
    process.terminate()  # what has ended gets no signal
    process.kill()
    assert process.wait() == code


@pytest.mark.parametrize(
    ("way", "number"), [("terminate", signal.SIGTERM), ("kill", signal.SIGKILL)]
)
def test_what_still_runs_is_waited_for_and_stopped(way, number, start, tmp_path):
    log = tmp_path / "log"
    process = start(["wait", "0"], log, tmp_path, {"OMP_NUM_THREADS": "1"})
    until(lambda: told(log))
    began = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.2)
    assert time.monotonic() - began >= 0.2
    getattr(process, way)()
    assert process.wait(60) == -number


def test_several_threads_start_and_await_processes_at_once(start, tmp_path):
    """Each gets the exit code of its own."""

    def one(code):
        process = start([str(code)], tmp_path / f"{code}.log", tmp_path, {"OMP_NUM_THREADS": "1"})
        return process.wait(240)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(one, range(8))) == list(range(8))
    assert [told(tmp_path / f"{i}.log")[0]["words"] for i in range(8)] == [
        [str(i)] for i in range(8)
    ]


@pytest.mark.slow
def test_a_copy_learns_the_same_as_a_process_of_its_own(tmp_path):
    """Number for number, and says the same."""
    words = (
        "train digits --model.width 0.0625 --data.limit 64 --data.batch_size 16 --name a".split()
    )
    words += ["--trainer.epochs", "2"]
    starts = {"copied": starting.Copied, "itself": starting.by_itself}
    processes = []
    for name, start in starts.items():
        (tmp_path / name).mkdir()
        log, variables = tmp_path / f"{name}.log", {"OMP_NUM_THREADS": "1", "TERM": "dumb"}
        processes.append(start(words, log, tmp_path / name, variables))
    assert [process.wait() for process in processes] == [0, 0]
    one, other = (tmp_path / name / "runs/a" for name in starts)
    for file in ("metrics.csv", "strides.csv", "config.yaml", "data.json"):
        assert (one / file).read_bytes() == (other / file).read_bytes(), file
    environments = [json.loads((run / "environment.json").read_text()) for run in (one, other)]
    assert [environment["threads"] for environment in environments] == [1, 1]
    assert "run runs/a, report runs/a/report.html" in (tmp_path / "copied.log").read_text()


@pytest.mark.slow
def test_a_copy_that_fails_or_is_stopped_says_why_in_its_log(tmp_path):
    log = tmp_path / "log"
    process = starting.Copied(["resume", "nowhere"], log, tmp_path, {"TERM": "dumb"})
    assert process.wait() == 1
    assert "nowhere has no run" in log.read_text()
    words = "train digits --model.width 0.0625 --trainer.epochs 500 --name a".split()
    process = starting.Copied(words, log, tmp_path, {"TERM": "dumb", "OMP_NUM_THREADS": "1"})
    until((tmp_path / "runs/a/config.yaml").exists)
    process.terminate()
    assert process.wait(60) == 1
    assert "interrupted: diffstride resume RUN goes on from the last epoch" in log.read_text()
    assert not (tmp_path / "runs/a/.lock").exists()
