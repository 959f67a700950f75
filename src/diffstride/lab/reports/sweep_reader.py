"""The one reader of a sweep's folder: what was planned, and what its runs have come to."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from diffstride.lab.reports.formats import Figures, mean, mean_sd
from diffstride.lab.reports.run_reader import RunRecord
from diffstride.lab.runs.documents import DamagedFile, read_json
from diffstride.lab.runs.scores import ACCURACY

MEAN = f"Mean {ACCURACY.title}"  # the row of means over all rows, as plans of the paper have it


class Metric(NamedTuple):
    """A score: its title, its column in metrics.csv, and where the plan has the paper's."""

    title: str
    column: str
    paper: str


@dataclass(frozen=True)
class Cell:
    """What the finished runs of one row and column say, beside the paper; scores as they are shown.

    There are ``count`` scores, and will be as many as ``planned``. The seconds are those of a
    training step in the last epoch, as the runs tell them.
    """

    here: Figures
    paper: Figures
    count: int = 0
    planned: int = 0
    mmacs: float | None = None
    seconds_per_step: float | None = None
    penalty: float | None = None
    consistency: float | None = None
    """The share of moved examples with the same answer, if it was measured."""
    corrupted: float | None = None
    """The accuracy on corrupted examples."""


class Sweep:
    """The plan in a folder, its runs, however far they are, and what was measured without runs.

    In the plan, ``rows`` are settings and ``columns`` are methods, and ``runs`` has an entry for
    each run, with its name, row and column. Only the sweep of costs is ``measured``: it has values
    by row and column, and conditions. Raises a ValueError if there is no sweep, or a damaged one.
    """

    def __init__(self, folder: Path) -> None:
        path, measured = folder / "sweep.json", folder / "measured.json"
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
        self.plan, self.names = plan, list(entries)
        self.runs = {
            name: RunRecord(folder / name, entry.get("penalty"))
            for name, entry in entries.items()
            if (folder / name / "config.yaml").is_file()
        }
        self.measured = read_json(measured, "values", "conditions") if measured.is_file() else {}
        # What all runs are judged by.
        scores = dict.fromkeys(run.score for run in self.runs.values())
        if len(scores) > 1:
            titles = " and ".join(score.title for score in scores)
            raise ValueError(
                f"{folder} has runs that are judged by {titles}: a sweep has one score"
            )
        self.score = next(iter(scores), ACCURACY)
        self.mean = f"Mean {self.score.title}"
        self.columns: list[str] = plan["columns"]
        # Where rows differ in what strides cost, a mean over them says nothing.
        self.regularised = any("penalty" in entry for entry in plan["runs"])
        # Whether rows are beginnings of the same thing: not tasks, nor weights of a penalty.
        self.comparable = not self.regularised and not any("tasks" in e for e in plan["runs"])
        self.settings: list[str] = [row for row in plan["rows"] if row != self.mean]
        has_mean = len(self.settings) > 1 and not self.regularised and not self.measured
        self.rows = [*self.settings, self.mean] if has_mean else self.settings
        first = Metric("Top-1" if "paper_top5" in plan else "", self.score.column, "paper")
        second = Metric("Top-5", "test_top5", "paper_top5")
        self.metrics = [first, second] if second.paper in plan else [first]

    def title(self, column: str) -> str:
        """The name of a method for readers."""
        return str(self.plan.get("column_titles", {}).get(column, column))

    def begun(self) -> Iterator[tuple[dict[str, Any], RunRecord]]:
        """The entries of the plan whose runs have begun, each with its run."""
        for entry in self.plan["runs"]:
            if entry["name"] in self.runs:
                yield entry, self.runs[entry["name"]]

    def cells(self, row: str, metric: Metric) -> list[Cell]:
        """The cells of a row, or of all rows together for the row of means."""
        return [self.cell(row, column, metric) for column in self.columns]

    def cell(self, row: str, column: str, metric: Metric) -> Cell:
        """One of these cells; of costs that were measured, relative to the first column."""
        paper = self.plan.get(metric.paper, {}).get(row, {}).get(column, ())
        if self.measured:
            costs = self.measured["values"][row]
            return Cell((costs[column] / costs[self.columns[0]],), paper)
        values: list[float] = []
        runs: dict[str, RunRecord] = {}
        planned = 0
        for entry in self.plan["runs"]:
            if entry["column"] != column:
                continue
            # A network for several tasks has a row for each of them.
            places = entry.get("tasks", {entry["row"]: metric.column})
            names = [name for place, name in places.items() if row in (place, self.mean)]
            planned += len(names)
            run = self.runs.get(entry["name"])
            if run is not None and run.finished:
                known = [value for name in names if (value := run.last(name)) is not None]
                values += [self.score.factor * value for value in known]
                runs |= {entry["name"]: run} if known else {}
        return Cell(
            mean_sd(values),
            paper,
            len(values),
            planned,
            mean(run.last("mmacs") for run in runs.values()),
            mean(run.seconds_per_step for run in runs.values()),
            mean(run.penalty for run in runs.values()),
            *(mean(run.robustness[i] for run in runs.values()) for i in range(2)),
        )

    def spread(self, column: str, metric: Metric) -> tuple[float | None, float | None]:
        """Max − min of a method's means, here and in the paper, if all settings have one."""
        cells = [self.cell(row, column, metric) for row in self.settings]

        def width(figures: list[Figures]) -> float | None:
            means = [figure[0] for figure in figures if figure]
            complete = self.comparable and len(means) == len(cells) > 1
            return max(means) - min(means) if complete else None

        return width([cell.here for cell in cells]), width([cell.paper for cell in cells])

    def digits(self, metric: Metric) -> int:
        """As many digits after the point as the paper has, or the score."""
        rows = self.plan.get(metric.paper, {}).values()
        values = [value for row in rows for figures in row.values() for value in figures]
        least = self.score.few_digits
        return 2 if any(round(value, 1) != value for value in values) else least

    def missing(self) -> list[str]:
        """The names of the runs that have not finished, with how far they are."""
        runs = [(name, self.runs.get(name)) for name in self.names]
        return [
            f"{name} ({run.epochs} of {run.planned_epochs} epochs)" if run else name
            for name, run in runs
            if run is None or not run.finished
        ]
