"""What one sees of a sweep while it runs: a table in a terminal, lines anywhere else."""

import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from diffstride.lab.runs.documents import read_rows
from diffstride.lab.sweeps.engines import epochs_done, finished

PAUSE = 2.0  # seconds between two looks at the folders


class Watch:
    """Reads the folders of runs, wherever they are trained, and shows how far they are.

    Args:
        epochs: of every run, by name.
        folder: of the sweep.
    """

    def __init__(self, epochs: Mapping[str, int], folder: Path) -> None:
        from rich.console import Console
        from rich.live import Live

        self.epochs, self.folder = dict(epochs), folder
        self.before = {name: min(epochs_done(folder / name), n) for name, n in epochs.items()}
        self.done = {name for name, n in epochs.items() if finished(folder / name, n)}
        self.failed: dict[str, str] = {}
        self.began = self.looked = time.time()
        console = Console()
        self.live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def __enter__(self) -> "Watch":
        if self.live:
            self.live.start()
        print(f"{len(self.done)} of {len(self.epochs)} runs are finished, in {self.folder}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.live:
            self.look(at_once=True)
            self.live.stop()

    def ended(self, name: str, error: str | None) -> None:
        """Note that a run is finished, or why it failed."""
        if error is None:
            self.done.add(name)
        else:
            self.failed[name] = error
        if not self.live:
            what = f"{self.accuracy(name):.2%}" if error is None else f"failed: {error}"
            print(f"{name}  {what}  ({self.summary()})", flush=True)

    def look(self, at_once: bool = False) -> None:
        """Draw the table again, if it is time to."""
        if self.live and (at_once or time.time() - self.looked > PAUSE):
            self.looked = time.time()
            self.live.update(self.table(), refresh=True)

    def running(self) -> list[str]:
        """Runs whose log was begun or written to since this sweep began."""
        others = [name for name in self.epochs if name not in self.done and name not in self.failed]
        return [name for name in others if self._changed(name) >= self.began]

    def _changed(self, name: str) -> float:
        try:
            return (self.folder / "logs" / f"{name}.log").stat().st_mtime
        except OSError:
            return 0.0

    def accuracy(self, name: str) -> float:
        """Of the last epoch of a run."""
        try:
            rows = read_rows(self.folder / name / "metrics.csv", "test_accuracy")
            return float(rows[-1]["test_accuracy"])
        except (OSError, LookupError, ValueError):
            return float("nan")

    def summary(self) -> str:
        """How many runs are done, running and failed, the time left, the best so far."""
        parts = [f"{len(self.done)} of {len(self.epochs)} done", f"{len(self.running())} running"]
        if self.failed:
            parts.append(f"{len(self.failed)} failed")
        if left := self.seconds_left():
            parts.append(f"about {duration(left)} left")
        if self.done:
            best = max(self.done, key=self.accuracy)
            parts.append(f"best {best} {self.accuracy(best):.2%}")
        return ", ".join(parts)

    def seconds_left(self) -> float | None:
        """As if all epochs took as long as those of this sweep so far; None before the first."""
        now = {name: min(epochs_done(self.folder / name), n) for name, n in self.epochs.items()}
        new = sum(now.values()) - sum(self.before.values())
        open_ = [name for name in self.epochs if name not in self.failed]
        left = sum(self.epochs[name] - now[name] for name in open_)
        return left * (time.time() - self.began) / new if new and left else None

    def table(self) -> Any:
        """The runs that are under way, those that failed, and the sums."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        shown = Table(box=None)
        for title in ("run", "epoch", "accuracy"):
            shown.add_column(title)
        for name in self.running():
            epoch = epochs_done(self.folder / name)
            accuracy = f"{self.accuracy(name):.2%}" if epoch else ""
            shown.add_row(Text(name), f"{epoch} of {self.epochs[name]}", accuracy)
        for name, error in self.failed.items():
            shown.add_row(Text(name), "failed", Text(error))
        return Group(shown, Text(self.summary()))


def duration(seconds: float) -> str:
    """A time as one would say it.

    >>> duration(40), duration(600), duration(9000)
    ('1 min', '10 min', '2 h 30 min')
    """
    minutes = max(1, round(seconds / 60))
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"
