"""Write the tables of docs/results.md and draw its figures, from what sweeps have measured.

    python -m docs.results [SWEEP...]

SWEEP is the folder of a sweep, runs/cifar10-small for one: what its runs came to is written into
docs/results/ first. Without any, tables and figures are made again from what is there.
"""

import csv
import json
import re
import statistics
import sys
from pathlib import Path

from docs.figures import BLUE, GREEN, GREY, ORANGE, plt, save

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/results.md"
DATA = ROOT / "docs/results"
COLOURS = {"strided": GREY, "spectral": ORANGE, "diffstride": BLUE, "budget": GREEN}
NAMES = {
    "strided": "strided",
    "spectral": "spectral",
    "diffstride": "DiffStride",
    "budget": "DiffStride at the strided cost",
}


def collect(folder):
    """A line for each finished run of a sweep."""
    told = json.loads((folder / "sweep.json").read_text())
    lines = []
    for run in told["runs"]:
        own = folder / run["name"]
        if not (own / "metrics.csv").exists():
            continue
        metrics, times = rows(own / "metrics.csv"), rows(own / "times.csv")
        epochs = re.search(r"^  epochs: (\d+)$", (own / "config.yaml").read_text(), re.MULTILINE)
        if int(metrics[-1]["epoch"]) < int(epochs[1]):
            continue
        strides = [r["stride"] for r in rows(own / "strides.csv") if r["epoch"] == epochs[1]]
        penalty = run.get("penalty", metrics[-1]["stride_penalty"])
        lines.append(
            {
                "run": run["name"],
                "row": run["row"],
                "column": run["column"],
                "seed": run["seed"],
                "accuracy": f"{100 * float(metrics[-1]['test_accuracy']):.2f}",
                "mmacs": f"{float(metrics[-1]['mmacs']):.3f}",
                "J": f"{float(penalty):.4f}",
                "strides": " ".join(f"{float(s):.2f}" for s in strides),
                "minutes": f"{sum(float(r['seconds']) for r in times) / 60:.2f}",
            }
        )
    return lines


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write(path, lines):
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


def cells(lines):
    """Runs by row and column, in the order they came."""
    found = {}
    for line in lines:
        found.setdefault(line["row"], {}).setdefault(line["column"], []).append(line)
    return found


def mean(runs, name="accuracy"):
    return statistics.mean(float(run[name]) for run in runs)


def cell(runs):
    if not runs:
        return "–"
    values = [float(run["accuracy"]) for run in runs]
    sd = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{mean(runs):.1f}{sd} ({mean(runs, 'mmacs'):.1f} M)"


def table(lines):
    """Mean accuracy ± sd in percent and, in brackets, what the network costs in the end."""
    found = cells(lines)
    columns = [name for name in NAMES if any(name in row for row in found.values())]
    text = [
        f"| | {' | '.join(NAMES[name] for name in columns)} |",
        f"|---|{'---:|' * len(columns)}",
    ]
    for row, own in found.items():
        text.append(f"| {row} | {' | '.join(cell(own.get(name)) for name in columns)} |")
    whole = {name: [own[name] for own in found.values() if name in own] for name in columns}
    if all(len(own) == len(found) for own in whole.values()):
        spreads = [max(map(mean, own)) - min(map(mean, own)) for own in whole.values()]
        text.append(f"| max − min of means | {' | '.join(f'{s:.1f}' for s in spreads)} |")
        means = [f"{statistics.mean(map(mean, own)):.1f}" for own in whole.values()]
        text.append(f"| mean | {' | '.join(means)} |")
    seeds = sorted({line["seed"] for line in lines})
    numbers = sorted({len(runs) for row in found.values() for runs in row.values()})
    n = " or ".join(map(str, numbers))
    hours = sum(float(line["minutes"]) for line in lines) / 60
    note = f"{len(lines)} runs, n = {n} (seeds {', '.join(seeds)}), {hours:.1f} hours of one core."
    return "\n".join([*text, "", note])


def draw_settings(lines):
    """What every beginning ends at, and at what cost."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.6), sharey=True)
    settings = list(cells(lines))
    for name, colour in COLOURS.items():
        own = [line for line in lines if line["column"] == name]
        points = [(settings.index(line["row"]), float(line["accuracy"])) for line in own]
        left.plot(*zip(*points, strict=True), "o", ms=5, color=colour, alpha=0.7, label=NAMES[name])
        right.plot(
            [float(line["mmacs"]) for line in own],
            [float(line["accuracy"]) for line in own],
            "o",
            ms=5,
            color=colour,
            alpha=0.7,
        )
    left.set(xticks=range(len(settings)), xlabel="initial strides", ylabel="test accuracy (%)")
    left.set_xticklabels(settings)
    left.set_title("What strides began with")
    right.set(xscale="log", xlabel="M MACs of the network in the end")
    right.set_xticks([5, 10, 20, 40], ["5", "10", "20", "40"])
    right.minorticks_off()
    right.set_title("What accuracy costs")
    figure.legend(loc="outside upper center", ncols=4, frameon=False, fontsize=9)
    for ax in (left, right):
        ax.grid(alpha=0.3)
    return figure


def draw_penalty(lines):
    """Accuracy against the regulariser, as in the paper's Figure 4, and against MACs."""
    figure, axes = plt.subplots(1, 2, figsize=(11, 3.4), sharey=True)
    for ax, name, title in zip(
        axes, ("J", "mmacs"), ("the regulariser J", "M MACs of the network in the end"), strict=True
    ):
        for column in ("strided", "diffstride"):
            own = [line for line in lines if line["column"] == column]
            x, y = ([float(line[key]) for line in own] for key in (name, "accuracy"))
            ax.plot(x, y, "o", color=COLOURS[column], label=NAMES[column])
            if column == "diffstride":
                for line, a, b in zip(own, x, y, strict=True):
                    text = line["row"]
                    ax.annotate(text, (a, b), (4, 4), textcoords="offset points", fontsize=7)
        ax.set(xscale="log", xlabel=title)
        ax.grid(alpha=0.3)
    axes[0].set_ylabel("test accuracy (%)")
    axes[0].legend(frameon=False)
    return figure


FIGURES = {"cifar10-small": draw_settings, "regularisation-small": draw_penalty}


def main(sweeps):
    for folder in map(Path, sweeps):
        write(DATA / f"{folder.name}.csv", collect(folder))
    page = PAGE.read_text()
    for path in sorted(DATA.glob("*.csv")):
        lines = rows(path)
        between = re.compile(rf"(<!-- {path.stem} -->\n).*?(\n<!-- /{path.stem} -->)", re.DOTALL)
        page, count = between.subn(lambda m, lines=lines: m[1] + table(lines) + m[2], page)
        assert count == 1, f"the page has no place for the table of {path.stem}"
        save(FIGURES[path.stem](lines), DATA / f"{path.stem}.svg")
    PAGE.write_text(page)
    print(PAGE)


if __name__ == "__main__":
    main(sys.argv[1:])
