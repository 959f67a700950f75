"""What came out: accuracies beside the paper's, and what they cost."""

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from diffstride.lab.reports import plots
from diffstride.lab.reports.run_reader import Run
from diffstride.lab.reports.sections import (
    ALONE,
    Block,
    Part,
    Section,
    joined,
    mean,
    number,
    percent,
    plus_minus,
)
from diffstride.lab.reports.sweep_table import FIRST, FIRST_HEAD, first_strides
from diffstride.lab.reports.sweeps import Cell, Metric, Sweep


def summary(part: Part) -> Section:
    hours = sum(run.minutes for run in part.runs) / 60
    spent = f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.1f} min"
    if part.sweep is not None:
        plan = part.sweep.plan
        total = len({entry["name"] for entry in plan["runs"]})
        cards = [("Scale", str(plan["scale"]))]
        if total:
            cards.insert(0, ("Runs finished", f"{total - len(part.sweep.missing())} of {total}"))
            cards.append(("Training time", spent))
        text = _spreads(part.sweep) if total else "Measured, not trained."
    elif len(part.runs) == 1:
        (run,) = part.runs
        cards = [
            ("Test accuracy", percent(run.last("test_accuracy"))),
            ("Million MACs", number(run.last("mmacs"))),
            ("Epochs", f"{run.epochs} of {run.planned}"),
            ("Training time", spent),
        ]
        text = _what_it_learned(run)
    else:
        scored = [run for run in part.runs if run.last("test_accuracy") is not None]
        best = max(scored, key=lambda run: run.last("test_accuracy") or 0.0, default=None)
        cards = [("Runs", str(len(part.runs))), ("Training time", spent)]
        text = ""
        if best is not None:
            cards.insert(1, ("Best test accuracy", percent(best.last("test_accuracy"))))
            text = f"The best is {best.name}, after {best.epochs} epochs."
    return Section("Summary", text, [{"kind": "cards", "items": cards}])


def _spreads(sweep: Sweep) -> str:
    if not sweep.comparable or len(sweep.settings) < 2:
        return ""
    said = []
    for column in sweep.plan["columns"]:
        own, _ = sweep.spread(column, sweep.metrics[0])
        if own is not None:
            said.append(f"{own:.1f} points with {sweep.title(column)}")
    if not said:
        return "No method has a finished run of every setting yet."
    return f"Over {len(sweep.settings)} settings, max − min of mean accuracy is {', '.join(said)}."


def _what_it_learned(run: Run) -> str:
    if not run.sites:
        return f"A network with {run.downsampling} downsampling; it has no strides to learn."
    began = ", ".join(joined(run, layer, 0) for layer in run.layers)
    ended = ", ".join(joined(run, layer, -1) for layer in run.layers)
    return (
        f"Strides began at {began} and are now {ended}; "
        f"the product of all, the global striding factor, is {run.factor:.1f}."
    )


def results(part: Part) -> Section | None:
    """The table of a sweep, and the same as a figure."""
    sweep = part.sweep
    if sweep is None:
        return None
    if not sweep.plan["runs"]:
        return _measured(part, sweep) if part.measured else None
    columns, settings = sweep.plan["columns"], sweep.settings
    tables = [_accuracies(f"{part.title}: {_named(m)}", sweep, m) for m in sweep.metrics]
    if first := first_strides(sweep):
        tables.append({"kind": "table", "caption": FIRST, "head": FIRST_HEAD, "rows": first})
    series = [
        (i, [sweep.cell(row, column, sweep.metrics[0]) for row in settings])
        for i, column in enumerate(columns)
    ]
    drawn = plots.means(
        settings,
        [(i, [_pair(c.values) for c in own], [_first(c.paper) for c in own]) for i, own in series],
        xlabel="test accuracy (%)",
    )
    legend = [(i, 0, sweep.title(column)) for i, column in enumerate(columns)]
    title = "Accuracy by setting; filled: these runs, with their sd; rings: the paper"
    return Section(
        "Results",
        "Beside the paper's own figures, and with the price: multiply-accumulates (millions) and "
        "seconds per step of the network as it was in the end.",
        [*tables, {"kind": "figures", "legend": legend, "items": [(drawn, title)]}],
    )


def _measured(part: Part, sweep: Sweep) -> Section:
    """A table of times and memory, which is measured and has no runs."""
    columns = sweep.plan["columns"]
    body = []
    for row in sweep.plan["rows"]:
        own = part.measured[row]
        paper = sweep.plan.get("paper", {}).get(row, {})
        cells = [
            {"here": f"{own[c] / own[columns[0]]:.2f}", "paper": plus_minus(paper.get(c, ()), 2)}
            for c in columns
        ]
        body.append((row, cells))
    return Section("Results", "", [_matrix(f"{part.title}: relative to the first", sweep, body)])


