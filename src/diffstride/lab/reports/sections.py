"""What a page is made of: runs cut into groups, sections, and how numbers are written in them."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from diffstride.lab.reports import sweeps
from diffstride.lab.reports.run_reader import Run, read_run
from diffstride.lab.reports.sweeps import MEAN, Sweep
from diffstride.lab.runs.documents import read_json

Block: TypeAlias = dict[str, Any]
"""A table, figures or images, by its ``kind``, as the template knows it."""
Legend: TypeAlias = list[tuple[int | None, int, str]]
"""Of each line its colour, if it has one of its own, its dash and its label."""

ALONE = 12  # more runs than this are drawn by groups of the same beginning


@dataclass(frozen=True)
class Section:
    """A heading with what is under it."""

    title: str
    text: str
    blocks: list[Block]


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seeds."""

    title: str
    row: str
    column: str
    runs: list[Run]


@dataclass(frozen=True)
class Part:
    """A sweep, or all runs that belong to none, cut into groups."""

    title: str
    groups: list[Group]
    columns: list[str]
    """Methods, in the order of their colours."""
    sweep: Sweep | None = None
    measured: dict[str, dict[str, float]] = field(default_factory=dict)
    """Of a sweep that trains nothing: what was measured, by row and column."""

    @property
    def runs(self) -> list[Run]:
        return [run for group in self.groups for run in group.runs]

    @property
    def rows(self) -> list[str]:
        return list(dict.fromkeys(group.row for group in self.groups))


def collect(paths: Iterable[str | Path]) -> list[Part]:
    """The sweeps in these folders, each a part, and the runs that belong to none as the last.

    A folder is a run, a sweep, or has runs and sweeps in it.

    Raises:
        ValueError: for a folder that is none of these, or whose files can't be read.
    """
    parts: list[Part] = []
    runs: list[Run] = []
    folders = [Path(path) for path in paths]
    for path in folders:
        inside = [path] if _is_one(path) else []
        if not inside and path.is_dir():
            inside = sorted(folder for folder in path.iterdir() if _is_one(folder))
        if not inside:
            raise ValueError(
                f"{path} is neither a run, which has a config.yaml, nor a sweep, which has a "
                f"sweep.json, nor a folder of some"
            )
        for folder in inside:
            if (folder / "sweep.json").is_file():
                parts.append(of_sweep(folder))
            else:
                runs.append(read_run(folder))
    if not runs:
        return parts
    several = len(runs) > 1 and len(folders) == 1
    return [*parts, of_runs(runs, folders[0].resolve().name if several else None)]


def _is_one(folder: Path) -> bool:
    return (folder / "sweep.json").is_file() or (folder / "config.yaml").is_file()


def of_sweep(folder: Path) -> Part:
    """A group for each cell of the table in which a run has begun."""
    sweep = sweeps.read(folder)
    plan = sweep.plan
    cells: dict[tuple[str, str], list[Run]] = {
        (row, column): [] for row in plan["rows"] for column in plan["columns"]
    }
    for entry in plan["runs"]:
        if (run := sweep.runs.get(entry["name"])) is not None:
            cells.setdefault((entry["row"], entry["column"]), []).append(run)
    groups = []
    for (row, column), runs in cells.items():
        # A network for all tasks belongs to the row of their means.
        shown, title = "all tasks" if row == MEAN else row, sweep.title(column)
        if runs:
            groups.append(Group(f"{title} {shown}", shown, title, runs))
    path = folder / "measured.json"
    measured = read_json(path, "values")["values"] if path.is_file() else {}
    columns = [*map(sweep.title, plan["columns"]), *(group.column for group in groups)]
    columns = list(dict.fromkeys(columns))
    return Part(str(plan["title"]), groups, columns, sweep, measured)


def of_runs(runs: list[Run], title: str | None = None) -> Part:
    """A group for each run, or for each beginning where they are many."""
    if len(runs) <= ALONE:
        groups = [Group(run.name, run.start, run.method, [run]) for run in runs]
    else:
        found: dict[tuple[str, str], list[Run]] = {}
        for run in runs:
            found.setdefault((run.method, run.start), []).append(run)
        groups = [Group(f"{how} {start}", start, how, own) for (how, start), own in found.items()]
    columns = list(dict.fromkeys(group.column for group in groups))
    title = title or (runs[0].name if len(runs) == 1 else f"{len(runs)} runs")
    return Part(title, groups, columns)


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def plus_minus(values: Sequence[float], digits: int = 1) -> str:
    return " ± ".join(f"{value:.{digits}f}" for value in values)


def mean(values: Iterable[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return statistics.fmean(found) if found else None


def joined(run: Run, layer: str, when: int) -> str:
    found = [f"{site.strides[when]:.3g}" for site in run.sites if site.layer == layer]
    return found[0] if len(set(found)) == 1 else " × ".join(found)
