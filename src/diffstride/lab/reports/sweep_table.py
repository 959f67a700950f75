"""The table of a sweep in the paper's layout, beside the paper's figures and with its price."""

import csv
import io
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from diffstride.files import write
from diffstride.lab.reports import formats
from diffstride.lab.reports.formats import Lines
from diffstride.lab.reports.run_reader import Run
from diffstride.lab.reports.sweeps import MEAN, Metric, Sweep, read
from diffstride.lab.runs.documents import read_json

FIRST = "Strides of the first layer, and up to which frequency they let pass"
FIRST_HEAD = ["task", "time", "frequency", "Hz", "cycles per channel"]
FIRST_DIGITS = (2, 2, 2, 4)  # as the paper has them


def write_tables(folder: str | Path) -> str:
    """Write table.csv, table.md and table.tex into the folder of a sweep.

    Returns:
        The same as text.

    Raises:
        ValueError: if the folder is no sweep, or a run in it is damaged.
    """
    folder = Path(folder)
    found = read(folder)
    measured = folder / "measured.json"
    if not found.plan["runs"]:  # the table of costs
        if not measured.exists():
            raise ValueError(f"{folder} has no measured.json yet: `diffstride sweep cost` makes it")
        result = read_json(measured, "values", "conditions")
        blocks = [("", _cost(found.plan, result["values"]))]
        notes = [found.plan["title"], f"Scale {found.plan['scale']}: {result['conditions']}."]
        write(folder / "table.csv", _cost_csv(found.plan, result["values"]))
    else:
        blocks, notes = list(_blocks(found)), _notes(found)
        write(folder / "table.csv", _csv(found))
    write(folder / "table.md", formats.markdown(blocks, notes))
    write(folder / "table.tex", formats.latex(blocks, notes))
    return formats.text(blocks, notes)


def _blocks(found: Sweep) -> Iterator[tuple[str, Lines]]:
    columns = found.plan["columns"]
    for metric in found.metrics:
        lines = [["", *map(found.title, columns)]]
        digits = found.digits(metric)
        for row in found.rows:
            cells = [found.cell(row, column, metric) for column in columns]
            lines.append([row, *(_own(cell.values, digits, cell.planned) for cell in cells)])
            more = {
                "paper": [_plus_minus(cell.paper, digits) for cell in cells],
                "M MACs": [_mean(cell.mmacs) for cell in cells],
                "s per step": [_mean(cell.seconds) for cell in cells],
            }
            if found.regularised:
                more["J"] = [_mean(cell.penalties) for cell in cells]
            if set(more["paper"]) == {"–"}:
                del more["paper"]
            lines += [[f"  {name}", *texts] for name, texts in more.items()]
        if MEAN in found.rows and found.comparable:
            lines += _spreads(found, metric, digits)
        yield metric.title, lines
    if first := first_strides(found):
        yield FIRST, [FIRST_HEAD, *first]


def _spreads(found: Sweep, metric: Metric, digits: int) -> Lines:
    """How far apart the settings of a method are, where all of them have finished runs."""
    spreads = [found.spread(column, metric) for column in found.plan["columns"]]
    lines = [
        [name, *("–" if value is None else f"{value:.{digits}f}" for value in values)]
        for name, values in zip(("Max − min", "  paper"), zip(*spreads, strict=True), strict=True)
    ]
    return [line for line in lines if line[0] == "Max − min" or set(line[1:]) != {"–"}]


def first_strides(found: Sweep) -> Lines:
    """The learned strides of the first layer, time then frequency, with what they let pass."""
    lines = []
    for first in found.first_strides():
        numbers = zip(*first.values, strict=True) if first.values else [()] * 4
        own = zip(numbers, FIRST_DIGITS, strict=True)
        lines.append([first.title, *(_own(number, digits, 0) for number, digits in own)])
        if first.paper:
            paper = zip(first.paper, FIRST_DIGITS, strict=True)
            lines.append(["  paper", *(_plus_minus(figure, digits) for figure, digits in paper)])
    return lines


def _notes(found: Sweep) -> list[str]:
    plan, missing = found.plan, found.missing()
    runs = list(found.runs.values())
    total = len({entry["name"] for entry in plan["runs"]})
    seeds = plan["seeds"]
    means = "seeds, that of a mean over settings too" if MEAN in found.rows else "seeds"
    notes = [
        f"{plan['title']}: test accuracy in percent after the last epoch, mean ± sd over {means}",
        f"Scale {plan['scale']}, n = {len(seeds)} (seed{'s' * (len(seeds) > 1)} "
        f"{', '.join(map(str, seeds))})" + "".join(f", {fact}" for fact in _shared(runs)) + ".",
        "M MACs are of the network as it is in the end, for one example; seconds per step are of "
        "the last epoch, its evaluation included.",
    ]
    notes += _differences(found)
    if over := list(_over_budget(found)):
        notes.append(f"Over their budgets by more than a twentieth, in M MACs: {', '.join(over)}.")
    if missing:
        some = ", ".join(missing[:10]) + (f" and {len(missing) - 10} more" * (len(missing) > 10))
        notes.append(f"{total - len(missing)} of {total} runs are finished; missing: {some}.")
    return notes


