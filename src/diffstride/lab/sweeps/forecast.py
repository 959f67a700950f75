"""How much there is to compute in a sweep, before it starts."""

import math

from diffstride.lab.runs.config import ModelConfig
from diffstride.lab.sweeps.paper_tables import facts, table_entry
from diffstride.lab.sweeps.plan import SweepPlan
from diffstride.lab.sweeps.progress import duration

RATE = 3e12
"""Multiply-accumulates a second in training: two fifths of the peak of a V100, the paper's GPU."""

DAY = 86_400


def forecast_line(plan: SweepPlan) -> str:
    """Return a line on the number of runs and, for a table of the paper, on what they take.

    A step is counted as three passes forward, at the strides that runs begin with.
    """
    if plan.scale == "own" or not plan.runs:
        return f"{len(plan.runs)} runs"

    from diffstride.analysis.cost import cost
    from diffstride.lab.training.preparation import build_model

    entry = table_entry(plan.table, plan.scale, plan.config)
    data, trainer = plan.config.data, plan.config.trainer
    examples = min(entry.get("examples", math.inf), data.limit or math.inf)
    if trainer.steps is not None:
        examples = trainer.steps * data.batch_size
    macs: dict[ModelConfig, int] = {}
    for cell in plan.cells:
        if cell.config.model not in macs:  # networks for other tasks cost nearly the same
            fact = facts(entry, cell.config)
            macs[cell.config.model] = cost(build_model(cell.config.model, fact), entry["size"]).macs
    per_example = sum(macs[cell.config.model] for cell in plan.cells)
    total = 3 * per_example * len(plan.seeds) * trainer.epochs * examples
    seconds = total / RATE
    shown = duration(seconds) if seconds < 2 * DAY else f"{seconds / DAY:.0f} days"
    return (
        f"{len(plan.runs)} runs, {total:.2g} multiply-accumulates in training: about {shown} on a "
        f"GPU that does {RATE / 1e12:g}·10¹² a second"
    )
