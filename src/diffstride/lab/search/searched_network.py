"""The network whose strides are searched: what it costs at any, and how it comes to a budget."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from diffstride.analysis.budget import Budget
from diffstride.analysis.cost_model import CostModel
from diffstride.analysis.stride_table import stride_table
from diffstride.analysis.timings import Timings
from diffstride.lab.runs.config import Config, ModelConfig
from diffstride.lab.runs.search_folder import Network, Site
from diffstride.lab.training.preparation import Facts, build_model
from diffstride.layers.resizer import learned_strides, resizers
from diffstride.strides.space import StrideSpace

Strides: TypeAlias = tuple[float, ...]
"""One for each site and axis, in the order of ``--model.strides``."""

DIGITS = (2, 3, 4, 6)
"""How many digits strides may have after the point, if that leaves sizes as they are."""
WAYS = (math.floor, math.ceil)
TOLERANCE = 0.01  # by how much a budget may be missed, as `Budget` does
MOST_ROUNDED = 12
"""Strides of which both whole neighbours are tried, in all combinations."""


def learnable(model: ModelConfig, strides: Sequence[float] | None = None) -> ModelConfig:
    """Return the network with strides to learn, which costs as much as it does with fixed ones.

    For that, windows fall before the cut-off. If they do not in the recipe, its smoothness is one
    for other windows, and becomes 1.
    """
    if model.convention != "tight":
        model = replace(model, convention="tight", smoothness=1.0, smoothness_end=None)
    strides = model.strides if strides is None else tuple(strides)
    return replace(model, downsampling="diffstride", strides=strides)


def fixed(model: ModelConfig, strides: Sequence[float]) -> ModelConfig:
    """Return the network with fixed strides: spectral pooling."""
    return replace(model, downsampling="spectral", strides=tuple(strides))


class SearchedNetwork:
    """A network of a config, for data of these facts; with timings, it knows its milliseconds."""

    def __init__(self, config: Config, facts: Facts, timings: Timings | None = None) -> None:
        self.config, self.facts, self.timings = config.model, facts, timings
        self.size = tuple(facts["size"])
        self.model = build_model(learnable(config.model), facts)
        self.costs = CostModel(self.model, self.size)

    @property
    def strides(self) -> Strides:
        """Those that the network has now."""
        return tuple(s for layer in learned_strides(self.model).values() for s in layer.strides)

    def option(self, strides: Strides) -> Strides:
        """Return strides as the network with learnable ones takes them: of shared ones, one."""
        return strides[:: len(self.size) - 1] if self.config.shared_stride else strides

    def cost(self, strides: Strides, unit: str) -> float:
        """Return what the network costs with fixed strides: millions of MACs, or milliseconds.

        It has the layers that it began with: a residual network whose stride at a site was 1 has no
        convolution in the shortcut there, and with fixed strides above 1 it costs a little more.
        """
        if unit == "ms":
            return float(self.costs.value(self._timings, self._named(strides)))
        return float(self.costs.value("macs", self._named(strides))) / 1e6

    def held(self, strides: Strides, unit: str, limit: float) -> Strides:
        """Return the strides that cost so much, by the least change of these; or an error."""
        self.space(unit, limit, strides).budget.hold()
        return self.shortened(self.strides)

    def at(self, space: StrideSpace, point: Sequence[float]) -> Strides:
        """Return the strides at a point, with few digits."""
        space.write(point)  # which rounds, as the network itself does
        return self.shortened(self.strides)

    def space(self, unit: str, limit: float, strides: Strides | None = None) -> StrideSpace:
        """Return all strides that cost so much, of this network with these strides for now.

        Raises:
            ValueError: if no strides do; the message says which budgets can be met.
        """
        option = None if strides is None else self.option(strides)
        self.model = build_model(learnable(self.config, option), self.facts)
        self.costs = CostModel(self.model, self.size)
        budget: dict[str, Any] = {"macs": round(1e6 * limit)}
        if unit == "ms":
            budget = {"ms": limit, "timings": self._timings}
        unlimited = {name: math.inf for name in budget if name != "timings"}
        any_cost = Budget(self.model, self.size, **(budget | unlimited), spend=False)
        least, most = (x if unit == "ms" else x / 1e6 for x in (any_cost.least, any_cost.most))
        if not least <= limit <= most:
            name = "ms" if unit == "ms" else "million MACs"
            between = f"from {least:.4g} to {most:.4g} {name}, from its largest strides to none"
            raise ValueError(f"--{unit}_budget {limit:g} can't be met: the network costs {between}")
        return StrideSpace(Budget(self.model, self.size, **budget, spend=True))

    def shortened(self, strides: Strides) -> Strides:
        """Return strides with as few digits as leave all sizes as they are, each by itself.

        Sizes stay with fixed strides too. These are taken at their word, 24 of 28 samples at 1.12,
        which is a little more than it says, where windows that are tight make 25.
        """
        found: list[float] = []
        uses = {use.name: use for use in reversed(self.costs.at(self._named(strides)).layers)}
        pools = dict(resizers(build_model(fixed(self.config, strides), self.facts)))
        for name, own in self._named(strides).items():
            layers, use, short = (self.costs.layers[name], pools[name]), uses.get(name), list(own)
            for axis, stride in enumerate(own if use is not None else ()):
                axes = range(len(own)) if self.config.shared_stride else (axis,)
                for candidate in _rounded(stride):
                    tried = [candidate if i in axes else s for i, s in enumerate(short)]
                    made = [layer.size_after(use.input_size, tried) for layer in layers if use]
                    if use and all(size[i] == use.output_size[i] for size in made for i in axes):
                        short = tried
                        break
            found += short
        return tuple(found)

    def whole(self, strides: Strides, unit: str, limit: float) -> Strides:
        """Return whole strides that cost no more than the limit, by the least change of these.

        Sizes are whole too, so that these may miss it already; then no more than they do. Of many
        strides, those that are nearest to a whole number are rounded to it.
        """
        most = max(limit * (1 + TOLERANCE), self.cost(strides, unit))
        axes = len(self.size) - 1 if self.config.shared_stride else 1
        own = strides[::axes]
        doubtful = sorted(range(len(own)), key=lambda i: -_distance(own[i], round(own[i])))
        choices = [
            sorted({math.floor(s), math.ceil(s)}) if i in doubtful[:MOST_ROUNDED] else [round(s)]
            for i, s in enumerate(own)
        ]
        ways = sorted(
            itertools.product(*choices),
            key=lambda way: sum(_distance(s, w) ** 2 for s, w in zip(own, way, strict=True)),
        )
        spread = (tuple(float(stride) for stride in way for _ in range(axes)) for way in ways)
        up = tuple(float(math.ceil(stride)) for stride in strides)
        return next((way for way in spread if self.cost(way, unit) <= most), up)

    def network(self, strides: Strides, unit: str) -> Network:
        """Return what the network is with fixed strides: its sites, their sizes, its cost."""
        made = build_model(fixed(self.config, strides), self.facts)
        table, undoing = (
            stride_table(made, self.size),
            {n for n, x in resizers(made) if x.source is not None},
        )
        sites: list[Site] = []
        for row in table.rows:
            if row.site not in undoing:
                sizes = (row.input_size, row.output_size)
                sites.append(Site(row.site, row.strides, *sizes, row.cost_share))
            else:  # on the way up, which follows: what it costs is spent behind the last site
                sites[-1] = replace(sites[-1], share=sites[-1].share + row.cost_share)
        ms = self.cost(strides, unit) if unit == "ms" else None
        return Network(strides, table.cost.macs, ms, tuple(sites))

    def code(self, strides: Strides) -> str:
        """Return Python that makes the network with fixed strides."""
        made: Any = build_model(fixed(self.config, strides), self.facts)
        axes = len(self.size) - 1
        sites = [strides[i : i + axes] for i in range(0, len(strides), axes)]
        names = ("num_classes", "in_channels", "dims", "downsampling", "width", "stem", "placement")
        given = {name: made.created_with[name] for name in names}
        words = [f"{name}={value!r}" for name, value in given.items()]
        words.append(f"strides={[list(site) for site in sites] if axes > 1 else list(strides)}")
        called = ",\n    ".join([repr(made.created_with["name"]), *words])
        return f"from diffstride import models\n\nmodel = models.create(\n    {called},\n)"

    @property
    def _timings(self) -> Timings:
        assert self.timings is not None
        return self.timings

    def _named(self, strides: Strides) -> dict[str, Strides]:
        axes = len(self.size) - 1
        return {
            name: strides[i * axes : (i + 1) * axes] for i, name in enumerate(self.costs.layers)
        }


def _rounded(stride: float) -> Iterator[float]:
    """Yield a stride with few digits, then with more: to the nearest first, then the other way.

    And in the end what is next below it, if it has few digits itself.
    """
    for digits in DIGITS:
        ways = {round(way(stride * 10**digits) / 10**digits, digits) for way in WAYS}
        yield from sorted(filter(lambda s: s >= 1, ways), key=lambda s: _distance(stride, s))
    yield max(1.0, round(stride - 10 ** -DIGITS[-1], DIGITS[-1]))


def _distance(one: float, other: float) -> float:
    return abs(math.log(one / max(1.0, other)))
