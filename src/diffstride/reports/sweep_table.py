"""The table of a sweep in the paper's layout, beside the paper's figures and with its price."""

import csv
import io
import json
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diffstride.reports import formats
from diffstride.reports.formats import Lines
from diffstride.reports.reading import Run, read_run
from diffstride.reports.table import cutoff

MEAN = "Mean accuracy"


@dataclass(frozen=True)
class Cell:
    """What the finished runs of one row and column say; accuracies in percent."""

    values: Sequence[float]
    paper: Sequence[float]
    """Mean and standard deviation, either of which may be missing."""
    mmacs: Sequence[float]
    seconds: Sequence[float]
    """A step, in the last epoch, its share of evaluation included."""
    penalties: Sequence[float]


@dataclass(frozen=True)
class Found:
    """A sweep as its folder has it."""

    plan: dict[str, Any]
    runs: dict[str, Run]
    """Those that began, by name."""

    def cell(self, row: str, column: str, metric: str, paper: str) -> Cell:
        """Of a row, or of all of them for the row of means."""
        values, runs, penalties = [], {}, []
        for entry in self.plan["runs"]:
            run = self.runs.get(entry["name"])
            if entry["column"] != column or run is None or not run.finished:
                continue
            # A network for several tasks has a row for each of them.
            metrics = {entry["row"]: metric} if "tasks" not in entry else entry["tasks"]
            told = [run.last(name) for place, name in metrics.items() if row in (place, MEAN)]
            if own := [100 * value for value in told if value is not None]:
                values += own
                runs[entry["name"]] = run
                penalties.append(entry.get("penalty", run.last("stride_penalty")))
        return Cell(
            values,
            self.plan.get(paper, {}).get(row, {}).get(column, ()),
            _known(run.last("mmacs") for run in runs.values()),
            _known(run.seconds_per_step for run in runs.values()),
            _known(penalties),
        )

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
    if found.plan["table"] == "cost":
        if not measured.exists():
            raise ValueError(f"{folder} has no measured.json yet: `diffstride sweep cost` makes it")
        result = json.loads(measured.read_text("utf-8"))
        blocks = [("", _cost(found.plan, result["values"]))]
        notes = [found.plan["title"], f"Scale {found.plan['scale']}: {result['conditions']}."]
        (folder / "table.csv").write_text(_cost_csv(found.plan, result["values"]), "utf-8")
    else:
        blocks, notes = list(_blocks(found)), _notes(found)
        (folder / "table.csv").write_text(_csv(found), "utf-8")
    (folder / "table.md").write_text(formats.markdown(blocks, notes), "utf-8")
    (folder / "table.tex").write_text(formats.latex(blocks, notes), "utf-8")
    return formats.text(blocks, notes)


def read(folder: Path) -> Found:
    """A sweep and its runs, however far they are."""
    try:
        plan = json.loads((folder / "sweep.json").read_text("utf-8"))
        names = {entry["name"]: (entry["row"], entry["column"]) for entry in plan["runs"]}
        missing = {"table", "title", "scale", "seeds", "rows", "columns"} - set(plan)
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{folder} has no sweep.json that can be read: {error!r}") from error
    if missing:
        raise ValueError(f"{folder / 'sweep.json'} must have {', '.join(sorted(missing))}")
    began = (name for name in names if (folder / name / "config.yaml").is_file())
    return Found(plan, {name: read_run(folder / name) for name in began})


