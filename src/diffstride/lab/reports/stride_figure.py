"""The figure of a run: its strides and its accuracy over training."""

import io
from pathlib import Path

from matplotlib import colormaps, style
from matplotlib.figure import Figure

from diffstride.files import write
from diffstride.lab.reports.run_reader import CUTOFF_UNITS, read_run

HUES = ("Blues", "Oranges", "Greens", "Purples", "Reds", "Greys", "YlGn")
"""A hue for each layer, with a shade for each axis."""
STYLE = {"axes.grid": True, "grid.alpha": 0.3, "legend.frameon": False}


def draw_run(folder: Path) -> Path | None:
    """Draw strides and accuracy over training as ``strides.png`` in the folder of a run.

    Returns None for a run without learnable strides: there is nothing to draw.
    """
    run = read_run(folder)
    if not run.strides:
        return None
    content, path = io.BytesIO(), folder / "strides.png"
    with style.context(["default", STYLE]):
        figure = Figure(figsize=(12, 4.5), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=[1.6, 1])
        for i, strides in enumerate(run.layers.values()):
            for stride in strides:
                name = run.axes[stride.axis]
                label = "{} {}: {} → {}".format(stride.layer, name, *stride.sizes)
                if i == 0 and (unit := CUTOFF_UNITS.get(name)):
                    label += f", up to {run.cutoff(stride):.3g} {unit}"
                shade = 0.9 - 0.4 * stride.axis / max(1, len(strides) - 1)
                colour = colormaps[HUES[i % len(HUES)]](shade)
                left.plot(*zip(*stride.points, strict=True), color=colour, label=label)
        left.set(title="Strides while training", xlabel="epoch", ylabel="stride")
        left.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
        for split, grey in (("train", "#999999"), ("test", "#222222")):
            if points := run.curve(f"{split}_accuracy"):
                label = f"{split}: {points[-1][1]:.2%}"
                right.plot(*zip(*points, strict=True), marker=".", color=grey, label=label)
        right.set(title="Accuracy", xlabel="epoch", ylim=(None, 1.01))
        right.legend(loc="lower right")
        figure.savefig(content, format="png", dpi=130)
    write(path, content.getvalue())
    return path
