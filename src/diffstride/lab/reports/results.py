"""The sections on what came out: scores beside the paper's, their cost, how runs were made."""

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from diffstride.lab.reports import chapters, pictures, plots
from diffstride.lab.reports.chapters import Block, Chapter, RunGroup, Section
from diffstride.lab.reports.formats import number, percent
from diffstride.lab.reports.run_reader import RunRecord
from diffstride.lab.reports.sweep_reader import Metric, Sweep
from diffstride.lab.reports.tables import (
    FIRST_STRIDES,
    FIRST_STRIDES_HEAD,
    first_stride_lines,
    heading,
)
from diffstride.lab.runs.axes import Axis
from diffstride.lab.runs.config_file import flat
from diffstride.lab.runs.robust import SUMMARY_HEAD
from diffstride.lab.runs.scores import NOISY
from diffstride.text import times


def summary(chapter: Chapter) -> Section:
    """The numbers to see first, and a sentence on them."""
    hours = sum(run.minutes for run in chapter.runs) / 60
    spent = ("Training time", f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.1f} min")
    cards, text = [("Runs", str(len(chapter.runs))), spent], ""
    scored = [run for run in chapter.runs if run.scored is not None]
    if chapter.sweep is not None:
        sweep, total = chapter.sweep, len(chapter.sweep.names)
        cards, text = [("Scale", str(sweep.plan["scale"]))], "Measured, not trained."
        if total:
            finished = ("Runs finished", f"{total - len(sweep.missing())} of {total}")
            cards, text = [finished, *cards, spent], _spreads(sweep)
    elif len(chapter.runs) == 1:
        (run,) = chapter.runs
        cards = [
            (f"{run.tested} {run.score.title}", run.score.short(run.scored)),
            *_before(run),
            ("Million MACs", number(run.last("mmacs"))),
            ("Epochs", run.progress),
            spent,
        ]
        text = f"A network with {run.downsampling} downsampling; it has no strides to learn."
        if run.strides:
            text = f"Strides began at {_strides_at(run, 0)} and are now {_strides_at(run, -1)}; "
            factor = f"{run.striding_factor:.1f}"
            text += f"the product of all, the global striding factor, is {factor}."
    elif scored:
        texts = []
        for i, score in enumerate(chapter.scores):
            own = [run for run in scored if run.score == score]
            best = _best(own)
            if best is not None:
                cards.insert(
                    1 + i, (f"Best {_tested(own)} {score.title}", score.short(best.scored))
                )
                by = f" by {score.title}" if len(chapter.scores) > 1 else ""
                texts.append(f"The best{by} is {best.name}, after {best.epochs} epochs.")
        text = " ".join(texts)
    return Section("Summary", text, [{"kind": "cards", "items": cards}])


def _best(runs: list[RunRecord]) -> RunRecord | None:
    """The run with the best score; runs that are judged by the same, and have a score."""
    sign = -1 if runs and runs[0].score.lower_is_better else 1
    return max(runs, key=lambda run: sign * (run.scored or 0.0), default=None)


def _before(run: RunRecord) -> list[tuple[str, str]]:
    """The same of the images as they were before the network took their noise away."""
    noisy = run.last(f"test_{NOISY}_{run.score.name}")
    return [] if noisy is None else [(f"Noisy {run.score.title}", run.score.short(noisy))]


def _spreads(sweep: Sweep) -> str:
    if not sweep.comparable or len(sweep.settings) < 2:
        return ""
    spreads = {column: sweep.spread(column, sweep.metrics[0])[0] for column in sweep.columns}
    digits, points, name = sweep.score.few_digits, sweep.score.difference, sweep.score.title
    known = [
        f"{s:.{digits}f} {points} with {sweep.title(c)}"
        for c, s in spreads.items()
        if s is not None
    ]
    if not known and not sweep.missing():  # a grid whose methods have settings of their own
        return ""
    if not known:
        return "No method has a finished run of every setting yet."
    return f"Over {len(sweep.settings)} settings, max − min of mean {name} is {', '.join(known)}."


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
    blocks = [_matrix(sweep, metric) for metric in sweep.metrics]
    if sweep.measured:
        return Section("Results", "", blocks)
    blocks += chapters.table(FIRST_STRIDES, FIRST_STRIDES_HEAD, first_stride_lines(sweep))
    cells = zip(*(sweep.cells(row, sweep.metrics[0]) for row in sweep.settings), strict=True)
    series = [[(cell.here, cell.paper) for cell in column] for column in cells]
    svg = plots.means(sweep.settings, series, xlabel=f"test {sweep.score.axis}")
    title = f"{sweep.score.heading} by setting; filled: these runs, with their sd"
    legend = chapters.colour_legend(map(sweep.title, sweep.columns))
    text = "With the price of the network as it was in the end: multiply-accumulates (millions) "
    text += "and seconds per step."
    if any(paper for column in series for _, paper in column):
        title += "; rings: the paper"
        text = f"Beside the paper's figures. {text}"
    return Section("Results", text, [*blocks, *chapters.figures(legend, [(svg, title)])])


