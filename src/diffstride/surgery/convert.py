"""Give any network learnable strides, and keep its weights."""

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from diffstride.analysis.cost import cost
from diffstride.analysis.restoring import check_copyable, copied
from diffstride.core import arguments
from diffstride.core.rule import REPLACING
from diffstride.layers import conversion_record
from diffstride.layers.converted import Converted
from diffstride.layers.returning import Returning
from diffstride.surgery import rivals
from diffstride.surgery.conversion_report import (
    ConversionReport,
    ConvertedSite,
    ConvertedWayUp,
    LeftAlone,
    describe,
    describe_new,
)
from diffstride.surgery.sites import (
    KINDS,
    Site,
    begin_site,
    check_example,
    find_sites,
    note_siblings,
    strided_layers,
)
from diffstride.surgery.size_check import check_another_size, check_sizes
from diffstride.surgery.size_trace import SizeTrace, Use
from diffstride.surgery.ways_up import check_none_is_rounded, find_undone, find_ways_up

POOLINGS = ("keep", "replace")
EXCLUDED = "not among those to convert"


def convert(
    model: nn.Module,
    example_input: Tensor,
    *,
    to: str = "diffstride",
    kinds: Sequence[str] = KINDS,
    include: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    stride: float | Sequence[float] | None = None,
    smoothness: float | Sequence[float] = REPLACING["smoothness"],
    convention: str = REPLACING["convention"],
    norm: str = "forward",
    pooling: str = "keep",
    placement: str = "after",
    groups: Sequence[Sequence[str]] | None = None,
    **options: Any,
) -> tuple[nn.Module, ConversionReport]:
    """Return a copy of a network whose strides are learned, and a report of what was changed.

    Every strided convolution loses its stride and is followed by a :class:`DiffStride2d` (or 1d,
    3d) with that stride; poolings likewise. Both are computed in the cheapest order that gives the
    same numbers. Weights keep their names, so that a state dict of the
    network loads into its copy. The network is run once, to see which branches meet: layers whose
    outputs are added, multiplied or put side by side share one learnable stride, so that their
    sizes agree whatever is learned. In a network that goes up again, transposed convolutions,
    ``nn.Upsample``, ``nn.PixelShuffle`` and modules around a function like these stay as they are,
    and what they make is resized to the size that was read on the way down: to which one, that run
    tells too.

    The report has what was changed as a record, which
    :func:`diffstride.layers.apply_conversion` carries out on a network that is built anew. One of
    Hugging Face has it in its config from now on, ``config.diffstride``, and so in what its
    ``save_pretrained`` writes; :func:`diffstride.models.from_pretrained` reads that.

    Args:
        model: any network that takes one tensor.
        example_input: a batch for it, large enough that nothing shrinks to one sample. If the
            network goes up again, of a size that fits without rounding.
        to: ``"diffstride"``; or the method of others that layers get instead, ``"blur"``,
            ``"flc"``, ``"polyphase"``, ``"shape_adaptor"`` or ``"bilinear"``, with its own
            ``options`` and without smoothness, convention and norm.
        kinds: of layers to convert: ``"conv"``, ``"maxpool"``, ``"avgpool"``.
        include: only these layers, by name or pattern (``"layer2.*"``).
        exclude: all but these; ways up that are named here follow nothing.
        stride: the initial stride; that of each layer unless given, or with tight windows the real
            number nearby, 1.96 for 2, with which every map keeps its size.
        smoothness, convention, norm: of the new layers. Tight windows keep the sizes of maps, and
            ``norm="forward"`` the mean of features, which is what trained weights expect.
        pooling: ``"keep"`` pools at every sample before downsampling, ``"replace"`` does not pool.
        placement: ``"before"`` downsamples before each convolution that pads as much as it takes
            away, instead of after it. That costs least; but trained weights then see maps that are
            coarser than those they know, and have to learn again.
        groups: names of layers that share a stride, where more are to than must.
        options: every other argument of :class:`DiffStride2d`. ``output_size="keep"`` has every
            layer make the size that it makes now, whatever strides are learned.

    Raises:
        ValueError: for what can't be converted, with the name of the layer and what to do.

    Warns:
        UserWarning: for strides that stay, because a function and not a layer has them, and for a
            linear layer that reads maps of one size.

    >>> import torch
    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    >>> converted, report = convert(model, torch.rand(1, 3, 32, 32))
    >>> print(report)
    site  before               now with                    group  size before  size now
    0     Conv2d, stride 2     DiffStride2d(2, 2)          1      16 × 16      16 × 16
    2     MaxPool2d, stride 2  DiffStride2d(1.875, 1.875)  2      8 × 8        8 × 8
    0.0553 M MACs before, 0.4399 M now
    """
    arguments.check_choice(pooling, POOLINGS, "pooling")
    arguments.check_choice(placement, conversion_record.PLACEMENTS, "placement")
    for kind in kinds:
        arguments.check_choice(kind, KINDS, "kinds")
    rivals.check_options(to, options)
    check_copyable(model, "convert")
    converted = copied(model)
    sites = find_sites(converted, kinds, include, exclude)
    check_example(example_input, sites)
    layers_up = find_ways_up(converted, exclude)
    traced = SizeTrace(converted, example_input, sites, layers_up)
    uses = [
        use
        for use in traced.uses
        # A pooling over everything, whatever it calls its stride, stays one.
        if isinstance(sites[use.name], _ConvNd) or any(n > 1 for n in use.made.size)
    ]
    left = _left_alone(converted, sites, traced)
    record: dict[str, Any] = {"version": conversion_record.version_for(to), "sites": []}
    if not uses:
        warnings.warn(
            "nothing was converted: the model has no strided layer of these kinds and names",
            stacklevel=2,
        )
        _remember(converted, record)
        _warn(left)
        return converted, ConversionReport((), 0, 0, left)
    together = rivals.groups(to, uses, sites, traced, groups)
    learns = to in rivals.LEARNING  # else every map keeps its size, and what goes up fits as it did
    ways_up = traced.ways_up if learns else []
    undone = find_undone(ways_up, layers_up, {use.name for use in uses})
    ups = tuple(
        ConvertedWayUp(name, type(layers_up[name]).__name__, way.undoes, *way[1:3])
        for name, way in undone.items()
    )
    before = {use.name: (describe(sites[use.name]), use.made.size) for use in uses}
    make = {"smoothness": smoothness, "norm": norm, "convention": convention, **options}
    for group in together:
        given = group, uses, sites, stride, pooling, placement
        is_rival = to != "diffstride"
        record["sites"] += rivals.record(to, *given, options) if is_rival else _record(*given, make)
    if ups:
        record["ups"] = [
            conversion_record.way_up(up.name, layers_up[up.name], up.undoes) for up in ups
        ]
    converted = conversion_record.apply_conversion(converted, record)
    if next(model.parameters(), None) is None:  # which would have said where strides are to be
        converted.to(example_input.device)
    after, reader = check_sizes(converted, example_input, traced, list(before))
    if reader is not None:
        record["readers"] = [reader]
        conversion_record.watch(converted, reader)
        warnings.warn(
            f"{reader} reads maps of one size: training ends with an error when a stride changes "
            f"it. With output_size='keep' sizes stay while strides learn",
            stacklevel=2,
        )
    check_another_size(model, converted, example_input, traced)
    check_none_is_rounded(ways_up)
    _remember(converted, record)
    _warn(left)
    numbers = {name: i for i, group in enumerate(together, 1) for name in group}
    changes = []
    for name, (description, size) in before.items():
        new = describe_new(converted.get_submodule(name))
        changes.append(ConvertedSite(name, description, new, numbers[name], size, after[name]))
    macs, now = (cost(network, example_input.shape[1:]).macs for network in (model, converted))
    return converted, ConversionReport(tuple(changes), macs, now, left, record, ups)


