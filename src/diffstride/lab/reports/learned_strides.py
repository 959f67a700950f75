"""The sections on what was learned: strides, and what their windows let pass of real inputs."""

import math
from collections.abc import Sequence

import numpy as np

from diffstride.lab.reports import chapters, pictures, plots
from diffstride.lab.reports.chapters import Block, Chapter, Legend, Section, figures
from diffstride.lab.reports.formats import mean, mean_sd, or_dash
from diffstride.lab.reports.run_reader import RunRecord, StrideHistory
from diffstride.lab.reports.windows import Array, spectrum, window

MOST_PANELS = 24
MOST_RUNS = 6
MOST_EXAMPLES_SHOWN = 2
SKIPS = " Of a U-Net, these are the layers of the way down: skips carry past them what they stop."
MOST_ROWS = 24  # a table of more is folded


def strides_while_training(chapter: Chapter) -> Section:
    """The strides of each group over the epochs."""
    groups = [group for group in chapter.groups if any(run.strides for run in group.runs)]
    runs = [run for group in groups for run in group.runs if run.strides]
    values = (value for run in runs for stride in run.strides for _, value in stride.points)
    limits = (1.0, max(values, default=1.0))
    items = []
    for group in groups[:MOST_PANELS]:
        lines: dict[tuple[str, int], list[plots.Points]] = {}
        for run in group.runs:
            for stride in run.strides:
                lines.setdefault((stride.layer, stride.axis), []).append(stride.points)
        layers = list(dict.fromkeys(layer for layer, _ in lines))
        curves = [(layers.index(layer), axis, points) for (layer, axis), points in lines.items()]
        svg = plots.curves(curves, ylabel="stride", limits=limits)
        items.append((svg, group.title))
    names: dict[int, dict[str, None]] = {}  # of runs on different data
    for i, name in (pair for run in runs for pair in enumerate(run.axes)):
        names.setdefault(i, {})[name] = None
    axes = [" or ".join(same) for same in names.values()]
    text = "Each layer has a colour, in their order{}. Epoch 0 is the start."
    text = text.format(", each axis a dash" if len(axes) > 1 else "")
    if len(groups) > MOST_PANELS:
        text += f" Only the first {MOST_PANELS} of {len(groups)} groups are drawn."
    dashes: Legend = [(None, i, name) for i, name in enumerate(axes)] if len(axes) > 1 else []
    return Section("Strides while training", text, figures([*layer_legend(runs), *dashes], items))


def layer_legend(runs: Sequence[RunRecord]) -> Legend:
    """A colour for each layer of the deepest network, with its name if all have the same names."""
    deepest = max((list(run.layers) for run in runs), key=len, default=[])
    same = all(list(run.layers) == deepest for run in runs)
    return chapters.colour_legend(
        f"layer {i + 1}" + (f": {name}" if same else "") for i, name in enumerate(deepest)
    )


def strides_by_setting(chapter: Chapter) -> Section:
    """Where the strides of finished runs ended, for each setting."""
    columns: dict[str, dict[str, list[RunRecord]]] = {column: {} for column in chapter.columns}
    for group in sorted(chapter.groups, key=lambda group: chapter.rows.index(group.row)):
        if learned := [run for run in group.runs if run.strides and run.finished]:
            columns[group.column].setdefault(group.row, []).extend(learned)
    several = sum(len(runs) for rows in columns.values() for runs in rows.values()) > 1
    blocks: list[Block] = []
    for column, settings in columns.items():
        blocks += _distribution(column, settings) if several and settings else []
    text = "A point is where a stride of one run ended along one axis, a stroke where it began. "
    text += "The global striding factor is the product of all strides of all axes."
    beginnings = all(run.beginning == group.row for group in chapter.groups for run in group.runs)
    rows_are = "initialisation" if beginnings else "setting"
    return Section(f"Learned strides by {rows_are}", text, blocks)


def _distribution(column: str, settings: dict[str, list[RunRecord]]) -> list[Block]:
    """The strides at the end of the runs of a method, and their products, for each setting."""
    legend = layer_legend([run for runs in settings.values() for run in runs])
    cells: list[list[list[StrideHistory]]] = [[[] for _ in settings] for _ in legend]
    for row, runs in enumerate(settings.values()):
        for run in runs:
            for layer, strides in enumerate(run.layers.values()):
                cells[layer][row] += strides
    ends = [[[stride.last for stride in cell] for cell in rows] for rows in cells]
    marks = [[mean(stride.points[0][1] for stride in cell) for cell in rows] for rows in cells]
    factors = [[run.striding_factor for run in runs] for runs in settings.values()]
    svg = plots.strips(list(settings), list(enumerate(ends)), xlabel="learned stride", marks=marks)
    name = "global striding factor"
    factor_svg = plots.strips(list(settings), [(4, factors)], xlabel=name)
    return figures(legend, [(svg, f"{column}: learned strides"), (factor_svg, f"{column}: {name}")])


