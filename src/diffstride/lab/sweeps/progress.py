"""How far the runs of a sweep are, shown as a table in a terminal and as lines anywhere else."""

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from diffstride.lab.runs.run_folder import Run

PAUSE = 2.0  # seconds from one drawing of the table to the next


def log_file(folder: Path) -> Path:
    """Return the file with what a run of a sweep prints."""
    return folder.parent / "logs" / f"{folder.name}.log"


class SweepProgress:
    """Shows how far runs of so many epochs are, wherever they are trained, from their folders."""

    def __init__(self, epochs: Mapping[str, int], folder: Path) -> None:
        self.epochs, self.folder, self.in_table = dict(epochs), folder, False
        self.runs = {name: Run(folder / name) for name in epochs}
        self.before, self.began = self._epochs_done(), time.time()
        # Both are replaced, never changed, as another thread draws the table.
        self.done = {name for name, n in epochs.items() if self.runs[name].is_finished(n)}
        self.failed: dict[str, str] = {}

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show how far the runs are while the block runs."""
        from rich.console import Console
        from rich.live import Live

        console = Console()
        self.in_table = console.is_terminal
        table = Live(console=console, get_renderable=self.table, refresh_per_second=1 / PAUSE)
        with table if self.in_table else nullcontext():
            print(f"{len(self.done)} of {len(self.epochs)} runs are finished, in {self.folder}")
            yield

    def ended(self, name: str, error: str | None) -> None:
        """Note that a run is finished, or why it failed."""
        if error is None:
            self.done = self.done | {name}
        else:
            self.failed = self.failed | {name: error}
        if not self.in_table:
            outcome = self.score_text(name) if error is None else f"failed: {error}"
            print(f"{name}  {outcome}  ({self.summary()})", flush=True)

    def running(self) -> list[str]:
        """Return the runs whose log was begun or written to since this sweep began."""
        others = [name for name in self.epochs if name not in self.done and name not in self.failed]
        return [name for name in others if self._changed(name) >= self.began]

    def _changed(self, name: str) -> float:
        try:
            return log_file(self.folder / name).stat().st_mtime
        except OSError:
            return 0.0

    def score(self, name: str) -> float:
        """Return the score of a run after its last epoch; NaN if there is none yet."""
        run = self.runs[name]
        try:
            return float(run.metrics()[-1][run.score.column])
        except (OSError, ValueError):
            return float("nan")

    def score_text(self, name: str) -> str:
        """Return the same as it is read."""
        value = self.score(name)
        return "no score" if math.isnan(value) else self.runs[name].score.text(value)

    def summary(self) -> str:
        """Return how many runs are done, running and failed, the time left, the best so far."""
        texts = [f"{len(self.done)} of {len(self.epochs)} done", f"{len(self.running())} running"]
        if self.failed:
            texts.append(f"{len(self.failed)} failed")
        if left := self.seconds_left():
            texts.append(f"about {duration(left)} left")
        if self.done:
            best = max(self.done, key=self.score)
            texts.append(f"best {best} {self.score_text(best)}")
        return ", ".join(texts)

    def seconds_left(self) -> float | None:
        """Return the time left if epochs take as long as so far; None before the first one."""
        now = self._epochs_done()
        new = sum(now.values()) - sum(self.before.values())
        left = sum(n - now[name] for name, n in self.epochs.items() if name not in self.failed)
        return left * (time.time() - self.began) / new if new and left else None

    def _epochs_done(self) -> dict[str, int]:
        return {name: min(self.runs[name].epochs_done, n) for name, n in self.epochs.items()}

    def table(self) -> Any:
        """Return a table of the runs that are under way and those that failed, and the summary."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table("run", "epoch", "score", box=None)
        for name in self.running():
            epoch = self.runs[name].epochs_done
            score = self.score_text(name) if epoch else ""
            table.add_row(Text(name), f"{epoch} of {self.epochs[name]}", score)
        for name, error in self.failed.items():
            table.add_row(Text(name), "failed", Text(error))
        return Group(table, Text(self.summary()))


def duration(seconds: float) -> str:
    """Return a time as one would say it.

    >>> duration(40), duration(600), duration(9000)
    ('1 min', '10 min', '2 h 30 min')
    """
    minutes = max(1, round(seconds / 60))
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"
