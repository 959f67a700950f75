"""Draw the figures of docs/maths.md, one per idea.

python docs/figures.py [FOLDER]
"""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_sample_images

from diffstride import functional
from diffstride.core import bases, rule, windows

# The same input gives the same file, so that a figure changes only when what it shows does.
plt.rcParams.update(
    {
        "svg.hashsalt": "diffstride",
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "figure.facecolor": "white",
        "figure.constrained_layout.use": True,
    }
)
BLUE, ORANGE, GREEN, GREY = "#3366aa", "#dd7722", "#338855", "#999999"


def signal(n):
    """A smooth bump with detail on top: something to downsample."""
    t = np.arange(n) / n
    x = np.exp(-(((t - 0.4) / 0.12) ** 2)) + 0.35 * np.sin(2 * np.pi * 3 * t)
    return x + 0.25 * np.cos(2 * np.pi * 13 * t)


def draw_operator():
    """A = D · diag(m) · E, and what it does to a signal."""
    n, stride, smoothness = 32, 2.5, 2.0
    (m,) = functional.output_size(n, stride, smoothness=smoothness)
    analysis, synthesis = (a.numpy() for a in bases.FOURIER.matrices(n, m))
    window = functional.window(n, stride, smoothness=smoothness)
    window = bases.FOURIER.per_function(window, m).numpy()
    product = synthesis @ np.diag(window) @ analysis
    figure, axes = plt.subplots(1, 5, figsize=(11, 2.3), width_ratios=[n, m, m, n, n])
    parts = [
        (product, f"A ({m}×{n})   ="),
        (synthesis, f"D ({m}×{m})   ·"),
        (np.diag(window), "diag(m)   ·"),
        (analysis, f"E ({m}×{n})"),
    ]
    for ax, (matrix, title) in zip(axes, parts, strict=False):
        limit = np.abs(matrix).max()
        ax.imshow(matrix, cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest")
        ax.set(title=title, xticks=[], yticks=[])
    x = signal(n)
    y = product @ x * rule.NORMS["forward"](n, m)
    axes[4].plot(np.arange(n) / n, x, color=GREY, label=f"x, {n} samples")
    axes[4].plot(np.arange(m) / m, y, "o-", ms=3, color=BLUE, label=f"A x, {m} samples")
    axes[4].set(title="a signal", xticks=[], yticks=[])
    axes[4].legend(frameon=False, fontsize=8, loc="upper right")
    return figure


def draw_basis():
    """The lowest real Fourier functions, and the lone cosine of an even length."""
    kept, grid = 6, 200
    fine = bases.waves(grid, kept).numpy()
    coarse = bases.waves(kept, kept).numpy()
    names = ["1", "cos 1", "sin 1", "cos 2", "sin 2", "cos 3 (alone)"]
    figure, axes = plt.subplots(1, kept, figsize=(11, 1.9), sharey=True)
    for ax, name, wave, samples in zip(axes, names, fine, coarse, strict=True):
        ax.plot(np.arange(grid) / grid, wave, color=GREY)
        ax.plot(np.arange(kept) / kept, samples, "o", ms=4, color=BLUE)
        ax.set(title=name, xticks=[0, 1], ylim=(-1.3, 1.3), yticks=[-1, 0, 1])
    return figure


def photographs(size):
    """Squares cut from the two photographs of scikit-learn, as (many, 3, size, size)."""
    images = torch.tensor(np.stack(load_sample_images().images)).double().movedim(-1, 1)
    squares = images.unfold(2, size, size).unfold(3, size, size)
    return squares.permute(0, 2, 3, 1, 4, 5).flatten(0, 2) / 255


def draw_dct():
    """What lies beyond the ends of an axis in both bases, and what that changes near borders."""
    n, m, size = 48, 12, 64
    figure, (beyond, after, borders) = plt.subplots(1, 3, figsize=(11, 3.0))
    x = np.linspace(0, 2, n) + np.sin(np.linspace(0, 9, n)) / 2
    position = (np.arange(n) + 0.5) / n
    beyond.plot(position, x, color="black", lw=1.2, label="the axis")
    after.plot(position, x, color=GREY, lw=1, label=f"x, {n} samples")
    colours = {"fourier": ORANGE, "dct": BLUE}
    outside = {"fourier": (x, x), "dct": (x[::-1], x[::-1])}
    squares = photographs(size)
    distance = np.minimum(np.arange(size), np.arange(size)[::-1])
    for basis, colour in colours.items():
        for shift, copy in zip((-1, 1), outside[basis], strict=True):
            beyond.plot(position + shift, copy, color=colour, lw=1, label=basis * (shift < 0))
        pooled = functional.spectral_resize(
            torch.tensor(x)[None], (m,), norm="forward", basis=basis
        )[0]
        lies = (np.arange(m) + 0.5 * (basis == "dct")) / m + 0.5 / n * (basis == "fourier")
        after.plot(lies, pooled, "o-", ms=3, lw=1, color=colour, label=f"{basis}, {m} samples")
        small = functional.spectral_pool(squares, 2.0, basis=basis)
        error = functional.spectral_resize(small, size, basis=basis) - squares
        # Of the columns alone: each row of pixels has two ends.
        by_column = error.square().mean((0, 1, 2)).numpy()
        by_distance = [np.sqrt(by_column[distance == d].mean()) for d in range(size // 2)]
        borders.plot(by_distance, "o-", ms=3, lw=1, color=colour, label=basis)
        print(f"{basis}: {by_distance[0]:.3f} at the border, {by_distance[-1]:.3f} in the middle")
    beyond.set(title="what lies beyond the ends", xticks=[0, 1], yticks=[], xlim=(-0.8, 1.8))
    after.set(title=f"{n} samples to {m}", xticks=[0, 1], yticks=[])
    borders.set(title="photographs, 64 to 32 and back", xlabel="pixels from the border")
    borders.set(ylabel="error (rms)", ylim=(0, None), xlim=(-0.5, 16))
    for ax in (beyond, after, borders):
        ax.title.set_fontsize(10)
        ax.legend(frameon=False, fontsize=8)
    return figure


def draw_window():
    """m(f) for three strides, the kept band of one, and the offset of the last axis."""
    n, smoothness = 32, 4.0
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.2), sharey=True)
    frequency = np.arange(n // 2 + 1)
    fine = np.linspace(0, n // 2, 500)
    for stride, colour in ((4.0, BLUE), (2.5, ORANGE), (1.6, GREEN)):
        values = functional.window(n, stride, smoothness=smoothness, crop=False)
        line = np.clip((smoothness + n / (2 * stride) - fine) / smoothness, 0, 1)
        left.plot(fine, line, color=colour, lw=1)
        left.plot(frequency, values, "o", ms=4, color=colour, label=f"S = {stride}")
    left.set(xlabel="frequency f (periods per axis)", ylabel="m(f)")
    left.set_title(f"The window, N = {n}, R = {smoothness:g}", fontsize=10)
    left.legend(frameon=False)
    stride = 2.5
    (kept,) = functional.output_size(n, stride, smoothness=smoothness)
    for offset, colour in ((0.0, ORANGE), (1.0, BLUE)):
        values = functional.window(n, stride, smoothness=smoothness, offset=offset, crop=False)
        right.plot(frequency, values, "o-", ms=4, lw=1, color=colour, label=f"δ = {offset:g}")
    right.axvspan(0, kept / 2, color=GREY, alpha=0.15, lw=0)
    right.text(0.3, 0.05, f"kept: M = {kept}", color="#555555")
    right.axvline(n / (2 * stride), color=GREY, ls=":")
    right.text(n / (2 * stride) + 0.15, 0.05, "N/(2S)", color="#555555")
    right.set(xlabel="frequency f")
    right.set_title(f"The last axis of the paper's convention, S = {stride}", fontsize=10)
    right.legend(frameon=False)
    return figure


def draw_tight():
    """Where a tight window falls: beside the others, at stride 1, and on a band narrower than R."""
    figure, (beside, one, narrow) = plt.subplots(1, 3, figsize=(11, 3.0), sharey=True)
    fine = {"smoothness": 4.0, "crop": False}
    for convention, colour in (("symmetric", GREY), ("tight", BLUE)):
        values = functional.window(32, 2.0, convention=convention, **fine)
        (kept,) = functional.output_size(32, 2.0, convention=convention)
        name = f"{convention}, M = {kept}"
        beside.plot(values, "o-", ms=3, lw=1, color=colour, label=name)
        beside.axvline(kept / 2, color=colour, lw=0.8, ls=":")
    beside.set(xlabel="frequency f", ylabel="m(f)", ylim=(-0.03, 1.05))
    beside.set_title("N = 32, S = 2, R = 4; dotted: M/2", fontsize=10)
    for n, smoothness, colour in ((16, 1.0, BLUE), (16, 4.0, ORANGE), (17, 4.0, GREEN)):
        values = functional.window(n, 1.0, smoothness=smoothness, convention="tight")
        name = f"N = {n}, R = {smoothness:g}"
        one.plot(values, "o-", ms=3, lw=1, color=colour, label=name)
    one.set(xlabel="frequency f")
    one.set_title("stride 1: the highest frequencies fade", fontsize=10)
    for stride, colour in ((2.0, BLUE), (4.0, ORANGE), (6.0, GREEN)):
        values = functional.window(16, stride, convention="tight", **fine)
        narrow.plot(values, "o-", ms=3, lw=1, color=colour, label=f"S = {stride:g}")
    narrow.set(xlabel="frequency f")
    narrow.set_title("N = 16, R = 4: constants pass", fontsize=10)
    for ax in (beside, one, narrow):
        ax.legend(frameon=False, fontsize=8)
    return figure


def draw_sizes():
    """The kept length as the stride grows, for several smoothnesses."""
    n = 32
    strides = np.linspace(1, 12, 2000)
    figure, ax = plt.subplots(figsize=(6.5, 3.2))
    for smoothness, colour in ((0.0, GREY), (1.0, GREEN), (4.0, BLUE)):
        kept = [windows.kept_length(n, s, smoothness) for s in strides]
        ax.plot(strides, kept, color=colour, label=f"R = {smoothness:g}")
    ax.plot(strides, n / strides, color=ORANGE, ls=":", label="N/S")
    ax.set(xlabel="stride S", ylabel="kept length M", ylim=(0, n + 1))
    ax.set_title(f"Output size of an axis of N = {n}", fontsize=10)
    ax.legend(frameon=False)
    return figure


def draw_range():
    """At stride 1 the window is held at ½ on the highest frequency, whatever the size."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.2))
    for n, colour in ((16, BLUE), (32, ORANGE), (64, GREEN)):
        values = functional.window(n, 1.0, smoothness=4.0)
        left.plot(np.arange(len(values)), values, "o-", ms=3, lw=1, color=colour, label=f"N = {n}")
        left.plot(n // 2, 0.5, "o", ms=9, mfc="none", color=colour)
    left.set(xlabel="frequency f", ylabel="m(f) at S = 1", ylim=(0, 1.05))
    left.legend(frameon=False, loc="lower right")
    left.set_title("Something is left in the ramp at stride 1", fontsize=10)
    strides = np.geomspace(1, 100, 400)
    for n, colour in ((16, BLUE), (32, ORANGE), (64, GREEN)):
        lowest = windows.lowest_stride(n, 4.0, 0.0)
        right.plot(strides, np.clip(strides, lowest, n), color=colour, label=f"N = {n}")
    right.set(xscale="log", yscale="log", xlabel="the parameter S", ylabel="S in the window")
    right.legend(frameon=False)
    right.set_title("The effective stride of an input, R = 4", fontsize=10)
    return figure


def draw_gradient():
    """What a stride learns from: a loss over the stride, and the slope that backward gives."""
    n, smoothness, wanted = 64, 4.0, 3.0
    x = torch.tensor(signal(n))[None, None] + 0.3 * torch.randn(
        1, 1, n, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    options = {"smoothness": smoothness, "crop": False, "convention": "symmetric"}
    target = functional.diff_stride(x, wanted, **options)
    strides, losses, slopes = np.linspace(1.2, 6, 400), [], []
    for value in strides:
        s = torch.tensor([value], requires_grad=True)
        loss = (functional.diff_stride(x, s, **options) - target).square().mean()
        loss.backward()
        losses.append(loss.item())
        slopes.append(s.grad.item())
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.0))
    left.plot(strides, losses, color=BLUE)
    left.axvline(wanted, color=GREY, ls=":")
    left.set(xlabel="stride S", ylabel="loss")
    left.set_title("Distance to the output at S = 3", fontsize=10)
    right.plot(strides, slopes, color=ORANGE, label="by backpropagation")
    right.plot(strides, np.gradient(losses, strides), color=GREY, ls=":", label="by differences")
    right.axhline(0, color=GREY, lw=0.5)
    right.axvline(wanted, color=GREY, ls=":")
    right.set(xlabel="stride S", ylabel="∂loss/∂S")
    right.set_title("Its slope, with a corner where a bin enters the ramp", fontsize=10)
    right.legend(frameon=False)
    return figure


def draw_norms():
    """The three norms differ by a factor."""
    n, stride = 64, 3.0
    x = torch.tensor(signal(n))[None, None] + 1
    figure, ax = plt.subplots(figsize=(6.5, 3.0))
    ax.plot(np.arange(n) / n, x[0, 0], color=GREY, lw=1, label=f"x, mean {x.mean():.2f}")
    for norm, colour in (("forward", GREEN), ("ortho", BLUE), ("backward", ORANGE)):
        y = functional.diff_stride(x, stride, smoothness=2.0, norm=norm)[0, 0]
        position = np.arange(len(y)) / len(y)
        label = f'"{norm}", mean {y.mean():.2f}'
        ax.plot(position, y, "o-", ms=3, lw=1, color=colour, label=label)
    ax.set(xlabel="position", xticks=[], ylim=(0, 9))
    ax.set_title(f"N = {n} to M = {len(y)}", fontsize=10)
    ax.legend(frameon=False, ncols=2)
    return figure


FIGURES = {
    "operator": draw_operator,
    "basis": draw_basis,
    "dct": draw_dct,
    "window": draw_window,
    "tight": draw_tight,
    "sizes": draw_sizes,
    "range": draw_range,
    "gradient": draw_gradient,
    "norms": draw_norms,
}


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in FIGURES.items():
        save(draw(), folder / f"{name}.svg")


def save(figure, path: Path) -> None:
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    print(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "figures")
