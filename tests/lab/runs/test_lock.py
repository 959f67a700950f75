"""A folder is written by one process at a time, and by the next as soon as that one has ended."""

import json
import os
import platform
import signal
import subprocess
import sys
import time

import pytest

from diffstride.lab.runs import lock

HOLD = """
import errno, os, pathlib, sys, time
from diffstride.lab.runs import lock
if sys.argv[2] == "without":
    def flock(*_):
        raise OSError(int(sys.argv[3]), os.strerror(int(sys.argv[3])))
    lock.fcntl.flock = flock
try:
    with lock.locked(pathlib.Path(sys.argv[1])):
        print("mine", flush=True)
        sys.stdin.read()
except lock.Busy as busy:
    print(busy, flush=True)
"""
NO_FLOCK = [38, 95, 37]  # ENOSYS, ENOTSUP, ENOLCK


def start(folder, how="with", number=38):
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder), how, str(number)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(params=["with", "without"])
def how(request, monkeypatch):
    """With and without ``flock``, as file systems are."""
    if request.param == "without":

        def flock(*_):
            raise OSError(38, "Function not implemented")

        monkeypatch.setattr(lock.fcntl, "flock", flock)
    monkeypatch.setattr(lock, "PATIENCE", 0.05)
    return request.param


@pytest.mark.parametrize("number", NO_FLOCK)
def test_every_way_to_have_no_locks_is_known(number, tmp_path):
    process = start(tmp_path / "run", "without", number)
    assert process.communicate("")[0] == "mine\n"


def test_the_second_process_is_told_of_the_first(tmp_path, how):
    folder = tmp_path / "run"
    first = start(folder, how)
    assert first.stdout.readline() == "mine\n"
    whose = rf"process {first.pid} on {platform.node()} \(since 20.*\): wait until it has ended$"
    with pytest.raises(lock.Busy, match=rf"run is being written by {whose}"), lock.locked(folder):
        pass
    assert str(first.pid) in lock.holder(folder)
    assert [path.name for path in folder.iterdir()] == [".lock"]
    first.communicate("")
    assert lock.holder(folder) is None
    assert not folder.exists()  # made for nothing
    with lock.locked(folder):
        (folder / "result").touch()
    assert [path.name for path in folder.iterdir()] == ["result"]


def test_a_lock_ends_with_its_process_and_says_whose_it_was(tmp_path, how, capsys):
    folder = tmp_path / "run"
    first = start(folder, how)
    assert first.stdout.readline() == "mine\n"
    first.send_signal(signal.SIGKILL)
    first.communicate()
    assert (folder / ".lock").exists()
    assert lock.holder(folder) is None
    with lock.locked(folder):
        assert json.loads((folder / ".lock").read_text())["pid"] == os.getpid()
    said = capsys.readouterr().err
    assert f"run was locked by process {first.pid} on {platform.node()} (since" in said
    assert said.endswith("which is gone: going on\n")


def test_a_process_that_has_the_number_of_another_is_another(tmp_path, how, capsys):
    """Numbers of processes are used again: that of this one, long ago, is no reason to wait."""
    folder = tmp_path / "run"
    folder.mkdir()
    before = {"host": platform.node(), "pid": os.getpid(), "start": "long ago"}
    content = {**before, "since": "then", "command": "diffstride train digits"}
    (folder / ".lock").write_text(json.dumps(content))
    with lock.locked(folder):
        pass
    assert "(since then: diffstride train digits), which is gone" in capsys.readouterr().err


def test_without_locks_a_process_of_another_machine_is_left_alone(tmp_path, monkeypatch):
    with monkeypatch.context() as there:
        there.setattr(lock.platform, "node", lambda: "elsewhere")
        with lock.locked(tmp_path / "there"):
            content = (tmp_path / "there" / ".lock").read_text()
    monkeypatch.setattr(lock, "PATIENCE", 0.05)
    monkeypatch.setattr(lock, "fcntl", None)
    (tmp_path / ".lock").write_text(content)
    message = rf"on elsewhere .*, or remove {tmp_path}/\.lock if you know that it has$"
    with pytest.raises(lock.Busy, match=message), lock.locked(tmp_path):
        pass
    assert (tmp_path / ".lock").read_text() == content


def test_where_nobody_can_tell_whether_a_process_is_there_it_is(monkeypatch):
    monkeypatch.setattr(lock, "process_start", lambda pid: None)
    assert not lock.Holder(platform.node(), 1, None, "then", "").is_gone()


def test_a_lock_that_says_nothing_counts_for_a_moment(tmp_path, monkeypatch):
    """Of a process that is about to write it, or died before it had."""
    monkeypatch.setattr(lock, "PATIENCE", 0.05)
    monkeypatch.setattr(lock, "fcntl", None)
    path = tmp_path / ".lock"
    path.touch()
    message = "is being written by another process: wait"
    with pytest.raises(lock.Busy, match=message), lock.locked(tmp_path):
        pass
    os.utime(path, (time.time() - 60,) * 2)
    with lock.locked(tmp_path):
        pass
    assert not path.exists()


@pytest.mark.parametrize("left", [False, True], ids=["new", "left behind"])
def test_of_several_at_once_one_goes_on(left, tmp_path, how):
    folder = tmp_path / "run"
    if left:
        first = start(folder, how)
        assert first.stdout.readline() == "mine\n"
        first.kill()
        first.communicate()
    processes = [start(folder, how) for _ in range(5)]
    lines = [process.stdout.readline() for process in processes]
    for process in processes:
        process.communicate("")
    assert lines.count("mine\n") == 1
    assert sum("is being written by process" in line for line in lines) == 4