def _metrics(plan: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Title, column of metrics.csv and key of the paper's figures."""
    if "paper_top5" not in plan:
        return [("", "test_accuracy", "paper")]
    return [("Top-1", "test_accuracy", "paper"), ("Top-5", "test_top5", "paper_top5")]


def _rows(plan: dict[str, Any]) -> list[str]:
    rows = [row for row in plan["rows"] if row != MEAN]
    regularised = any("penalty" in entry for entry in plan["runs"])
    return rows if regularised or len(rows) < 2 else [*rows, MEAN]


def _blocks(found: Found) -> Iterator[tuple[str, Lines]]:
    plan = found.plan
    titles = plan.get("column_titles", {})
    for title, metric, paper in _metrics(plan):
        lines = [["", *(titles.get(column, column) for column in plan["columns"])]]
        digits = _digits(plan.get(paper, {}))
        for row in _rows(plan):
            cells = [found.cell(row, column, metric, paper) for column in plan["columns"]]
            whole = [_planned(plan, row, column) for column in plan["columns"]]
            own = zip(cells, whole, strict=True)
            lines.append([row, *(_own(cell.values, digits, n) for cell, n in own)])
            more = {
                "paper": [_plus_minus(cell.paper, digits) for cell in cells],
                "M MACs": [_mean(cell.mmacs) for cell in cells],
                "s per step": [_mean(cell.seconds) for cell in cells],
            }
            if any("penalty" in entry for entry in plan["runs"]):
                more["J"] = [_mean(cell.penalties) for cell in cells]
            if set(more["paper"]) == {"–"}:
                del more["paper"]
            lines += [[f"  {name}", *texts] for name, texts in more.items()]
        if MEAN in _rows(plan) and not any("tasks" in entry for entry in plan["runs"]):
            lines += _spreads(found, metric, paper, digits)
        yield title, lines
    if "paper_first_strides" in plan:
        yield "Strides of the first layer, and up to which frequency they let pass", _first(found)


def _planned(plan: dict[str, Any], row: str, column: str) -> int:
    """How many values a cell has when all is done; a network for several tasks has one for each."""
    own = [entry for entry in plan["runs"] if entry["column"] == column]
    places = [place for entry in own for place in entry.get("tasks", [entry["row"]])]
    return sum(row in (place, MEAN) for place in places)


def _spreads(found: Found, metric: str, paper: str, digits: int) -> Lines:
    """How far apart the settings of a method are, where all of them have finished runs."""

    def spread(means: list[float]) -> str:
        whole = len(means) == len(_rows(found.plan)) - 1
        return f"{max(means) - min(means):.{digits}f}" if whole else "–"

    lines = [["Max − min"], ["  paper"]]
    for column in found.plan["columns"]:
        rows = [row for row in _rows(found.plan) if row != MEAN]
        cells = [found.cell(row, column, metric, paper) for row in rows]
        lines[0].append(spread([statistics.mean(cell.values) for cell in cells if cell.values]))
        lines[1].append(spread([cell.paper[0] for cell in cells if cell.paper]))
    return lines if set(lines[1][1:]) != {"–"} else lines[:1]


def _first(found: Found) -> Lines:
    """The learned strides of the first layer, time then frequency, with what they let pass."""
    lines = [["", "time", "frequency", "Hz", "cycles per channel"]]
    for row in found.plan["rows"]:
        column = "multi_diffstride" if row == MEAN else "diffstride"
        values = []
        for entry in found.plan["runs"]:
            run = found.runs.get(entry["name"])
            if (entry["row"], entry["column"]) == (row, column) and run and run.finished:
                layer = run.strides[0]["layer"]
                own = [line for line in run.strides if line["layer"] == layer][-2:]
                strides = [float(line["stride"]) for line in own]
                values.append([*strides, *(cutoff(line, run.facts) for line in own)])
        name = "Network for all tasks" if row == MEAN else row
        numbers = zip(*values, strict=True) if values else [()] * 4
        lines.append([name, *(_own(number, 3, 0) for number in numbers)])
        if paper := found.plan["paper_first_strides"].get(row):
            both = [*paper["strides"], *paper["cutoffs"]]
            lines.append(["  paper", *(_plus_minus(figure, 3) for figure in both)])
    return lines


def _notes(found: Found) -> list[str]:
    plan, missing = found.plan, found.missing()
    runs = list(found.runs.values())
    total = len({entry["name"] for entry in plan["runs"]})
    seeds = plan["seeds"]
    notes = [
        f"{plan['title']}: test accuracy in percent after the last epoch, mean ± sd over seeds",
        f"Scale {plan['scale']}, n = {len(seeds)} (seed{'s' * (len(seeds) > 1)} "
        f"{', '.join(map(str, seeds))})" + "".join(f", {fact}" for fact in _shared(runs)) + ".",
        "M MACs are of the network as it is in the end, for one example; seconds per step are of "
        "the last epoch, its evaluation included.",
    ]
    if over := list(_over_budget(found)):
        notes.append(f"Over their budgets by more than a twentieth, in M MACs: {', '.join(over)}.")
    if missing:
        some = ", ".join(missing[:10]) + (f" and {len(missing) - 10} more" * (len(missing) > 10))
        notes.append(f"{total - len(missing)} of {total} runs are finished; missing: {some}.")
    return notes


def _over_budget(found: Found) -> Iterator[str]:
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


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _digits(paper: dict[str, dict[str, Sequence[float]]]) -> int:
    """As many as the paper has after the point."""
    figures = [value for row in paper.values() for pair in row.values() for value in pair]
    return 2 if any(round(value, 1) != value for value in figures) else 1


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


def _csv(found: Found) -> str:
    """A line a cell and metric, accuracies in percent."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = "row column metric n mean sd paper_mean paper_sd mmacs seconds_per_step penalty"
    writer.writerow(names.split())
    for _, metric, paper in _metrics(found.plan):
        for row in _rows(found.plan):
            for column in found.plan["columns"]:
                cell = found.cell(row, column, metric, paper)
                deviation = statistics.stdev(cell.values) if len(cell.values) > 1 else ""
                means = [statistics.mean(v) if v else "" for v in (cell.mmacs, cell.seconds)]
                penalty = statistics.mean(cell.penalties) if cell.penalties else ""
                mean = statistics.mean(cell.values) if cell.values else ""
                figures = [*cell.paper, "", ""][:2]
                values = [len(cell.values), mean, deviation, *figures, *means, penalty]
                writer.writerow([row, column, metric, *values])
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
