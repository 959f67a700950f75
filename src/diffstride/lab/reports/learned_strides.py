"""The sections on what was learned: strides, and what their windows let pass of real inputs."""

import base64
import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from diffstride.lab.reports import chapters, plots
from diffstride.lab.reports.chapters import Block, Chapter, Legend, Section, figures
from diffstride.lab.reports.formats import mean, mean_sd, or_dash
from diffstride.lab.reports.run_reader import RunRecord, StrideHistory
from diffstride.lab.reports.windows import Array, downsample, fit, spectrum, window
from diffstride.text import times

MOST_PANELS = 24
MOST_RUNS = 6
MOST_IMAGES = 2
MOST_ROWS = 24  # a table of more is folded
LARGEST = 64  # of an example in the panel, which computes while one drags


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
    text = "Each layer has a colour, in their order, each axis a dash. Epoch 0 is the start."
    if len(groups) > MOST_PANELS:
        text += f" Only the first {MOST_PANELS} of {len(groups)} groups are drawn."
    dashes: Legend = [(None, i, name) for run in runs[:1] for i, name in enumerate(run.axes)]
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
        for run in [run for run in group.runs if run.sizes_known]:
            candidates.setdefault(group.row if chapter.sweep else run.name, []).append(run)
    rows = list(candidates.values())[:MOST_RUNS]
    chosen = [min(runs, key=lambda run: not run.examples) for runs in rows]
    text = "What each layer lets pass, over the frequencies of its input in periods per axis: "
    text += "those of the data, if layers follow one another. Shaded: what the first layer keeps."
    if any(run.examples for run in chosen):
        text += " Grey: the spectrum of real inputs, down to 60 dB below the strongest frequency. "
        text += "Images are inputs after the windows alone, without the convolutions between them."
    blocks = [block for run in chosen for block in _window_blocks(run)]
    return Section("Windows on the data", text, blocks)


def _window_blocks(run: RunRecord) -> list[Block]:
    """A figure for each axis with the windows of all layers, and a row of images per example."""
    images = [image for _, image in run.examples if image.ndim == len(run.axes)]
    items = []
    for axis, name in enumerate(run.axes):
        strides, offset = [s for s in run.strides if s.axis == axis], run.offset(axis)
        windows = [
            window(size, stride.last, run.smoothness, offset, kept, run.convention)
            for stride in strides
            for size, kept in [stride.sizes]
        ]
        background = spectrum(images, axis) if images else None
        xlabel = f"{name}: frequency (periods per axis)"
        svg = plots.passband(background, windows, *strides[0].sizes, xlabel=xlabel)
        items.append((svg, f"{run.name}: windows, {name}"))
    blocks = figures(layer_legend([run]), items)
    for label, image in run.examples[:MOST_IMAGES] if images else ():
        height, width = image.shape
        title = f"{run.name}: an example of “{label}”, and what is left after each layer"
        shown = {"title": title, "shape": f"{width} / {height}", "items": _images(run, image)}
        blocks.append({"kind": "images"} | shown)
    return blocks


def _images(run: RunRecord, image: Array) -> list[tuple[str, str]]:
    """An image, and what is left of it after the window of each layer in turn."""
    items = [(_png_address(image), f"input, {times(image.shape)}")]
    for i, strides in enumerate(run.layers.values()):
        sizes = [stride.sizes[0] for stride in strides]
        if any(size > length for size, length in zip(sizes, image.shape, strict=True)):
            break  # the network has made it larger meanwhile
        image = fit(image, sizes)
        for stride in strides:
            rule = run.smoothness, run.offset(stride.axis), run.convention
            image = downsample(image, stride.axis, stride.last, *rule)
        items.append((_png_address(image), f"layer {i + 1}, {times(image.shape)}"))
    return items


def _grey(image: Array) -> Any:
    return np.clip(np.rint(image), 0, 255).astype(np.uint8)


def _png_address(image: Array) -> str:
    """The address of a grey image with values from 0 to 255, with the PNG itself in it."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(_grey(image)).save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def for_panel(runs: list[RunRecord]) -> dict[str, Any]:
    """What the interactive panel begins with: examples, and the layers of the first run."""
    examples = next((run.examples for run in runs if run.examples), [])
    small = [(label, fit(image, [LARGEST] * image.ndim)) for label, image in examples]
    layers = [
        {
            "label": f"{stride.layer}, {run.axes[stride.axis]}",
            "size": stride.sizes[0],
            "stride": stride.last,
            "smoothness": run.smoothness,
            "convention": run.convention,
        }
        for run in [run for run in runs if run.sizes_known][:1]
        for stride in run.strides
    ]
    images = [{"label": label, "pixels": _grey(image).tolist()} for label, image in small]
    return {"examples": images, "layers": layers}


def what_layers_let_pass(chapter: Chapter) -> Section:
    """Up to which frequency everything passes each layer and all before it, in the data's units."""
    rows = []
    for group in chapter.groups:
        found: dict[tuple[str, int], list[tuple[RunRecord, StrideHistory]]] = {}
        for run in group.runs:
            for stride in run.strides:
                if run.cutoff(stride) is not None:
                    found.setdefault((stride.layer, stride.axis), []).append((run, stride))
        for (layer, axis), same in found.items():
            cutoffs = [cutoff for run, stride in same if (cutoff := run.cutoff(stride)) is not None]
            text = " ± ".join(map(format, mean_sd(cutoffs), (".4g", ".2g")))
            product = mean(math.prod(s.last for s in run.up_to(stride)) for run, stride in same)
            smaller = mean(run.times_smaller(stride) for run, stride in same)
            name, _, unit = same[0][0].data_axes[axis]
            numbers = [or_dash(product, ".2f"), or_dash(smaller, ".2f"), text, unit, len(same)]
            rows.append([group.title, layer, name, *numbers])
    text = "What passes a layer and all before it whole: the lowest cut-off so far. Maps are "
    text += "larger than the product of strides says where windows need room to fall."
    caption = "Product of strides, how many times smaller maps are, and the cut-off so far"
    head = ["runs", "layer", "axis", "strides", "maps ÷", "cut-off", "unit", "n"]
    folded = len(rows) > MOST_ROWS
    blocks = chapters.table(caption, head, rows, folded=folded)
    return Section("What the layers let pass", text, blocks)
