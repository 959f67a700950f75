"""Give any network learnable strides, and keep its weights."""

import json
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from diffstride.analysis.cost import cost
from diffstride.analysis.network_checks import check_copyable, check_runnable
from diffstride.analysis.restoring import copied
from diffstride.core import arguments
from diffstride.layers.conversion_record import (
    VERSION,
    apply_conversion,
    follower_site,
    leader_site,
)
from diffstride.layers.converted import (
    CONVERTED,
    Converted,
    shortening,
    torch_class,
    whole_strides,
)
from diffstride.surgery.conversion_report import ConversionReport, ConvertedSite, LeftAlone
from diffstride.surgery.sites import KINDS, check_example, find_sites, left_out
from diffstride.surgery.size_checks import check_sizes
from diffstride.surgery.size_groups import find_groups
from diffstride.surgery.size_trace import Grid, SizeTrace, trace_sizes

POOLINGS = ("keep", "replace")
EXCLUDED = "not among those to convert"


def convert(
    model: nn.Module,
    example_input: Tensor,
    *,
    kinds: Sequence[str] = KINDS,
    include: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    stride: float | Sequence[float] | None = None,
    smoothness: float = 4.0,
    norm: str = "forward",
    pooling: str = "keep",
    groups: Sequence[Sequence[str]] | None = None,
    **options: Any,
) -> tuple[nn.Module, ConversionReport]:
    """A copy of a network whose strides are learned, and a report of what was changed.

    Every strided convolution loses its stride and is followed by a :class:`DiffStride2d` (or 1d,
    3d) with that stride; poolings likewise. Weights keep their names, so that a state dict of the
    network loads into its copy. The network is run once, to see which branches meet: layers whose
    outputs are added, multiplied or put side by side share one learnable stride, so that their
    sizes agree whatever is learned.

    The report has what was changed as a record, which
    :func:`diffstride.layers.apply_conversion` carries out on a network that is built anew. One of
    Hugging Face has it in its config from now on, ``config.diffstride``, and so in what its
    ``save_pretrained`` writes; :func:`diffstride.models.from_pretrained` reads that.

    Args:
        model: any network that takes one tensor.
        example_input: a batch for it, large enough that nothing shrinks to one sample.
        kinds: of layers to convert: ``"conv"``, ``"maxpool"``, ``"avgpool"``.
        include: only these layers, by name or pattern (``"layer2.*"``).
        exclude: all but these.
        stride: the initial stride; that of each layer unless given.
        smoothness, norm: of the new layers. ``norm="forward"`` keeps the mean of features, which is
            what trained weights expect.
        pooling: ``"keep"`` pools at every sample before downsampling, ``"replace"`` does not pool.
        groups: names of layers that share a stride, where more are to than must.
        options: every other argument of :class:`DiffStride2d`.

    Raises:
        ValueError: for what can't be converted, with the name of the layer and what to do.

    Warns:
        UserWarning: for strides that stay, because a function and not a layer has them.

    >>> import torch
    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    >>> converted, report = convert(model, torch.rand(1, 3, 32, 32), smoothness=1.0)
    >>> print(report)
    site  before               now followed by     group  size before  size now
    0     Conv2d, stride 2     DiffStride2d(2, 2)  1      16 × 16      18 × 18
    2     MaxPool2d, stride 2  DiffStride2d(2, 2)  2      8 × 8        10 × 10
    0.0553 M MACs before, 0.4883 M now
    """
    arguments.check_choice(pooling, POOLINGS, "pooling")
    for kind in kinds:
        arguments.check_choice(kind, KINDS, "kinds")
    check_runnable(model)
    check_copyable(model)
    converted = copied(model)
    sites = find_sites(converted, kinds, include, exclude)
    check_example(example_input, sites)
    traced = trace_sizes(converted, example_input, sites)
    uses = [
        (name, read, made)
        for name, read, made in traced.uses
        # A pooling over everything, whatever it calls its stride, stays one.
        if isinstance(sites[name], _ConvNd) or any(n > 1 for n in made.size)
    ]
    left = _left_alone(converted, sites, traced)
    if not uses:
        warnings.warn(
            "nothing was converted: the model has no strided layer of these kinds and names",
            stacklevel=2,
        )
        _remember(converted, {"version": VERSION, "sites": []})
        _warn(left)
        return converted, ConversionReport((), 0, 0, left)
    together = find_groups(uses, sites, traced, groups)
    before = {name: tuple(made.size) for name, _, made in uses}
    descriptions = {name: _describe(sites[name]) for name in before}
    make = {"smoothness": smoothness, "norm": norm, **options}
    record: dict[str, Any] = {"version": VERSION, "sites": []}
    for group in together:
        record["sites"] += _record(group, uses, sites, stride, pooling, make)
    converted = apply_conversion(converted, record)
    if next(model.parameters(), None) is None:  # which would have said where strides are to be
        converted.to(example_input.device)
    after = check_sizes(converted, example_input, traced, list(before))
    _remember(converted, record)
    _warn(left)
    number = {name: i for i, group in enumerate(together, 1) for name in group}
    modules = dict(converted.named_modules())
    size = tuple(example_input.shape[1:])
    report = ConversionReport(
        tuple(
            ConvertedSite(
                name,
                descriptions[name],
                _describe_new(modules[name]),
                number[name],
                before[name],
                after[name],
            )
            for name in before
        ),
        cost(model, size).macs,
        cost(converted, size).macs,
        left,
        record,
    )
    return converted, report


