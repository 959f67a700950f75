"""What has to be said below the table of a sweep for its figures to be understood."""

from collections.abc import Iterator
from pathlib import Path

from diffstride.lab.reports.formats import mean
from diffstride.lab.reports.sweep_reader import MEAN, Sweep

MOST_MISSING = 10
SHARED_SETTINGS = (
    ("model", "name", "{}"),
    ("model", "width", "width {:g}"),
    ("model", "smoothness", "R = {:g}"),
    ("data", "batch_size", "batches of {}"),
    ("trainer", "steps", "{} steps an epoch"),
    ("trainer", "epochs", "epochs: {}"),
)


def notes(sweep: Sweep) -> list[str]:
    """The heading of the table, then what holds for all of it, and what does not."""
    plan, missing, total = sweep.plan, sweep.missing(), len(sweep.names)
    seeds = plan["seeds"]
    means = "seeds, that of a mean over settings too" if MEAN in sweep.rows else "seeds"
    lines = [
        f"{plan['title']}: test accuracy in percent after the last epoch, mean ± sd over {means}",
        f"Scale {plan['scale']}, n = {len(seeds)} (seed{'s' * (len(seeds) > 1)} "
        f"{', '.join(map(str, seeds))})" + "".join(f", {fact}" for fact in _shared(sweep)) + ".",
        "M MACs are of the network as it is in the end, for one example; seconds per step are of "
        "the last epoch, its evaluation included.",
        *_windows(sweep),
        *_generous_budgets(sweep),
    ]
    if exceeded := list(_exceeded_budgets(sweep)):
        listed = ", ".join(exceeded)
        lines.append(f"Over their budgets by more than a twentieth, in M MACs: {listed}.")
    if missing:
        more = len(missing) - MOST_MISSING
        listed = ", ".join(missing[:MOST_MISSING]) + (f" and {more} more" if more > 0 else "")
        lines.append(f"{total - len(missing)} of {total} runs are finished; missing: {listed}.")
    return lines


def _windows(sweep: Sweep) -> Iterator[str]:
    """Which methods have which windows, if windows differ."""
    windows: dict[str, dict[str, None]] = {}
    for entry, run in sweep.begun():
        if run.downsampling == "diffstride":
            window = f"R = {run.smoothness:g}, {run.convention} convention"
            windows.setdefault(window, {})[sweep.title(entry["column"])] = None
    if len(windows) > 1:
        listed = "; ".join(f"{', '.join(names)}: {window}" for window, names in windows.items())
        yield f"Windows differ. {listed}."


def _generous_budgets(sweep: Sweep) -> Iterator[str]:
    """The rows whose budgets are above the cost of the first method."""
    costs: dict[tuple[str, str], list[float | None]] = {}
    for entry, run in sweep.begun():
        costs.setdefault((entry["row"], entry["column"]), []).append(run.last("mmacs"))
    first, above = sweep.columns[0], {}
    for entry, run in sweep.begun():
        row, budget = entry["row"], run.config.get("macs_budget")
        other = f"multi_{first}" if entry["column"].startswith("multi_") else first
        cost = mean(costs.get((row, other), ()))
        if budget and cost and budget > 1.01 * cost and run.downsampling == "diffstride":
            above[row] = f"{row} {budget / cost - 1:.0%}"
    if above:
        yield (
            f"Budgets are above the cost of {sweep.title(first)} where learnable strides can't "
            f"cost as little: {', '.join(above.values())}."
        )


def _exceeded_budgets(sweep: Sweep) -> Iterator[str]:
    """The runs that did not become as cheap as their budgets."""
    for name, run in sweep.runs.items():
        budget, used = run.config.get("macs_budget"), run.last("mmacs")
        if run.finished and budget and used is not None and used > 1.05 * budget:
            yield f"{name} {used:.3g} of {budget:.3g}"


def _shared(sweep: Sweep) -> Iterator[str]:
    """What all runs have in common of data, network and length."""
    runs = list(sweep.runs.values())
    data = [run.config.get("data", {}) for run in runs]
    tasks = dict.fromkeys(task for settings in data for task in settings.get("task") or ())
    names = {Path(str(settings.get("path") or "digits")).name for settings in data}
    if tasks:
        yield f"data {', '.join(tasks)}"
    else:
        counts = {(run.data_facts.get("train"), run.data_facts.get("test")) for run in runs}
        if len(names) == len(counts) == 1:
            ((train, test),) = counts
            yield f"data {names.pop()} ({train} examples to train on, {test} to test on)"
    for section, name, form in SHARED_SETTINGS:
        values = [run.config.get(section, {}).get(name) for run in runs]
        if values and values[0] is not None and all(value == values[0] for value in values):
            yield form.format(values[0])
