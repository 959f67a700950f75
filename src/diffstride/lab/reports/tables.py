"""Text tables: runs with a line each, and a sweep in the paper's layout with notes below it."""

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from diffstride.files import write
from diffstride.lab.reports import formats
from diffstride.lab.reports.formats import UNKNOWN, Lines, mean, mean_sd, or_dash, plus_minus
from diffstride.lab.reports.run_reader import RunRecord
from diffstride.lab.reports.sweep_reader import MEAN, Sweep
from diffstride.lab.runs.axes import in_units
from diffstride.lab.runs.documents import DamagedFile, write_rows
from diffstride.lab.runs.scores import Score
from diffstride.text import aligned, short, times

RUNS_HEAD = ("first strides", "all strides", "maps ÷")
CSV_COLUMNS = "row column metric n mean sd paper_mean paper_sd mmacs seconds_per_step penalty"
FIRST_STRIDES = "Strides of the first layer, and up to which frequency they let pass"
FIRST_STRIDES_HEAD = ["task", "time", "frequency", "Hz", "cycles per channel"]
FIRST_STRIDES_DIGITS = (2, 2, 2, 4)  # as the paper has them
MOST_MISSING = 10
SHARED_SETTINGS = {
    ("model", "name"): "{}",
    ("model", "width"): "width {:g}",
    ("model", "smoothness"): "R = {:g}",
    ("data", "held_out"): "{} of the training set held out to test on",
    ("data", "batch_size"): "batches of {}",
    ("trainer", "steps"): "{} steps an epoch",
    ("trainer", "epochs"): "epochs: {}",
}


def compare(folders: Sequence[str | Path]) -> str:
    """A table of runs: their score after the last epoch, strides of the first layer, cost, time.

    Then the strides of the first layer, the product of all, how many times smaller the last maps
    are than the input, and up to which frequency everything passes all layers, along each axis; the
    units are in the head if all runs have the same. A network for several tasks has its mean
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
    lines: list[tuple[str, ...]] = [(*head, f"cut-off{unit}", "M MACs", "minutes")]
    for run in runs:
        if not (run.metrics and run.times):
            lines.append((run.name, run.downsampling, "no epoch yet", *[""] * 6))
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
        )
        tasks = [(name, run.score.short(value)) for name, value in run.task_scores.items()]
        lines += [line, *((f"  {name}", "", value, *[""] * 6) for name, value in tasks)]
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
        if any(cell.paper for cell in cells.values()):
            lines.append(["  paper", *(plus_minus(cell.paper, 2) for cell in cells.values())])
        lines.append([f"  {unit}", *(or_dash(scale * values[column]) for column in cells)])
        for column, cell in cells.items():
            csv_row = {"row": row, "column": column, "value": values[column]}
            csv_rows.append(csv_row | {"paper_relative": next(iter(cell.paper), None)})
    return lines, csv_rows


def notes(sweep: Sweep) -> list[str]:
    """The heading of the table, then what holds for all of it, and what does not."""
    plan, missing, total = sweep.plan, sweep.missing(), len(sweep.names)
    seeds = plan["seeds"]
    means = "seeds, that of a mean over settings too" if sweep.mean in sweep.rows else "seeds"
    judged = f"test {sweep.score.title} in {sweep.score.words}"
    lines = [
        f"{plan['title']}: {judged} after the last epoch, mean ± sd over {means}",
        f"Scale {plan['scale']}, n = {len(seeds)} (seed{'s' * (len(seeds) > 1)} "
        f"{', '.join(map(str, seeds))})" + "".join(f", {fact}" for fact in _shared(sweep)) + ".",
        "M MACs are of the network as it is in the end, for one example; seconds per step are of "
        f"the last epoch{_what_a_step_is(sweep)}.",
        *_windows(sweep),
        *_budgets(sweep),
    ]
    if missing:
        more = len(missing) - MOST_MISSING
        listed = ", ".join(missing[:MOST_MISSING]) + (f" and {more} more" if more > 0 else "")
        lines.append(f"{total - len(missing)} of {total} runs are finished; missing: {listed}.")
    return lines


def _what_a_step_is(sweep: Sweep) -> str:
    """What is in the seconds of a step: runs of earlier versions have its evaluation in them."""
    alone = [run.steps_timed_alone for run in sweep.runs.values() if run.seconds_per_step]
    if not any(alone):
        return ", its evaluation included" if alone else ""
    return ", without its evaluation" + ("" if all(alone) else ", but for runs made before that")


def _shared(sweep: Sweep) -> Iterator[str]:
    """What all runs have in common of data, network and length."""
    runs = list(sweep.runs.values())
    data = [run.config["data"] for run in runs]
    tasks = dict.fromkeys(task for settings in data for task in settings.get("task", ()))
    names = {Path(str(settings.get("path") or "digits")).name for settings in data}
    if tasks:
        yield f"data {', '.join(tasks)}"
    else:
        counts = {(run.data_facts.get("train"), run.data_facts.get("test")) for run in runs}
        if len(names) == len(counts) == 1:
            ((train, test),) = counts
            yield f"data {names.pop()} ({train} examples to train on, {test} to test on)"
    for (section, name), form in SHARED_SETTINGS.items():
        values = [run.config[section].get(name) for run in runs]
        if values and values[0] is not None and all(value == values[0] for value in values):
            yield form.format(values[0])


def _windows(sweep: Sweep) -> Iterator[str]:
    """Which methods have which windows, if windows differ."""
    windows: dict[str, dict[str, None]] = {}
    for entry, run in sweep.begun():
        if run.downsampling == "diffstride":
            window = f"R = {run.smoothness:g}, {run.convention} convention"
            windows.setdefault(window, {})[sweep.title(entry["column"])] = None
    if len(windows) > 1:
        listed = "; ".join(f"{', '.join(names)}: {window}" for window, names in windows.items())
        yield f"Windows differ. {listed}."


def _budgets(sweep: Sweep) -> Iterator[str]:
    """The rows whose budgets are above the cost of the first method, and the runs over theirs."""
    costs: dict[tuple[str, str], list[float | None]] = {}
    for entry, run in sweep.begun():
        costs.setdefault((entry["row"], entry["column"]), []).append(run.last("mmacs"))
    first, above, exceeded = sweep.columns[0], {}, []
    for entry, run in sweep.begun():
        row, budget, used = entry["row"], run.config.get("macs_budget"), run.last("mmacs")
        other = f"multi_{first}" if entry["column"].startswith("multi_") else first
        cost = mean(costs.get((row, other), ()))
        if budget and cost and budget > 1.01 * cost and run.downsampling == "diffstride":
            above[row] = f"{row} {budget / cost - 1:.0%}"
        if run.finished and budget and used is not None and used > 1.05 * budget:
            exceeded.append(f"{entry['name']} {used:.3g} of {budget:.3g}")
    if above:
        reason = "where learnable strides can't cost as little"
        rows = ", ".join(above.values())
        yield f"Budgets are above the cost of {sweep.title(first)} {reason}: {rows}."
    if exceeded:
        listed = ", ".join(dict.fromkeys(exceeded))  # a run may be in several places
        yield f"Over their budgets by more than a twentieth, in M MACs: {listed}."
