"""The sections on what was learned: strides, and what their windows let pass."""

from collections.abc import Sequence

from diffstride.lab.reports import chapters, plots, window_pictures
from diffstride.lab.reports.chapters import Chapter, Legend, PageBlock, Section, figures
from diffstride.lab.reports.formats import mean, mean_sd
from diffstride.lab.reports.run_reader import CUTOFF_UNITS, RunRecord

MOST_PANELS = 24
MOST_RUNS = 6


def strides_while_training(chapter: Chapter) -> Section:
    """The strides of each group over the epochs."""
    groups = [group for group in chapter.groups if any(run.strides for run in group.runs)]
    runs = [run for group in groups for run in group.runs if run.strides]
    points = [point for run in runs for stride in run.strides for point in stride.points]
    highest = max((value for _, value in points), default=1.0)
    items = []
    for group in groups[:MOST_PANELS]:
        lines: dict[tuple[str, int], list[plots.Points]] = {}
        for run in group.runs:
            for stride in run.strides:
                lines.setdefault((stride.layer, stride.axis), []).append(stride.points)
        layers = list(dict.fromkeys(layer for layer, _ in lines))
        svg = plots.curves(
            [(layers.index(layer), axis, curves) for (layer, axis), curves in lines.items()],
            ylabel="stride",
            limits=(1.0, highest),
        )
        items.append((svg, group.title))
    text = (
        "A colour a layer, in the order of the network, a dash an axis; epoch 0 is the beginning."
    )
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
    columns: dict[str, dict[str, list[RunRecord]]] = {
        column: {row: [] for row in chapter.rows} for column in chapter.columns
    }
    for group in chapter.groups:
        learned = [run for run in group.runs if run.strides and run.finished]
        columns[group.column][group.row] += learned
    several = sum(len(runs) for rows in columns.values() for runs in rows.values()) > 1
    blocks: list[PageBlock] = []
    for column, rows in columns.items():
        settings = {row: runs for row, runs in rows.items() if runs}
        blocks += _distribution(column, settings) if several and settings else []
    text = (
        "Where strides ended, one group for each row. A point is a stride of one run along "
        "one axis, a stroke is where it began. The global striding factor is the product of all "
        "strides of all axes."
    )
    beginnings = all(run.beginning == group.row for group in chapter.groups for run in group.runs)
    rows_are = "initialisation" if beginnings else "setting"
    return Section(f"Learned strides by {rows_are}", text, blocks)


def _distribution(column: str, settings: dict[str, list[RunRecord]]) -> list[PageBlock]:
    legend = layer_legend([run for runs in settings.values() for run in runs])
    ends: list[list[list[float]]] = [[[] for _ in settings] for _ in legend]
    beginnings: list[list[list[float]]] = [[[] for _ in settings] for _ in legend]
    for row, runs in enumerate(settings.values()):
        for run in runs:
            for i, strides in enumerate(run.layers.values()):
                ends[i][row] += [stride.last for stride in strides]
                beginnings[i][row] += [stride.points[0][1] for stride in strides]
    marks = [list(map(mean, rows)) for rows in beginnings]
    factors = [[run.striding_factor for run in runs] for runs in settings.values()]
    svg = plots.strips(list(settings), list(enumerate(ends)), xlabel="learned stride", marks=marks)
    name = "global striding factor"
    factor_svg = plots.strips(list(settings), [(4, factors)], xlabel=name)
    return figures(legend, [(svg, f"{column}: learned strides"), (factor_svg, f"{column}: {name}")])


def windows_on_data(chapter: Chapter) -> Section:
    """The windows of one run for each row of a sweep, or of each run; those with examples first."""
    chosen: dict[str, RunRecord] = {}
    for group in chapter.groups:
        for run in group.runs:
            key = group.row if chapter.sweep else run.name
            if not run.sizes_known or (key not in chosen and len(chosen) == MOST_RUNS):
                continue
            if key not in chosen or (run.examples and not chosen[key].examples):
                chosen[key] = run
    blocks: list[PageBlock] = []
    for run in chosen.values():
        blocks += window_pictures.run_blocks(run, layer_legend([run]))
    text = (
        "What each layer lets pass, over the frequencies of its input in periods per axis, which "
        "are those of the data wherever layers follow one another. Shaded: the band that the first "
        "layer keeps."
    )
    if any(run.examples for run in chosen.values()):
        text += (
            " Grey: the spectrum of real inputs, from the strongest frequency down to 60 dB below. "
            "The images are inputs that have passed the windows alone, without the convolutions "
            "between them."
        )
    return Section("Windows on the data", text, blocks)


def first_layer_cutoffs(chapter: Chapter) -> Section:
    """The frequencies up to which the first layer lets sound pass, in units of the data."""
    rows = []
    for group in chapter.groups:
        cutoffs: dict[str, list[float]] = {}
        for run in group.runs:
            in_units = {"axes", "sampling_rate"} <= set(run.data_facts)
            for stride in run.first_layer if in_units else ():
                cutoffs.setdefault(run.axes[stride.axis], []).append(run.cutoff(stride))
        for axis, values in cutoffs.items():
            text = " ± ".join(map(format, mean_sd(values), (".4g", ".2g")))
            rows.append([group.title, axis, text, CUTOFF_UNITS.get(axis, ""), len(values)])
    caption = "Cut-off of the first layer: the highest frequency that passes whole"
    head = ["runs", "axis", "cut-off", "unit", "n"]
    return Section("What the first layer lets pass", "", chapters.table(caption, head, rows))
