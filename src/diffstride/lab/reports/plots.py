"""Figures as SVG to be set into a page, which gives them their colours, in light and in dark.

Every figure is WIDTH wide at most, so that its letters can be read on a phone; names that come from
runs are written beside figures wherever there is room, and never read as mathematics.
"""

import io
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from matplotlib import style
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

from diffstride.lab.reports.window_plots import Array

WIDTH = 400
SERIES = 8
DASHES: tuple[Any, ...] = ("-", (0, (4, 2)), (0, (1, 1.5)))

# Colours that nothing else has, in place of which the page's own are written.
INK, MUTED, RULE = "#010101", "#020202", "#030303"
COLOURS = {INK: "currentColor", MUTED: "var(--muted)", RULE: "var(--rule)"}
COLOURS |= {f"#0a0a{i:02x}": f"var(--series-{i + 1})" for i in range(SERIES)}

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "diffstride",
    "text.parse_math": False,
    "font.size": 11,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "text.color": INK,
    "lines.linewidth": 1.6,
    "lines.solid_capstyle": "round",
}

Points: TypeAlias = Sequence[tuple[float, float]]


def colour(index: int) -> str:
    """The stand-in for a colour of the page; they come round again."""
    return f"#0a0a{index % SERIES:02x}"


def curves(
    lines: Sequence[tuple[int, int, Sequence[Points]]],
    *,
    ylabel: str,
    limits: tuple[float, float] | None = None,
) -> str:
    """Lines over epochs: of each a colour, a kind of dash, and the curve of every run.

    Up to three runs are drawn as they are; of more, their mean and what lies between the extremes.
    """
    with _styled():
        figure, ax = _panel(260)
        for index, dash, runs in lines:
            look = {"color": colour(index), "linestyle": DASHES[dash % len(DASHES)]}
            if len(runs) <= 3:
                for points in runs:
                    ax.plot(*_thinned(points), **look)
                continue
            epochs = sorted({epoch for points in runs for epoch, _ in points})
            values = [dict(points) for points in runs]
            at = [[v[epoch] for v in values if epoch in v] for epoch in epochs]
            spread = _thinned([(e, i) for i, e in enumerate(epochs)])
            x, own = spread[0], [at[int(i)] for i in spread[1]]
            ax.plot(x, [np.mean(v) for v in own], **look)
            low, high = [min(v) for v in own], [max(v) for v in own]
            ax.fill_between(x, low, high, color=colour(index), alpha=0.15, linewidth=0)
        ax.set(xlabel="epoch", ylabel=ylabel)
        if limits is not None:
            _show(ax, "y", *limits)
        ax.xaxis.get_major_locator().set_params(integer=True)
        return _svg(figure)


def scatter(series: Mapping[int, Points], *, xlabel: str, ylabel: str) -> str:
    """A point a run, a colour a series."""
    with _styled():
        figure, ax = _panel(280)
        for index, points in series.items():
            x, y = zip(*points, strict=True)
            ax.plot(x, y, "o", ms=5, color=colour(index), alpha=0.75, mew=0)
        ax.set(xlabel=xlabel, ylabel=ylabel)
        return _svg(figure)


def strips(
    labels: Sequence[str],
    series: Sequence[tuple[int, Sequence[Sequence[float]]]],
    *,
    xlabel: str,
    marks: Sequence[Sequence[float | None]] = (),
) -> str:
    """A row a label: the values of each series as points, each series a little lower.

    ``marks`` has for each series a value a row, drawn as an upright stroke.
    """
    step = 0.7 / max(1, len(series))
    with _styled():
        figure, ax = _panel(70 + max(34, 13 * len(series)) * len(labels), labels)
        for i, (index, values) in enumerate(series):
            down = (i - (len(series) - 1) / 2) * step
            for row, own in enumerate(values):
                ax.plot(
                    own, [row + down] * len(own), "o", ms=5, color=colour(index), alpha=0.6, mew=0
                )
                mark = marks[i][row] if marks else None
                if mark is not None:
                    ax.plot([mark], [row + down], "|", ms=9, mew=1.4, color=INK)
        _rows(ax, labels)
        ax.set(xlabel=xlabel)
        shown = [value for _, values in series for own in values for value in own]
        shown += [mark for own in marks for mark in own if mark is not None]
        _show(ax, "x", min(shown), max(shown))
        return _svg(figure)


def means(
    labels: Sequence[str],
    series: Sequence[tuple[int, Sequence[tuple[float, float] | None], Sequence[float | None]]],
    *,
    xlabel: str,
) -> str:
    """A row a label: mean and sd of each series as a point with its bar, the paper's as a ring."""
    step = 0.66 / max(1, len(series))
    with _styled():
        figure, ax = _panel(70 + max(34, 13 * len(series)) * len(labels), labels)
        for i, (index, values, paper) in enumerate(series):
            down = (i - (len(series) - 1) / 2) * step
            for row, (here, there) in enumerate(zip(values, paper, strict=True)):
                if here is not None:
                    ax.plot([here[0]], [row + down], "o", ms=6, color=colour(index), mew=0)
                    bar = [here[0] - here[1], here[0] + here[1]]
                    ax.plot(bar, [row + down] * 2, color=colour(index), lw=1.4)
                if there is not None:
                    ring = {"mfc": "none", "mec": colour(index), "mew": 1.2}
                    ax.plot([there], [row + down], "o", ms=6, **ring)
        _rows(ax, labels)
        ax.set(xlabel=xlabel)
        return _svg(figure)


