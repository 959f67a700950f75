"""The section on moved and corrupted examples and other sizes; the same as text and as JSON."""

from collections.abc import Sequence

from diffstride.lab.reports import chapters, plots
from diffstride.lab.reports.chapters import Block, Chapter, Legend, RunGroup, Section
from diffstride.lab.reports.formats import mean_sd, percent, plus_minus
from diffstride.lab.reports.run_reader import RunRecord
from diffstride.lab.runs.documents import json_text
from diffstride.lab.runs.resolution import TEST_DATA
from diffstride.lab.runs.robust import (
    RESIZED,
    SUMMARY_HEAD,
    UNCHANGED,
    Row,
    corruptions,
    how,
    moves,
    row_of,
    sentences,
    summary,
)
from diffstride.text import aligned

HEAD = ["change", "how much", "accuracy", "95 % band", "same answer", "95 % band"]
EXPLANATION = (
    "After training, test examples were changed. Moved ones lose what goes over a border, and what "
    "comes in repeats the border. Corruptions have five strengths. A same answer is the one that "
    "the network gives to the example as it is, be that right or wrong. Bands hold 95 % of 1000 "
    "means of examples drawn again."
)


def changed_examples(chapter: Chapter) -> Section:
    """How networks do on changed examples, for those of which it was measured."""
    measured = [run for run in chapter.runs if run.robust]
    texts, blocks = [EXPLANATION], []
    if len(measured) == 1:
        (run,) = measured
        texts = [*(f"{sentence}." for sentence in sentences(run.robust)), *texts]
        blocks = _of_one(run.robust)
    elif measured:
        blocks = _of_several(chapter)
    others = dict.fromkeys(f"{run.name}: {text}" for run in measured if (text := _where(run)))
    texts += [f"Not on {TEST_DATA} after the last epoch: {'; '.join(others)}."] if others else []
    return Section("Moved and corrupted examples", " ".join(texts), blocks)


def _where(run: RunRecord) -> str:
    """What of a measurement is not as usual."""
    first = run.robust[0]
    on = first.data if first.data != TEST_DATA else ""
    best = "the epoch that was best on the test data" if first.weights == "best" else ""
    return ", ".join(filter(None, (on, best)))


def _of_one(rows: Sequence[Row]) -> list[Block]:
    """Figures with a line for each corruption and each direction, and all numbers in a table."""
    whole = row_of(rows, UNCHANGED)
    worse, along = corruptions(rows), moves(rows)
    accuracies = [
        (i, 0, [[(0, 100 * whole.accuracy), *((row.strength, 100 * row.accuracy) for row in own)]])
        for i, own in enumerate(worse.values())
    ]
    answers = [
        (i, 0, [[(0, 100.0), *((row.strength, 100 * row.same) for row in own)]])
        for i, own in enumerate(along.values())
    ]
    unit = next(iter(along.values()))[0].unit
    first = plots.curves(accuracies, xlabel="strength of the corruption", ylabel="accuracy (%)")
    second = plots.curves(answers, xlabel=f"moved by so many {unit}", ylabel="same answer (%)")
    return [
        *chapters.figures(chapters.colour_legend(worse), [(first, "Accuracy on corrupted ones")]),
        *chapters.figures(
            chapters.colour_legend(f"along {name}" for name in along),
            [(second, "Moved examples that get the same answer")],
        ),
        *chapters.table("Changed examples", HEAD, table_rows(rows), folded=True),
    ]


def _of_several(chapter: Chapter) -> list[Block]:
    """A line for each group of runs, with means over its runs, and figures with each method."""
    groups = [(g, [run for run in g.runs if run.robust]) for g in chapter.groups]
    groups = [(group, runs) for group, runs in groups if runs]
    measured = [run for _, runs in groups for run in runs]
    names = list(dict.fromkeys(name for run in measured for name in corruptions(run.robust)))
    head = ["runs", "n", "accuracy", *SUMMARY_HEAD, *names, "at other sizes"]
    table = [_means(group, runs, names) for group, runs in groups]
    columns = list(dict.fromkeys(group.column for group, _ in groups))
    colours = [chapter.columns.index(name) for name in columns]
    accuracies, answers = [], []
    for column, colour in zip(columns, colours, strict=True):
        runs = [run for group, own in groups if group.column == column for run in own]
        accuracies.append((colour, 0, [_by_strength(run.robust) for run in runs]))
        answers.append((colour, 0, [_by_distance(run.robust) for run in runs]))
    ylabels = ("same answer (%)", "accuracy (%)")
    svgs = [
        plots.curves(answers, xlabel="moved by so many samples", ylabel=ylabels[0]),
        plots.curves(accuracies, xlabel="strength of the corruption", ylabel=ylabels[1]),
    ]
    titles = ["Moved examples that get the same answer: mean over all axes"]
    titles += ["Accuracy on corrupted examples: mean over all corruptions"]
    legend: Legend = [(c, 0, name) for c, name in zip(colours, columns, strict=True)]
    caption = "Changed examples: mean ± sd over n runs, in percent"
    return [
        *chapters.table(caption, head, table),
        *chapters.figures(legend, list(zip(svgs, titles, strict=True))),
    ]


def _means(group: RunGroup, runs: Sequence[RunRecord], names: Sequence[str]) -> list[str]:
    both = [summary(run.robust) for run in runs]
    worse = [corruptions(run.robust) for run in runs]
    sizes = [_accuracy([row for row in run.robust if row.change == RESIZED]) for run in runs]
    columns = [
        [row_of(run.robust, UNCHANGED).accuracy for run in runs],
        [one.consistency for one in both],
        [one.corrupted for one in both],
        *([_accuracy(own[name]) for own in worse if name in own] for name in names),
        sizes,
    ]
    cells = [plus_minus(mean_sd([100 * value for value in values]), 1) for values in columns]
    return [group.title, str(len(runs)), *cells]


def _accuracy(rows: Sequence[Row]) -> float:
    return sum(row.accuracy for row in rows) / len(rows)


def _by_strength(rows: Sequence[Row]) -> list[tuple[float, float]]:
    whole, worse = row_of(rows, UNCHANGED), corruptions(rows).values()
    levels = [_accuracy(own) for own in zip(*worse, strict=True)]
    return [(i, 100 * value) for i, value in enumerate([whole.accuracy, *levels])]


def _by_distance(rows: Sequence[Row]) -> list[tuple[float, float]]:
    along = moves(rows).values()
    levels = [sum(row.same for row in own) / len(own) for own in zip(*along, strict=True)]
    return [(i, 100 * value) for i, value in enumerate([1.0, *levels])]


def table_rows(rows: Sequence[Row]) -> list[list[str]]:
    """A row for each change, as a table shows it."""
    return [
        [
            f"{row.change} along {row.along}" if row.along else row.change,
            how(row),
            percent(row.accuracy),
            f"{100 * row.low:.1f} to {100 * row.high:.1f} %",
            percent(row.same),
            f"{100 * row.same_low:.1f} to {100 * row.same_high:.1f} %",
        ]
        for row in rows
    ]


def as_text(rows: Sequence[Row]) -> str:
    """A table of what was measured, and in words what it says."""
    return "\n".join([*aligned([HEAD, *table_rows(rows)]), "", *sentences(rows)])


def as_json(rows: Sequence[Row]) -> str:
    """The same as JSON, with the two numbers that stand for all."""
    content = {**summary(rows)._asdict(), "sentences": sentences(rows)}
    return json_text(content | {"rows": [row._asdict() for row in rows]}, indent=1)
