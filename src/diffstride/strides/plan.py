"""The strides of a network as a plan: numbers to read, to keep, to apply and to copy as code."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from torch import nn

from diffstride.analysis.cost_record import short_count
from diffstride.strides.code import code_for
from diffstride.strides.replacing import with_layers
from diffstride.strides.rounding import whole_strides
from diffstride.strides.sites import POOLS, StrideSite, find_sites
from diffstride.text import aligned, one_line, times

VERSION = 1


@dataclass(frozen=True)
class StridePlan:
    """The strides of a network for inputs of one size: what a search for strides has found.

    It is numbers alone. It prints as a table, is kept as JSON (:meth:`as_dict`), makes a network
    with fixed strides of one that learns them (:meth:`apply`), or code that does (:meth:`code`).

    Attributes:
        input_size: of one example, (channels, *spatial).
        macs: multiply-accumulates of the whole network, as :func:`diffstride.cost` counts them.
        sites: the layers that have a stride, in the order they run.

    >>> from diffstride import DiffStride2d
    >>> network = nn.Sequential(
    ...     nn.Conv2d(1, 8, 3, padding=1),
    ...     DiffStride2d((2.6, 1.3), smoothness=1.0, convention="tight"),
    ...     nn.Conv2d(8, 8, 3, padding=1),
    ... )
    >>> plan = StridePlan.of(network, (1, 64, 32))
    >>> print(plan)
    layer           stride       size in → out      MACs from here on  share
    (before these)               64 × 32            147 k              14%
    1               2.60 × 1.30  64 × 32 → 24 × 24  872 k              86%
    total                                           1.02 M
    MACs are multiply-accumulates for an input of 1 × 64 × 32 (channels × size): of each layer
    and all that run after it, up to the next one in this table.
    >>> plan.apply(network)[1]
    SpectralPool2d(stride=(2.6, 1.3), norm='ortho')
    >>> plan.rounded(network).strides
    {'1': (3.0, 1.0)}
    >>> print(plan.code())
    from diffstride import SpectralPool2d
    <BLANKLINE>
    # Fixed strides in the places of learnable ones: 1,019,904 multiply-accumulates.
    # Sizes before → after are for inputs of 1 × 64 × 32 (channels × size).
    model.set_submodule("1", SpectralPool2d(stride=(2.6, 1.3)))  # 64 × 32 → 24 × 24
    <BLANKLINE>
    """

    input_size: tuple[int, ...]
    macs: int
    sites: tuple[StrideSite, ...]

    def __post_init__(self) -> None:
        size = self.input_size
        if len(size) < 2 or not all(type(n) is int and n >= 1 for n in size):
            raise ValueError(f"input_size must be (channels, *spatial) of one example, got {size}")
        if not self.sites:
            raise ValueError("a plan must have one site at least, got none")
        names = [site.name for site in self.sites]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"every layer must be in a plan once, got {twice[0]!r} twice")
        if type(self.macs) is not int or self.macs < sum(site.macs for site in self.sites):
            raise ValueError(
                f"macs must be a whole number, at least the sum of those of all sites, "
                f"{sum(site.macs for site in self.sites)}; got {self.macs!r}"
            )

    @classmethod
    def of(cls, model: nn.Module, input_size: Sequence[int]) -> "StridePlan":
        """Return the strides that a network has now, learnable or fixed, for one input size.

        The network is run once without computing, and left as it was. Layers in it that have a
        stride are ``DiffStride``, ``DiffStrideConv``, and ``SpectralPool`` that was given one;
        what :func:`diffstride.convert` made has them as ``NAME.downsample``.

        Raises:
            ValueError: if the network has no such layer or uses one at several sizes; if the input
                size is none, or the network can't be run.
        """
        sites, cost = find_sites(model, input_size)
        return cls(tuple(input_size), int(cost.macs), sites)

    @property
    def strides(self) -> dict[str, tuple[float, ...]]:
        """The strides by the names of their layers."""
        return {site.name: site.strides for site in self.sites}

    @property
    def is_whole(self) -> bool:
        """Whether all strides are whole and maps have ⌊N/S⌋ samples, as after :meth:`rounded`."""
        return all(site.is_whole for site in self.sites)

    def __str__(self) -> str:
        lines = [("layer", "stride", "size in → out", "MACs from here on", "share")]
        first, total = self.sites[0], max(1, self.macs)
        before = self.macs - sum(site.macs for site in self.sites)
        if before:
            row = ("(before these)", "", times(first.input_size))
            lines.append((*row, short_count(before), f"{before / total:.0%}"))
        for site in self.sites:
            strides = times(site.strides, "{:.0f}" if self.is_whole else "{:.2f}")
            sizes = f"{times(site.input_size)} → {times(site.output_size)}"
            cost = short_count(site.macs), f"{site.macs / total:.0%}"
            lines.append((one_line(site.name) or "(the model)", strides, sizes, *cost))
        lines.append(("total", "", "", short_count(self.macs), ""))
        notes = [
            f"MACs are multiply-accumulates for an input of {times(self.input_size)} (channels × "
            f"size): of each layer",
            "and all that run after it, up to the next one in this table.",
        ]
        if any(site.needs_room for site in self.sites):
            notes.append("Windows need room to fall: maps are larger than size ÷ stride.")
        return "\n".join([*aligned(lines), *notes])

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as JSON has it; :meth:`from_dict` makes the same plan of that."""
        # JSON has lists where dataclasses have tuples.
        sites: list[Any] = [json.loads(json.dumps(vars(site))) for site in self.sites]
        return {
            "version": VERSION,
            "input_size": list(self.input_size),
            "macs": self.macs,
            "sites": sites,
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> "StridePlan":
        """Return the plan that :meth:`as_dict` was called of.

        Raises:
            ValueError: if the record is none of a plan, or of a later version; the message says
                what is wrong in it.
        """
        if not isinstance(record, Mapping) or record.get("version") != VERSION:
            given = record.get("version") if isinstance(record, Mapping) else record
            raise ValueError(
                f"a plan must be a mapping with version {VERSION}, as StridePlan.as_dict makes it, "
                f"got {given!r}: was it made by a later diffstride?"
            )
        try:
            sites = tuple(_read_site(site) for site in record["sites"])
            return cls(tuple(record["input_size"]), record["macs"], sites)
        except (KeyError, TypeError) as error:
            raise ValueError(
                f"a plan must have input_size, macs and sites, as StridePlan.as_dict makes them; "
                f"in this one something is missing or of another kind: {error}"
            ) from error

    def apply(self, model: nn.Module) -> nn.Module:
        """Return a copy of a network that has the strides of this plan, and none to learn.

        Every layer with a stride becomes a ``SpectralPool`` with the plan's norm, basis and path,
        which makes the size that the plan says. Weights stay as they are, and keep their names; to
        train them from scratch is up to you. Layers that share one stride go on sharing it, in
        converted networks too.

        The layers have a stride, and not an output size, so that the network takes inputs of other
        sizes as well: signals of any length, another sampling rate. It is the plan's stride, to
        four decimals, where cutting the spectrum there makes the plan's size: with tight windows,
        and of whole strides. Windows that need room beyond the cut-off (``convention="paper"``)
        keep more samples than that; then it is the size before divided by the size after.

        Args:
            model: a network built like the one that the plan was made of. It is left as it is.

        Raises:
            ValueError: if the plan is of another network: a layer is missing, has another number of
                axes, can't be replaced, or has a learnable stride and is not in the plan; the
                message names it.
        """
        return with_layers(model, self.sites, lambda site, layer: site.layer())

    def rounded(self, model: nn.Module) -> "StridePlan":
        """Return a plan with whole strides that costs as nearly as possible what this one does.

        Each stride becomes one of the whole numbers next to it. Where windows need room, so that a
        map shrinks less than its stride says, it may become a lower one, down to the ratio of the
        sizes. Of all combinations the one is taken whose multiply-accumulates are nearest to those
        of this plan; among those that are equally near, to one per cent, the one whose log-strides
        changed least. Axes that share a stride in the model go on sharing it.

        Sizes and cost are those of a network with spectral poolings by these strides, which
        :meth:`apply` makes: maps of ⌊N/S⌋ samples. How near that is, see ``macs``: with few sites,
        whole strides leave little choice. ``diffstride.freeze(..., integer_strides=True)`` makes
        the plain strided network of it, whose maps have ⌈N/S⌉ samples.

        Args:
            model: a network built like the one that the plan was made of. It is left as it is.

        Raises:
            ValueError: as :meth:`apply` does; and if the network can't be run with whole strides.
        """
        whole = whole_strides(model, self.sites, self.input_size, self.macs)
        made = with_layers(
            model,
            self.sites,
            lambda site, layer: POOLS[layer.axes](whole[site.name], **site.options),
        )
        return StridePlan.of(made, self.input_size)

    def code(self) -> str:
        """Return Python that does to ``model`` what :meth:`apply` does to a copy of it.

        One line for each layer. For a plan with whole strides it says besides, in a comment, which
        stride each convolution has in a plain network without these layers.
        """
        return code_for(self.sites, self.input_size, self.macs)


def _read_site(record: Mapping[str, Any]) -> StrideSite:
    names = {field.name for field in fields(StrideSite)}
    if unknown := sorted(set(record) - names):
        raise ValueError(f"a site of a plan has {', '.join(sorted(names))}; got {unknown[0]!r}")
    # JSON has lists where dataclasses have tuples.
    read: dict[str, Any] = {
        key: tuple(x) if isinstance(x, list | tuple) else x for key, x in record.items()
    }
    return StrideSite(**read)