def _matrix(caption: str, sweep: Sweep, body: list[Any]) -> Block:
    head = [sweep.title(column) for column in sweep.plan["columns"]]
    return {"kind": "matrix", "caption": caption, "corner": "setting", "head": head, "rows": body}


def _named(metric: Metric) -> str:
    kind = f"{metric.title} test accuracy" if metric.title else "test accuracy"
    return f"{kind} in %, mean ± sd over n runs"


def _accuracies(caption: str, sweep: Sweep, metric: Metric) -> Block:
    body = []
    for row in sweep.rows:
        cells = [sweep.cell(row, column, metric) for column in sweep.plan["columns"]]
        best = max((statistics.fmean(cell.values) for cell in cells if cell.values), default=None)
        body.append((row, [_texts(cell, best, sweep.digits(metric)) for cell in cells]))
    return _matrix(caption, sweep, body)


def _texts(cell: Cell, best: float | None, digits: int) -> dict[str, Any]:
    pair = _pair(cell.values)
    if pair is None:
        aside = "not finished" if cell.planned else "–"
        return {"here": "", "aside": aside, "paper": plus_minus(cell.paper, digits)}
    return {
        "here": plus_minus(pair if len(cell.values) > 1 else pair[:1], digits),
        "best": pair[0] == best,
        "aside": f"n = {len(cell.values)}",
        "paper": plus_minus(cell.paper, digits),
        "macs": number(mean(cell.mmacs)),
        "seconds": number(mean(cell.seconds)),
    }


def _pair(values: Sequence[float]) -> tuple[float, float] | None:
    """Mean and deviation, which of one value is 0."""
    if not values:
        return None
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def _first(values: Sequence[float]) -> float | None:
    return values[0] if values else None


def prices(part: Part) -> Section | None:
    """Accuracy against J and against MACs."""
    measures: dict[str, Callable[[Run], float | None]] = {
        "regulariser J": lambda run: run.penalty,
        "million MACs": lambda run: run.last("mmacs"),
    }
    items, seen = [], set()
    for xlabel, measure in measures.items():
        series: dict[int, list[tuple[float, float]]] = {}
        for group in part.groups:
            for run in group.runs:
                x, y = measure(run), run.last("test_accuracy")
                if run.finished and x is not None and y is not None:
                    series.setdefault(part.columns.index(group.column), []).append((x, 100 * y))
        if sum(map(len, series.values())) > 1:
            drawn = plots.scatter(series, xlabel=xlabel, ylabel="test accuracy (%)")
            items.append((drawn, f"Test accuracy against {xlabel}"))
            seen |= set(series)
    if not items:
        return None
    legend = [(i, 0, column) for i, column in enumerate(part.columns) if i in seen]
    text = "A point a run. A stride that shrinks buys accuracy with computation; here is the price."
    return Section(
        "What accuracy costs", text, [{"kind": "figures", "legend": legend, "items": items}]
    )


def every_run(part: Part) -> Section | None:
    if not part.runs:
        return None
    tasks = list(
        dict.fromkeys(
            name
            for run in part.runs
            for name in (run.metrics[-1] if run.metrics else ())
            if name.startswith("test_accuracy_")
        )
    )
    body = []
    for run in part.runs:
        began = ", ".join(joined(run, layer, 0) for layer in run.layers)
        ended = ", ".join(joined(run, layer, -1) for layer in run.layers)
        body.append(
            [
                run.name,
                run.downsampling,
                percent(run.last("test_accuracy")),
                *(percent(run.last(task)) for task in tasks),
                f"{began} → {ended}" if began else run.start,
                number(run.penalty),
                number(run.last("mmacs")),
                number(run.seconds_per_step),
                f"{run.epochs}/{run.planned}",
            ]
        )
    named = [name.removeprefix("test_accuracy_") for name in tasks]
    head = ["run", "downsampling", "accuracy", *named, "strides", "J", "MMACs", "s per step"]
    table = {
        "kind": "table",
        "caption": f"{len(body)} runs, after their last epochs"
        if len(body) > 1
        else "After its last epoch",
        "head": [*head, "epochs"],
        "rows": body,
        "folded": len(body) > ALONE,
    }
    return Section("All runs" if len(body) > 1 else "The run", "", [table])
