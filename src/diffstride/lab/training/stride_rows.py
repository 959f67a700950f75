"""What the strides of a network are now: rows of strides.csv, and numbers for loggers."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import nn

from diffstride.analysis.cost_model import CostModel
from diffstride.analysis.stride_table import cutoffs, savings
from diffstride.analysis.training import stride_penalty
from diffstride.lab.runs.documents import STRIDE_COLUMNS
from diffstride.lab.training.loss_gradients import LossGradient
from diffstride.layers.resizer import learned_strides

LOGGED = {name: name for name in ("cost_saved", "loss_gradient", "cutoff")} | {"stride": "strides"}
"""The columns of strides.csv that loggers get, and what they call them."""
PENALTY, MMACS = "stride_penalty", "mmacs"
"""What the totals of a network are called: the regulariser, and multiply-accumulates in millions.
"""


class StridesNow(NamedTuple):
    """The strides of a network at one moment, and what they cost and buy."""

    rows: list[dict[str, Any]]
    """Of strides.csv: one for each site and axis."""
    totals: dict[str, float]
    """Of the whole network: the regulariser, and the cost if it is known."""

    @property
    def metrics(self) -> dict[str, float]:
        """All of it by names that loggers take: ``strides/<site>/<axis>``, ``mmacs``, ..."""
        found = dict(self.totals)
        for row in self.rows:
            for column, prefix in LOGGED.items():
                if row[column] != "":
                    found[f"{prefix}/{row['layer']}/{row['axis']}"] = row[column]
        return found


def strides_now(
    network: nn.Module,
    costs: CostModel | None = None,
    rates: Sequence[float] = (),
    gradients: Mapping[str, Sequence[LossGradient]] | None = None,
    **moment: Any,
) -> StridesNow:
    """Return the strides of a network as they are, with sizes, costs and cut-offs if it has any.

    Args:
        network: with learnable strides, or without any.
        costs: what it costs for an example; without it, sizes, costs and cut-offs are left out.
        rates: at which each axis of an example is sampled.
        gradients: what more of a stride does to the loss, by layer.
        moment: the epoch and the step.
    """
    totals = {PENALTY: stride_penalty(network).item()}
    sizes, saved, lets_pass = {}, {}, {}
    if costs is not None:
        now, saved = costs.at(), savings(costs)
        lets_pass = cutoffs(now, costs.input_size, rates)
        totals[MMACS] = now.macs / 1e6
        for use in reversed(now.layers):  # of a layer used twice, the first time
            sizes[use.name] = (use.input_size, use.output_size)
    rows = []
    for name, layer in learned_strides(network).items():
        for axis, stride in enumerate(layer.strides):
            found: dict[str, Any] = {**moment, "layer": name, "axis": axis, "stride": stride}
            if name in sizes:
                found["input_size"], found["output_size"] = (n[axis] for n in sizes[name])
            for frequency in lets_pass.get(name, ())[axis : axis + 1]:
                found["cutoff"] = frequency
            for percent in saved.get(name, ())[axis : axis + 1]:
                found["cost_saved"] = percent
            for mean, error in (gradients or {}).get(name, ())[axis : axis + 1]:
                found |= {"loss_gradient": mean, "loss_gradient_error": error}
            rows.append(stride_row(found))
    return StridesNow(rows, totals)


def stride_row(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of strides.csv, with empty cells for what was not found."""
    return dict.fromkeys(STRIDE_COLUMNS, "") | {k: v for k, v in found.items() if v is not None}
