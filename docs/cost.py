"""Write the tables of docs/cost.md and README, and draw a figure, from what benchmarks measured.

    python -m docs.cost [RESULTS]

RESULTS is the folder of the benchmarks' JSON files, benchmarks/results unless given. What was not
measured again stays as it is.
"""

import json
import re
import sys
from pathlib import Path

from docs.figures import BLUE, GREEN, GREY, ORANGE, plt, save

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/cost.md"
TABLES = (
    "layer",
    "memory",
    "memory_networks",
    "scaling",
    "conv",
    "network",
    "converted",
    "unets",
    "frozen",
    "long",
    "signal",
    "compile",
    "cost",
    "timings",
)


NAMES = {"resnet18": "ResNet-18", "audio": "audio network"}
USES = ("training step", "frozen")


def read(results, name):
    """What a benchmark measured, or None if it was not run."""
    path = results / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def table(record):
    """The rows of a benchmark as a Markdown table, under the conditions they hold for."""
    columns = list(record["rows"][0])
    lines = [f"| {' | '.join(columns)} |", f"|{'---:|' * len(columns)}"]
    for row in record["rows"]:
        cells = [f"{v:.3g}" if isinstance(v, float) else str(v) for v in row.values()]
        lines.append(f"| {' | '.join('–' if cell == 'nan' else cell for cell in cells)} |")
    where = record["conditions"]
    conditions = f"{where['cpu']}, {where['threads']} threads, torch {where['torch']}"
    small = " A quick run." if record["quick"] else ""
    note = f"{record['note']}. Medians of {record['rounds']} rounds on {conditions}.{small}"
    return "\n".join([*lines, "", note])


def prices(record):
    """What networks that downsample after a convolution take with each window, as README has it."""
    uses = [(network, use) for network in NAMES for use in USES]
    titles = [f"{NAMES[network]}: {use}" for network, use in uses]
    lines = [f"| windows | {' | '.join(titles)} |", f"|---|{'---:|' * len(titles)}"]
    found = {}
    for row in record["rows"]:
        window, placement = row["strides"].rsplit(", ", 1)
        if placement == "after":
            cells = found.setdefault(window, {})
            cells |= {(row["network"], use): f"{row[use]:.2g}" for use in USES}
    lines += [f"| {w} | {' | '.join(cells[use] for use in uses)} |" for w, cells in found.items()]
    return "\n".join(lines)


def draw(growth):
    """Milliseconds a training step, as one dimension of the images grows."""
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.2), sharey=True)
    colours = {
        "diffstride": BLUE,
        "textbook": ORANGE,
        "avg_pool": GREEN,
        "strided conv": GREY,
    }
    for ax, varied in zip(axes, ("side", "channels", "batch"), strict=True):
        rows = [row for row in growth["rows"] if row["varied"] == varied]
        for name, colour in colours.items():
            values = [row["value"] for row in rows]
            ax.plot(values, [row[name] for row in rows], "o-", ms=3, color=colour, label=name)
        ax.set(xscale="log", yscale="log", xlabel=varied, xticks=values, xticklabels=values)
        ax.minorticks_off()
    axes[0].set_ylabel("ms a training step")
    axes[0].legend(frameon=False)
    return figure


def written(page, results):
    """The page with its tables replaced."""
    measured = {name: read(results, name) for name in TABLES}
    for name, record in measured.items():
        if record is None:
            continue
        between = re.compile(rf"(<!-- {name} -->\n).*?(\n<!-- /{name} -->)", re.DOTALL)
        page, count = between.subn(
            lambda match, record=record: match[1] + table(record) + match[2], page
        )
        assert count == 1, f"the page has no place for the table of {name}"
    return page


def main(results):
    if not any(read(results, name) for name in TABLES):
        raise SystemExit(f"{results} has no results: run python -m benchmarks.layer, for one")
    if growth := read(results, "growth"):
        save(draw(growth), ROOT / "docs/figures/cost.svg")
    PAGE.write_text(written(PAGE.read_text(), results))
    if record := read(results, "network"):
        readme = ROOT / "README.md"
        place = re.compile(r"(<!-- prices -->\n).*?(\n<!-- /prices -->)", re.DOTALL)
        readme.write_text(place.sub(lambda m: m[1] + prices(record) + m[2], readme.read_text()))
    print(PAGE)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "benchmarks/results")