def windows_on_data(chapter: Chapter) -> Section:
    """The windows of one run for each row of a sweep, or of each run; those with examples first."""
    candidates: dict[str, list[RunRecord]] = {}
    for group in chapter.groups:
        for run in [run for run in group.runs if run.windows_known]:
            candidates.setdefault(group.row if chapter.sweep else run.name, []).append(run)
    rows = list(candidates.values())[:MOST_RUNS]
    chosen = [min(runs, key=lambda run: not run.examples) for runs in rows]
    text = "What each layer lets pass, over the frequencies of the data, if layers follow one "
    text += "another. Shaded: what is below the lowest cut-off, that of all layers together."
    if any(run.examples for run in chosen):
        text += " Grey: the spectrum of real inputs, down to 60 dB below the strongest frequency. "
        text += "Examples are inputs after the windows alone, without the convolutions between."
    text += SKIPS if any(run.has_skips for run in chosen) else ""
    blocks = [block for run in chosen for block in _window_blocks(run)]
    return Section("Windows on the data", text, blocks)


def _window_blocks(run: RunRecord) -> list[Block]:
    """A figure for each axis with the windows of all layers, and what they leave of examples."""
    items = [
        (_windows_along(run, axis), f"{run.name}: windows along {name}")
        for axis, name in enumerate(run.axes)
    ]
    blocks = figures(layer_legend([run]), items)
    examples = run.examples[:MOST_EXAMPLES_SHOWN]
    if len(run.axes) == 1:
        drawn = [(_traces(run, s), pictures.title(run, label)) for label, s in examples]
        return blocks + figures([], drawn)
    return blocks + [pictures.row_of_images(run, label, image) for label, image in examples]


def _windows_along(run: RunRecord, axis: int) -> str:
    """The windows of all layers along an axis, as a figure."""
    name, rate, unit = run.data_axes[axis]
    strides, offset = [s for s in run.strides if s.axis == axis], run.offset(axis)
    windows = [
        window(size, stride.last, run.smoothness, offset, kept, run.convention)
        for stride in strides
        for size, kept in [stride.sizes]
    ]
    examples = [example for _, example in run.examples]
    background = None
    if examples:
        strength, longest = spectrum(examples, axis), max(e.shape[axis] for e in examples)
        background = rate / longest * np.arange(len(strength), dtype=np.float64), strength
    return plots.passband(
        background,
        [(run.period(axis) * np.arange(len(w), dtype=np.float64), w) for w in windows],
        min(stride.sizes[0] / (2 * stride.last) for stride in strides) * run.period(axis),
        strides[0].sizes[0] / 2 * run.period(axis),
        xlabel=f"along {name} ({unit})",
    )


def _traces(run: RunRecord, signal: Array) -> str:
    """A signal, and what is left of it after each layer, as a figure."""
    axis = run.data_axes[0]
    label, _ = pictures.scale(axis, len(signal))
    rows: list[tuple[str, int | None, Array]] = [("input", None, signal)]
    rows += [(f"layer {i + 1}", i, left) for i, left in enumerate(pictures.left_of(run, signal))]
    return plots.traces(rows, len(signal) / axis.rate, xlabel=label)


def what_layers_let_pass(chapter: Chapter) -> Section:
    """Up to which frequency everything passes each layer and all before it, in the data's units."""
    rows = []
    for group in chapter.groups:
        # Runs on other data may have other units: no mean is taken of these.
        found: dict[tuple[str, str, str], list[tuple[RunRecord, StrideHistory]]] = {}
        for run in group.runs:
            for stride in run.strides:
                if run.cutoff(stride) is not None:
                    name, _, unit = run.data_axes[stride.axis]
                    found.setdefault((stride.layer, name, unit), []).append((run, stride))
        for (layer, name, unit), same in found.items():
            cutoffs = [cutoff for run, stride in same if (cutoff := run.cutoff(stride)) is not None]
            text = " ± ".join(map(format, mean_sd(cutoffs), (".4g", ".2g")))
            product = mean(math.prod(s.last for s in run.up_to(stride)) for run, stride in same)
            smaller = mean(run.times_smaller(stride) for run, stride in same)
            numbers = [or_dash(product, ".2f"), or_dash(smaller, ".2f"), text, unit, len(same)]
            rows.append([group.title, layer, name, *numbers])
    text = "What passes a layer and all before it: the lowest cut-off so far. Windows fall behind "
    text += "their cut-offs, and with the convention “tight” before them. Maps are larger than the "
    text += "product of strides says where windows need room to fall."
    text += SKIPS if any(run.has_skips for run in chapter.runs) else ""
    caption = "Product of strides, how many times smaller maps are, and the cut-off so far"
    head = ["runs", "layer", "axis", "strides", "maps ÷", "cut-off", "unit", "n"]
    folded = len(rows) > MOST_ROWS
    blocks = chapters.table(caption, head, rows, folded=folded)
    return Section("What the layers let pass", text, blocks)
