"""What is shown while something takes long: a bar in a terminal, a line a minute anywhere else."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PAUSE = 50.0  # seconds from one line to the next: with what a step takes, it is a minute at most


class Pace:
    """Says when a line is due: once in so many seconds, the first time after as many."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, pause: float = PAUSE) -> None:
        self.clock, self.pause = clock, pause
        self.last = clock()

    def due(self) -> bool:
        """Return whether a line is due now; if it is, the next one is due a pause later."""
        now = self.clock()
        if is_due := now - self.last >= self.pause:
            self.last = now
        return is_due

    def restart(self) -> None:
        """Wait a whole pause from now on: somebody else has just printed a line."""
        self.last = self.clock()


class Lines:
    """Takes the place of a bar where there is no terminal: says on stderr how many are done.

    >>> lines = Lines("reading", 4000)
    >>> lines.update(1000)
    >>> lines.line(60.0)
    'reading: 1,000 of 4,000, about 180 s left'
    """

    def __init__(self, text: str, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.text, self.total, self.done = text, total, 0
        self.began, self.pace = clock(), Pace(clock)

    def __enter__(self) -> "Lines":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, number: float = 1) -> None:
        """Count so many more, and print a line if one is due."""
        self.done += int(number)
        if self.pace.due():
            print(self.line(self.pace.last - self.began), file=sys.stderr, flush=True)

    def line(self, seconds: float) -> str:
        """Return what is said after so many seconds."""
        left = seconds * (self.total - self.done) / max(1, self.done)
        return f"{self.text}: {self.done:,} of {self.total:,}, about {left:,.0f} s left"


def progress_bar(text: str, total: int) -> Any:
    """Return what shows how many of a total are done: ``update(n)`` counts n more.

    It is to be used in a ``with``. A bar goes away in the end; short work shows nothing.
    """
    if not sys.stderr.isatty():
        return Lines(text, total)
    from tqdm import tqdm

    return tqdm(None, text, total, leave=False, delay=2)


def say(line: str) -> None:
    """Print a line at once, also into a log; if nobody reads any more, go on without."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        sys.stdout = Path(os.devnull).open("w")
