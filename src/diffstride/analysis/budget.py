"""What a network may cost, and strides that are held to it while they train."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from diffstride.analysis.budget_search import Search, Variables, largest
from diffstride.analysis.cost_model import CostModel
from diffstride.analysis.timings import Timings
from diffstride.analysis.uses import Unit
from diffstride.layers.diffstride import DiffStrideNd
from diffstride.layers.resizer import learned_strides


class Budget:
    """What one example may cost, and the strides that are moved so that it costs that.

    Make it once, and call :meth:`hold` after every step of an optimiser: together they descend
    along the loss as far as the budget allows. Strides are moved by the least change of their
    logarithms: those that save more move more, as in a projection onto the budget. Sizes are whole,
    so that a cost can't always be met exactly: what is within one per cent is left alone, and
    otherwise the nearest that is found close by is taken. What happens depends on the strides
    alone, so that processes that train together stay together, and what is held already stays.

    Args:
        model: any network with learnable strides.
        input_size: of one example, (channels, *spatial).
        macs: multiply-accumulates that one example may cost, as :func:`diffstride.cost` counts.
        activations: the same, in numbers that layers put out.
        ms: milliseconds that a batch may take, as ``timings`` of the network say, which is then
            needed: see :class:`diffstride.Timings`.
        spend: True keeps the cost at the budget from both sides, so that training decides only
            where it is spent. False means at most: strides grow where they must, and nothing
            becomes smaller.
        fixed: strides that stay as they are, by the names of layers or the layers themselves. So do
            those that are not learnable, or have ``min_stride == max_stride``.
        unit, limit: any other unit of :class:`CostModel`, and how much of it may be spent.

    Raises:
        ValueError: if no strides make the network cost that: the message says what the least is,
            and the most where the budget is to be spent. Or if a stride is computed from something
            else and can't be set.

    >>> from diffstride import DiffStride2d, cost
    >>> model = nn.Sequential(DiffStride2d(2.0, smoothness=1.0), nn.Conv2d(8, 8, 3, padding=1))
    >>> budget = Budget(model, (8, 32, 32), macs=300_000)
    >>> budget.hold()
    >>> cost(model, (8, 32, 32)).macs, budget.cost
    (301056, 301056)
    """

    def __init__(
        self,
        model: nn.Module,
        input_size: Sequence[int],
        *,
        macs: float | None = None,
        activations: float | None = None,
        ms: float | None = None,
        timings: Timings | None = None,
        unit: str | Unit | None = None,
        limit: float | None = None,
        spend: bool = True,
        fixed: Iterable[str | nn.Module] = (),
    ) -> None:
        self.unit, self.limit = _limit(macs, activations, ms, timings, unit, limit)
        self.spend = spend
        self.model = CostModel(model, input_size)
        fixed = set(fixed)
        names = _learnable(self.model.model)
        _check_fixed(fixed, self.model.layers)
        if not names:
            raise ValueError(
                "the model has no learnable stride that could grow: give a model with a DiffStride "
                "layer that learns, or convert(model, example)"
            )
        moved = {
            name: layer
            for name, layer in names.items()
            if layer.min_stride != layer.max_stride and not {name, layer} & fixed
        }
        self.variables = Variables(self.model, moved)
        """The logarithms of the strides that may move."""
        self._search = Search(self.model, self.variables, self.unit, self.limit, spend)
        self._check()

    @property
    def cost(self) -> Any:
        """What the network costs now, in the unit of the budget."""
        return self.model.value(self.unit)

    @property
    def least(self) -> Any:
        """What the network costs when all strides that may move make maps as small as they may."""
        return self.cost_at(self.variables.ends(cheapest=True))

    @property
    def most(self) -> Any:
        """What the network costs when all strides that may move make maps as large as they may."""
        return self.cost_at(self.variables.ends(cheapest=False))

    def cost_at(self, point: Sequence[float]) -> Any:
        """Return what the network would cost, were these the logarithms of its strides."""
        return self.model.value_at(self.variables.given(point), self.unit)

    def nearest(self, point: Sequence[float]) -> tuple[float, ...]:
        """Return the logarithms of strides near others at which the network costs what it may."""
        return self._search.nearest(self.variables.clipped(point))[0]

    def slopes(self, strides: Sequence[Tensor]) -> list[Tensor]:
        """Return how the cost changes with the logarithms of these parameters; not with others."""
        values = iter(self._search.slopes(self.variables.read())[1])
        moved: list[Tensor] = [layer.stride for layer in self.variables.layers]
        found = {p: [next(values) for _ in range(p.numel())] for p in moved}
        options: Any = dict(dtype=torch.float64, device="cpu")  # which not every device has
        return [torch.tensor(found.get(p, [0.0] * p.numel()), **options) for p in strides]

    def hold(self) -> None:
        """Move the strides of the network until it costs what it may.

        Raises:
            ValueError: if no strides make it cost as little as that any more, because smoothness or
                something else was changed since; strides stay as they were.
        """
        values = self.variables.read()
        best, cost = self._search.nearest(values)
        if cost > self.limit and not self._search.is_met(cost):
            self._check_least()
        if best is not values:
            self.variables.write(best)

    def _check(self) -> None:
        self._check_least()
        most = self.most
        if self.spend and most < self.limit:
            limit, highest, lowest = map(self._text, (self.limit, most, self.least))
            raise ValueError(
                f"a budget of {limit} {_unit_name(self.unit)} can't be spent: with strides as "
                f"small as they may be, the network costs {highest}; the least is {lowest}. Pass "
                f"spend=False to make the budget an upper limit only"
            )

    def _check_least(self) -> None:
        least = self.least
        if least <= self.limit:
            return
        advice = "a smaller smoothness R makes its maps smaller"
        if least == self.cost:
            advice = (
                "no learnable stride makes a map smaller now: with crop=False or output_size sizes "
                "stay, as they do with a stride at its max_stride, one that is fixed or in a layer "
                "that is not used"
            )
        raise ValueError(
            f"a budget of {self._text(self.limit)} {_unit_name(self.unit)} can't be met: whatever "
            f"its strides, the network costs {self._text(least)}; {advice}"
        )

    def _text(self, count: float) -> str:
        return f"{count:.4g}" if isinstance(self.unit, Timings) else f"{count / 1e6:.4g} M"


def _limit(
    macs: float | None,
    activations: float | None,
    ms: float | None,
    timings: Timings | None,
    unit: str | Unit | None,
    limit: float | None,
) -> tuple[str | Unit, float]:
    """Return the one unit that was given, and how much of it."""
    if (ms is None) != (timings is None):
        raise ValueError(
            f"ms and timings must be given together, got {ms=} and timings "
            f"{'None' if timings is None else 'that were measured'}: what takes how long is "
            f"measured by Timings.measure(model, input_size)"
        )
    given: list[tuple[str | Unit, float]] = []
    if macs is not None:
        given.append(("macs", macs))
    if activations is not None:
        given.append(("activations", activations))
    if ms is not None and timings is not None:
        given.append((timings, ms))
    if unit is not None and limit is not None:
        given.append((unit, limit))
    if len(given) != 1 or (unit is None) != (limit is None):
        raise ValueError(
            f"a budget must be given as one of macs, activations, ms, or a unit with its limit; "
            f"got {macs=}, {activations=}, {ms=}, {unit=}, {limit=}"
        )
    return given[0]


def _check_fixed(fixed: set[Any], layers: dict[str, DiffStrideNd]) -> None:
    for one in fixed:
        if one not in layers and one not in layers.values():
            raise ValueError(
                f"fixed must name layers that have a stride, {', '.join(map(repr, layers))}; got "
                f"{one!r}"
            )


def _unit_name(unit: str | Unit) -> str:
    if isinstance(unit, Timings):
        return "ms"
    names = {"macs": "MACs"}
    return names.get(unit, unit) if isinstance(unit, str) else getattr(unit, "__name__", str(unit))


def fit_budget(model: nn.Module, input_size: Sequence[int], macs: float) -> None:
    """Let learnable strides grow as little as brings a network within a budget.

    For once: in training, make a :class:`Budget` and call its ``hold()`` after every step of an
    optimiser, which does the same with ``spend=False`` and runs the network only once. Strides that
    save more multiply-accumulates grow more, as in a projection onto the budget.

    Args:
        model: any network with learnable strides.
        input_size: of one example, (channels, *spatial).
        macs: multiply-accumulates that one example may cost, as :func:`cost` counts them.

    Raises:
        ValueError: if no stride makes it as cheap as that, or a stride can't be set because it is
            computed from something else.

    >>> from diffstride import DiffStride2d, cost
    >>> model = nn.Sequential(DiffStride2d(2.0, smoothness=1.0), nn.Conv2d(8, 8, 3, padding=1))
    >>> fit_budget(model, (8, 32, 32), 100_000)
    >>> cost(model, (8, 32, 32)).macs <= 100_000
    True
    """
    Budget(model, input_size, macs=macs, spend=False).hold()


def least_macs(model: nn.Module, input_size: Sequence[int]) -> int:
    """Return what a network costs when its learnable strides make maps as small as they may.

    >>> from diffstride import DiffStride2d
    >>> model = nn.Sequential(DiffStride2d(2.0, smoothness=1.0), nn.Conv2d(8, 8, 3, padding=1))
    >>> least_macs(model, (8, 32, 32))
    32064
    """
    costs = CostModel(model, input_size)
    cheapest = {
        name: min(largest(layer), layer.max_stride or math.inf)
        if layer.rule.way == "down"
        else layer.min_stride
        for name, layer in _learnable(costs.model).items()
    }
    return int(costs.value("macs", cheapest))


@torch.enable_grad()  # without, nothing that is computed would seem to be learned
def _learnable(model: nn.Module) -> dict[str, DiffStrideNd]:
    """Return the layers whose stride is learned; raise a ValueError if one can't be set."""
    layers = {k: v for k, v in learned_strides(model).items() if v.stride.requires_grad}
    for name, layer in layers.items():
        if "stride" not in layer._parameters:
            raise ValueError(
                f"{name or 'the model'} ({type(layer).__name__}) has a stride that is computed and "
                f"can't be set: call parametrize.remove_parametrizations(layer, 'stride'), or have "
                f"soft_macs in the loss instead of a budget"
            )
    return layers