def _left_alone(
    model: nn.Module, sites: Mapping[str, nn.Module], traced: SizeTrace
) -> tuple[LeftAlone, ...]:
    """What keeps its stride, and why."""
    excluded = left_out(model, sites)
    used = {name for name, _, _ in traced.uses}
    left = [
        LeftAlone(
            seen.where,
            seen.operation,
            seen.before,
            seen.after,
            EXCLUDED if seen.where in excluded else "only layers of torch.nn are converted",
        )
        for seen in traced.strided
    ]
    left += [
        LeftAlone(name, _describe(sites[name]), (), (), "did not run for the example")
        for name in sites
        if name not in used
    ]
    return tuple(left)


def _warn(left: Sequence[LeftAlone]) -> None:
    """Say what keeps its stride though nobody asked for that."""
    surprising = [str(one) for one in left if one.reason != EXCLUDED]
    if surprising:
        warnings.warn(
            f"strides that stay as they are: {'; '.join(surprising)}. To learn the stride of a "
            f"function, have a layer in its place: nn.Conv2d, nn.MaxPool2d or nn.AvgPool2d",
            stacklevel=3,
        )


def _record(
    names: list[str],
    uses: list[tuple[str, Grid, Grid]],
    sites: Mapping[str, nn.Module],
    stride: float | Sequence[float] | None,
    pooling: str,
    options: dict[str, Any],
) -> list[dict[str, Any]]:
    """What is to become of sites that make one size: the first has a stride, others follow."""
    found: list[dict[str, Any]] = []
    first: Any = None
    for name in names:
        module = sites[name]
        base = torch_class(module)
        assert base is not None
        kind, axes, _ = CONVERTED[base]
        own = whole_strides(module)
        read = next(read for use, read, _ in uses if use == name).root()
        kept = "keep" if kind == "conv" else pooling
        taken = shortening(module, axes) if kept == "keep" else (0,) * axes
        if first is None:
            initial = arguments.per_axis(own if stride is None else stride, axes, "stride")
            found.append(leader_site(name, base, kept, initial, options))
            first = (read, taken, own)
        else:
            ratio = [a / b for a, b in zip(own, first[2], strict=True)]
            # The same size in, so the same size out.
            same = first == (read, taken, own)
            found.append(follower_site(name, base, kept, names[0], ratio, same))
    return found


def _remember(model: nn.Module, record: dict[str, Any]) -> None:
    """Have the record in the config of a network that has one to be saved with it."""
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
    new = [modules.get(site["name"]) for site in written["sites"]]
    earlier = [
        site
        for site in (getattr(config, "diffstride", None) or {}).get("sites", [])
        if isinstance(module := modules.get(site["name"]), Converted) and module not in new
    ]
    if sites := [*earlier, *written["sites"]]:
        config.diffstride = {**written, "sites": sites}
    elif hasattr(config, "diffstride"):
        del config.diffstride


def _describe(module: nn.Module) -> str:
    strides = whole_strides(module)
    stride = str(strides[0]) if len(set(strides)) == 1 else "×".join(map(str, strides))
    return f"{type(module).__name__}, stride {stride}"


def _describe_new(module: nn.Module) -> str:
    layer: Any = module.downsample
    if layer.counts:
        if layer.follows:
            return "what its group makes"
    else:
        layer = layer.stride_owner
    return f"{type(layer).__name__}({', '.join(f'{s:g}' for s in layer.strides)})"