def _matrix(sweep: Sweep, metric: Metric) -> Block:
    judged = f"test {sweep.score.title} in {sweep.score.unit}, mean ± sd over n runs"
    caption = "relative to the first" if sweep.measured else f"{metric.title} {judged}".strip()
    return {
        "kind": "matrix",
        "caption": f"{sweep.plan['title']}: {caption}",
        "head": ["setting", *map(sweep.title, sweep.columns)],
        "rows": [(row, sweep.cells(row, metric)) for row in sweep.rows],
        "digits": 2 if sweep.measured else sweep.digits(metric),
    }


def score_costs(chapter: Chapter) -> Section:
    """Scores against J and against MACs."""
    columns, items, shown = chapter.columns, [], set()
    colours = {run: columns.index(group.column) for group in chapter.groups for run in group.runs}
    xlabels = ("regulariser J", "million MACs")
    for score, xlabel in itertools.product(chapter.scores, xlabels):
        series: dict[int, list[tuple[float, float]]] = {}
        for run, colour in colours.items():
            x = run.penalty if "J" in xlabel else run.last("mmacs")
            y = run.scored if run.score == score else None
            if run.finished and x is not None and y is not None:
                series.setdefault(colour, []).append((x, score.factor * y))
        if sum(map(len, series.values())) > 1:
            svg = plots.scatter(series, xlabel=xlabel, ylabel=f"test {score.axis}")
            items.append((svg, f"Test {score.title} against {xlabel}"))
            shown |= set(series)
    legend = [entry for entry in chapters.colour_legend(columns) if entry[0] in shown]
    titles = [score.title for score in chapter.scores]
    text = f"Each point is a run. Strides that shrink buy {' or '.join(titles)} with computation, "
    text += "at this price."
    title = f"What {' and '.join(titles)} cost{'s' * (len(titles) == 1)}"
    return Section(title, text, chapters.figures(legend, items))


def training_curves(chapter: Chapter) -> Section:
    """Score and loss over the epochs: all runs in one figure, or a sweep's by method."""
    groups = [group for group in chapter.groups if any(run.metrics for run in group.runs)]
    in_sweep, rows = chapter.sweep is not None, chapter.rows
    panels: dict[str, list[tuple[int, RunGroup]]] = {}
    for i, group in enumerate(groups):
        panel, colour = (group.column, rows.index(group.row)) if in_sweep else ("", i)
        panels.setdefault(panel, []).append((colour, group))
    items = []
    for (panel, members), score in itertools.product(panels.items(), chapter.scores):
        own = [(i, [r for r in group.runs if r.score == score]) for i, group in members]
        of_score = f" of runs judged by {score.title}" if len(chapter.scores) > 1 else ""
        curves = [(score.name, score.title, score.axis, score.factor), ("loss", "loss", "loss", 1)]
        curves = curves[:1] if score.name == "loss" else curves
        for metric, title, label, scale in curves:
            lines = [
                (colour, dash, [run.curve(f"{split}_{metric}", scale) for run in runs])
                for colour, runs in own
                for dash, split in enumerate(["test"] if in_sweep else ["test", "train"])
            ]
            svg = plots.curves(lines, ylabel=f"test {label}" if in_sweep else label)
            name = f"{panel}: test {title}" if in_sweep else title[:1].upper() + title[1:]
            items.append((svg, name + (of_score if metric == "loss" else "")))
    legend = chapters.colour_legend(rows if in_sweep else [group.title for group in groups])
    items += [] if in_sweep else _others(groups)
    tested = _tested(chapter.runs)
    legend += [] if in_sweep else [(None, 0, tested)]
    legend += [] if in_sweep or tested == "training" else [(None, 1, "train")]
    return Section("Training", "", chapters.figures(legend, items))


