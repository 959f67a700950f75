"""What a page is made of, from the largest to the smallest.

A chapter is a sweep, a search, or all runs that belong to neither. It has its runs in groups that
are drawn together, those of one row and column of a sweep for example, and shows them in sections.
A section has a title, a text and blocks: tables, code, and rows of figures, images or cards.
"""

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from diffstride.lab.reports.run_reader import RunRecord
from diffstride.lab.reports.sweep_reader import MEAN, Sweep
from diffstride.lab.runs.scores import ACCURACY
from diffstride.lab.runs.search_folder import Search, is_search

Block: TypeAlias = dict[str, Any]  # what the template shows by its ``kind``
Legend: TypeAlias = list[tuple[int | None, int, str]]
"""Of each line its colour, or None where colours mean nothing, its dash and its label."""

MOST_SINGLE_RUNS = 12  # more runs than this are drawn in groups of the same beginning


class Section(NamedTuple):
    """A title with what is below it; without blocks, the page leaves it out."""

    title: str
    text: str
    blocks: list[Block]


class RunGroup(NamedTuple):
    """Runs that are drawn together; the row is their setting and the column their method."""

    title: str
    row: str
    column: str
    runs: list[RunRecord]


class Chapter:
    """A sweep, a search, or all runs that belong to neither.

    Its columns are in the order of their colours.
    """

    def __init__(
        self,
        title: str,
        groups: list[RunGroup],
        sweep: Sweep | None = None,
        search: Search | None = None,
    ) -> None:
        self.title, self.groups, self.sweep, self.search = title, groups, sweep, search
        # Each once: a run may be in several places of a table.
        self.runs = list(dict.fromkeys(run for group in groups for run in group.runs))
        self.scores = list(dict.fromkeys(run.score for run in self.runs)) or [ACCURACY]
        self.rows = list(dict.fromkeys(group.row for group in groups))
        planned = map(sweep.title, sweep.columns) if sweep else ()
        self.columns = list(dict.fromkeys([*planned, *(group.column for group in groups)]))


def table(caption: str, head: list[str], rows: Sequence[Any], folded: bool = False) -> list[Block]:
    """A table, if it has rows; a folded one is opened by the reader."""
    block = {"kind": "table", "caption": caption, "head": head, "rows": rows, "folded": folded}
    return [block] if rows else []


def figures(legend: Legend, items: Sequence[tuple[str, str]]) -> list[Block]:
    """Figures, if there are any, each an SVG and its title, below the legend of all."""
    return [{"kind": "figures", "legend": legend, "items": items}] if items else []


def colour_legend(labels: Iterable[str]) -> Legend:
    """A legend with a colour for each label."""
    return [(i, 0, label) for i, label in enumerate(labels)]


def collect(paths: Iterable[str | Path]) -> list[Chapter]:
    """Read the chapters of these folders: sweeps and searches, then runs that belong to none."""
    chapters: list[Chapter] = []
    runs: list[RunRecord] = []
    given = [Path(path) for path in paths]
    for path in given:
        inside = sorted(path.iterdir()) if path.is_dir() and not _is_known(path) else [path]
        folders = list(filter(_is_known, inside))
        if not folders:
            known = "a run (config.yaml) nor a sweep (sweep.json) nor a search (search.json) nor "
            known += "a folder of some"
            raise ValueError(f"{path} is neither {known}")
        for folder in folders:
            if (folder / "sweep.json").is_file():
                chapters.append(_sweep_chapter(Sweep(folder)))
            elif is_search(folder):
                chapters.append(_search_chapter(Search(folder)))
            else:
                runs.append(RunRecord(folder))
    if runs:
        title = given[0].resolve().name if len(given) == 1 else f"{len(runs)} runs"
        chapters.append(Chapter(title if len(runs) > 1 else runs[0].name, _run_groups(runs)))
    return chapters


def _is_known(folder: Path) -> bool:
    is_sweep, is_run = (folder / "sweep.json").is_file(), (folder / "config.yaml").is_file()
    return is_sweep or is_run or is_search(folder)


def _search_chapter(search: Search) -> Chapter:
    """A search with its runs on all training data, and that in which strides learned."""
    names = ("learn/penalty", "begin", "found")
    stages = [run for run in map(search.stage, names) if run.config_file.is_file()]
    groups = _run_groups([RunRecord(run.folder) for run in stages])
    return Chapter(search.folder.resolve().name, groups, search=search)


def _sweep_chapter(sweep: Sweep) -> Chapter:
    """A sweep with a group for each cell of its table in which a run has begun."""
    cells = itertools.product(sweep.plan["rows"], sweep.columns)
    runs_in: dict[tuple[str, str], list[RunRecord]] = {cell: [] for cell in cells}
    for entry, run in sweep.begun():
        runs_in.setdefault((entry["row"], entry["column"]), []).append(run)
    groups = []
    for (row, column), runs in runs_in.items():
        # A network for all tasks belongs to the row of their means.
        setting, method = "all tasks" if row == MEAN else row, sweep.title(column)
        groups += [RunGroup(f"{method} {setting}", setting, method, runs)] if runs else []
    return Chapter(str(sweep.plan["title"]), groups, sweep)


def _run_groups(runs: list[RunRecord]) -> list[RunGroup]:
    """A group for each run, or for each method and beginning where the runs are many."""
    if len(runs) <= MOST_SINGLE_RUNS:
        return [RunGroup(run.name, run.beginning, run.method, [run]) for run in runs]
    groups: dict[tuple[str, str], list[RunRecord]] = {}
    for run in runs:
        groups.setdefault((run.beginning, run.method), []).append(run)
    return [RunGroup(f"{key[1]} {key[0]}", *key, members) for key, members in groups.items()]
