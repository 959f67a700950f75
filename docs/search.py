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
TRIED = "best of the trials"
AGAIN = f"{TRIED}, another seed"
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
        return [x for x in dict.fromkeys(fixed) if x not in (TRIED, AGAIN) and not CHOSEN.match(x)]

    @property
    def searched(self):
        """The beginnings from which a search was made."""
        return [row for row in self.beginnings if self.of(row, "search")]

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
    """What networks come to from several beginnings: with these strides, and those of a search."""
    rows = []
    for study in studies:
        texts = []
        for names, column in ((study.beginnings, "fixed"), (study.searched, "search")):
            own = means(study, names, column)
            texts.append(", ".join(f"{value:.1f}" for value in own) or "–")
            texts += [number(own, make) for make in (statistics.mean, width)]
        moved = against_beginning(study, study.searched, "search")
        rows.append([study.title, *texts, signed(min(moved)) if moved else "–"])
    head = ["", "fixed", "mean", "max − min", "search from there", "mean", "max − min"]
    return table([*head, "worst against its own beginning"], rows)


def against_beginning(study, names, column):
    """By how much the mean over seeds is better than that of each one's own beginning."""
    pairs = zip(means(study, names, column), means(study, names), strict=True)
    return [found - begin for found, begin in pairs]


def of_searches(studies):
    """What is best of the trials, and what is chosen of random strides, trained from scratch."""
    choices, rows = chosen(studies), []
    for study in studies:
        values = [list(study.of(row).values()) for row in (TRIED, AGAIN, *choices)]
        texts = [plus_minus(mean_sd(own), 1) for own in values]
        rows.append([study.title, number(means(study, study.beginnings), max), *texts])
    return table(["", "best beginning", TRIED, "the same, another seed", *choices], rows)


def of_learned(studies):
    """What strides that are learned while training come to, beside their own beginnings."""
    rows = []
    for study in studies:
        moved = against_beginning(study, study.learned, "gradient")
        pairs = zip(study.learned, means(study, study.learned, "gradient"), moved, strict=True)
        rows += [[study.title, row, f"{own:.1f}", signed(by)] for row, own, by in pairs]
    return table(["", "beginning", "learned while training", "against it"], rows) if rows else ""


def interval(values):
    """The mean of differences, and between what it is with 95 %, by Student's t."""
    if len(values) < 2:
        return "–"
    mean, error = statistics.mean(values), statistics.stdev(values) / len(values) ** 0.5
    around = T[len(values) - 2] * error
    return f"{signed(mean)} ({signed(mean - around)} to {signed(mean + around)})"


def differences(studies):
    """By how much a search is better than all else, seed by seed, and over all tasks.

    That of a seed is the mean over all beginnings that a search was made from.
    """
    others = {"mean of the beginnings": lambda study: study.seeds(study.beginnings)}
    others |= {row: partial(Study.of, row=row) for row in chosen(studies)}
    rows, every = [], {name: [] for name in others}
    for study in studies:
        found, texts = study.seeds(study.searched, "search"), []
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


def price(study):
    """How many trainings a search takes: its trials, and two to compare; None if some lack.

    By epochs: minutes depend on what else a machine does.
    """
    kinds = [[x for x in study.lines if x["column"] == kind] for kind in ("trials", "held_out")]
    if not all(kinds):
        return None
    trials, whole = ([len(x["accuracies"].split()) for x in own] for own in kinds)
    seeds = {x["seed"] for x in kinds[0]}
    return sum(trials) / len(seeds) / statistics.mean(whole) + 2


def note(studies):
    """How many runs there are, what a search took, and how near all are to their budgets."""
    runs = {(study.title, x["run"]): x for study in studies for x in study.lines}
    hours = sum(float(x["minutes"]) for x in runs.values()) / 60
    ratios = [ratio for study in studies if (ratio := price(study)) is not None]
    off = max(abs(float(x["mmacs"]) / s.mmacs - 1) for s in studies for x in s.lines)
    seeds = sorted({x["seed"] for x in runs.values() if x["row"] != AGAIN}, key=int)
    text = (
        f"{len(runs)} runs, seeds {', '.join(seeds)}, {hours:.1f} hours of one core. All networks "
    )
    text += f"cost what their budget says to {100 * off:.1f} %."
    if ratios:
        shown = " to ".join(dict.fromkeys(f"{make(ratios):.1f}" for make in (min, max)))
        text += f" A search took as long as {shown} trainings, before the last one."
    return text


def tables(studies):
    """Everything that is written of studies; nothing if there are none."""
    studies = list(studies.values())
    if not studies:
        return ""
    shown = "![Accuracy at five beginnings, of random strides, learned ones and those of a search]"
    made = (of_beginnings, of_searches, differences, of_learned, note)
    parts = [text for make in made if (text := make(studies))]
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
            ("a search, from five beginnings", GREEN, study.searched, "search"),
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
            row = study.beginnings[0]
            values = [list(study.of(row, column).values()) for column in ("fixed", "search")]
            texts = [plus_minus(mean_sd(own), 1) for own in values]
            rows.append([study.title, f"{study.mmacs:g}", *texts])
    made = table(["", "M MACs", "strides all alike", "search"], rows)
    shown = "![Accuracy against cost: strides all alike, and those of a search]"
    return f"{made}\n\n{shown}(results/search_budgets.svg)"


def draw_budgets(budgets):
    """Accuracy against cost, strides that are all alike and those of a search."""
    figure, axes = plt.subplots(1, len(budgets), figsize=(5.5 * len(budgets), 3.4), squeeze=False)
    for ax, studies in zip(axes[0], budgets.values(), strict=True):
        for label, column, colour in (
            ("strides all alike", "fixed", GREY),
            ("search", "search", GREEN),
        ):
            rows = [(s.mmacs, s.of(s.beginnings[0], column)) for s in studies]
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