def _others(groups: Sequence[RunGroup]) -> list[tuple[str, str]]:
    """A figure for each other thing that trainings of one's own have measured."""
    titles = dict.fromkeys(title for group in groups for run in group.runs for title in run.others)
    items = []
    for title in titles:
        lines: list[plots.Curve] = [
            (i, dash, [run.curve(column)])
            for i, group in enumerate(groups)
            for run in group.runs
            for dash, column in run.others.get(title, ())
        ]
        items.append((plots.curves(lines, ylabel=title), title))
    return items


def _tested(runs: Iterable[RunRecord]) -> str:
    """What data runs are judged on, within a sentence: if these are of several kinds, "test"."""
    words = {run.tested.lower() for run in runs} - {"held-out"}
    return words.pop() if len(words) == 1 else "test"


def every_run(chapter: Chapter) -> Section:
    """A table with a row for each run."""
    runs, several = chapter.runs, len(chapter.runs) > 1
    tasks = list(dict.fromkeys(task for run in runs for task in run.task_scores))
    measured = SUMMARY_HEAD if any(run.robust for run in runs) else ()
    rows = [
        [
            run.name,
            run.downsampling,
            run.score.short(run.scored),
            *(run.score.short(run.task_scores.get(task)) for task in tasks),
            f"{_strides_at(run, 0)} → {_strides_at(run, -1)}" if run.strides else run.beginning,
            *map(number, (run.penalty, run.last("mmacs"), run.seconds_per_step)),
            *(map(percent, run.robustness) if measured else ()),
            run.progress.replace(" of ", "/"),
        ]
        for run in runs
    ]
    caption = f"{len(runs)} runs, after their last epochs" if several else "After its last epoch"
    head = ["run", "downsampling", heading(chapter.scores), *tasks]
    head += ["strides", "J", "MMACs", "s per step", *measured, "epochs"]
    folded = len(runs) > chapters.MOST_SINGLE_RUNS
    table = chapters.table(caption, head, rows, folded)
    return Section("All runs" if several else "The run", "", table)


def data_and_environment(chapter: Chapter) -> Section:
    """What all runs have in common, and where they were made."""
    settings = [flat(run.config) for run in chapter.runs] or [{}]
    first = {name: value for name, value in settings[0].items() if name not in ("name", "out")}
    differing = [name for name in first if any(s.get(name) != first[name] for s in settings)]
    shared = {name: _shown(value) for name, value in first.items() if name not in differing}
    environments = [
        {name: _shown(v) for name, v in run.environment.items() if name not in ("seed", "started")}
        for run in chapter.runs
    ]
    return Section(
        "Data and environment",
        f"Runs differ in {', '.join(differing)}." if differing else "",
        [
            *_listings("Data", map(_data, chapter.runs)),
            *_listings("Environment", environments),
            *_listings("Settings", [shared] * len(settings), folded=True),
        ],
    )


def _data(run: RunRecord) -> dict[str, str]:
    """What the data of a run are, by name."""
    facts, settings = run.data_facts, run.config["data"]
    values = {"path": str(settings.get("path") or "built in: handwritten digits")}
    values = {} if run.is_recorded else values
    if tasks := settings.get("task"):
        values = {"tasks": _shown(tasks)}
    if "size" in facts:
        values["size of one example"] = times(facts["size"])
        values["axes"] = ", ".join(map(_axis, run.data_axes, run.size))
    if classes := facts.get("classes"):
        by_task = classes.items() if isinstance(classes, dict) else ()
        values["classes"] = _shown({k: len(v) for k, v in by_task} or len(classes))
    tested = "held-out" if settings.get("held_out") else "test"
    names = {"train": "train examples", "test": f"{tested} examples"}
    return values | {name: _shown(facts[key]) for key, name in names.items() if key in facts}


def _axis(axis: Axis, size: int) -> str:
    """An axis with its length: "time (s) 1.5"."""
    return " ".join(pictures.scale(axis, size))


def _listings(title: str, mappings: Iterable[dict[str, str]], folded: bool = False) -> list[Block]:
    """A table of names and values for each distinct mapping, with how many runs have it."""
    counts = Counter(tuple(values.items()) for values in mappings if values)
    captions = [f"{title} of {count} runs" if count > 1 else title for count in counts.values()]
    tables = zip(captions, counts, strict=True)
    return [block for text, rows in tables for block in chapters.table(text, [], rows, folded)]


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_shown(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_shown, value)) or "none"
    return "none" if value is None else str(value)
