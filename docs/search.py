"""Tables and figures of studies of searches; `python -m docs.results` writes and draws them.

A study is a docs/results/search-NAME.csv. Not all need be there, nor all of their runs.
"""

import re
import statistics
from functools import partial
from typing import NamedTuple

from diffstride.lab.reports.formats import mean_sd, plus_minus
from docs.figures import BLUE, GREEN, GREY, ORANGE, plt

TASKS = {
    "pitch": "pitch of notes",
    "instrument": "instrument of notes",
    "commands": "spoken commands",
    "fsdd": "spoken digits, raw",
    "plaid": "appliances by current",
}
FOUND, AGAIN = "search", "search, another seed"
CHOSEN = re.compile(r"best of (\d+) random")
# Of Student's t with 1, 2, ... degrees of freedom: 95 % lie between − and + this.
T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160)
T += (2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064)


class Study(NamedTuple):
    """The runs of a study, and what all of its networks should cost, in millions."""

    title: str
    lines: list
    mmacs: float

    def of(self, row, column="fixed"):
        """Accuracies by seed."""
        own = [x for x in self.lines if (x["row"], x["column"]) == (row, column)]
        return {x["seed"]: float(x["accuracy"]) for x in own}

    @property
    def beginnings(self):
        fixed = [x["row"] for x in self.lines if x["column"] == "fixed"]
        return [x for x in dict.fromkeys(fixed) if x not in (FOUND, AGAIN) and not CHOSEN.match(x)]

    @property
    def learned(self):
        """The beginnings from which strides were learned while training."""
        return [row for row in self.beginnings if self.of(row, "gradient")]

    def seeds(self, rows, column="fixed"):
        """The mean over rows for each seed that all of them have."""
        own = [self.of(row, column) for row in rows]
        shared = [seed for seed in own[0] if all(seed in x for x in own)] if own else []
        return {seed: statistics.mean(x[seed] for x in own) for seed in shared}


def chosen(studies):
    """The names of what random strides were chosen from, the smallest choice first."""
    rows = {x["row"] for study in studies for x in study.lines if CHOSEN.match(x["row"])}
    return sorted(rows, key=lambda row: int(CHOSEN.match(row)[1]))


def means(study, rows, column="fixed"):
    return [statistics.mean(study.of(row, column).values()) for row in rows]


def number(values, make):
    return f"{make(values):.1f}" if values else "–"


def width(values):
    return max(values) - min(values)


def signed(value):
    return f"{value:+.1f}".replace("-", "−")


def table(head, rows):
    first, *others = [f"| {' | '.join(row)} |".replace("|  |", "| |") for row in (head, *rows)]
    return "\n".join([first, f"|---|{'---:|' * (len(head) - 1)}", *others])


def of_beginnings(studies):
    """What networks come to from several beginnings: with these strides, and learning from them."""
    rows = []
    for study in studies:
        fixed, learned = means(study, study.beginnings), means(study, study.learned, "gradient")
        moved = zip(learned, means(study, study.learned), strict=True)
        rows.append(
            [
                study.title,
                ", ".join(f"{value:.1f}" for value in fixed),
                *(number(fixed, make) for make in (statistics.mean, width)),
                *(number(learned, make) for make in (statistics.mean, width)),
                signed(min(b - a for b, a in moved)) if learned else "–",
            ]
        )
    head = ["", "fixed", "mean", "max − min", "learned, mean", "max − min"]
    return table([*head, "worst against its own beginning"], rows)


def of_searches(studies):
    """What is found by a search, and what is chosen of random strides, trained from scratch."""
    choices, rows = chosen(studies), []
    for study in studies:
        values = [list(study.of(row).values()) for row in (FOUND, AGAIN, *choices)]
        texts = [plus_minus(mean_sd(own), 1) for own in values]
        texts.insert(1, number(values[0], width))
        rows.append([study.title, number(means(study, study.beginnings), max), *texts])
    head = ["", "best beginning", "search", "max − min of seeds", "the same, another seed"]
    return table([*head, *choices], rows)


def interval(values):
    """The mean of differences, and between what it is with 95 %, by Student's t."""
    if len(values) < 2:
        return "–"
    mean, error = statistics.mean(values), statistics.stdev(values) / len(values) ** 0.5
    around = T[len(values) - 2] * error
    return f"{signed(mean)} ({signed(mean - around)} to {signed(mean + around)})"


def differences(studies):
    """By how much a search is better than all else, seed by seed, and over all tasks."""
    others = {"mean of the beginnings": lambda study: study.seeds(study.beginnings)}
    others |= {row: partial(Study.of, row=row) for row in chosen(studies)}
    if any(study.learned for study in studies):
        others["mean of learned ones"] = lambda study: study.seeds(study.learned, "gradient")
    rows, every = [], {name: [] for name in others}
    for study in studies:
        found, texts = study.of(FOUND), []
        for name, values in others.items():
            other = values(study)
            pairs = [found[seed] - other[seed] for seed in found if seed in other]
            every[name] += pairs
            texts.append(interval(pairs))
        rows.append([study.title, *texts])
    if len(studies) > 1:
        better = [
            f"**{interval(own)}**, better in {sum(x > 0 for x in own)} of {len(own)}"
            for own in every.values()
        ]
        rows.append(["all", *better])
    return table(["search −", *others], rows)


