"""Write the tables of sweeps into the pages, and draw their figures, from what was measured.

    python -m docs.results [SWEEP...]

SWEEP is the folder of a sweep, runs/cifar10-small for one: what its runs came to is written into
docs/results/ first, under the name of its grid or study. Without any, tables and figures are made
again from what is there.
"""

import csv
import json
import math
import re
import statistics
import sys
from pathlib import Path

from diffstride.lab.reports.formats import mean_sd, plus_minus
from diffstride.lab.reports.sweep_reader import Sweep
from diffstride.lab.runs.documents import write_rows
from diffstride.lab.runs.scores import ACCURACY, PSNR
from diffstride.lab.sweeps.tables import toml
from diffstride.text import short
from docs import search
from docs.figures import BLUE, GREEN, GREY, ORANGE, plt, save

ROOT = Path(__file__).parents[1]
WITH_TABLES = ("results", "cost", "lightning", "audio", "robustness")
PAGES = [ROOT / "docs" / f"{name}.md" for name in WITH_TABLES]
DATA = ROOT / "docs/results"
COLOURS = {"strided": GREY, "spectral": ORANGE, "diffstride": BLUE, "budget": GREEN}
# The mean of max − min of so many normal numbers.
RANGES = {2: 1.128, 3: 1.693, 4: 2.059, 5: 2.326, 6: 2.534}
NAMES = {
    "strided": "strided",
    "spectral": "spectral",
    "diffstride": "DiffStride",
    "budget": "DiffStride at the strided cost",
}


EPOCHS = {ACCURACY: "accuracies", PSNR: "psnrs"}
"""By score, the column with its values after all epochs; its own has that of the last one."""


def score_of(line):
    """What a run was judged by."""
    return next(score for score in EPOCHS if score.name in line)


def value_of(line):
    return float(line[score_of(line).name])


def collect(folder):
    """A line for each finished run of a sweep."""
    lines = []
    for entry, run in Sweep(folder).begun():
        if not run.finished:
            continue
        score, costs = run.score, run.curve("mmacs")
        values = run.curve(score.column, score.factor)
        lines.append(
            {
                "run": entry["name"],
                "row": entry["row"],
                "column": entry["column"],
                "seed": str(entry["seed"]),
                score.name: f"{score.factor * run.scored:.2f}",
                "mmacs": f"{run.last('mmacs'):.3f}",
                "J": f"{run.penalty or 0:.4f}",
                "strides": " ".join(strides(run)),
                "cutoffs": " ".join(cutoffs(run)),
                "minutes": f"{run.minutes:.2f}",
                EPOCHS[score]: " ".join(f"{value:.2f}" for _, value in values),
                "costs": " ".join(f"{value:.3f}" for _, value in costs),
            }
        )
    return lines


def name_of(folder):
    """What the results of a sweep are called: after the file of a grid, or as its folder is."""
    plan = Sweep(folder).plan
    return plan["table"] if plan["scale"] == "own" else folder.name


def strides(run):
    """Where strides ended; those that are fixed are where the settings say."""
    learned = [f"{stride.last:.2f}" for stride in run.strides]
    return learned or [f"{stride:g}" for stride in run.config["model"].get("strides") or ()]


def cutoffs(run):
    """What passes whole behind each layer and axis in the end, as strides.csv has it."""
    path = run.folder / "strides.csv"
    lines = rows(path) if path.exists() else []
    last = [x for x in lines if x["epoch"] == lines[-1]["epoch"]]
    return [f"{float(x['cutoff']):.4g}" for x in last if x.get("cutoff")]  # older ones have none


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def cells(lines):
    """Runs by row and column, in the order they came."""
    found = {}
    for line in lines:
        found.setdefault(line["row"], {}).setdefault(line["column"], []).append(line)
    return found


def mean(runs, name=None):
    """The mean of a column, or of the score."""
    return statistics.mean(float(run[name]) if name else value_of(run) for run in runs)


def cell(runs):
    if not runs:
        return "–"
    digits = score_of(runs[0]).few_digits
    return f"{plus_minus(mean_sd([*map(value_of, runs)]), digits)} ({mean(runs, 'mmacs'):.1f} M)"


