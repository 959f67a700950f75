"""How the process of a run is started on this machine.

Loading torch and Lightning takes seconds, which is much of a short run. So where the system can
copy a process, one that has loaded them waits, and each run begins as a copy of it: a fork server.
"""

import multiprocessing
import os
import runpy
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

PAUSE = 0.05  # seconds
_lock = Lock()
"""One thread at a time starts a copy or asks whether one has ended: the answer comes only once."""


class Started(Protocol):
    """A process that was started, as `subprocess.Popen` is."""

    def wait(self, timeout: float | None = None) -> int: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


def by_itself(
    words: Sequence[str],
    log: Path,
    cwd: Path,
    variables: Mapping[str, str],
    command: Sequence[str] = (sys.executable, "-m", "diffstride"),
) -> Started:
    """Start `diffstride` with some words: a new Python.

    Args:
        words: what is behind the name of the command.
        log: the file that what it prints is added to.
        cwd: the folder that it works in.
        variables: added to its environment.
        command: what is started.
    """
    with log.open("a") as file:
        return subprocess.Popen(
            [*command, *words],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env={**os.environ, **variables},
        )


class Copied:
    """A copy of the process that waits, with the words, the log and so on of `by_itself`."""

    def __init__(
        self, words: Sequence[str], log: Path, cwd: Path, variables: Mapping[str, str]
    ) -> None:
        context: Any = multiprocessing.get_context("forkserver")
        given = tuple(words), str(log), str(cwd), {**os.environ, **variables}
        self.process: ForkServerProcess = context.Process(target=_carry_out, args=given)
        with _lock:
            context.set_forkserver_preload(["diffstride.lab.training.runner"])
            self.process.start()

    def wait(self, timeout: float | None = None) -> int:
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            with _lock:
                code = self.process.exitcode
            if code is not None:
                return code
            if end is not None and time.monotonic() >= end:
                raise subprocess.TimeoutExpired("diffstride", timeout or 0.0)
            time.sleep(PAUSE)

    def terminate(self) -> None:
        self._send(self.process.terminate)

    def kill(self) -> None:
        self._send(self.process.kill)

    def _send(self, signal: Any) -> None:
        with _lock:
            if self.process.exitcode is None:
                signal()


def _carry_out(words: Sequence[str], log: str, cwd: str, variables: Mapping[str, str]) -> None:
    multiprocessing.set_start_method(None, force=True)  # as in a new Python
    os.environ.clear()
    os.environ.update(variables)
    for number, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, log, os.O_WRONLY | os.O_APPEND | os.O_CREAT),
    ):
        file = os.open(path, flags)
        os.dup2(file, number)
        os.close(file)
    os.dup2(1, 2)
    os.chdir(cwd)
    import torch

    if threads := os.environ.get("OMP_NUM_THREADS"):  # which torch asks for when it is loaded
        torch.set_num_threads(int(threads))
    sys.argv = ["diffstride", *words]
    runpy.run_module("diffstride", run_name="__main__", alter_sys=True)


CAN_COPY = "forkserver" in multiprocessing.get_all_start_methods()
HERE = Copied if CAN_COPY else by_itself
"""How runs are started on this machine."""