def _differences(found: Sweep) -> Iterator[str]:
    """In what methods differ besides their names: their windows, and budgets above the cost."""
    windows: dict[str, dict[str, None]] = {}
    above: dict[str, str] = {}
    first = found.plan["columns"][0]
    for entry in found.plan["runs"]:
        run = found.runs.get(entry["name"])
        if run is None or run.downsampling != "diffstride":
            continue
        column = str(entry["column"])
        window = f"R = {run.smoothness:g}, {run.convention} convention"
        windows.setdefault(window, {})[found.title(column)] = None
        budget = run.config.get("macs_budget")
        other = f"multi_{first}" if column.startswith("multi_") else first
        costs = [
            cost
            for own in found.plan["runs"]
            if (own["row"], own["column"]) == (entry["row"], other)
            and own["name"] in found.runs
            and (cost := found.runs[own["name"]].last("mmacs")) is not None
        ]
        if budget and costs and budget > 1.01 * statistics.fmean(costs):
            above[entry["row"]] = f"{entry['row']} {budget / statistics.fmean(costs) - 1:.0%}"
    if len(windows) > 1:
        told = "; ".join(f"{', '.join(names)}: {window}" for window, names in windows.items())
        yield f"Windows differ. {told}."
    if above:
        yield (
            f"Budgets are above the cost of {found.title(first)} where learnable strides can't "
            f"cost as little: {', '.join(above.values())}."
        )


def _over_budget(found: Sweep) -> Iterator[str]:
    """Runs that did not become as cheap as they were told to."""
    for name, run in found.runs.items():
        budget, used = run.config.get("macs_budget"), run.last("mmacs")
        if run.finished and budget and used is not None and used > 1.05 * budget:
            yield f"{name} {used:.3g} of {budget:.3g}"


def _shared(runs: Sequence[Run]) -> Iterator[str]:
    """What all runs have in common of data, network and length."""

    def common(section: str, name: str) -> Any:
        values = [run.config.get(section, {}).get(name) for run in runs]
        return values[0] if values and all(value == values[0] for value in values) else None

    data = [run.config.get("data", {}) for run in runs]
    tasks = dict.fromkeys(task for told in data for task in told.get("task") or ())
    names = {Path(str(told.get("path") or "digits")).name for told in data}
    counts = {(run.facts.get("train"), run.facts.get("test")) for run in runs if not tasks}
    if tasks:
        yield f"data {', '.join(tasks)}"
    elif len(names) == len(counts) == 1:
        ((train, test),) = counts
        yield f"data {names.pop()} ({train} examples to train on, {test} to test on)"
    for section, name, text in (
        ("model", "name", "{}"),
        ("model", "width", "width {:g}"),
        ("model", "smoothness", "R = {:g}"),
        ("data", "batch_size", "batches of {}"),
        ("trainer", "steps", "{} steps an epoch"),
        ("trainer", "epochs", "epochs: {}"),
    ):
        if (value := common(section, name)) is not None:
            yield text.format(value)


def _own(values: Sequence[float], digits: int, whole: int) -> str:
    """Mean and deviation, and of how many if they are fewer than the whole."""
    if not values:
        return "–"
    pair = [statistics.mean(values), *([statistics.stdev(values)] if len(values) > 1 else [])]
    return _plus_minus(pair, digits) + (f" (n = {len(values)})" if len(values) < whole else "")


def _plus_minus(pair: Sequence[float], digits: int) -> str:
    return " ± ".join(f"{value:.{digits}f}" for value in pair) or "–"


def _mean(values: Sequence[float]) -> str:
    return f"{statistics.mean(values):.3g}" if values else "–"


def _csv(found: Sweep) -> str:
    """A line a cell and metric, accuracies in percent."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = "row column metric n mean sd paper_mean paper_sd mmacs seconds_per_step penalty"
    writer.writerow(names.split())
    for metric in found.metrics:
        for row in found.rows:
            for column in found.plan["columns"]:
                cell = found.cell(row, column, metric)
                deviation = statistics.stdev(cell.values) if len(cell.values) > 1 else ""
                own = (cell.mmacs, cell.seconds, cell.penalties)
                means = [statistics.mean(values) if values else "" for values in own]
                mean = statistics.mean(cell.values) if cell.values else ""
                figures = [*cell.paper, "", ""][:2]
                values = [len(cell.values), mean, deviation, *figures, *means]
                writer.writerow([row, column, metric.column, *values])
    return text.getvalue()


def _cost(plan: dict[str, Any], values: dict[str, dict[str, float]]) -> Lines:
    """Relative to the first method, the paper's figures, and what was measured."""
    columns = plan["columns"]
    lines = [["", *(plan["column_titles"][column] for column in columns)]]
    for row in plan["rows"]:
        own = [values[row][column] for column in columns]
        paper = [plan["paper"].get(row, {}).get(column, ()) for column in columns]
        unit, size = ("ms", 1e3) if "time" in row else ("MB", 1e-6)
        lines.append([row, *(f"{value / own[0]:.2f}" for value in own)])
        lines.append(["  paper", *(_plus_minus(figures, 2) for figures in paper)])
        lines.append([f"  {unit}", *(f"{value * size:.3g}" for value in own)])
    return lines


def _cost_csv(plan: dict[str, Any], values: dict[str, dict[str, float]]) -> str:
    lines = ["row,column,value,paper_relative"]
    for row in plan["rows"]:
        for column in plan["columns"]:
            paper = plan["paper"].get(row, {}).get(column, [""])[0]
            lines.append(f"{row},{column},{values[row][column]},{paper}")
    return "\n".join(lines) + "\n"