def _left_alone(
    model: nn.Module, sites: Mapping[str, nn.Module], traced: SizeTrace
) -> tuple[LeftAlone, ...]:
    """Return what keeps its stride, and why."""
    excluded = set(strided_layers(model)) - set(sites)
    used = {use.name for use in traced.uses}
    left = []
    for seen in traced.strided:
        why = EXCLUDED if seen.name in excluded else "only layers of torch.nn are converted"
        left.append(LeftAlone(seen.name, seen.operation, seen.size_before, seen.size_after, why))
    for name, module in sites.items():
        if name not in used:
            left.append(LeftAlone(name, describe(module), (), (), "did not run for the example"))
    return tuple(left)


def _warn(left: Sequence[LeftAlone]) -> None:
    """Warn of what keeps its stride though nobody asked for that."""
    if surprising := [str(one) for one in left if one.reason != EXCLUDED]:
        warnings.warn(
            f"strides that stay as they are: {'; '.join(surprising)}. To learn the stride of a "
            f"function, have a layer in its place: nn.Conv2d, nn.MaxPool2d or nn.AvgPool2d",
            stacklevel=3,
        )


def _record(
    names: list[str],
    uses: list[Use],
    sites: Mapping[str, nn.Module],
    stride: float | Sequence[float] | None,
    pooling: str,
    placement: str,
    options: dict[str, Any],
) -> list[dict[str, Any]]:
    """Return the record of sites that make one size: the first has a stride, others follow."""
    record: list[dict[str, Any]] = []
    first: Site | None = None
    for name in names:
        site = begin_site(name, sites[name], uses, pooling, placement)
        strides, use, axes = site.strides, site.use, len(site.strides)
        if first is None:
            initial = arguments.per_axis(strides if stride is None else stride, axes, "stride")
            if options.get("output_size") == "keep":
                options = {**options, "output_size": list(use.made.size)}
            if stride is None and options.get("convention") == "tight":
                full = [n - k for n, k in zip(use.read.size, site.taken, strict=True)]
                sizes = zip(full, use.made.size, initial, strict=True)
                # A layer that pads or not makes a sample more or less than its stride says.
                initial = tuple(s if int(n / s) == m else max(1.0, n / m) for n, m, s in sizes)
                if options.get("shared"):
                    initial = (min(initial),) * axes
                highest = options.get("max_stride") or math.inf
                lowest = options.get("min_stride", 1.0)
                initial = tuple(min(max(s, lowest), highest) for s in initial)
            record.append(conversion_record.leader_site(site.entry, initial, options))
            first = site
        else:
            ratio = [a / b for a, b in zip(strides, first.strides, strict=True)]
            # The same size in, so the same size out.
            same = first.reads == site.reads
            record.append(conversion_record.follower_site(site.entry, names[0], ratio, same))
    note_siblings(record, uses, sites)
    return record