def note(studies):
    """How many runs there are, what a search took, and how near all are to their budgets."""
    runs = {(study.title, x["run"]): x for study in studies for x in study.lines}
    hours = sum(float(x["minutes"]) for x in runs.values()) / 60
    ratios = []
    for study in studies:
        kinds = ([x for x in study.lines if x["column"] == kind] for kind in ("trials", "held_out"))
        spent = [[float(x["minutes"]) for x in own] for own in kinds]
        ratios += [statistics.mean(spent[0]) / statistics.mean(spent[1])] if all(spent) else []
    off = max(abs(float(x["mmacs"]) / s.mmacs - 1) for s in studies for x in s.lines)
    seeds = sorted({x["seed"] for x in runs.values() if x["row"] != AGAIN}, key=int)
    text = (
        f"{len(runs)} runs, seeds {', '.join(seeds)}, {hours:.1f} hours of one core. All networks "
    )
    text += f"cost what their budget says to {100 * off:.1f} %."
    if ratios:
        shown = " to ".join(dict.fromkeys(f"{make(ratios):.1f}" for make in (min, max)))
        text += f" The trials of a search took {shown} times as long as a training at random "
        text += "strides."
    return text


def tables(studies):
    """Everything that is written of studies; nothing if there are none."""
    studies = list(studies.values())
    if not studies:
        return ""
    shown = "![Accuracy at five beginnings, of random strides, learned ones and those of a search]"
    parts = [of_beginnings(studies), of_searches(studies), differences(studies), note(studies)]
    return "\n\n".join([*parts, f"{shown}(results/search.svg)"])


def dots(ax, place, values, colour, label=None):
    """A mean, and from the lowest to the highest value a line."""
    mean = statistics.mean(values)
    around = [[mean - min(values)], [max(values) - mean]]
    ax.errorbar([place], [mean], around, fmt="o", ms=5, lw=1, color=colour, label=label)


def draw(studies):
    """A strip for each task: a dot is the mean of seeds, and a line is from worst to best."""
    figure, axes = plt.subplots(1, len(studies), figsize=(11, 3.4), squeeze=False)
    for ax, study in zip(axes[0], studies.values(), strict=True):
        kinds = [
            ("fixed, from five beginnings", GREY, study.beginnings, "fixed"),
            ("best of random ones", ORANGE, chosen([study]), "fixed"),
            ("learned while training", BLUE, study.learned, "gradient"),
            ("search, and with another seed", GREEN, [FOUND, AGAIN], "fixed"),
        ]
        for i, (label, colour, rows, column) in enumerate(kinds):
            own = [x for row in rows if (x := list(study.of(row, column).values()))]
            for j, values in enumerate(own):
                place = i + 0.15 * (j - (len(own) - 1) / 2)
                dots(ax, place, values, colour, None if j else label)
        ax.set(xticks=[], xlim=(-0.6, len(kinds) - 0.4))
        ax.set_title(study.title, fontsize=10)
        ax.grid(alpha=0.3)
    axes[0][0].set_ylabel("test accuracy (%)")
    known = {}
    for ax in axes[0]:
        known |= dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    figure.legend(
        known.values(), known, loc="outside upper center", ncols=4, frameon=False, fontsize=9
    )
    return figure


def budget_tables(budgets):
    """The first beginning and a search at several costs, and the figure of it; or nothing."""
    if not budgets:
        return ""
    rows = []
    for studies in budgets.values():
        for study in studies:
            values = [list(study.of(row).values()) for row in (study.beginnings[0], FOUND)]
            texts = [plus_minus(mean_sd(own), 1) for own in values]
            rows.append([study.title, f"{study.mmacs:g}", *texts])
    made = table(["", "M MACs", "strides all alike", "search"], rows)
    shown = "![Accuracy against cost: strides all alike, and those of a search]"
    return f"{made}\n\n{shown}(results/search_budgets.svg)"


def draw_budgets(budgets):
    """Accuracy against cost, strides that are all alike and those of a search."""
    figure, axes = plt.subplots(1, len(budgets), figsize=(5.5 * len(budgets), 3.4), squeeze=False)
    for ax, studies in zip(axes[0], budgets.values(), strict=True):
        for label, colour in (("strides all alike", GREY), ("search", GREEN)):
            rows = [(s.mmacs, s.of(FOUND if label == FOUND else s.beginnings[0])) for s in studies]
            points = [(cost, list(own.values())) for cost, own in rows if own]
            for cost, values in points:
                dots(ax, cost, values, colour)
            middles = [statistics.mean(values) for _, values in points]
            ax.plot([cost for cost, _ in points], middles, color=colour, label=label)
        costs = [study.mmacs for study in studies]
        ax.set(xscale="log", xlabel="M MACs of the network", title=studies[0].title)
        ax.set_xticks(costs, [f"{cost:g}" for cost in costs])
        ax.minorticks_off()
        ax.grid(alpha=0.3)
    axes[0][0].set_ylabel("test accuracy (%)")
    axes[0][0].legend(frameon=False)
    return figure
