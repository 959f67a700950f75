"""A sweep as its folder has it: what was planned, and what its runs have come to."""

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from diffstride.lab.reports.run_reader import Run, read_run
from diffstride.lab.reports.table import cutoff, first_strides
from diffstride.lab.runs.documents import DamagedFile, read_json

MEAN = "Mean accuracy"


class Metric(NamedTuple):
    """What a table is made of."""

    title: str
    column: str
    """Of metrics.csv."""
    paper: str
    """Where the plan has the paper's figures."""


@dataclass(frozen=True)
class Cell:
    """What the finished runs of one row and column say; accuracies in percent."""

    values: Sequence[float]
    planned: int
    """How many values there are when all is done."""
    paper: Sequence[float]
    """Mean and standard deviation, either of which may be missing."""
    mmacs: Sequence[float]
    seconds: Sequence[float]
    """A step, in the last epoch, its share of evaluation included."""
    penalties: Sequence[float]


@dataclass(frozen=True)
class FirstStrides:
    """Strides of the first layer, time then frequency, and the cut-offs of both."""

    title: str
    values: Sequence[Sequence[float]]
    """A line a run."""
    paper: Sequence[Sequence[float]]
    """Of each of the four mean and deviation; empty if the paper has none."""


@dataclass(frozen=True)
class Sweep:
    """What was planned, and the runs that began, by name."""

    plan: dict[str, Any]
    runs: dict[str, Run]

    @property
    def settings(self) -> list[str]:
        """The rows but for that of means."""
        return [row for row in self.plan["rows"] if row != MEAN]

    @property
    def rows(self) -> list[str]:
        """Settings, and their mean where that has a meaning."""
        several = len(self.settings) > 1 and not self.regularised
        return [*self.settings, MEAN] if several else self.settings

    @property
    def regularised(self) -> bool:
        """Whether rows differ in what strides cost, so that a mean over them says nothing."""
        return any("penalty" in entry for entry in self.plan["runs"])

    @property
    def metrics(self) -> list[Metric]:
        if "paper_top5" not in self.plan:
            return [Metric("", "test_accuracy", "paper")]
        return [
            Metric("Top-1", "test_accuracy", "paper"),
            Metric("Top-5", "test_top5", "paper_top5"),
        ]

    def title(self, column: str) -> str:
        return str(self.plan.get("column_titles", {}).get(column, column))

    def cell(self, row: str, column: str, metric: Metric) -> Cell:
        """Of a row, or of all of them for the row of means."""
        values, runs, planned = [], {}, 0
        for entry in self.plan["runs"]:
            if entry["column"] != column:
                continue
            # A network for several tasks has a row for each of them.
            places = entry.get("tasks", {entry["row"]: metric.column})
            names = [name for place, name in places.items() if row in (place, MEAN)]
            planned += len(names)
            run = self.runs.get(entry["name"])
            if run is None or not run.finished:
                continue
            told = [run.last(name) for name in names]
            if own := [100 * value for value in told if value is not None]:
                values += own
                runs[entry["name"]] = run
        return Cell(
            values,
            planned,
            self.plan.get(metric.paper, {}).get(row, {}).get(column, ()),
            _known(run.last("mmacs") for run in runs.values()),
            _known(run.seconds_per_step for run in runs.values()),
            _known(run.penalty for run in runs.values()),
        )

    @property
    def comparable(self) -> bool:
        """Whether rows are beginnings of the same thing: not tasks, nor weights of a penalty."""
        return not self.regularised and not any("tasks" in entry for entry in self.plan["runs"])

    def spread(self, column: str, metric: Metric) -> tuple[float | None, float | None]:
        """Max − min of a method's means over settings, here and in the paper.

        None where a setting has no finished run, or where it would mean nothing.
        """
        cells = [self.cell(row, column, metric) for row in self.settings]
        own = [statistics.fmean(cell.values) for cell in cells if cell.values]
        paper = [cell.paper[0] for cell in cells if cell.paper]

        def width(means: list[float]) -> float | None:
            whole = self.comparable and len(means) == len(cells) > 1
            return max(means) - min(means) if whole else None

        return width(own), width(paper)

    def digits(self, metric: Metric) -> int:
        """As many as the paper has after the point."""
        paper = self.plan.get(metric.paper, {})
        figures = [value for row in paper.values() for pair in row.values() for value in pair]
        return 2 if any(round(value, 1) != value for value in figures) else 1

    def first_strides(self) -> Iterator[FirstStrides]:
        """What the first layer learned of sound, task by task; nothing of other tables."""
        if "paper_first_strides" not in self.plan:
            return
        paper = self.plan["paper_first_strides"]
        for row in self.plan["rows"]:
            column = "multi_diffstride" if row == MEAN else "diffstride"
            values = []
            for entry in self.plan["runs"]:
                run = self.runs.get(entry["name"])
                if (entry["row"], entry["column"]) == (row, column) and run and run.finished:
                    own = first_strides(run.strides)
                    strides = [float(line["stride"]) for line in own]
                    values.append([*strides, *(cutoff(line, run.facts) for line in own)])
            told = paper.get(row)
            title = "Network for all tasks" if row == MEAN else row
            yield FirstStrides(title, values, [*told["strides"], *told["cutoffs"]] if told else ())

    def missing(self) -> list[str]:
        """Runs that are not finished, and how far they are."""
        found = []
        for name in dict.fromkeys(entry["name"] for entry in self.plan["runs"]):
            run = self.runs.get(name)
            if run is None:
                found.append(name)
            elif not run.finished:
                found.append(f"{name} ({run.epochs} of {run.planned} epochs)")
        return found


def read(folder: Path) -> Sweep:
    """A sweep and its runs, however far they are.

    Raises:
        ValueError: if the folder is no sweep, or a run in it is damaged.
    """
    path = folder / "sweep.json"
    try:
        plan = read_json(path, "table", "title", "scale", "seeds", "rows", "columns", "runs")
    except OSError as error:
        raise ValueError(f"{folder} has no sweep.json that can be read: {error}") from error
    for name in ("seeds", "rows", "columns", "runs"):
        if not isinstance(plan[name], list):
            raise DamagedFile(f"{path}: {name} must be a list, got {plan[name]!r}")
    for entry in plan["runs"]:
        if not isinstance(entry, dict) or not {"name", "row", "column"} <= set(entry):
            raise DamagedFile(f"{path}: a run has no name, no row or no column")
    entries = {entry["name"]: entry for entry in plan["runs"]}
    runs = {
        name: replace(read_run(folder / name), fixed_penalty=entry.get("penalty"))
        for name, entry in entries.items()
        if (folder / name / "config.yaml").is_file()
    }
    return Sweep(plan, runs)


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
