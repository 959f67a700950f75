"""The strides of a network, read as sizes, shares of the cost, prices and cut-off frequencies."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from diffstride.analysis.cost_model import CostModel
from diffstride.analysis.cost_record import Cost
from diffstride.analysis.timings import Timings
from diffstride.core import arguments
from diffstride.core.cutoffs import cutoff, lowest_so_far
from diffstride.layers.resizer import Resizer
from diffstride.text import aligned, short, times


@dataclass(frozen=True)
class StrideRow:
    """One site, however many branches use it."""

    site: str
    strides: tuple[float, ...]
    input_size: tuple[int, ...]
    output_size: tuple[int, ...]
    cost_share: float
    """Of the multiply-accumulates: what is computed from here on, up to the next site."""
    saved: tuple[float, ...] | None
    """What one per cent more of the stride saves, in per cent of all multiply-accumulates.

    One number for each axis, or one for all axes that share a stride. None for a stride that an
    earlier row has already, and for layers whose stride is no parameter, as in spectral pooling.
    """
    cutoff: tuple[float, ...]
    """The highest frequency that this layer and all rows before it let pass.

    For each axis, in cycles per sample or the unit of the sampling rate. Windows fall behind it; of
    the convention "tight", before it. It never rises from row to row: what was taken away does not
    come back, however large maps are. Rows are taken to follow one another, but for branches of one
    layer: of any other branch beside one with a lower cut-off of its own, it is too low. Empty, as
    downsampling is, for a layer that has another number of axes than the input.
    """
    downsampling: tuple[float, ...]
    """How many times smaller maps are here than the input; less than the product of strides where
    windows need room to fall."""
    is_beside: bool = False
    """Whether it is a branch beside an earlier one, which stands for both in what follows."""


@dataclass(frozen=True)
class StrideTable:
    """One row for each site, in the order they run; prints as a table."""

    rows: tuple[StrideRow, ...]
    cost: Cost
    units: tuple[str, ...] = ()
    """Of the cut-offs, one for each axis; none if a sampling rate has no unit."""

    @property
    def global_strides(self) -> tuple[float, ...]:
        """The product of all strides, per axis; of branches side by side, that of the first."""
        columns = zip(*(row.strides for row in self.rows if not row.is_beside), strict=True)
        return tuple(math.prod(column) for column in columns)

    @property
    def global_factor(self) -> float:
        """The product of all strides of all axes: the global striding factor."""
        return math.prod(self.global_strides)

    def __str__(self) -> str:
        head = ("site", "stride", "size", "cost", "+1% saves", "maps ÷", self._cutoff_head)
        lines: list[Sequence[str]] = [head]
        for row in self.rows:
            sizes = f"{times(row.input_size, sign='×')} → {times(row.output_size, sign='×')}"
            strides = times(row.strides, "{:.2f}", "×")
            percents = [round(percent, 2) + 0.0 for percent in row.saved or ()]  # without −0
            saved = ", ".join(f"{percent:.2f}%" for percent in percents) or "–"
            smaller = times(row.downsampling, "{:.2f}", "×") or "–"
            cutoff = " × ".join(map(short, row.cutoff)) or "–"
            line = (row.site, strides, sizes, f"{row.cost_share:.0%}", saved, smaller, cutoff)
            lines.append(line)
        if all(row.saved is None for row in self.rows):
            lines = [(*line[:4], *line[5:]) for line in lines]
        strides = times(self.global_strides, "{:.2f}")
        last = f"global stride {strides}, a factor of {self.global_factor:.1f}; {self.cost}"
        return "\n".join([*aligned(lines), last])

    @property
    def _cutoff_head(self) -> str:
        units = [unit.replace("cycles per ", "cycles/") for unit in self.units]
        same = units[:1] if len(set(units)) == 1 else units
        return f"cut-off ({' × '.join(same)})" if units else "cut-off"

    def as_json(self) -> dict[str, Any]:
        """Return the table as numbers and words that JSON has."""
        rows = [asdict(row) for row in self.rows]
        strides = {"global_strides": self.global_strides, "global_factor": self.global_factor}
        return {"rows": rows, "units": self.units, **strides, "macs": self.cost.macs}


def stride_table(
    model: nn.Module,
    input_size: Sequence[int],
    *,
    sampling_rate: float | Sequence[float] | None = None,
    units: str | Sequence[str] | None = None,
    timings: Timings | None = None,
) -> StrideTable:
    """Return what the strides of a network do to an input of this size.

    Every layer of this library that changes sizes has a row: its strides, the sizes before and
    after, the share of the network's cost that is spent from there to the next one, what one per
    cent more of each stride would save of the whole cost (−∂log cost/∂log S, of sizes that need not
    be whole), how many times smaller than the input maps are behind it, and the frequency up to
    which everything passes: the lowest N·rate/(2·S·N₀) so far, for N of the input's N₀ samples.

    Args:
        model: any module that takes one tensor.
        input_size: of one example, (channels, *spatial).
        sampling_rate: of the input, one number or one per axis; the cut-offs are in its unit. Of a
            spectrogram with 100 frames a second, (100, 1) gives Hz and cycles per channel. Without
            it, cut-offs are in cycles per sample.
        units: of the cut-offs, one word or one per axis, for the head of the table: "Hz".
        timings: of this network; the cost then says its milliseconds too.

    Raises:
        ValueError: if the model has no such layer.

    >>> from diffstride import DiffStride1d
    >>> model = nn.Sequential(nn.Conv1d(1, 8, 9, padding=4), DiffStride1d(4.0), nn.Conv1d(8, 8, 9))
    >>> print(stride_table(model, (1, 160), sampling_rate=16_000, units="Hz"))
    site  stride  size      cost  +1% saves  maps ÷  cut-off (Hz)
    1     4.00    160 → 48  88%   0.77%      3.33    2000
    global stride 4.00, a factor of 4.0; 96 k MACs, 1.98 k activations, 665 parameters
    """
    costs = CostModel(model, input_size)
    total, unread = costs.at(timings=timings), savings(costs)
    places: dict[nn.Module, int] = {}
    for i, use in enumerate(total.layers):
        if isinstance(use.layer, Resizer) and not use.layer.follows:
            places.setdefault(use.layer, i)
    if not places:
        raise ValueError(
            "model must have a DiffStride or other layer of this library that changes sizes, and "
            "has none"
        )
    names: dict[nn.Module | None, str] = {layer: name for name, layer in costs.layers.items()}
    axes = len(input_size) - 1
    rates = arguments.per_axis(
        1.0 if sampling_rate is None else sampling_rate, axes, "sampling_rate"
    )
    if units is None:
        units = () if sampling_rate is not None else "cycles per sample"
    given = (units,) * axes if isinstance(units, str) else tuple(units)
    if len(given) not in (0, axes):
        raise ValueError(f"units must be one word or one for each of {axes} axes, got {units!r}")
    lowest = cutoffs(total, input_size, rates)
    rows = []
    for start, end in itertools.pairwise([*places.values(), len(total.layers)]):
        use = total.layers[start]
        assert isinstance(use.layer, Resizer)
        strides = use.layer.strides_for(use.input_size)
        share = sum(use.macs for use in total.layers[start:end]) / max(1, total.macs)
        # A stride that several sites have is counted once, at the first.
        saved = unread.pop(names.get(use.layer.stride_owner, ""), None)
        lets_pass = lowest.get(use.name, ())
        sizes = zip(input_size[1:], use.output_size, strict=True) if lets_pass else ()
        smaller = tuple(whole / size for whole, size in sizes)
        row = (strides, use.input_size, use.output_size, share, saved, lets_pass, smaller)
        rows.append(StrideRow(use.name, *row, use.layer.is_beside))
    return StrideTable(tuple(rows), total, given)


def cutoffs(
    cost: Cost, input_size: Sequence[int], rates: Sequence[float]
) -> dict[str, tuple[float, ...]]:
    """Return up to which frequency everything passes behind each site, by its name.

    Sites that have another number of axes than the input are left out.

    Args:
        cost: of the network, with its layers in the order they run.
        input_size: of one example, (channels, *spatial).
        rates: at which each axis of the input is sampled.
    """
    found: dict[str, tuple[float, ...]] = {}
    before: list[Sequence[float]] = []
    passed: list[Sequence[float]] = []
    for use in cost.layers:
        is_site = isinstance(use.layer, Resizer) and not use.layer.follows
        if is_site and use.name not in found and len(use.input_size) == len(rates):
            assert isinstance(use.layer, Resizer)
            sizes: Sequence[float] = use.input_size
            strides = use.layer.strides_for(use.input_size)
            if use.layer.rule.way == "up":  # the window lies on the frequencies that come out
                made = zip(use.input_size, use.output_size, use.layer.strides, strict=True)
                sizes = [min(n, m / s) for n, m, s in made]
            axes = zip(sizes, strides, input_size[1:], rates, strict=True)
            own = [cutoff(*axis) for axis in axes]
            if not use.layer.is_beside:  # else it reads what the last one read
                before, passed = passed, [*passed, own]
            found[use.name] = lowest_so_far([*before, own])[-1]
    return found


def savings(costs: CostModel) -> dict[str, tuple[float, ...]]:
    """Return what one per cent more of each stride saves, in per cent of all multiply-accumulates.

    By the names of the layers that have the strides. Each has one number for each axis, or one for
    all axes if they share a stride. Sizes need not be whole here, so that every stride has a price.

    >>> from diffstride import DiffStride2d
    >>> layers = DiffStride2d((2.0, 4.0), smoothness=1.0), nn.Conv2d(8, 8, 3, padding=1)
    >>> found = savings(CostModel(nn.Sequential(*layers), (8, 64, 64)))
    >>> [round(percent, 2) for percent in found["0"]]
    [0.5, 0.89]
    """
    macs, slopes = costs.gradient("macs")
    found = {}
    for name, layer in costs.layers.items():
        each = zip(layer.strides, slopes[name], strict=True)
        saved = tuple(-stride * slope / max(1, macs) for stride, slope in each)
        found[name] = (sum(saved),) if layer.shared else saved
    return found
