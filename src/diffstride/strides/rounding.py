"""Whole strides next to real ones, chosen together so that what they cost stays what it was."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import nn

from diffstride.analysis.cost_model import CostModel
from diffstride.layers import DiffStride1d, DiffStride2d, DiffStride3d
from diffstride.strides.replacing import with_layers
from diffstride.strides.sites import StrideSite

MOST = 4096
"""How many combinations are tried one by one: twelve numbers between two whole ones each."""
MOST_RUNS = 300
"""The same, for a network that has to be run for each."""
_LEARNABLE: dict[int, Any] = {1: DiffStride1d, 2: DiffStride2d, 3: DiffStride3d}

Numbers = tuple[int, ...]
Strides = dict[str, tuple[float, ...]]


def whole_strides(
    model: nn.Module, sites: Sequence[StrideSite], input_size: Sequence[int], target: float
) -> Strides:
    """Return whole strides by name, with which a network costs nearly so many multiply-accumulates.

    :meth:`diffstride.StridePlan.rounded` says which they are.
    """
    costs, shared = sharp_costs(model, sites, input_size)
    # The axes that each of the numbers is for.
    places = [(site, axes) for site in sites for axes in together(site, shared)]

    def strides(numbers: Numbers) -> Strides:
        found = {site.name: list(site.strides) for site in sites}
        for number, (site, axes) in zip(numbers, places, strict=True):
            for axis in axes:
                found[site.name][axis] = float(number)
        return {name: tuple(each) for name, each in found.items()}

    def value(numbers: Numbers) -> float | None:
        try:
            return float(costs.value("macs", strides(numbers)))
        except (ValueError, RuntimeError):  # maps that are too small for what comes after
            return None

    wanted = [math.prod(s.strides[i] for i in axes) ** (1 / len(axes)) for s, axes in places]
    choices = [_choices(*place) for place in places]
    first, last = (strides(tuple(some[i] for some in choices)) for i in (0, -1))
    found = nearest_whole(wanted, choices, value, target, how_many(costs, first, last))
    if found is None:
        real = {site.name: site.strides for site in sites}
        raise ValueError(
            f"the network can't be run with whole strides next to {real} for inputs of "
            f"{tuple(input_size)}: a layer in it needs maps of one size, or larger ones"
        )
    return strides(found)


def sharp_costs(
    model: nn.Module, sites: Sequence[StrideSite], input_size: Sequence[int]
) -> tuple[CostModel, set[str]]:
    """Return what a network costs at any strides, if windows have no fall; and which are shared.

    The latter are the names of sites that have one stride for all axes.
    """
    shared: set[str] = set()

    def sharp(site: StrideSite, layer: Any) -> nn.Module:
        if getattr(layer, "shared", False):
            shared.add(site.name)
        # Without a fall of its window, it makes the sizes of a spectral pooling.
        made: nn.Module = _LEARNABLE[layer.axes](site.strides, smoothness=0.0, **site.options)
        return made

    return CostModel(with_layers(model, sites, sharp), input_size), shared


def together(site: StrideSite, shared: set[str]) -> list[list[int]]:
    """Return the axes of a site, those that share a stride in one list."""
    axes = list(range(len(site.strides)))
    return [axes] if site.name in shared else [[axis] for axis in axes]


def how_many(costs: CostModel, *settings: Strides) -> int:
    """Return how many combinations may be tried one by one, from the first to the last of these."""
    return MOST if _is_formula(costs, *settings) else MOST_RUNS


def _is_formula(costs: CostModel, *settings: Strides) -> bool:
    """Return whether a network need not be run again to know what it costs at these strides."""
    try:
        uses = [costs.uses_at(costs.given(strides))[0] for strides in settings]
    except (ValueError, RuntimeError):
        return False
    return all(some is uses[0] for some in uses)


def _choices(site: StrideSite, axes: Sequence[int]) -> range:
    """Return the whole numbers that the stride of some axes may become."""
    strides = [site.strides[i] for i in axes]
    ratios = [site.input_size[i] / site.output_size[i] for i in axes]
    return range(math.floor(min(*strides, *ratios)), math.ceil(max(strides)) + 1)


def nearest_whole(
    wanted: Sequence[float],
    choices: Sequence[Sequence[int]],
    value: Callable[[Numbers], float | None],
    target: float,
    most: int = MOST,
    alike: int = 1,
) -> Numbers | None:
    """Return the whole numbers whose cost is nearest to a target.

    Costs that are equally far from it, in whole per cents or in as many as count as ``alike``, are
    told apart by the numbers: those win whose logarithms are nearest to the logarithms of what was
    wanted (sum of squares). All combinations are tried if there are not too many. Otherwise the
    search starts with each number by itself, and changes one at a time as long as that helps; where
    it does not, two or three.

    Args:
        wanted: the real numbers.
        choices: for each, the whole numbers that it may become.
        value: what a combination costs; None if it is none.
        target: the cost to be near to.
        most: how many combinations are not too many.
        alike: per cents of the cost that are counted as one.

    Returns:
        The combination; None if none of those tried has a cost.

    >>> nearest_whole((2.5, 2.5), [(2, 3), (2, 3)], lambda n: 100 / math.prod(n), 100 / 6.25)
    (2, 3)
    """
    distances: dict[Numbers, tuple[float, float]] = {}

    def distance(numbers: Numbers) -> tuple[float, float]:
        if numbers not in distances:
            cost = value(numbers)
            off = math.inf if cost is None else abs(math.log(max(cost, 1) / max(target, 1)))
            moved = sum(math.log(n / s) ** 2 for n, s in zip(numbers, wanted, strict=True))
            # Rounded: a last digit decides nothing.
            percents = off if math.isinf(off) else round(100 * off / alike)
            distances[numbers] = percents, round(moved, 9)
        return distances[numbers]

    if math.prod(map(len, choices)) <= most:
        best = min(itertools.product(*choices), key=distance)
    else:
        best, changes = tuple(_nearest(*both) for both in zip(wanted, choices, strict=True)), 1
        while changes <= min(3, len(choices)) and math.comb(len(choices), changes) <= most:
            found = min(_neighbours(best, choices, changes), key=distance)
            best, changes = (found, 1) if distance(found) < distance(best) else (best, changes + 1)
    return None if math.isinf(distance(best)[0]) else best


def _nearest(wanted: float, choices: Sequence[int]) -> int:
    return min(choices, key=lambda number: abs(math.log(number / wanted)))


def _neighbours(
    numbers: Numbers, choices: Sequence[Sequence[int]], changes: int
) -> Iterator[Numbers]:
    """Yield what differs in so many numbers at most."""
    for places in itertools.combinations(range(len(numbers)), changes):
        for others in itertools.product(*(choices[place] for place in places)):
            changed = list(numbers)
            for place, number in zip(places, others, strict=True):
                changed[place] = number
            yield tuple(changed)
