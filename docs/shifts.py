"""Ways to downsample, by how many answers stay the same when an image is moved.

    diffstride sweep docs/results/shifts-digits.toml --out runs/shifts-digits
    python -m docs.shifts runs/shifts-digits [SWEEP...]

SWEEP is the folder of a sweep over ways to downsample. What `diffstride evaluate RUN --robust` says
of each of its finished runs is measured where it was not yet, and kept as docs/results/NAME.csv,
NAME that of the sweep's grid. The table of docs/robustness.md is made of all such files, the way
with the fewest same answers first. Without a sweep, it is made again from what is there.
"""

import sys
from pathlib import Path

from diffstride.lab.reports.formats import mean_sd, plus_minus
from diffstride.lab.reports.sweep_reader import Sweep
from diffstride.lab.runs.documents import write_rows
from diffstride.lab.runs.robust import RESIZED, UNCHANGED, corruptions, moves, row_of, summary
from docs.results import DATA, name_of, put, rows

TITLES = {
    "shifts-digits": "1,797 handwritten digits",
    "shifts-cifar10": "1,000 images of CIFAR-10",
}
HEAD = {
    "mmacs": "M MACs",
    "accuracy": "accuracy",
    "same": "same answer when moved",
    "by_1": "by 1 pixel",
    "by_4": "by 4 pixels",
    "corrupted": "accuracy corrupted",
    "resized": "at other sizes",
}


def measured(folder):
    """The sweep in a folder, of which every finished run was measured."""
    from diffstride.lab.training.robust import measure

    for _, run in Sweep(folder).begun():
        if run.finished and not run.robust:
            measure(run.folder)
            print(run.folder, flush=True)
    return Sweep(folder)


def collect(sweep):
    """A line for each run that was measured: shares in percent."""
    lines = []
    for entry, run in sweep.begun():
        if not run.robust:
            continue
        both = summary(run.robust)
        far = {
            k: [row for own in moves(run.robust).values() for row in own if row.strength == k]
            for k in (1, 4)
        }
        sizes = [row.accuracy for row in run.robust if row.change == RESIZED]
        shares = {
            "accuracy": row_of(run.robust, UNCHANGED).accuracy,
            "same": both.consistency,
            **{f"by_{k}": mean(row.same for row in own) for k, own in far.items()},
            "corrupted": both.corrupted,
            **{
                name: mean(row.accuracy for row in own)
                for name, own in corruptions(run.robust).items()
            },
            "resized": mean(sizes),
        }
        line = {"run": entry["name"], "column": entry["column"], "seed": str(entry["seed"])}
        percents = {name: f"{100 * share:.2f}" for name, share in shares.items()}
        lines.append(line | {"mmacs": f"{run.last('mmacs'):.3f}"} | percents)
    return lines


def mean(values):
    known = list(values)
    return sum(known) / len(known)


def in_order(lines):
    """The lines of each way to downsample, that with the fewest same answers first."""
    found = {}
    for line in lines:
        found.setdefault(line["column"], []).append(line)
    return dict(sorted(found.items(), key=lambda way: mean(float(x["same"]) for x in way[1])))


def table(lines):
    """Means and standard deviations over seeds, in percent."""
    text = [f"| downsampling | {' | '.join(HEAD.values())} |", f"|---|{'---:|' * len(HEAD)}"]
    for way, own in in_order(lines).items():
        cells = [plus_minus(mean_sd([float(x[name]) for x in own]), 1) for name in HEAD]
        cells[0] = f"{mean(float(x['mmacs']) for x in own):.1f}"
        text.append(f"| {way} | {' | '.join(cells)} |")
    return "\n".join(text)


def tables():
    """The table of each dataset, with how many seeds there are."""
    parts = []
    for path in sorted(DATA.glob("shifts-*.csv")):
        lines = rows(path)
        seeds = len({line["seed"] for line in lines})
        parts.append(f"{TITLES[path.stem]}, {seeds} seeds:\n\n{table(lines)}")
    return "\n\n".join(parts)


def main(folders):
    for folder in map(Path, folders):
        sweep = measured(folder)
        write_rows(DATA / f"{name_of(folder)}.csv", collect(sweep))
    for path in sorted(DATA.glob("shifts-*.csv")):
        order = in_order(rows(path))
        print(f"{path.stem}, fewest same answers first: {', '.join(order)}")
    put("shifts", tables())


if __name__ == "__main__":
    main(sys.argv[1:])
