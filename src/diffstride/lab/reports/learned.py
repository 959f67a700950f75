"""What was learned: strides, where they began and ended, and what their windows let pass."""

import statistics
from collections.abc import Iterable, Sequence

from diffstride.lab.reports import pictures, plots
from diffstride.lab.reports.run_reader import Run
from diffstride.lab.reports.sections import Block, Legend, Part, Section, mean
from diffstride.lab.reports.table import cutoff

MOST_PANELS = 24
MOST_RUNS = 6
UNITS = {"time": "Hz", "frequency": "cycles per mel channel"}


def strides(part: Part) -> Section | None:
    groups = [group for group in part.groups if any(run.sites for run in group.runs)]
    if not groups:
        return None
    highest = max(s for g in groups for run in g.runs for site in run.sites for s in site.strides)
    items = []
    for group in groups[:MOST_PANELS]:
        keys = dict.fromkeys((s.layer, s.axis) for run in group.runs for s in run.sites)
        order = list(dict.fromkeys(layer for layer, _ in keys))
        lines = [
            (
                order.index(layer),
                axis,
                [
                    list(zip(site.epochs, site.strides, strict=True))
                    for run in group.runs
                    for site in run.sites
                    if (site.layer, site.axis) == (layer, axis)
                ],
            )
            for layer, axis in keys
        ]
        items.append((plots.curves(lines, ylabel="stride", limits=(1.0, highest)), group.title))
    runs = [run for group in groups for run in group.runs if run.sites]
    text = (
        "A colour a layer, in the order of the network, a dash an axis; epoch 0 is the beginning."
    )
    if len(groups) > MOST_PANELS:
        text += f" Only the first {MOST_PANELS} of {len(groups)} groups are drawn."
    legend = layer_legend(runs)
    legend += [(None, axis, name) for axis, name in enumerate(runs[0].axes)]
    return Section(
        "Strides while training", text, [{"kind": "figures", "legend": legend, "items": items}]
    )


def layer_legend(runs: Sequence[Run]) -> Legend:
    """The layers of the deepest of some networks; their names, if all have the same."""
    deepest = max(runs, key=lambda run: len(run.layers))
    same = all(run.layers == deepest.layers for run in runs)
    return [
        (i, 0, f"layer {i + 1}" + (f": {name}" if same else ""))
        for i, name in enumerate(deepest.layers)
    ]


def distributions(part: Part) -> Section | None:
    learned = [run for run in part.runs if run.sites and run.finished]
    if len(learned) < 2:
        return None
    blocks = []
    for column in part.columns:
        found = {
            row: [
                run
                for group in part.groups
                if (group.row, group.column) == (row, column)
                for run in group.runs
                if run.sites and run.finished
            ]
            for row in part.rows
        }
        found = {row: runs for row, runs in found.items() if runs}
        if found:
            blocks.append(_distribution(column, found))
    text = (
        "Where strides ended, one group for each row. A point is a stride of one run along "
        "one axis, a stroke is where it began. The global striding factor is the product of all "
        "strides of all axes."
    )
    beginnings = all(run.start == group.row for group in part.groups for run in group.runs)
    rows = "initialisation" if beginnings else "setting"
    return Section(f"Learned strides by {rows}", text, blocks)


def _distribution(column: str, found: dict[str, list[Run]]) -> Block:
    depth = max(len(run.layers) for runs in found.values() for run in runs)

    def values(layer: int, runs: Iterable[Run], when: int) -> list[float]:
        return [
            site.strides[when]
            for run in runs
            for site in run.sites
            if run.layers.index(site.layer) == layer
        ]

    series = [(i, [values(i, runs, -1) for runs in found.values()]) for i in range(depth)]
    began = [[mean(values(i, runs, 0)) for runs in found.values()] for i in range(depth)]
    factors = [[run.factor for run in runs if run.factor is not None] for runs in found.values()]
    runs = [run for own in found.values() for run in own]
    return {
        "kind": "figures",
        "legend": layer_legend(runs),
        "items": [
            (
                plots.strips(list(found), series, xlabel="learned stride", marks=began),
                f"{column}: learned strides",
            ),
            (
                plots.strips(list(found), [(4, factors)], xlabel="global striding factor"),
                f"{column}: global striding factor",
            ),
        ],
    }


def passed(part: Part) -> Section | None:
    """Of one run a row: of each group alike, the first with examples is as good as any."""
    chosen: dict[str, Run] = {}
    for group in part.groups:
        for run in group.runs:
            key = group.row if part.sweep else run.name
            if not run.sites or not all(site.sizes for site in run.sites):
                continue
            if key not in chosen and len(chosen) == MOST_RUNS:
                continue
            if key not in chosen or (run.examples and not chosen[key].examples):
                chosen[key] = run
    if not chosen:
        return None
    blocks: list[Block] = []
    for run in chosen.values():
        blocks += pictures.of_run(run, layer_legend([run]))
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


def cutoffs(part: Part) -> Section | None:
    """What the first layer lets pass of sound, in units of the data."""
    body = []
    for group in part.groups:
        runs = [
            r for r in group.runs if r.sites and "axes" in r.facts and "sampling_rate" in r.facts
        ]
        if not runs:
            continue
        for axis, name in enumerate(runs[0].axes):
            found = [
                cutoff(row, run.facts)
                for run in runs
                for row in run.strides
                if (row["layer"], int(row["axis"])) == (run.layers[0], axis)
                and int(row["epoch"]) == run.sites[0].epochs[-1]
            ]
            if found:
                middle = f"{statistics.fmean(found):.4g}"
                sd = f" ± {statistics.stdev(found):.2g}" if len(found) > 1 else ""
                body.append([group.title, name, middle + sd, UNITS.get(name, ""), len(found)])
    if not body:
        return None
    table = {
        "kind": "table",
        "caption": "Cut-off of the first layer: the highest frequency that passes whole",
        "head": ["runs", "axis", "cut-off", "unit", "n"],
        "rows": body,
    }
    return Section("What the first layer lets pass", "", [table])
