"""The section on what strides save and do to the loss: where computation would be spent next."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from diffstride.lab.reports import chapters
from diffstride.lab.reports.chapters import Block, Chapter, RunGroup, Section
from diffstride.lab.reports.formats import UNKNOWN, mean
from diffstride.lab.reports.run_reader import RunRecord, StrideHistory

MOST_OPEN = 3  # more tables than this are folded
HEAD = ["layer", "axis", "stride", "saves (% of cost)", "adds (loss × 1000)", "loss per cost"]
MOST_DIGITS = 6
EXPLANATION = (
    "One per cent more of a stride saves this much of all multiply-accumulates, and adds this much "
    "to the loss of training, penalties included: the mean over the steps of the last epoch, ± its "
    "standard error. Loss per cost is the second divided by the first: where it is highest, a "
    "smaller stride buys most; where it is lowest, a larger one costs least."
)


class TradeOff(NamedTuple):
    """What one per cent more of a stride does, in the mean over the runs of a group."""

    layer: str
    axis: str
    stride: float
    saved: float | None
    """In per cent of the cost."""
    loss: float
    """By how much the loss grows, in thousandths."""
    error: float | None
    """The standard error of that."""

    @property
    def per_cost(self) -> float | None:
        """By how much the loss grows for each per cent of cost that is saved."""
        return self.loss / self.saved if self.saved and self.saved > 0 else None

    @property
    def is_certain(self) -> bool:
        """Whether the loss changes by more than twice the error."""
        return self.error is not None and abs(self.loss) > 2 * self.error


def what_strides_buy(chapter: Chapter) -> Section:
    """For each stride what one per cent more of it saves, and what it does to the loss."""
    found = [(group, trades) for group in chapter.groups if (trades := _trade_offs(group))]
    blocks: list[Block] = []
    for group, trades in found:
        title = f"{group.title}: {_advice(trades)}" if len(found) > 1 else group.title
        blocks += chapters.table(title, HEAD, _rows(trades), folded=len(found) > MOST_OPEN)
    # What is to be seen first; of several runs, each table says its own.
    advice = f"{_advice(found[0][1])}. " if len(found) == 1 else ""
    text = advice[:1].upper() + advice[1:] + EXPLANATION
    return Section("What a per cent of stride buys", text, blocks)


def _trade_offs(group: RunGroup) -> list[TradeOff]:
    """The trade-offs of a group that are known, the highest loss per cost first."""
    strides: dict[tuple[str, str], list[StrideHistory]] = {}
    for run in group.runs:
        for stride in run.strides:
            if stride.loss_gradient is not None:
                strides.setdefault((stride.layer, _axis(run, stride)), []).append(stride)
    found = []
    for (layer, axis), same in strides.items():
        errors = [stride.loss_gradient_error for stride in same]
        known = [error for error in errors if error is not None]
        error = math.hypot(*known) / len(same) if len(known) == len(same) else None
        gradient = mean(stride.loss_gradient for stride in same) or 0.0
        # A hundredth of the gradient for one per cent, in thousandths.
        loss = 10 * gradient, None if error is None else 10 * error
        saved = mean(stride.cost_saved for stride in same)
        found.append(TradeOff(layer, axis, mean(s.last for s in same) or 0.0, saved, *loss))
    return sorted(found, key=lambda trade: -math.inf if (x := trade.per_cost) is None else x)[::-1]


def _axis(run: RunRecord, stride: StrideHistory) -> str:
    """The name of an axis, or "all" for the first of some that share a stride."""
    others = [s for s in run.layers[stride.layer] if s.axis != stride.axis]
    shared = stride.axis == 0 and others and all(s.loss_gradient is None for s in others)
    return "all" if shared else run.axes[stride.axis]


def _advice(trades: Sequence[TradeOff]) -> str:
    """Where computation would be spent next, as far as that can be told from chance."""
    certain = [trade for trade in trades if trade.is_certain and trade.per_cost is not None]
    if not certain:
        return "what strides add to the loss is within twice its standard error"
    if certain[0].loss > 0:
        return f"make {_name(certain[0])} smaller first: it has the most benefit for its cost"
    place = _name(certain[-1])
    return (
        f"no smaller stride is known to lower the loss, a larger one is: make {place} larger first"
    )


def _name(trade: TradeOff) -> str:
    return f"the stride of {trade.layer} ({'all axes' if trade.axis == 'all' else trade.axis})"


def _rows(trades: Sequence[TradeOff]) -> list[list[str]]:
    rows = []
    for trade in trades:
        saved = UNKNOWN if trade.saved is None else f"{trade.saved:.2f}"
        ratio = UNKNOWN
        if trade.per_cost is not None and trade.saved:
            ratio = _signed(trade.per_cost, trade.error and trade.error / trade.saved)
        loss = _signed(trade.loss, trade.error)
        rows.append([trade.layer, trade.axis, f"{trade.stride:.2f}", saved, loss, ratio])
    return rows


def _signed(value: float, error: float | None) -> str:
    """A number with its sign and error, with as many digits as the error has two of.

    >>> _signed(1.23456, 0.0321), _signed(-0.5, 0.25), _signed(7.0, None), _signed(120.4, 25.0)
    ('+1.235 ± 0.032', '−0.50 ± 0.25', '+7.00', '+120 ± 25')
    """
    digits = 2
    if error and math.isfinite(error):
        digits = min(MOST_DIGITS, max(0, 1 - math.floor(math.log10(error))))
    text = f"{value:+.{digits}f}".replace("-", "−")
    return text if error is None else f"{text} ± {error:.{digits}f}"