def chance(found):
    """Max − min to expect of a method's means over seeds if all settings were as good.

    A seed that is better for all settings moves no setting against another, so it is taken out:
    what is left of setting and seed is their deviation, whose mean range is known.
    """
    values = [[*map(value_of, runs)] for runs in found]
    number, seeds = len(values), {len(own) for own in values}
    if len(seeds) != 1 or seeds == {1} or number not in RANGES:
        return "–"
    (n,) = seeds
    of_seeds = [statistics.mean(own) for own in zip(*values, strict=True)]
    total = statistics.mean(of_seeds)
    rest = [
        value - statistics.mean(own) - of_seed + total
        for own in values
        for value, of_seed in zip(own, of_seeds, strict=True)
    ]
    variance = sum(value**2 for value in rest) / ((number - 1) * (n - 1))
    digits = score_of(found[0][0]).few_digits
    return f"{RANGES[number] * math.sqrt(variance / n):.{digits}f}"


def table(lines):
    """The mean score ± sd, as it is shown, and in brackets what the network costs in the end."""
    found, digits = cells(lines), score_of(lines[0]).few_digits
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
        text.append(f"| max − min of means | {' | '.join(f'{s:.{digits}f}' for s in spreads)} |")
        text.append(f"| by chance alone | {' | '.join(map(chance, whole.values()))} |")
        means = [f"{statistics.mean(map(mean, own)):.{digits}f}" for own in whole.values()]
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
    for i, (name, colour) in enumerate(COLOURS.items()):
        own = [line for line in lines if line["column"] == name]
        places = [settings.index(line["row"]) + 0.16 * (i - 1.5) for line in own]  # side by side
        points = list(zip(places, map(value_of, own), strict=True))
        left.plot(*zip(*points, strict=True), "o", ms=5, color=colour, alpha=0.7, label=NAMES[name])
        right.plot(
            [float(line["mmacs"]) for line in own],
            [*map(value_of, own)],
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
            if (column, name) == ("diffstride", "J"):
                for line, a, b in zip(own, x, y, strict=True):
                    text = line["row"]
                    ax.annotate(text, (a, b), (4, 4), textcoords="offset points", fontsize=7)
        ax.set(xscale="log", xlabel=title)
        ax.grid(alpha=0.3)
    axes[0].set_ylabel("test accuracy (%)")
    axes[0].legend(frameon=False)
    axes[1].set_xticks([5, 10, 20, 30], ["5", "10", "20", "30"])
    axes[1].minorticks_off()
    return figure


def draw_strides(lines):
    """Where strides ended, layer by layer and all together: the paper's Figures 3b and 3c."""
    figure, axes = plt.subplots(1, 2, figsize=(11, 3.6), sharey=True)
    found = {row: own["diffstride"] for row, own in cells(lines).items()}
    for i, runs in enumerate(found.values()):
        for run in runs:
            strides = list(map(float, run["strides"].split()))
            for site in range(len(strides) // 2):
                pair = strides[2 * site : 2 * site + 2]
                height = [i + 0.2 * (site - 1)] * 2
                colour = (BLUE, ORANGE, GREEN)[site]
                label = f"layer {site + 1}" if run is found[next(iter(found))][0] else None
                axes[0].plot(pair, height, "o", ms=5, alpha=0.7, color=colour, label=label)
            axes[1].plot(math.prod(strides), i, "o", ms=6, alpha=0.7, color=BLUE)
        began = [float(s) for s in next(iter(runs))["row"].strip("()").split(",")]
        for site, stride in enumerate(began):
            axes[0].plot(stride, i + 0.2 * (site - 1), "|", ms=9, color="black")
        axes[1].plot(math.prod(began) ** 2, i, "|", ms=12, color="black")
    for ax, title in zip(axes, ("learned stride", "global striding factor"), strict=True):
        ax.set(xscale="log", xlabel=title)
        ax.grid(alpha=0.3)
    axes[0].set(yticks=range(len(found)), ylabel="initial strides")
    axes[0].set_yticklabels(found)
    axes[0].invert_yaxis()
    axes[0].set_xticks([1, 2, 4, 8], ["1", "2", "4", "8"])
    axes[0].minorticks_off()
    axes[0].legend(frameon=False, fontsize=8)
    return figure


def rates(lines):
    """Accuracy on held-out images by initial strides and rate of strides."""
    found = {}
    for line in lines:
        strides, _, rate = line["row"].rpartition(", stride_lr ")
        found.setdefault(strides, {})[f"{float(rate):g}"] = float(line["accuracy"])
    columns = list(next(iter(found.values())))
    text = [f"| | {' | '.join(columns)} |", f"|---|{'---:|' * len(columns)}"]
    for strides, own in found.items():
        text.append(f"| {strides} | {' | '.join(f'{own[rate]:.1f}' for rate in columns)} |")
    means = [statistics.mean(own[rate] for own in found.values()) for rate in columns]
    return "\n".join([*text, f"| mean | {' | '.join(f'{value:.1f}' for value in means)} |"])


DATASETS = {
    "digits": "digits",
    "fashion_mnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
    "notes": "instruments of notes",
}


def by_dataset(name):
    """The runs of sweeps of one name on several datasets: smoothness-digits for one."""
    return {key: rows(DATA / f"{name}-{key}.csv") for key in DATASETS if found(f"{name}-{key}")}


def found(name):
    return (DATA / f"{name}.csv").exists()


def compared(name):
    """A row for each setting, a column for each dataset, and the mean of these."""
    lines = by_dataset(name)
    settings = list(dict.fromkeys((x["row"], x["column"]) for own in lines.values() for x in own))
    text = [f"| | {' | '.join(DATASETS[key] for key in lines)} | mean |"]
    text.append(f"|---|{'---:|' * (len(lines) + 1)}")
    several = len({column for _, column in settings}) > 1
    for row, column in settings:
        own = [
            [x for x in runs if (x["row"], x["column"]) == (row, column)] for runs in lines.values()
        ]
        title = f"{NAMES[column]}, {row}" if several else row.replace("smoothness", "R =")
        mean_of_all = statistics.mean(map(mean, own))
        text.append(f"| {title} | {' | '.join(map(cell, own))} | {mean_of_all:.1f} |")
    every = [x for runs in lines.values() for x in runs]
    seeds = sorted({x["seed"] for x in every})
    hours = sum(float(x["minutes"]) for x in every) / 60
    note = f"{len(every)} runs, seeds {', '.join(seeds)}, {hours:.1f} hours of one core."
    return "\n".join([*text, "", note])


SIGNALS = {  # of each task the data, and the units of its axes
    "plaid": ("appliances by current, plaid", "Hz"),
    "acsf1": ("appliances by power over hours, acsf1", "Hz"),
    "osuleaf": ("leaves by contour, osuleaf", "cycles a leaf"),
    "fsdd": ("spoken digits, raw, fsdd", "Hz"),
    "commands": ("spoken commands, raw, arabic_commands10", "Hz"),
    "fsdd_mel": ("spoken digits, log-mel, fsdd", "Hz × cycles per channel"),
    "commands_mel": ("spoken commands, log-mel, arabic_commands10", "Hz × cycles per channel"),
}


def on_signals():
    """A row for each task: three ways to downsample, and what learned strides let pass."""
    text = ["| task | strided | spectral | learned | M MACs | learned cut-offs, layer by layer |"]
    text.append("|---|---:|---:|---:|---:|---|")
    every = []
    for name, (title, unit) in SIGNALS.items():
        if not found(f"signals-{name}"):
            continue
        lines = rows(DATA / f"signals-{name}.csv")
        every += lines
        own = {kind: [x for x in lines if x["column"] == kind] for kind in NAMES}
        kinds = [own[kind] for kind in ("strided", "spectral", "diffstride")]
        accuracies = [plus_minus(mean_sd([float(x["accuracy"]) for x in k]), 1) for k in kinds]
        macs = ", ".join(f"{mean(runs, 'mmacs'):.1f}" for runs in kinds)
        passed = zip(*(x["cutoffs"].split() for x in own["diffstride"]), strict=True)
        means = [short(statistics.mean(map(float, each))) for each in passed]
        if "×" in unit:
            means = [f"{a}×{b}" for a, b in zip(means[0::2], means[1::2], strict=True)]
        text.append(f"| {title} | {' | '.join(accuracies)} | {macs} | {', '.join(means)} {unit} |")
    hours = sum(float(x["minutes"]) for x in every) / 60
    seeds = ", ".join(sorted({x["seed"] for x in every}))
    return "\n".join(
        [*text, "", f"{len(every)} runs, seeds {seeds}, {hours:.1f} hours of one core."]
    )


def held_out():
    """Accuracies with which learning rates were chosen, the chosen one in bold."""
    text = [f"| | {' | '.join(NAMES[kind] for kind in ('strided', 'spectral', 'diffstride'))} |"]
    text.append("|---|---:|---:|---:|")
    for name, (title, _) in SIGNALS.items():
        lines, cells = rows(DATA / f"held_out-{name}.csv"), []
        for kind in ("strided", "spectral", "diffstride"):
            own = [x for x in lines if x["column"] == kind]  # the lower rate first
            best = max(own, key=lambda x: float(x["accuracy"]))  # of equal ones the first
            texts = [f"{float(x['accuracy']):.1f}" for x in own]
            shown = [f"**{t}**" if x is best else t for t, x in zip(texts, own, strict=True)]
            cells.append(" / ".join(shown))
        text.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(text)


def estimators():
    """What ways of learning strides ended with, trained from scratch; on the held-out part."""
    lines = json.loads((DATA / "estimators-pitch.json").read_text())
    begins = list(dict.fromkeys(x["begin"] for x in lines if x["begin"] != "any"))
    text = [f"| | {' | '.join(f'from {begin}' for begin in begins)} |", "|---|---:|---:|"]
    for way in dict.fromkeys(x["way"] for x in lines):
        own = {x["begin"]: x["accuracies"] for x in lines if x["way"] == way}
        means = (statistics.fmean(own.get(begin, own.get("any"))) for begin in begins)
        text.append(f"| {way} | {' | '.join(f'{mean:.1f}' for mean in means)} |")
    return "\n".join(text)


def trial_length():
    """How the losses of short trainings go with accuracies in the end."""
    from benchmarks.trial_length import table as correlations

    lines = correlations(json.loads((DATA / "trial_length-pitch.json").read_text()))
    head = "| epochs | a training that ends there | the longest one, after so many |"
    cells = (" | ".join(line).replace("-", "−") for line in lines)
    return "\n".join([head, "|---:|---:|---:|", *(f"| {text} |" for text in cells)])


def listed(name):
    """What networks come to that differ in one thing each, and what they cost."""
    lines = rows(DATA / f"{name}.csv")
    score = score_of(lines[0])
    unit = "" if score is ACCURACY else f", {score.unit}"
    text = [f"| | {score.title}{unit} | million MACs |", "|---|---:|---:|"]
    for row, columns in cells(lines).items():
        (runs,) = columns.values()
        shown = plus_minus(mean_sd([*map(value_of, runs)]), score.few_digits)
        macs = statistics.fmean(float(x["mmacs"]) for x in runs)
        text.append(f"| {row} | {shown} | {macs:.2f} |")
    return "\n".join(text)


def learning_rates():
    """What networks come to on held-out parts at several learning rates, the best in bold."""
    found = {}
    for path in sorted(DATA.glob("rates-*.csv")):
        for row, columns in cells(rows(path)).items():
            (runs,), (*words, rate) = columns.values(), row.split()
            task = [path.stem.removeprefix("rates-"), *(word for word in words if word != "lr")]
            found.setdefault(", ".join(task), {})[float(rate)] = runs
    columns = sorted({rate for own in found.values() for rate in own})
    text = [f"| | {' | '.join(f'{x:g}' for x in columns)} |", f"|---|{'---:|' * len(columns)}"]
    for task, own in found.items():
        shown = {}
        for rate, runs in own.items():
            score = score_of(runs[0])
            shown[rate] = f"{mean(runs):.{score.few_digits}f} {score.unit}"
        best = max(own, key=lambda rate: mean(own[rate]))
        shown[best] = f"**{shown[best]}**"
        text.append(f"| {task} | {' | '.join(shown.get(rate, '–') for rate in columns)} |")
    return "\n".join(text)


def draw_anneal():
    """Accuracy and cost over the epochs, with R that stays and R that changes."""
    lines = by_dataset("anneal")
    figure, axes = plt.subplots(2, len(lines), figsize=(11, 5.6), sharex="col", squeeze=False)
    for column, (key, runs) in zip(axes.T, lines.items(), strict=True):
        settings = list(dict.fromkeys(run["row"] for run in runs))
        for setting, colour in zip(settings, (GREY, ORANGE, BLUE), strict=True):
            for ax, name in zip(column, ("accuracies", "costs"), strict=True):
                own = [run[name].split() for run in runs if run["row"] == setting]
                values = [statistics.mean(map(float, epoch)) for epoch in zip(*own, strict=True)]
                ax.plot(range(1, len(values) + 1), values, "o-", ms=3, color=colour, label=setting)
        column[0].set_title(DATASETS[key])
        column[0].set_ylabel("accuracy (%)")
        column[1].set(ylabel="M MACs", xlabel="epoch")
        for ax in column:
            ax.grid(alpha=0.3)
    # The first epochs would hide the differences between the last.
    for ax in axes[0]:
        last = [line.get_ydata()[-1] for line in ax.get_lines()]
        ax.set_ylim(min(last) - 12, max(last) + 2)
    axes[0][0].legend(frameon=False)
    return figure


def study(name, task):
    """What the file of a study says, and its runs came to."""
    content = toml.loads((DATA / f"{name}.toml").read_text("utf-8"))
    mmacs = content["settings"]["macs_budget"]
    return search.Study(search.TASKS[task], rows(DATA / f"{name}.csv"), mmacs)


def studies():
    """Of each task that was searched, its study."""
    return {task: study(f"search-{task}", task) for task in search.TASKS if found(f"search-{task}")}


def budgets():
    """Of each task that was searched at several costs, its studies, the cheapest first."""
    known = {}
    for task, own in studies().items():
        others = sorted(path.stem for path in DATA.glob(f"search_budgets-{task}-*.csv"))
        several = [own, *(study(name, task) for name in others)]
        if others:
            known[task] = sorted(several, key=lambda one: one.mmacs)
    return known


def searches():
    return search.tables(studies())


def search_budgets():
    return search.budget_tables(budgets())


TABLES = {"rate": rates}
"""Of sweeps whose tables are of another kind."""
COMPARISONS = ("smoothness", "placement", "anneal")
"""Sweeps of several datasets, whose tables have a column for each."""
LISTS = {"causes": "causes-pitch", "denoise": "denoise-imagenette"}
"""Tables of networks that differ in one thing each, and whose sweeps they are."""
OTHERS = ("signals", "held_out", "resolution", "early", "search", "rates", "shifts", *LISTS)
"""How the names of files begin that are for other tables."""
FIGURES = {
    "cifar10-small": {"cifar10-small": draw_settings, "strides": draw_strides},
    "regularisation-small": {"regularisation-small": draw_penalty},
    "rate": {},
}
"""What is drawn of a sweep, by the name of the file."""


def put(name, made):
    """Write a table into the page that has a place for it."""
    between = re.compile(rf"(<!-- {name} -->\n).*?(\n<!-- /{name} -->)", re.DOTALL)
    count = 0
    for page in PAGES:
        text, here = between.subn(lambda m: m[1] + made + m[2], page.read_text())
        count += here
        if here:
            page.write_text(text)
    assert count == 1, f"no page has a place for the table of {name}"


def main(sweeps):
    for folder in map(Path, sweeps):
        write_rows(DATA / f"{name_of(folder)}.csv", collect(folder))
    for path in sorted(DATA.glob("*.csv")):
        if path.stem.startswith((*COMPARISONS, *OTHERS)):
            continue
        lines = rows(path)
        put(path.stem, TABLES.get(path.stem, table)(lines))
        for name, draw in FIGURES[path.stem].items():
            save(draw(lines), DATA / f"{name}.svg")
    for name in COMPARISONS:
        if by_dataset(name):
            put(name, compared(name))
    if any(found(f"signals-{name}") for name in SIGNALS):
        put("signals", on_signals())
        put("held_out", held_out())
    put("search", searches())
    put("estimators", estimators())
    put("trial_length", trial_length())
    put("rates", learning_rates())
    for place, name in LISTS.items():
        if found(name):
            put(place, listed(name))
    put("search_budgets", search_budgets())
    if studies():
        save(search.draw(studies()), DATA / "search.svg")
    if budgets():
        save(search.draw_budgets(budgets()), DATA / "search_budgets.svg")
    if by_dataset("anneal"):
        save(draw_anneal(), DATA / "anneal.svg")
    print(*PAGES)


if __name__ == "__main__":
    main(sys.argv[1:])
