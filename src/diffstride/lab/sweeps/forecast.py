"""How much there is to compute in a sweep, before it starts."""

import math
from collections.abc import Mapping
from typing import Any

from diffstride.lab.runs.config import Config
from diffstride.lab.sweeps.paper_tables import PAPER, TABLES
from diffstride.lab.sweeps.plan import Plan
from diffstride.lab.sweeps.progress import duration

RATE = 3e12
"""Multiply-accumulates a second in training: two fifths of the peak of a V100, the paper's GPU."""

DAY = 86_400


def forecast(plan: Plan) -> str:
    """A line on the number of runs and, for a table of the paper, on what they take.

    A step is counted as three passes forward, at the strides that runs begin with.
    """
    if plan.scale == "own" or not plan.runs:
        return f"{len(plan.runs)} runs"

    from diffstride.analysis.cost import cost
    from diffstride.lab.training.preparation import build_model

    told = TABLES[plan.table] | TABLES[plan.table].get("at", {}).get(plan.scale, {})
    total = 0.0
    known: dict[str, int] = {}
    for run in plan.runs:
        size = _size(told, run.config)
        key = repr((run.config.model, size))
        if key not in known:  # the seeds of a cell cost the same
            facts = {"classes": _classes(told, run.config), "size": size}
            known[key] = cost(build_model(run.config.model, facts), size).macs
        total += 3 * known[key] * _examples(told, run.config)
    seconds = total / RATE
    shown = duration(seconds) if seconds < 2 * DAY else f"{seconds / DAY:.0f} days"
    return (
        f"{len(plan.runs)} runs, {total:.2g} multiply-accumulates in training: about {shown} on a "
        f"GPU that does {RATE / 1e12:g}·10¹² a second"
    )


def _size(told: Mapping[str, Any], config: Config) -> tuple[int, ...]:
    channels, *sides = told["size"]
    side = config.data.image_size
    return (channels, side, side) if side else (channels, *sides)


def _classes(told: Mapping[str, Any], config: Config) -> Any:
    if "classes" in told:
        return range(told["classes"])
    names = [task.partition("=")[0] for task in config.data.task]
    return {name: range(PAPER["tasks"].get(name, {"classes": 10})["classes"]) for name in names}


def _examples(told: Mapping[str, Any], config: Config) -> int:
    """That a run sees, each as often as it does."""
    data, trainer = config.data, config.trainer
    if trainer.steps is not None:
        return trainer.epochs * trainer.steps * data.batch_size
    number = min(told["examples"], data.limit or math.inf)
    return int(trainer.epochs * number)
