"""The notes of a sweep's table: what holds for all of it, and what does not."""

from collections.abc import Iterator
from pathlib import Path

from diffstride.lab.reports.formats import mean
from diffstride.lab.reports.sweep_reader import Sweep

MOST_MISSING = 10
SHARED_SETTINGS = {
    ("model", "name"): "{}",
    ("model", "width"): "width {:g}",
    ("model", "smoothness"): "R = {:g}",
    ("data", "held_out"): "{} of the training set held out to test on",
    ("data", "batch_size"): "batches of {}",
    ("trainer", "steps"): "{} steps an epoch",
    ("trainer", "epochs"): "epochs: {}",
}


def notes(sweep: Sweep) -> list[str]:
    """The heading of the table, then what holds for all of it, and what does not."""
    plan, missing, total = sweep.plan, sweep.missing(), len(sweep.names)
    seeds = plan["seeds"]
    means = "seeds, that of a mean over settings too" if sweep.mean in sweep.rows else "seeds"
    judged = f"test {sweep.score.title} in {sweep.score.words}"
    lines = [
        f"{plan['title']}: {judged} after the last epoch, mean ± sd over {means}",
        f"Scale {plan['scale']}, n = {len(seeds)} (seed{'s' * (len(seeds) > 1)} "
        f"{', '.join(map(str, seeds))})" + "".join(f", {fact}" for fact in _shared(sweep)) + ".",
        "M MACs are of the network as it is in the end, for one example; seconds per step are of "
        f"the last epoch{_what_a_step_is(sweep)}.",
        *_windows(sweep),
        *_budgets(sweep),
    ]
    if missing:
        more = len(missing) - MOST_MISSING
        listed = ", ".join(missing[:MOST_MISSING]) + (f" and {more} more" if more > 0 else "")
        lines.append(f"{total - len(missing)} of {total} runs are finished; missing: {listed}.")
    return lines


def _what_a_step_is(sweep: Sweep) -> str:
    """What is in the seconds of a step: runs of earlier versions have its evaluation in them."""
    alone = [run.steps_timed_alone for run in sweep.runs.values() if run.seconds_per_step]
    if not any(alone):
        return ", its evaluation included" if alone else ""
    return ", without its evaluation" + ("" if all(alone) else ", but for runs made before that")


def _shared(sweep: Sweep) -> Iterator[str]:
    """What all runs have in common of data, network and length."""
    runs = list(sweep.runs.values())
    data = [run.config["data"] for run in runs]
    tasks = dict.fromkeys(task for settings in data for task in settings.get("task", ()))
    names = {Path(str(settings.get("path") or "digits")).name for settings in data}
    if tasks:
        yield f"data {', '.join(tasks)}"
    else:
        counts = {(run.data_facts.get("train"), run.data_facts.get("test")) for run in runs}
        if len(names) == len(counts) == 1:
            ((train, test),) = counts
            yield f"data {names.pop()} ({train} examples to train on, {test} to test on)"
    for (section, name), form in SHARED_SETTINGS.items():
        values = [run.config[section].get(name) for run in runs]
        if values and values[0] is not None and all(value == values[0] for value in values):
            yield form.format(values[0])


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


def _budgets(sweep: Sweep) -> Iterator[str]:
    """The rows whose budgets are above the cost of the first method, and the runs over theirs."""
    costs: dict[tuple[str, str], list[float | None]] = {}
    for entry, run in sweep.begun():
        costs.setdefault((entry["row"], entry["column"]), []).append(run.last("mmacs"))
    first, above, exceeded = sweep.columns[0], {}, []
    for entry, run in sweep.begun():
        row, budget, used = entry["row"], run.config.get("macs_budget"), run.last("mmacs")
        other = f"multi_{first}" if entry["column"].startswith("multi_") else first
        cost = mean(costs.get((row, other), ()))
        if budget and cost and budget > 1.01 * cost and run.downsampling == "diffstride":
            above[row] = f"{row} {budget / cost - 1:.0%}"
        if run.finished and budget and used is not None and used > 1.05 * budget:
            exceeded.append(f"{entry['name']} {used:.3g} of {budget:.3g}")
    if above:
        reason = "where learnable strides can't cost as little"
        rows = ", ".join(above.values())
        yield f"Budgets are above the cost of {sweep.title(first)} {reason}: {rows}."
    if exceeded:
        listed = ", ".join(dict.fromkeys(exceeded))  # a run may be in several places
        yield f"Over their budgets by more than a twentieth, in M MACs: {listed}."
