"""The command line in processes that a signal can end, forked from one that has imported all."""

import itertools
import multiprocessing
import os
import signal
import sys
import time

import torch

CONTEXT = multiprocessing.get_context("forkserver")
NUMBERS = itertools.count()


def command(folder, words, number, begun):
    """What a process does: the command, in a folder, on one core; what it says goes to files."""
    from diffstride.__main__ import run
    from diffstride.lab import interruption

    os.chdir(folder)
    torch.set_num_threads(1)
    sys.argv = ["diffstride", *words]
    with (folder / f"{number}.out").open("w") as sys.stdout:
        with (folder / f"{number}.err").open("w") as sys.stderr:
            os.dup2(sys.stderr.fileno(), 2)
            signal.signal(signal.SIGINT, signal.default_int_handler)  # also of tests with &
            interruption.catch_signals()
            begun.set()
            code = run()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def wait(condition, process, seconds):
    """Until something is so, the process has ended, or for so long."""
    end = time.monotonic() + seconds
    while process.is_alive() and time.monotonic() < end and not condition():
        time.sleep(0.0005)


class Command:
    """A command that was started, with what it says."""

    def __init__(self, folder, *words):
        ours = ["diffstride.lab.training.runner", "diffstride.lab.reports.page", __name__]
        CONTEXT.set_forkserver_preload([*ours, "sklearn.datasets"])
        self.folder, self.number = folder, next(NUMBERS)
        begun = CONTEXT.Event()
        arguments = (folder, list(words), self.number, begun)
        self.process = CONTEXT.Process(target=command, args=arguments)
        self.process.start()
        assert begun.wait(120)

    def stop(self, number):
        """Send a signal, and wait for the end. Returns the exit code."""
        if self.process.is_alive():
            os.kill(self.process.pid, number)
        return self.end()

    def end(self):
        self.process.join(300)
        assert self.process.exitcode is not None, "it took too long"
        return self.process.exitcode

    @property
    def out(self):
        return (self.folder / f"{self.number}.out").read_text()

    @property
    def err(self):
        return (self.folder / f"{self.number}.err").read_text()
