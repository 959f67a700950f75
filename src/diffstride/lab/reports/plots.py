"""Figures as SVG for a page, which gives them their colours in light and in dark.

Every SVG is WIDTH wide at most, so that its letters can be read on a phone; names that come from
runs are written beside figures wherever there is room, and never read as mathematics.
"""

import io
import itertools
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
from matplotlib import style
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

from diffstride.lab.reports.formats import TEMPLATES, Figures
from diffstride.lab.reports.windows import Array

WIDTH = 400
SERIES = 8
FAR = 10  # values that are farther apart than by this factor are drawn in powers of 2
MOST_MARKED = 80  # points of a window that are drawn as such
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

Points: TypeAlias = Sequence[tuple[float, float]]
Curve: TypeAlias = tuple[int, int, Sequence[Points]]
"""A colour, a kind of dash, and the points of every run."""
CutoffCurve: TypeAlias = tuple[
    int | None, Sequence[tuple[float, float, float, float]], float | None
]
"""A colour, or None for the input; points of cut-off, accuracy and its band; what was learned."""
Values: TypeAlias = Sequence[Sequence[float]]
Marks: TypeAlias = Sequence[Sequence[float | None]]
T = TypeVar("T")


def colour(index: int) -> str:
    """The stand-in for a colour of the page; they come round again."""
    return f"#0a0a{index % SERIES:02x}"


@styled
def curves(
    lines: Sequence[Curve], *, ylabel: str, limits: Sequence[float] = (), xlabel: str = "epoch"
) -> str:
    """Lines over epochs or steps, which show strides where they have limits.

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
    return _svg(ax, xlabel=xlabel, ylabel=ylabel)


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
    spectrum: tuple[Array, Array] | None,
    windows: Sequence[tuple[Array, Array]],
    cutoff: float,
    highest: float,
    *,
    xlabel: str,
) -> str:
    """The windows of layers over frequency, on the spectrum of inputs in dB; shaded to the cut-off.

    Frequencies are in powers of 2 where the cut-off is very low.
    """
    ax, is_wide = _panel(260), highest > 3 * FAR * cutoff
    low = cutoff / 4 if is_wide else 0.0
    ax.axvspan(low, cutoff, color=colour(0), alpha=0.1, linewidth=0)
    if spectrum is not None:
        frequency, strength = _peaks(*spectrum)
        height, highest = np.clip(1 + strength / 60, 0.0, 1.0), max(highest, frequency[-1])
        ax.fill_between(frequency, height, step="mid", color=MUTED, alpha=0.28, linewidth=0)
    for i, (frequency, weights) in enumerate(windows):
        x = frequency[frequency >= low]
        if is_wide:  # what is straight over frequencies is not over their logarithms
            x = np.union1d(x, np.geomspace(low, max(low, frequency[-1]), 200))
        ax.plot(x, np.interp(x, frequency, weights), color=colour(i))
        if len(weights) <= MOST_MARKED:
            ax.plot(frequency[is_wide:], weights[is_wide:], ".", ms=5, color=colour(i))
    if is_wide:
        _in_powers_of_two(ax, "x", 9 if highest > 1 else 6)  # parts of 1 need more room
    settings = {"xlim": (low, highest), "ylim": (0, 1.06)}
    return _svg(ax, xlabel=xlabel, ylabel="weight m(f)", **settings)


@styled
def traces(rows: Sequence[tuple[str, int | None, Array]], length: float, *, xlabel: str) -> str:
    """Signals below one another, over the same time: a label, a colour and samples of each."""
    ax = _panel(56 + 44 * len(rows))
    largest = max(float(np.abs(values).max()) for _, _, values in rows) or 1.0
    for row, (_, index, values) in enumerate(rows):
        place = np.arange(len(values)) * (length / len(values))
        look = {"color": MUTED if index is None else colour(index), "lw": 1.0}
        ax.plot(place, row - 0.45 * values / largest, **look)
    ax.set_yticks(range(len(rows)), [label for label, _, _ in rows])
    ax.tick_params(axis="y", length=0)
    return _svg(ax, xlabel=xlabel, xlim=(0, length), ylim=(len(rows) - 0.4, -0.6))


@styled
def cutoff_curves(lines: Sequence[CutoffCurve], *, xlabel: str) -> str:
    """Accuracy over the cut-off, a line with its band for each place; below, what was learned.

    The learned cut-off of the first line, which is of the input, goes through all of the figure.
    """
    ax = _panel(260)
    for i, (index, points, learned) in enumerate(lines):
        x, y, low, high = zip(*points, strict=True)
        look = {"color": MUTED if index is None else colour(index)}
        ax.plot(x, y, marker=".", ms=5, **look)
        ax.fill_between(x, low, high, **look, alpha=0.15, linewidth=0)
        if learned and i:
            ax.axvline(learned, ymax=0.07, **look, lw=2.5)
        elif learned:
            ax.axvline(learned, color=MUTED, lw=1.2, linestyle=DASHES[1])
    cutoffs = [x for _, points, _ in lines for x, *_ in points]
    ax.set(xscale="log", xlim=(min(cutoffs) / 1.15, max(cutoffs) * 1.15))
    ratio = max(cutoffs) / min(cutoffs)
    steps = (1, 2, 5) if ratio < 300 else (1, 3) if ratio < 5000 else (1,)  # room for all labels
    ax.xaxis.set(major_locator=LogLocator(subs=steps, numticks=9), minor_locator=NullLocator())
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    return _svg(ax, xlabel=xlabel, ylabel="accuracy")


def _peaks(x: Array, y: Array, most: int = 250) -> tuple[Array, Array]:
    """At most so many points of a line: of neighbours the highest, in their middle."""
    parts = max(1, math.ceil(len(x) / most))
    groups = [slice(i, i + parts) for i in range(0, len(x), parts)]
    return np.array([x[g].mean() for g in groups]), np.array([y[g].max() for g in groups])


def _panel(height: float) -> Any:
    """The axes of a new figure, in the units of the page, with room for whatever labels it gets."""
    figure = Figure(figsize=(WIDTH / 72, height / 72), layout="constrained")
    return figure.add_subplot()


def _rows(labels: Sequence[str], series: int, room: float) -> tuple[Any, list[list[float]]]:
    """The axes of a figure with a row for each label, and how low each series is in each."""
    ax = _panel(70 + max(34, 13 * series) * len(labels))
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
    if high <= FAR * low:
        margin = max(0.06 * (high - low), 0.02 * high)
        ax.set(**{f"{axis}lim": (low - margin, high + margin)})
        return
    _in_powers_of_two(ax, axis)
    ax.set(**{f"{axis}lim": (low / 1.15, high * 1.15)})


def _shortened(value: float, _: int) -> str:
    """A tick; a part of 1 has three digits, for which there is room."""
    return f"{value:.3g}" if value < 1 else f"{value:g}"


def _in_powers_of_two(ax: Any, axis: str, most: int = 9) -> None:
    ax.set(**{f"{axis}scale": "log"})
    ticks = {"major_locator": LogLocator(base=2, numticks=most), "minor_locator": NullLocator()}
    getattr(ax, f"{axis}axis").set(**ticks, major_formatter=_shortened)


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
