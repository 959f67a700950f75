"""Text tables: runs with a line each, and a sweep in the paper's layout with notes below it."""

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from diffstride.files import write
from diffstride.lab.reports import formats
from diffstride.lab.reports.formats import UNKNOWN, Lines, mean_sd, or_dash, percent, plus_minus
from diffstride.lab.reports.run_reader import RunRecord
from diffstride.lab.reports.sweep_notes import notes
from diffstride.lab.reports.sweep_reader import MEAN, Sweep
from diffstride.lab.runs.axes import in_units
from diffstride.lab.runs.documents import DamagedFile, write_rows
from diffstride.lab.runs.robust import SUMMARY_HEAD
from diffstride.lab.runs.scores import Score
from diffstride.text import aligned, short, times

RUNS_HEAD = ("first strides", "all strides", "maps ÷")
CSV_COLUMNS = "row column metric n mean sd paper_mean paper_sd mmacs seconds_per_step penalty"
CSV_COLUMNS += " shift_consistency corrupted_accuracy"
FIRST_STRIDES = "Strides of the first layer, and up to which frequency they let pass"
FIRST_STRIDES_HEAD = ["task", "time", "frequency", "Hz", "cycles per channel"]
FIRST_STRIDES_DIGITS = (2, 2, 2, 4)  # as the paper has them


def compare(folders: Sequence[str | Path]) -> str:
    """A table of runs: their score after the last epoch, strides of the first layer, cost, time.

    Then the strides of the first layer, the product of all, how many times smaller the last maps
    are than the input, and up to which frequency everything passes all layers, along each axis; the
    units are in the head if all runs have the same. If it was measured, how they do on changed
    examples comes last. A network for several tasks has its mean
    score, and a line below for each task. A folder that is no run is a ValueError.
    """
    runs = []
    for folder in folders:
        runs.append(open_run(folder))
    units = {tuple(axis.unit for axis in run.data_axes) for run in runs if run.strides}
    same = units.pop() if len(units) == 1 else None
    unit = f" ({' × '.join(dict.fromkeys(same))})" if same else ""
    judged = heading(run.score for run in runs)
    head = ("run", "downsampling", judged, *RUNS_HEAD)
    measured = SUMMARY_HEAD if any(run.robust for run in runs) else ()
    lines: list[tuple[str, ...]] = [(*head, f"cut-off{unit}", "M MACs", "minutes", *measured)]
    rest = [""] * (6 + len(measured))
    for run in runs:
        if not (run.metrics and run.times):
            lines.append((run.name, run.downsampling, "no epoch yet", *rest))
            continue
        line = (
            run.name,
            run.downsampling,
            run.score.short(run.scored),
            times((stride.last for stride in run.first_layer), "{:.2f}") or UNKNOWN,
            times(products(run), "{:.2f}") or UNKNOWN,
            _known(map(run.times_smaller, run.last_layer), "{:.2f}"),
            _cutoffs(run, with_units=same is None),
            or_dash(run.last("mmacs"), ".1f"),
            f"{run.minutes:.1f}",
            *(map(percent, run.robustness) if measured else ()),
        )
        tasks = [(name, run.score.short(value)) for name, value in run.task_scores.items()]
        lines += [line, *((f"  {name}", "", value, *rest) for name, value in tasks)]
    return "\n".join(aligned(lines))


def heading(scores: Iterable[Score]) -> str:
    """What the column with the scores of runs is called."""
    titles = {score.title for score in scores}
    return titles.pop() if len(titles) == 1 else "score"


def products(run: RunRecord) -> list[float]:
    """The product of the strides of all layers, along each axis."""
    return [math.prod(stride.last for stride in run.up_to(end)) for end in run.last_layer]


def _known(values: Iterable[float | None], form: str) -> str:
    """The numbers of all axes, or a dash if one is not known."""
    numbers = list(values)
    known = [value for value in numbers if value is not None]
    return (times(known, form) if len(known) == len(numbers) else "") or UNKNOWN


def _cutoffs(run: RunRecord, with_units: bool) -> str:
    cutoffs = [run.cutoff(stride) for stride in run.last_layer]
    known = [cutoff for cutoff in cutoffs if cutoff is not None]
    if not known or len(known) < len(cutoffs):
        return UNKNOWN
    units = [axis.unit for axis in run.data_axes]
    return in_units(known, units) if with_units else " × ".join(map(short, known))


def open_run(folder: str | Path) -> RunRecord:
    """The run in a folder; a ValueError if there is none."""
    try:
        return RunRecord(Path(folder))
    except OSError as error:
        raise ValueError(f"{folder} is no run: {error}") from error


class SweepTables(NamedTuple):
    """The tables of a sweep with their titles, the rows of table.csv, and a heading and notes."""

    tables: list[tuple[str, Lines]]
    rows: list[dict[str, Any]]
    remarks: list[str]


def sweep_tables(folder: str | Path) -> SweepTables:
    """Return the tables of the sweep in a folder; a ValueError if there is nothing to show yet."""
    sweep = Sweep(Path(folder))
    if sweep.plan["runs"]:
        return SweepTables(list(_tables(sweep)), list(_csv_rows(sweep)), notes(sweep))
    if not sweep.measured:
        raise ValueError(f"{folder} has no measured.json yet: `diffstride sweep cost` makes it")
    lines, rows = _costs(sweep)
    conditions = f"Scale {sweep.plan['scale']}: {sweep.measured['conditions']}."
    return SweepTables([("", lines)], rows, [sweep.plan["title"], conditions])