def passband(
    spectrum: Array | None,
    layers: Sequence[tuple[int, Array]],
    *,
    highest: int,
    band: float,
    xlabel: str,
) -> str:
    """Windows over frequency, on the spectrum of inputs; what the first layer keeps is shaded."""
    with _styled():
        figure, ax = _panel(260)
        ax.axvspan(0, band, color=colour(0), alpha=0.1, linewidth=0)
        if spectrum is not None:
            height = np.clip(1 + spectrum / 60, 0.0, 1.0)  # from −60 dB to the peak
            frequency = np.arange(len(height))
            ax.fill_between(frequency, height, step="mid", color=MUTED, alpha=0.28, linewidth=0)
        for index, values in layers:
            ax.plot(np.arange(len(values)), values, marker=".", ms=5, color=colour(index))
        ax.set(xlabel=xlabel, ylabel="weight m(f)", xlim=(0, highest), ylim=(0, 1.06))
        return _svg(figure)


def _styled() -> Any:
    return style.context(["default", STYLE])  # whatever the reader's own settings are


def _panel(height: float, labels: Sequence[str] = ()) -> tuple[Figure, Any]:
    """A figure of one panel, in the units of the page, with room for labels on the left."""
    left = min(150, 18 + 6.5 * max(map(len, labels))) if labels else 54
    figure = Figure(figsize=(WIDTH / 72, height / 72))
    box = (left / WIDTH, 40 / height, 1 - (left + 14) / WIDTH, 1 - 50 / height)
    return figure, figure.add_axes(box)


def _rows(ax: Any, labels: Sequence[str]) -> None:
    short = [label if len(label) <= 20 else f"{label[:19]}…" for label in labels]
    ax.set_yticks(range(len(labels)), short)
    ax.set_ylim(len(labels) - 0.5, -0.5)
    ax.grid(axis="y", visible=False)
    for row in range(1, len(labels)):
        ax.axhline(row - 0.5, color=RULE, lw=0.8)
    ax.tick_params(axis="y", length=0)


def _show(ax: Any, axis: str, low: float, high: float) -> None:
    """An axis for strides from low to high; in powers of 2 where they are very far apart."""
    far = high > 10 * low
    margin = max(0.06 * (high - low), 0.02 * high)
    limits = (low / 1.15, high * 1.15) if far else (low - margin, high + margin)
    ax.set(**{f"{axis}scale": "log" if far else "linear", f"{axis}lim": limits})
    if far:
        which = getattr(ax, f"{axis}axis")
        which.set_major_locator(LogLocator(base=2, numticks=9))
        which.set_major_formatter(StrMethodFormatter("{x:g}"))
        which.set_minor_locator(NullLocator())


def _thinned(points: Points, most: int = 150) -> tuple[list[float], list[float]]:
    """At most so many points of a line, the first and the last among them."""
    if len(points) > most:
        chosen = np.linspace(0, len(points) - 1, most).round().astype(int)
        points = [points[i] for i in chosen]
    return [x for x, _ in points], [y for _, y in points]


def _svg(figure: Figure) -> str:
    """A figure as an element of a page: its colours and fonts, and nothing beside."""
    text = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the reader's fonts will have it
        figure.savefig(text, format="svg", transparent=True, metadata=nothing)
    found = text.getvalue()
    found = found[found.index("<svg") :]
    found = re.sub(r"<style.*?</style>", "", found, count=1, flags=re.DOTALL)
    found = re.sub(r'<svg [^>]*viewBox="([^"]*)"[^>]*>', r'<svg viewBox="\1">', found, count=1)
    found = re.sub(r" font-family: [^;\"]*;?", "", found)
    found = re.sub(r' transform="rotate\(-?0 [^"]*\)"', "", found)
    for stand_in, real in COLOURS.items():
        found = found.replace(stand_in, real)
    return re.sub(r"\s*\n\s*", " ", found)


def numbered(svg: str, number: int) -> str:
    """A figure whose ids no other figure of the page has; those that nothing refers to go."""
    used = set(re.findall(r'(?:url\(|xlink:href=")#([^)"]+)', svg))
    svg = re.sub(r' id="([^"]*)"', lambda m: f' id="f{number}-{m[1]}"' if m[1] in used else "", svg)
    svg = re.sub(r"url\(#", f"url(#f{number}-", svg)
    return svg.replace('xlink:href="#', f'href="#f{number}-')
