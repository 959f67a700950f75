"""The sections on what came out: accuracies beside the paper's, and what they cost."""

from collections.abc import Callable

from diffstride.lab.reports import chapters, plots
from diffstride.lab.reports.chapters import Chapter, PageBlock, Section
from diffstride.lab.reports.formats import number, percent
from diffstride.lab.reports.run_reader import RunRecord
from diffstride.lab.reports.sweep_reader import Metric, Sweep
from diffstride.lab.reports.sweep_table import FIRST_STRIDES, FIRST_STRIDES_HEAD, first_stride_lines
from diffstride.text import times


def summary(chapter: Chapter) -> Section:
    """The numbers to see first, and a sentence on them."""
    hours = sum(run.minutes for run in chapter.runs) / 60
    spent = ("Training time", f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.1f} min")
    cards, text = [("Runs", str(len(chapter.runs))), spent], ""
    scored = [run for run in chapter.runs if run.last("test_accuracy") is not None]
    if chapter.sweep is not None:
        sweep, total = chapter.sweep, len(chapter.sweep.names)
        cards, text = [("Scale", str(sweep.plan["scale"]))], "Measured, not trained."
        if total:
            finished = ("Runs finished", f"{total - len(sweep.missing())} of {total}")
            cards, text = [finished, *cards, spent], _spreads(sweep)
    elif len(chapter.runs) == 1:
        (run,) = chapter.runs
        cards = [
            ("Test accuracy", percent(run.last("test_accuracy"))),
            ("Million MACs", number(run.last("mmacs"))),
            ("Epochs", f"{run.epochs} of {run.planned_epochs}"),
            spent,
        ]
        text = _learned(run)
    elif scored:
        best = max(scored, key=lambda run: run.last("test_accuracy") or 0.0)
        cards.insert(1, ("Best test accuracy", percent(best.last("test_accuracy"))))
        text = f"The best is {best.name}, after {best.epochs} epochs."
    return Section("Summary", text, [{"kind": "cards", "items": cards}])


def _spreads(sweep: Sweep) -> str:
    if not sweep.comparable or len(sweep.settings) < 2:
        return ""
    spreads = {column: sweep.spread(column, sweep.metrics[0])[0] for column in sweep.columns}
    known = {sweep.title(c): f"{s:.1f} points" for c, s in spreads.items() if s is not None}
    if not known:
        return "No method has a finished run of every setting yet."
    points = ", ".join(f"{spread} with {title}" for title, spread in known.items())
    return f"Over {len(sweep.settings)} settings, max − min of mean accuracy is {points}."


def _learned(run: RunRecord) -> str:
    if not run.strides:
        return f"A network with {run.downsampling} downsampling; it has no strides to learn."
    return (
        f"Strides began at {_strides_at(run, 0)} and are now {_strides_at(run, -1)}; "
        f"the product of all, the global striding factor, is {run.striding_factor:.1f}."
    )


def _strides_at(run: RunRecord, index: int) -> str:
    """The strides of each layer, once where those of all axes are alike."""
    layers = []
    for strides in run.layers.values():
        values = [stride.points[index][1] for stride in strides]
        alike = len({f"{value:.3g}" for value in values}) == 1
        layers.append(times(values[:1] if alike else values, "{:.3g}"))
    return ", ".join(layers)


def paper_comparison(chapter: Chapter) -> Section:
    """The tables of a sweep beside the paper's figures, and the first of them as a figure."""
    sweep = chapter.sweep
    if sweep is None or not (sweep.plan["runs"] or sweep.measured):
        return Section("Results", "", [])
    first = sweep.metrics[0]
    if sweep.measured:
        return Section("Results", "", [_matrix("relative to the first", sweep, first, 2)])
    tables = []
    for metric in sweep.metrics:
        name = f"{metric.title} test accuracy" if metric.title else "test accuracy"
        caption = f"{name} in %, mean ± sd over n runs"
        tables.append(_matrix(caption, sweep, metric, sweep.digits(metric)))
    tables += chapters.table(FIRST_STRIDES, FIRST_STRIDES_HEAD, first_stride_lines(sweep))
    cells = zip(*(sweep.cells(row, first) for row in sweep.settings), strict=True)
    series = [[(cell.here, cell.paper) for cell in column] for column in cells]
    svg = plots.means(sweep.settings, series, xlabel="test accuracy (%)")
    title = "Accuracy by setting; filled: these runs, with their sd; rings: the paper"
    legend = chapters.colour_legend(map(sweep.title, sweep.columns))
    return Section(
        "Results",
        "Beside the paper's own figures, and with the price: multiply-accumulates (millions) and "
        "seconds per step of the network as it was in the end.",
        [*tables, *chapters.figures(legend, [(svg, title)])],
    )


def _matrix(caption: str, sweep: Sweep, metric: Metric, digits: int) -> PageBlock:
    return {
        "kind": "matrix",
        "caption": f"{sweep.plan['title']}: {caption}",
        "head": ["setting", *map(sweep.title, sweep.columns)],
        "rows": [(row, sweep.cells(row, metric)) for row in sweep.rows],
        "digits": digits,
    }


def accuracy_costs(chapter: Chapter) -> Section:
    """Accuracy against J and against MACs."""
    measures: dict[str, Callable[[RunRecord], float | None]] = {
        "regulariser J": lambda run: run.penalty,
        "million MACs": lambda run: run.last("mmacs"),
    }
    columns, items, shown = chapter.columns, [], set()
    for xlabel, measure in measures.items():
        series: dict[int, list[tuple[float, float]]] = {}
        for group in chapter.groups:
            for run in group.runs:
                x, y = measure(run), run.last("test_accuracy")
                if run.finished and x is not None and y is not None:
                    series.setdefault(columns.index(group.column), []).append((x, 100 * y))
        if sum(map(len, series.values())) > 1:
            svg = plots.scatter(series, xlabel=xlabel, ylabel="test accuracy (%)")
            items.append((svg, f"Test accuracy against {xlabel}"))
            shown |= set(series)
    legend = [entry for entry in chapters.colour_legend(columns) if entry[0] in shown]
    text = "A point a run. A stride that shrinks buys accuracy with computation; here is the price."
    return Section("What accuracy costs", text, chapters.figures(legend, items))


def every_run(chapter: Chapter) -> Section:
    """A table with a row for each run."""
    runs, several = chapter.runs, len(chapter.runs) > 1
    tasks = list(dict.fromkeys(task for run in runs for task in run.task_accuracies))
    rows = [
        [
            run.name,
            run.downsampling,
            percent(run.last("test_accuracy")),
            *(percent(run.task_accuracies.get(task)) for task in tasks),
            f"{_strides_at(run, 0)} → {_strides_at(run, -1)}" if run.strides else run.beginning,
            *map(number, (run.penalty, run.last("mmacs"), run.seconds_per_step)),
            f"{run.epochs}/{run.planned_epochs}",
        ]
        for run in runs
    ]
    caption = f"{len(runs)} runs, after their last epochs" if several else "After its last epoch"
    head = ["run", "downsampling", "accuracy", *tasks, "strides", "J", "MMACs", "s per step"]
    folded = len(runs) > chapters.MOST_SINGLE_RUNS
    table = chapters.table(caption, [*head, "epochs"], rows, folded)
    return Section("All runs" if several else "The run", "", table)