def write_tables(folder: str | Path) -> str:
    """Write table.csv, .md and .tex into the folder of a sweep, and return the table as text."""
    tables, rows, remarks = sweep_tables(folder)
    write_rows(Path(folder) / "table.csv", rows)
    for name in ("table.md", "table.tex"):
        write(Path(folder) / name, formats.document(f"{name}.jinja", tables, remarks))
    return formats.plain_text(tables, remarks)


def first_stride_lines(sweep: Sweep) -> Lines:
    """For each task of sound, the strides of the first layer and their cut-offs; or no lines."""
    lines = []
    for row in sweep.plan["rows"] if "paper_first_strides" in sweep.plan else ():
        column = "multi_diffstride" if row == MEAN else "diffstride"
        runs = [
            [*(stride.last for stride in run.first_layer), *_first_cutoffs(run)]
            for entry, run in sweep.begun()
            if (entry["row"], entry["column"]) == (row, column) and run.finished
        ]
        figures = [mean_sd(values) for values in zip(*runs, strict=True)] or [()] * 4
        title = "Network for all tasks" if row == MEAN else row
        lines.append([title, *map(plus_minus, figures, FIRST_STRIDES_DIGITS)])
        if paper := sweep.plan["paper_first_strides"].get(row):
            figures = [*paper["strides"], *paper["cutoffs"]]
            lines.append(["  paper", *map(plus_minus, figures, FIRST_STRIDES_DIGITS)])
    return lines


def _first_cutoffs(run: RunRecord) -> Iterator[float]:
    for stride in run.first_layer:
        cutoff = run.cutoff(stride)
        if cutoff is None:
            raise DamagedFile(f"{run.folder / 'data.json'} must have the size of the data")
        yield cutoff


def _tables(sweep: Sweep) -> Iterator[tuple[str, Lines]]:
    """The table of each metric, and that of the strides of the first layer."""
    for metric in sweep.metrics:
        lines = [["", *map(sweep.title, sweep.columns)]]
        digits = sweep.digits(metric)
        for row in sweep.rows:
            cells = sweep.cells(row, metric)
            counts = [f" (n = {c.count})" if 0 < c.count < c.planned else "" for c in cells]
            here = [plus_minus(cell.here, digits) for cell in cells]
            lines.append([row, *(text + count for text, count in zip(here, counts, strict=True))])
            if any(cell.paper for cell in cells):
                lines.append(["  paper", *(plus_minus(cell.paper, digits) for cell in cells)])
            lines.append(["  M MACs", *(or_dash(cell.mmacs) for cell in cells)])
            lines.append(["  s per step", *(or_dash(cell.seconds_per_step) for cell in cells)])
            if any(cell.consistency is not None for cell in cells):
                both = zip(*((cell.consistency, cell.corrupted) for cell in cells), strict=True)
                for name, shares in zip(SUMMARY_HEAD, both, strict=True):
                    lines.append([f"  {name}", *map(percent, shares)])
            if sweep.regularised:
                lines.append(["  J", *(or_dash(cell.penalty) for cell in cells)])
        if sweep.mean in sweep.rows and sweep.comparable:
            spreads = zip(*(sweep.spread(c, metric) for c in sweep.columns), strict=True)
            here, paper = ([or_dash(value, f".{digits}f") for value in row] for row in spreads)
            lines.append(["Max − min", *here])
            lines += [["  paper", *paper]] if set(paper) != {UNKNOWN} else []
        yield metric.title, lines
    if lines := first_stride_lines(sweep):
        yield FIRST_STRIDES, [FIRST_STRIDES_HEAD, *lines]


def _csv_rows(sweep: Sweep) -> Iterator[dict[str, Any]]:
    """A row for each cell and metric, as they are shown: accuracies in percent."""
    for metric in sweep.metrics:
        for row in sweep.rows:
            for column, cell in zip(sweep.columns, sweep.cells(row, metric), strict=True):
                figures = [*cell.here, None, None][:2] + [*cell.paper, None, None][:2]
                costs = [cell.mmacs, cell.seconds_per_step, cell.penalty]
                shares = [x if x is None else 100 * x for x in (cell.consistency, cell.corrupted)]
                values = [row, column, metric.column, cell.count, *figures, *costs, *shares]
                yield dict(zip(CSV_COLUMNS.split(), values, strict=True))


def _costs(sweep: Sweep) -> tuple[Lines, list[dict[str, Any]]]:
    """Costs relative to the first method, the paper's figures, and what was measured."""
    lines, csv_rows = [["", *map(sweep.title, sweep.columns)]], []
    for row in sweep.plan["rows"]:
        values = sweep.measured["values"][row]
        cells = dict(zip(sweep.columns, sweep.cells(row, sweep.metrics[0]), strict=True))
        unit, scale = ("ms", 1e3) if "time" in row else ("MB", 1e-6)
        lines.append([row, *(plus_minus(cell.here, 2) for cell in cells.values())])
        if any(cell.paper for cell in cells.values()):
            lines.append(["  paper", *(plus_minus(cell.paper, 2) for cell in cells.values())])
        lines.append([f"  {unit}", *(or_dash(scale * values[column]) for column in cells)])
        for column, cell in cells.items():
            csv_row = {"row": row, "column": column, "value": values[column]}
            csv_rows.append(csv_row | {"paper_relative": next(iter(cell.paper), None)})
    return lines, csv_rows
