"""A conversion written down, and how it is carried out: without running the network."""

import functools
import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from diffstride.core import arguments
from diffstride.layers import converted, returning
from diffstride.layers.factory import layer_class
from diffstride.layers.joined import can_join
from diffstride.layers.siblings import Siblings
from diffstride.layers.undo import Undo

VERSION = 4  # of a record; a higher one is of a later version of this library
FIRST_WITH = {"diffstride": 3}  # what older ones can carry out too
PLACEMENTS = ("after", "before")

# What a subclass may have without computing something else, and what Python and torch.jit add.
_HARMLESS = {"__init__", "__repr__", "__str__", "_get_name", "extra_repr", "reset_parameters"}
_HARMLESS |= {"__constants__", "__annotations__", "__annotate_func__", "__annotations_cache__"}


def version_for(to: str) -> int:
    """Return the first version of a record that can have layers of this kind."""
    return FIRST_WITH.get(to, VERSION)


def any_site(name: str, layer: type, pooling: str, is_first: bool) -> dict[str, Any]:
    """Return what the entry of every site has: ``is_first`` if it downsamples before the layer."""
    site = {"name": name, "layer": layer.__name__, "pooling": pooling}
    return site | ({"placement": "before"} if is_first else {})


def leader_site(
    site: Mapping[str, Any], stride: Sequence[float], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the entry of a site that gets a stride."""
    # Where a stride is, its layer's weights say; a dtype is written by its name.
    kept = {key: value for key, value in options.items() if key != "device"}
    if isinstance(kept.get("dtype"), torch.dtype):
        kept["dtype"] = str(kept["dtype"]).removeprefix("torch.")
    return {**site, "stride": [float(s) for s in stride], "options": kept}


def follower_site(
    site: Mapping[str, Any], leader: str, ratio: Sequence[float], same_size: bool
) -> dict[str, Any]:
    """Return the entry of a site that follows another."""
    ratios = [float(r) for r in ratio]
    return {**site, "follows": leader, "ratio": ratios, "same_size": same_size}


def way_up(name: str, layer: nn.Module, undone: str) -> dict[str, Any]:
    """Return the entry of a layer that makes maps as large again as what a site has read."""
    kind = next((kind for kind in type(layer).__mro__ if kind in returning.KINDS), type(layer))
    return {"name": name, "layer": kind.__name__, "undoes": undone}


def apply_conversion(model: nn.Module, record: Mapping[str, Any]) -> nn.Module:
    """Carry out a conversion that :func:`diffstride.convert` made before, on a network built alike.

    The network is changed in place, and not run: other layers take the places of those that are
    converted, with the same weights. Weights of the converted network load.

    Args:
        model: the network, before conversion.
        record: of the report that :func:`diffstride.convert` returned, or read from JSON.

    Returns:
        The network itself, or if it is a single layer, what took its place.

    Raises:
        ValueError: if the record is of another network or of a later version.

    >>> from diffstride import convert
    >>> def build():
    ...     return nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU())
    >>> converted, report = convert(build(), torch.rand(1, 3, 32, 32))
    >>> again = apply_conversion(build(), report.record)
    >>> again.load_state_dict(converted.state_dict())
    <All keys matched successfully>
    """
    version = record.get("version")
    if version not in range(1, VERSION + 1) or not isinstance(record.get("sites"), list):
        raise ValueError(
            f"the record of a conversion must have version 1 to {VERSION} and a list of sites, got "
            f"version {version!r}: was it made by a later diffstride?"
        )
    for site in record["sites"]:
        model = _convert_site(model, site)
    for site in record["sites"]:
        if "beside" in site:
            _join_siblings(_submodule(model, site["beside"]), _submodule(model, site["name"]))
    for up in record.get("ups", ()):
        _convert_way_up(model, up)
    for name in record.get("readers", ()):
        watch(model, name)
    return model


def watch(model: nn.Module, name: str) -> None:
    """Have a linear layer that reads maps of one size say so when a stride has changed it."""
    model.get_submodule(name).register_forward_pre_hook(functools.partial(_check_features, name))


def _check_features(name: str, layer: nn.Module, inputs: tuple[Any, ...]) -> None:
    expected, given = layer.in_features, inputs[0].shape[-1] if inputs else None
    if given is not None and given != expected:
        raise ValueError(
            f"{name} (Linear) takes {expected} features and got {given}: a learned stride has "
            f"changed the size of the maps that it reads. Convert the network with "
            f"output_size='keep', so that sizes stay while strides learn, or put a pooling over "
            f"everything before the layer (nn.AdaptiveAvgPool2d(1))"
        )


def check_convertible(name: str, module: nn.Module) -> type[nn.Module]:
    """Return the class of torch that a layer is of; raise a ValueError if it computes otherwise."""
    base, kind = converted.torch_class(module), type(module)
    where, advice = name or "the model", f"leave it out with exclude=[{name!r}]"
    if base is None:
        raise ValueError(f"{where} is a {kind.__name__}, which has no stride to learn")
    derived = kind.__mro__[: kind.__mro__.index(base)]
    # The class that a parametrisation of torch makes computes a weight, and nothing else.
    derived = derived[1:] if is_parametrized(module) else derived
    # What the class of torch has, and what its layers have: their stride, their weight.
    make: Any = base
    layer = make(1, 1, 1, device="meta") if converted.CONVERTED[base][0] == "conv" else make(1)
    names = {*dir(base), *vars(layer), *layer._parameters} - {*vars(_Empty)} - _HARMLESS
    for other in derived:
        if changed := [n for n in vars(other) if n in names]:
            raise ValueError(
                f"{where} is a {other.__name__}, which does more than a {base.__name__}: it has a "
                f"{changed[0]} of its own, which may need the stride it was made with; {advice}"
            )
    if method := replaced_method(module):
        raise ValueError(
            f"{where} ({kind.__name__}) had its method {method} replaced by another function, "
            f"which may need the stride that it was made with; {advice}"
        )
    if getattr(module, "return_indices", False):
        raise ValueError(f"{where} returns indices, which say nothing after downsampling: {advice}")
    return base


def replaced_method(module: nn.Module) -> str | None:
    """Return the name of a method that a module, and not its class, has something else for.

    >>> layer = nn.Conv2d(3, 8, 3)
    >>> layer._conv_forward = lambda x, weight, bias: x
    >>> replaced_method(layer)
    '_conv_forward'
    """
    for name in vars(module):
        method = inspect.getattr_static(type(module), name, None)
        # Functions and classes that a class has for others to use are no methods of it.
        is_bound = callable(method) and hasattr(method, "__get__")
        if is_bound and not isinstance(method, type | staticmethod):
            return name
    return None


class _Empty:
    """Has what Python gives to every class."""


def _convert_site(model: nn.Module, site: Mapping[str, Any]) -> nn.Module:
    """Return the network with one layer converted as its entry in a record says."""
    name = site["name"]
    module = _submodule(model, name)
    base = check_convertible(name, module)
    if base.__name__ != site["layer"] or max(converted.whole_strides(module)) == 1:
        raise ValueError(
            f"the record of the conversion has {name} as a {site['layer']} with a stride, and it "
            f"is {module}: was the network built like the one that was converted?"
        )
    kind, axes, _ = converted.CONVERTED[base]
    if "follows" in site:
        leader = _submodule(model, site["follows"])
        if not isinstance(leader, converted.Converted):
            raise ValueError(
                f"the record has {name} follow {site['follows']}, which is not converted before it"
            )
        layer: nn.Module = converted.Following(leader, site["ratio"], site["same_size"])
    else:
        options = dict(site["options"])
        if options.get("dtype"):
            options["dtype"] = getattr(torch, options["dtype"])
        make: Any = layer_class(site.get("to", "diffstride"), axes)
        layer = make(site["stride"], **options)
        parameters = itertools.chain(module.parameters(), model.parameters(), layer.parameters())
        layer = layer.to(next(parameters).device)
    layer.train(module.training)
    if kind != "conv" and site["pooling"] == "replace":
        new: Any = converted.converted_class(nn.Identity)()
        new.training = module.training
    else:
        new = converted.recast(module, _class_of(module, converted.converted_class))
        new.stride = (1,) * axes
    placement = site.get("placement", "after")
    arguments.check_choice(placement, PLACEMENTS, "placement")
    new.downsample, new.downsample_first = layer, placement == "before"
    if model is module:
        return new  # type: ignore[no-any-return]
    _put(model, module, new)
    return model


def _join_siblings(first: Any, other: Any) -> None:
    """Have two converted convolutions of one map run as one."""
    pairs = [(one, getattr(one, "downsample", one)) for one in (first, other)]
    if first is other or not all(can_join(*pair) for pair in pairs):
        raise ValueError(
            f"the record of the conversion has {first} and {other} run as one, which only "
            f"convolutions that are downsampled after it can: it has been changed"
        )
    if first.siblings is None:
        Siblings().add(first)
    first.siblings.add(other)


def _convert_way_up(model: nn.Module, up: Mapping[str, Any]) -> None:
    """Have a layer go back to what a site has read, as its entry in a record says."""
    module, undone = _submodule(model, up["name"]), _submodule(model, up["undoes"])
    kinds = [kind.__name__ for kind in type(module).__mro__]
    if up["layer"] not in kinds or not returning.may_be_way_up(module):
        raise ValueError(
            f"the record of the conversion has {up['name']} as a {up['layer']} that makes maps "
            f"larger, and it is {module}: was the network built like the one that was converted?"
        )
    if not isinstance(undone, converted.Converted):
        raise ValueError(
            f"the record has {up['name']} undo {up['undoes']}, which is not converted before it"
        )
    new = converted.recast(module, _class_of(module, returning.returning_class))
    new.undo = Undo(undone).train(module.training)
    new.undo.passes_on = True  # what the layer before it makes, as ever
    _put(model, module, new)


def _put(model: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """Put a module in all places of a network where another one is."""
    for parent in list(model.modules()):
        for child in [key for key, value in parent._modules.items() if value is old]:
            setattr(parent, child, new)


def _submodule(model: nn.Module, name: str) -> nn.Module:
    try:
        return model.get_submodule(name)
    except AttributeError as error:
        raise ValueError(
            f"the record of the conversion has a layer {name}, and the network has none of that "
            f"name: was it built like the one that was converted?"
        ) from error


def _class_of(module: nn.Module, mixed: Callable[[Any], type[Any]]) -> type[Any]:
    """Return the class that a layer has once it is converted, with all that its class has."""
    kind: Any = type(module)
    if not is_parametrized(module):
        return mixed(kind)
    changed = mixed(kind.__bases__[0])
    # The same on top again: torch takes it away by going to the first base.
    top = {key: value for key, value in vars(kind).items() if key not in vars(_Empty)}
    return type(f"Parametrized{changed.__name__}", (changed,), top)
