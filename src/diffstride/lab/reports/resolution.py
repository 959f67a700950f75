"""The section on how much resolution a task needs, and the same as text and as JSON."""

from collections.abc import Sequence
from pathlib import Path

from diffstride.lab.reports import chapters, plots
from diffstride.lab.reports.chapters import Block, Chapter, Legend, Section
from diffstride.lab.reports.formats import percent
from diffstride.lab.reports.run_reader import RunRecord
from diffstride.lab.runs.documents import json_text
from diffstride.lab.runs.resolution import (
    INPUT,
    TEST_DATA,
    Step,
    curves,
    enough,
    read_resolution,
    sentences,
)
from diffstride.lab.runs.run_folder import Run
from diffstride.text import aligned, short

MOST_RUNS = 6
HEAD = ["axis", "place", "cut-off", "unit", "accuracy", "95 % band", "kept", "95 % band"]
EXPLANATION = (
    "After training, frequencies above a cut-off were set to zero along one axis at one place at a "
    "time: of the input, or of the maps behind a layer. The maps kept their size. Bands hold 95 % "
    "of 1000 accuracies of examples drawn again. Strokes at the bottom: the cut-off that was "
    "learned up to each layer; dashed: what passes all layers. It is what this network needs: "
    "one that was trained with less may need less."
)


def resolution_needed(chapter: Chapter) -> Section:
    """The accuracy of runs as resolution is taken away, for those of which it was measured."""
    found = [(run, read_resolution(path)) for run in chapter.runs if (path := _file(run)).is_file()]
    blocks: list[Block] = []
    for run, steps in found[:MOST_RUNS]:
        blocks += _blocks(run.name if len(found) > 1 else "", steps)
    said = [f"{sentence}." for sentence in sentences(found[0][1])] if len(found) == 1 else []
    texts = [EXPLANATION]
    how = dict.fromkeys(filter(None, (_how(steps[0]) for _, steps in found)))
    texts += [f"Measured {'; '.join(how)}."] if how else []
    return Section("How much resolution the task needs", " ".join([*said, *texts]), blocks)


def _file(run: RunRecord) -> Path:
    return Run(run.folder).resolution_file


def _how(step: Step) -> str:
    """What of a measurement is not as usual, in words."""
    on = f"on {step.data}" if step.data != TEST_DATA else ""
    of = f"by the task {step.task}" if step.task else ""
    best = "with the epoch that was best on the test data" if step.weights == "best" else ""
    return ", ".join(filter(None, (on, of, best)))


def _blocks(title: str, steps: Sequence[Step]) -> list[Block]:
    """A figure for each axis with a line for each place, and all numbers in a table."""
    # Layers have the colours that they have in other figures.
    layers = list(dict.fromkeys(step.place for step in steps if step.place != INPUT))
    names = {step.axis: (step.name, step.unit) for step in steps}
    items = []
    for axis, (name, unit) in names.items():
        lines = [
            (
                None if place == INPUT else layers.index(place),
                [(step.cutoff, step.accuracy, step.low, step.high) for step in curve],
                curve[0].learned,
            )
            for (place, of_axis), curve in curves(steps).items()
            if of_axis == axis
        ]
        svg = plots.cutoff_curves(lines, xlabel=f"{name}: cut-off ({unit})")
        items.append(
            (svg, ": ".join(filter(None, (title, f"accuracy without detail along {name}"))))
        )
    legend: Legend = [(None, 0, INPUT), *chapters.colour_legend(layers)]
    if steps[0].learned is not None:
        legend.append((None, 1, "learned: passes all layers"))
    said = "; ".join(sentences(steps)) if title else ""
    caption = ": ".join(filter(None, (title, said or "accuracy at each cut-off")))
    rows = table_rows(steps)
    return [*chapters.figures(legend, items), *chapters.table(caption, HEAD, rows, folded=True)]


def table_rows(steps: Sequence[Step]) -> list[list[str]]:
    """A row for each step, the curves of each axis one after the other."""
    rows = []
    for step in sorted(steps, key=lambda step: step.axis):
        band = f"{100 * step.low:.1f} to {100 * step.high:.1f} %"
        kept = f"{100 * step.kept_low:.1f} to {100 * step.kept_high:.1f} %"
        start = [step.name, step.place, short(step.cutoff), step.unit]
        rows.append([*start, percent(step.accuracy), band, percent(step.kept), kept])
    return rows


def as_text(steps: Sequence[Step]) -> str:
    """A table for each axis of what was measured, and in words what it says."""
    lines: list[str] = []
    for name, unit in dict.fromkeys((step.name, step.unit) for step in steps):
        rows = table_rows([step for step in steps if step.name == name])
        without = [[place, cutoff, *shares] for _, place, cutoff, _, *shares in rows]
        lines += [
            f"{name}, cut-offs in {unit}",
            *aligned([[HEAD[1], HEAD[2], *HEAD[4:]], *without]),
        ]
        lines.append("")
    return "\n".join([*lines, *sentences(steps)])


def as_json(steps: Sequence[Step]) -> str:
    """The same as JSON, with the step that is enough for each axis and place."""
    least = [
        {"place": place, "axis": axis, "cutoff": enough(curve).cutoff, "unit": curve[0].unit}
        for (place, axis), curve in curves(steps).items()
    ]
    content = {"sentences": sentences(steps), "enough": least}
    return json_text(content | {"steps": [step._asdict() for step in steps]}, indent=1)