def _remember(model: nn.Module, record: dict[str, Any]) -> None:
    """Write the record into the config of a network that has one to be saved with it."""
    config: Any = getattr(model, "config", None)
    if not callable(getattr(config, "to_dict", None)):
        return
    try:
        written = json.loads(json.dumps(record))
    except TypeError as error:
        warnings.warn(
            f"the config of the model does not have the conversion, and from_pretrained can't "
            f"build it again: an option can't be written as JSON ({error})",
            stacklevel=3,
        )
        return
    # A network may be converted in several steps. But a config may also come from another network
    # that was converted, while this one was built of it without: only what is so is kept.
    modules = dict(model.named_modules(remove_duplicate=False))
    known: Any = getattr(config, "diffstride", None) or {}

    def with_earlier(key: str, kind: type[nn.Module]) -> list[Any]:
        entries = written.get(key, [])
        new = [modules.get(entry["name"]) for entry in entries]
        earlier = [
            entry
            for entry in known.get(key, [])
            if isinstance(module := modules.get(entry["name"]), kind) and module not in new
        ]
        return [*earlier, *entries]

    if sites := with_earlier("sites", Converted):
        ups = with_earlier("ups", Returning)
        config.diffstride = {**written, "sites": sites, **({"ups": ups} if ups else {})}
    elif hasattr(config, "diffstride"):
        del config.diffstride
