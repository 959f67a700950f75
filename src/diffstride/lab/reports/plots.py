"""Figures: SVG for a page, which gives them their colours in light and in dark; a PNG of a run.

Every SVG is WIDTH wide at most, so that its letters can be read on a phone; names that come from
runs are written beside figures wherever there is room, and never read as mathematics.
"""

import io
import itertools
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
from matplotlib import colormaps, style
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

from diffstride.files import write
from diffstride.lab.reports.formats import TEMPLATES, Figures
from diffstride.lab.reports.run_reader import RunRecord
from diffstride.lab.reports.windows import Array
from diffstride.text import short

WIDTH = 400
SERIES = 8
DASHES: tuple[Any, ...] = ("-", (0, (4, 2)), (0, (1, 1.5)))

# Colours that nothing else has, in place of which the page's own are written.
INK, MUTED, RULE = "#010101", "#020202", "#030303"
COLOURS = {INK: "currentColor", MUTED: "var(--muted)", RULE: "var(--rule)"}
COLOURS |= {f"#0a0a{i:02x}": f"var(--series-{i + 1})" for i in range(SERIES)}
INKED = ("axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor", "text.color")
COLOUR_STYLE = dict.fromkeys(INKED, INK) | {"grid.color": RULE}
COLOUR_STYLE |= dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), MUTED)
# The first undoes whatever settings the reader has.
styled = style.context(["default", TEMPLATES / "figures.mplstyle", COLOUR_STYLE])

HUES = ("Blues", "Oranges", "Greens", "Purples", "Reds", "Greys", "YlGn")
"""In the PNG of a run, a hue for each layer, with a shade for each axis."""
PNG_STYLE = {"axes.grid": True, "grid.alpha": 0.3, "legend.frameon": False}

Points: TypeAlias = Sequence[tuple[float, float]]
Curve: TypeAlias = tuple[int, int, Sequence[Points]]
"""A colour, a kind of dash, and the points of every run."""
CutoffCurve: TypeAlias = tuple[int, Sequence[tuple[float, float, float, float]], float | None]
"""A colour, points of cut-off, accuracy and its band, and the cut-off that was learned."""
Values: TypeAlias = Sequence[Sequence[float]]
Marks: TypeAlias = Sequence[Sequence[float | None]]
T = TypeVar("T")


def colour(index: int) -> str:
    """The stand-in for a colour of the page; they come round again."""
    return f"#0a0a{index % SERIES:02x}"


@styled
def curves(lines: Sequence[Curve], *, ylabel: str, limits: Sequence[float] = ()) -> str:
    """Lines over epochs, which show strides where they have limits.

    Up to three runs are drawn as they are; of more, their mean and what lies between the extremes.
    """
    ax = _panel(260)
    for index, dash, runs in lines:
        look = {"color": colour(index), "linestyle": DASHES[dash % len(DASHES)]}
        if len(runs) <= 3:
            for points in map(_thinned, runs):
                ax.plot([x for x, _ in points], [y for _, y in points], **look)
            continue
        values_at: dict[float, list[float]] = {}
        for epoch, value in itertools.chain(*runs):
            values_at.setdefault(epoch, []).append(value)
        epochs = _thinned(sorted(values_at))
        values = [values_at[epoch] for epoch in epochs]
        ax.plot(epochs, list(map(np.mean, values)), **look)
        low, high = list(map(min, values)), list(map(max, values))
        ax.fill_between(epochs, low, high, color=colour(index), alpha=0.15, linewidth=0)
    if limits:
        _show(ax, "y", *limits)
    ax.xaxis.get_major_locator().set_params(integer=True)
    return _svg(ax, xlabel="epoch", ylabel=ylabel)


@styled
def scatter(series: Mapping[int, Points], *, xlabel: str, ylabel: str) -> str:
    """A point for each run, a colour for each series."""
    ax = _panel(280)
    for index, points in series.items():
        x, y = zip(*points, strict=True)
        ax.plot(x, y, "o", ms=5, color=colour(index), alpha=0.75, mew=0)
    return _svg(ax, xlabel=xlabel, ylabel=ylabel)


