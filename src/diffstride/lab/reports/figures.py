"""Figures of a run, from the tables in its folder."""

import io
from pathlib import Path
from typing import Any

from diffstride.files import write
from diffstride.lab.reports.table import cutoff, read_strides
from diffstride.lab.runs.documents import read_json, read_rows

AXIS_NAMES = {1: ("",), 2: ("vertical", "horizontal"), 3: ("depth", "vertical", "horizontal")}
UNITS = {"time": "Hz", "frequency": "cycles per mel channel"}
# A hue a layer, a shade an axis.
HUES = ("Blues", "Oranges", "Greens", "Purples", "Reds", "Greys", "YlGn")


def draw_run(folder: Path) -> Path | None:
    """Draw strides and accuracy over training as ``strides.png`` in the folder of a run.

    Returns None for a run without learnable strides: there is nothing to draw.
    """
    strides = read_strides(folder)
    if not strides:
        return None
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1.6, 1])
    facts = read_json(folder / "data.json")
    layers = list(dict.fromkeys(row["layer"] for row in strides))
    for i, layer in enumerate(layers):
        own = [row for row in strides if row["layer"] == layer]
        axes = sorted({int(row["axis"]) for row in own})
        for axis in axes:
            line = [row for row in own if int(row["axis"]) == axis]
            shade = colormaps[HUES[i % len(HUES)]](0.9 - 0.4 * axis / max(1, len(axes) - 1))
            name = facts.get("axes", AXIS_NAMES[len(axes)])[axis]
            last = line[-1]
            label = f"{layer} {name}: {last['input_size']} → {last['output_size']}"
            if i == 0 and (units := UNITS.get(name)):
                label += f", up to {cutoff(last, facts):.3g} {units}"
            left.plot(
                [int(row["epoch"]) for row in line],
                [float(row["stride"]) for row in line],
                color=shade,
                label=label,
            )
    left.set(title="Strides while training", xlabel="epoch", ylabel="stride")
    left.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    columns = ("epoch", "train_accuracy", "test_accuracy")
    _draw_accuracy(right, read_rows(folder / "metrics.csv", *columns))
    for panel in (left, right):
        panel.grid(alpha=0.3)
    path = folder / "strides.png"
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=130)
    write(path, content.getvalue())
    return path


def _draw_accuracy(panel: Any, metrics: list[dict[str, str]]) -> None:
    epochs = [int(row["epoch"]) for row in metrics]
    for split, colour in (("train", "#999999"), ("test", "#222222")):
        values = [float(row[f"{split}_accuracy"]) for row in metrics]
        label = f"{split}: {values[-1]:.2%}"
        panel.plot(epochs, values, marker=".", color=colour, label=label)
    panel.set(title="Accuracy", xlabel="epoch", ylim=(None, 1.01))
    panel.legend(frameon=False, loc="lower right")
