"""The figure of a run, a PNG: its strides and its score over the epochs."""

import io
from pathlib import Path

from matplotlib import colormaps, style
from matplotlib.figure import Figure

from diffstride.files import write
from diffstride.lab.reports.run_reader import RunRecord

HUES = ("Blues", "Oranges", "Greens", "Purples", "Reds", "Greys", "YlGn")
"""A hue for each layer, with a shade for each axis."""
PNG_STYLE = {"axes.grid": True, "grid.alpha": 0.3, "legend.frameon": False}


def draw_run(folder: Path) -> Path | None:
    """Draw ``strides.png`` in the folder of a run; None if the run has no learnable strides."""
    run = RunRecord(folder)
    if not run.strides:
        return None
    content, path = io.BytesIO(), folder / "strides.png"
    with style.context(["default", PNG_STYLE]):
        figure = Figure(figsize=(14, 4.5), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=[1.6, 1])
        for i, strides in enumerate(run.layers.values()):
            for stride in strides:
                name, _, unit = run.data_axes[stride.axis]
                label = "{} {}: {} → {}".format(stride.layer, name, *stride.sizes)
                if run.sizes_known and (cutoff := run.cutoff(stride)):
                    label += f", up to {cutoff:.3g} {unit}"
                shade = 0.9 - 0.4 * stride.axis / max(1, len(strides) - 1)
                look = {"color": colormaps[HUES[i % len(HUES)]](shade), "label": label}
                left.plot(*zip(*stride.points, strict=True), **look)
        left.set(title="Strides while training", xlabel="epoch", ylabel="stride")
        left.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
        score = run.score
        for split, grey in (("train", "#999999"), ("test", "#222222")):
            if points := run.curve(f"{split}_{score.name}"):
                label = f"{split}: {score.text(points[-1][1])}"
                right.plot(*zip(*points, strict=True), marker=".", color=grey, label=label)
        right.set(
            title=score.heading, xlabel="epoch", ylim=(None, score.most and 1.01 * score.most)
        )
        right.legend(loc="lower right")
        for ax in (left, right):
            ax.xaxis.get_major_locator().set_params(integer=True)
        figure.savefig(content, format="png", dpi=130)
    write(path, content.getvalue())
    return path