@styled
def strips(
    labels: Sequence[str], series: Sequence[tuple[int, Values]], *, xlabel: str, marks: Marks = ()
) -> str:
    """A row for each label: the values of each series as points, each series a little lower.

    ``marks`` has a value for each series and row, drawn as an upright stroke.
    """
    ax, heights = _rows(labels, len(series), 0.7)
    shown = [mark for row_marks in marks for mark in row_marks if mark is not None]
    for i, (index, values) in enumerate(series):
        for row, points in enumerate(values):
            look = {"ms": 5, "color": colour(index), "alpha": 0.6, "mew": 0}
            ax.plot(points, [heights[i][row]] * len(points), "o", **look)
            if marks and marks[i][row] is not None:
                ax.plot([marks[i][row]], [heights[i][row]], "|", ms=9, mew=1.4, color=INK)
            shown += points
    _show(ax, "x", min(shown), max(shown))
    return _svg(ax, xlabel=xlabel)


@styled
def means(
    labels: Sequence[str], series: Sequence[Sequence[tuple[Figures, Figures]]], *, xlabel: str
) -> str:
    """A row for each label, in which each series has its figures here and those of the paper.

    Those here are a point with a bar of the deviation to both sides, the paper's mean is a ring.
    """
    ax, heights = _rows(labels, len(series), 0.66)
    for i, cells in enumerate(series):
        for (here, paper), height in zip(cells, heights[i], strict=True):
            if here:
                mean, sd, *_ = [*here, 0.0]
                ax.plot([mean], [height], "o", ms=6, color=colour(i), mew=0)
                ax.plot([mean - sd, mean + sd], [height] * 2, color=colour(i), lw=1.4)
            if paper:
                ax.plot(paper[:1], [height], "o", ms=6, mfc="none", mec=colour(i), mew=1.2)
    return _svg(ax, xlabel=xlabel)


@styled
def passband(
    spectrum: Array | None, windows: Sequence[Array], size: int, kept: int, *, xlabel: str
) -> str:
    """The windows of layers over frequency, on the spectrum of inputs; what is kept is shaded."""
    ax, highest = _panel(260), size // 2
    ax.axvspan(0, kept / 2, color=colour(0), alpha=0.1, linewidth=0)
    if spectrum is not None:
        height = np.clip(1 + spectrum / 60, 0.0, 1.0)  # from −60 dB to the peak
        frequency, highest = np.arange(len(height)), max(highest, len(height) - 1)
        ax.fill_between(frequency, height, step="mid", color=MUTED, alpha=0.28, linewidth=0)
    for i, weights in enumerate(windows):
        ax.plot(np.arange(len(weights)), weights, marker=".", ms=5, color=colour(i))
    return _svg(ax, xlabel=xlabel, ylabel="weight m(f)", xlim=(0, highest), ylim=(0, 1.06))


@styled
def cutoff_curves(lines: Sequence[CutoffCurve], *, xlabel: str) -> str:
    """Accuracy over the cut-off, a line with its band for each place; below, what was learned.

    The learned cut-off of the first line, which is of the input, goes through all of the figure.
    """
    ax = _panel(260)
    for i, (index, points, learned) in enumerate(lines):
        x, y, low, high = zip(*points, strict=True)
        ax.plot(x, y, marker=".", ms=5, color=colour(index))
        ax.fill_between(x, low, high, color=colour(index), alpha=0.15, linewidth=0)
        if learned and i:
            ax.axvline(learned, ymax=0.07, color=colour(index), lw=2.5)
        elif learned:
            ax.axvline(learned, color=MUTED, lw=1.2, linestyle=DASHES[1])
    cutoffs = [x for _, points, _ in lines for x, *_ in points]
    ax.set(xscale="log", xlim=(min(cutoffs) / 1.15, max(cutoffs) * 1.15))
    ax.xaxis.set(major_locator=LogLocator(subs=(1, 2, 5), numticks=9), minor_locator=NullLocator())
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    return _svg(ax, xlabel=xlabel, ylabel="accuracy")


