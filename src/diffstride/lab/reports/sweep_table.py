"""The table of a sweep in the paper's layout, beside the paper's figures and with its price."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from diffstride.files import write
from diffstride.lab.reports import formats
from diffstride.lab.reports.formats import UNKNOWN, Lines, mean_sd, or_dash, plus_minus
from diffstride.lab.reports.sweep_notes import notes
from diffstride.lab.reports.sweep_reader import MEAN, Cell, Metric, Sweep, read_sweep
from diffstride.lab.runs.documents import write_rows

CSV_COLUMNS = "row column metric n mean sd paper_mean paper_sd mmacs seconds_per_step penalty"
FIRST_STRIDES = "Strides of the first layer, and up to which frequency they let pass"
FIRST_STRIDES_HEAD = ["task", "time", "frequency", "Hz", "cycles per channel"]
FIRST_STRIDES_DIGITS = (2, 2, 2, 4)  # as the paper has them


def write_tables(folder: str | Path) -> str:
    """Write table.csv, table.md and table.tex into the folder of a sweep, and return it as text.

    Raises a ValueError if the folder is no sweep, or a run in it is damaged.
    """
    folder = Path(folder)
    sweep = read_sweep(folder)
    plan = sweep.plan
    if plan["runs"]:
        tables, rows, remarks = list(_tables(sweep)), list(_csv_rows(sweep)), notes(sweep)
    elif sweep.measured:
        lines, rows = _costs(sweep)
        tables = [("", lines)]
        remarks = [plan["title"], f"Scale {plan['scale']}: {sweep.measured['conditions']}."]
    else:
        raise ValueError(f"{folder} has no measured.json yet: `diffstride sweep cost` makes it")
    write_rows(folder / "table.csv", rows)
    for name in ("table.md", "table.tex"):
        write(folder / name, formats.document(f"{name}.jinja", tables, remarks))
    return formats.plain_text(tables, remarks)


def first_stride_lines(sweep: Sweep) -> Lines:
    """The strides that the first layer learned of sound, and their cut-offs, for each task.

    A sweep of other data has none.
    """
    if "paper_first_strides" not in sweep.plan:
        return []
    lines = []
    for row in sweep.plan["rows"]:
        column = "multi_diffstride" if row == MEAN else "diffstride"
        runs = [
            [*(stride.last for stride in run.first_layer), *map(run.cutoff, run.first_layer)]
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


def _tables(sweep: Sweep) -> Iterator[tuple[str, Lines]]:
    for metric in sweep.metrics:
        lines = [["", *map(sweep.title, sweep.columns)]]
        digits = sweep.digits(metric)
        for row in sweep.rows:
            cells = sweep.cells(row, metric)
            lines.append([row, *(_accuracy(cell, digits) for cell in cells)])
            if any(cell.paper for cell in cells):
                lines.append(["  paper", *(plus_minus(cell.paper, digits) for cell in cells)])
            lines.append(["  M MACs", *(or_dash(cell.mmacs) for cell in cells)])
            lines.append(["  s per step", *(or_dash(cell.seconds_per_step) for cell in cells)])
            if sweep.regularised:
                lines.append(["  J", *(or_dash(cell.penalty) for cell in cells)])
        if MEAN in sweep.rows and sweep.comparable:
            lines += _spreads(sweep, metric, digits)
        yield metric.title, lines
    if lines := first_stride_lines(sweep):
        yield FIRST_STRIDES, [FIRST_STRIDES_HEAD, *lines]


def _spreads(sweep: Sweep, metric: Metric, digits: int) -> Lines:
    """How far apart the settings of a method are, where all of them have finished runs."""
    spreads = [sweep.spread(column, metric) for column in sweep.columns]
    here, paper = ([or_dash(v, f".{digits}f") for v in vs] for vs in zip(*spreads, strict=True))
    return [["Max − min", *here], *([["  paper", *paper]] if set(paper) != {UNKNOWN} else [])]


def _accuracy(cell: Cell, digits: int) -> str:
    """Mean and deviation, and of how many values if some are missing."""
    count = f" (n = {cell.count})" if 0 < cell.count < cell.planned else ""
    return plus_minus(cell.here, digits) + count


def _csv_rows(sweep: Sweep) -> Iterator[dict[str, Any]]:
    """A row for each cell and metric, accuracies in percent."""
    for metric in sweep.metrics:
        for row in sweep.rows:
            for column, cell in zip(sweep.columns, sweep.cells(row, metric), strict=True):
                figures = [*cell.here, None, None][:2] + [*cell.paper, None, None][:2]
                costs = [cell.mmacs, cell.seconds_per_step, cell.penalty]
                values = [row, column, metric.column, cell.count, *figures, *costs]
                yield dict(zip(CSV_COLUMNS.split(), values, strict=True))


def _costs(sweep: Sweep) -> tuple[Lines, list[dict[str, Any]]]:
    """Costs relative to the first method, the paper's figures, and what was measured."""
    lines, csv_rows = [["", *map(sweep.title, sweep.columns)]], []
    for row in sweep.plan["rows"]:
        values = sweep.measured["values"][row]
        cells = dict(zip(sweep.columns, sweep.cells(row, sweep.metrics[0]), strict=True))
        unit, scale = ("ms", 1e3) if "time" in row else ("MB", 1e-6)
        lines.append([row, *(plus_minus(cell.here, 2) for cell in cells.values())])
        lines.append(["  paper", *(plus_minus(cell.paper, 2) for cell in cells.values())])
        lines.append([f"  {unit}", *(or_dash(scale * values[column]) for column in cells)])
        for column, cell in cells.items():
            csv_row = {"row": row, "column": column, "value": values[column]}
            csv_rows.append(csv_row | {"paper_relative": next(iter(cell.paper), None)})
    return lines, csv_rows