def _panel(height: float, labels: Sequence[str] = ()) -> Any:
    """The axes of a new figure, in the units of the page, with room for labels on the left."""
    left = min(150, 18 + 6.5 * max(map(len, labels))) if labels else 54
    box = (left / WIDTH, 40 / height, 1 - (left + 14) / WIDTH, 1 - 50 / height)
    return Figure(figsize=(WIDTH / 72, height / 72)).add_axes(box)


def _rows(labels: Sequence[str], series: int, room: float) -> tuple[Any, list[list[float]]]:
    """The axes of a figure with a row for each label, and how low each series is in each."""
    ax = _panel(70 + max(34, 13 * series) * len(labels), labels)
    short = [label if len(label) <= 20 else f"{label[:19]}…" for label in labels]
    ax.set_yticks(range(len(labels)), short)
    ax.set_ylim(len(labels) - 0.5, -0.5)
    ax.grid(axis="y", visible=False)
    for row in range(1, len(labels)):
        ax.axhline(row - 0.5, color=RULE, lw=0.8)
    ax.tick_params(axis="y", length=0)
    below = [(i - (series - 1) / 2) * room / series for i in range(series)]
    return ax, [[row + shift for row in range(len(labels))] for shift in below]


def _show(ax: Any, axis: str, low: float, high: float) -> None:
    """Show strides from low to high on an axis; in powers of 2 where they are very far apart."""
    if high <= 10 * low:
        margin = max(0.06 * (high - low), 0.02 * high)
        ax.set(**{f"{axis}lim": (low - margin, high + margin)})
        return
    ax.set(**{f"{axis}scale": "log", f"{axis}lim": (low / 1.15, high * 1.15)})
    ticks = {"major_locator": LogLocator(base=2, numticks=9), "minor_locator": NullLocator()}
    getattr(ax, f"{axis}axis").set(**ticks, major_formatter=StrMethodFormatter("{x:g}"))


def _thinned(points: Sequence[T], most: int = 150) -> Sequence[T]:
    """At most so many points of a line, the first and the last among them."""
    if len(points) <= most:
        return points
    return [points[i] for i in np.linspace(0, len(points) - 1, most).round().astype(int)]


def _svg(ax: Any, **settings: Any) -> str:
    """The figure of these axes as an element of a page, without colours and fonts of its own."""
    ax.set(**settings)
    file = io.StringIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the reader's fonts will have it
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        ax.figure.savefig(file, format="svg", transparent=True, metadata=nothing)
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<style.*?</style>", "", svg, count=1, flags=re.DOTALL)
    svg = re.sub(r'<svg [^>]*viewBox="([^"]*)"[^>]*>', r'<svg viewBox="\1">', svg, count=1)
    svg = re.sub(r" font-family: [^;\"]*;?", "", svg)
    svg = re.sub(r' transform="rotate\(-?0 [^"]*\)"', "", svg)
    for stand_in, real in COLOURS.items():
        svg = svg.replace(stand_in, real)
    return re.sub(r"\s*\n\s*", " ", svg)


def numbered(svg: str, number: int) -> str:
    """A figure whose ids no other figure of the page has; ids that nothing refers to go."""
    used = set(re.findall(r'(?:url\(|xlink:href=")#([^)"]+)', svg))
    svg = re.sub(r' id="([^"]*)"', lambda m: f' id="f{number}-{m[1]}"' if m[1] in used else "", svg)
    svg = re.sub(r"url\(#", f"url(#f{number}-", svg)
    return svg.replace('xlink:href="#', f'href="#f{number}-')


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
                name = run.axes[stride.axis]
                label = "{} {}: {} → {}".format(stride.layer, name, *stride.sizes)
                if (cutoff := run.cutoff(stride)) is not None:
                    label += f", up to {short(cutoff)} {run.data_axes[stride.axis].unit}"
                shade = 0.9 - 0.4 * stride.axis / max(1, len(strides) - 1)
                look = {"color": colormaps[HUES[i % len(HUES)]](shade), "label": label}
                left.plot(*zip(*stride.points, strict=True), **look)
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
