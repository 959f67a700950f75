"""A conversion written down, and how it is carried out: without running the network."""

import functools
import inspect
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from diffstride.layers.converted import (
    CONVERTED,
    Converted,
    ConvertedIdentity,
    Following,
    recast,
    torch_class,
    whole_strides,
)
from diffstride.layers.diffstride import DiffStride1d, DiffStride2d, DiffStride3d

VERSION = 1
"""Of a record; a higher one is of a later version of this library."""
LAYERS = {1: DiffStride1d, 2: DiffStride2d, 3: DiffStride3d}

# What a subclass may have of its own without computing something else.
_HARMLESS = {
    "__init__",
    "__repr__",
    "__str__",
    "_get_name",
    "extra_repr",
    "reset_parameters",
    "__constants__",  # of torch.jit
    "__annotations__",
    "__annotate_func__",
    "__annotations_cache__",
}


def leader_site(
    name: str,
    layer: type[nn.Module],
    pooling: str,
    stride: Sequence[float],
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """One site of a record that gets a stride of its own."""
    # Where a stride is, its layer's weights say; a dtype is written by its name.
    kept = {
        key: str(value).removeprefix("torch.") if isinstance(value, torch.dtype) else value
        for key, value in options.items()
        if key != "device"
    }
    return {
        "name": name,
        "layer": layer.__name__,
        "pooling": pooling,
        "stride": [float(s) for s in stride],
        "options": kept,
    }


def follower_site(
    name: str,
    layer: type[nn.Module],
    pooling: str,
    leader: str,
    ratio: Sequence[float],
    same_size: bool,
) -> dict[str, Any]:
    """One site of a record that follows another."""
    return {
        "name": name,
        "layer": layer.__name__,
        "pooling": pooling,
        "follows": leader,
        "ratio": [float(r) for r in ratio],
        "same_size": same_size,
    }


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
    if record.get("version") != VERSION or not isinstance(record.get("sites"), list):
        raise ValueError(
            f"the record of a conversion must have version {VERSION} and a list of sites, got "
            f"version {record.get('version')!r}: was it made by a later diffstride?"
        )
    for site in record["sites"]:
        model = _convert_site(model, site)
    return model


def check_convertible(name: str, module: nn.Module) -> type[nn.Module]:
    """The class of torch that a layer is of; a ValueError unless it computes what that does."""
    base = torch_class(module)
    where = name or "the model"
    advice = f"leave it out with exclude=[{name!r}]"
    if base is None:
        raise ValueError(f"{where} is a {type(module).__name__}, which has no stride to learn")
    before_base = type(module).__mro__[: type(module).__mro__.index(base)]
    # The class that a parametrisation of torch makes computes a weight, and nothing else.
    own = before_base[1:] if _is_parametrised(module) else before_base
    names = _names(base) - set(vars(_Empty)) - _HARMLESS if own else set()
    for kind in own:
        if changed := [n for n in vars(kind) if n in names]:
            raise ValueError(
                f"{where} is a {kind.__name__}, which does more than a {base.__name__}: it has a "
                f"{changed[0]} of its own, which may need the stride that it was made with; "
                f"{advice}"
            )
    if method := replaced_method(module):
        raise ValueError(
            f"{where} ({type(module).__name__}) had its method {method} replaced by another "
            f"function, which may need the stride that it was made with; {advice}"
        )
    if getattr(module, "return_indices", False):
        raise ValueError(f"{where} returns indices, which say nothing after downsampling: {advice}")
    return base


def replaced_method(module: nn.Module) -> str | None:
    """The name of a method in the place of which a module, and not its class, has something else.

    >>> layer = nn.Conv2d(3, 8, 3)
    >>> layer._conv_forward = lambda x, weight, bias: x
    >>> replaced_method(layer)
    '_conv_forward'
    """
    for name in vars(module):
        found = inspect.getattr_static(type(module), name, None)
        # Functions and classes that a class has for others to use are no methods of it.
        is_method = callable(found) and hasattr(found, "__get__")
        if is_method and not isinstance(found, type | staticmethod):
            return name
    return None


def _names(base: type[nn.Module]) -> set[str]:
    """What a class of torch has, and what its layers have: their stride, their weight."""
    made: Any = base
    is_convolution = CONVERTED[base][0] == "conv"
    layer = made(1, 1, 1, device="meta") if is_convolution else made(1)
    return {*dir(base), *vars(layer), *layer._parameters}


class _Empty:
    """Has what Python gives to every class."""


def _convert_site(model: nn.Module, site: Mapping[str, Any]) -> nn.Module:
    name = site["name"]
    module = _submodule(model, name)
    base = check_convertible(name, module)
    if base.__name__ != site["layer"] or max(whole_strides(module)) == 1:
        raise ValueError(
            f"the record of the conversion has {name} as a {site['layer']} with a stride, and it "
            f"is {module}: was the network built like the one that was converted?"
        )
    kind, axes, made = CONVERTED[base]
    if "follows" in site:
        leader = _submodule(model, site["follows"])
        if not isinstance(leader, Converted):
            raise ValueError(
                f"the record of the conversion has {name} follow {site['follows']}, which is not "
                f"converted before it"
            )
        layer: nn.Module = Following(leader, site["ratio"], site["same_size"])
    else:
        options = dict(site["options"])
        if "dtype" in options:
            options["dtype"] = getattr(torch, options["dtype"])
        layer = LAYERS[axes](site["stride"], **options)
        parameter = next(itertools.chain(module.parameters(), model.parameters()), None)
        if parameter is not None:
            layer = layer.to(parameter.device)
    layer.train(module.training)
    if kind != "conv" and site["pooling"] == "replace":
        converted: Any = ConvertedIdentity()
        converted.training = module.training
    else:
        converted = recast(module, _class_of(module, base, made))
        converted.stride = (1,) * axes
    converted.downsample = layer
    return _replaced(model, module, converted)


def _submodule(model: nn.Module, name: str) -> nn.Module:
    try:
        return model.get_submodule(name)
    except AttributeError as error:
        raise ValueError(
            f"the record of the conversion has a layer {name}, and the network has none of that "
            f"name: was it built like the one that was converted?"
        ) from error


def _replaced(model: nn.Module, old: nn.Module, new: nn.Module) -> nn.Module:
    """The network with one module in the place of another, under all names that it has."""
    if model is old:
        return new
    for parent in list(model.modules()):
        for name, child in parent._modules.items():
            if child is old:
                setattr(parent, name, new)
    return model


def _is_parametrised(module: nn.Module) -> bool:
    """Whether ``torch.nn.utils.parametrize`` has given the module a class of its own."""
    return "parametrizations" in module._modules


def _class_of(module: nn.Module, base: type[nn.Module], made: type[Converted]) -> type[Any]:
    """The class that a layer has once it is converted; nothing that its own class has is lost."""
    kind: type[Any] = type(module)
    plain = kind.__bases__[0] if _is_parametrised(module) else kind
    changed = made if plain is base else _converted_subclass(plain)
    if plain is kind:
        return changed
    # The same on top again: torch takes it away by going to the first base.
    top = {key: value for key, value in vars(kind).items() if key not in vars(_Empty)}
    return type(f"Parametrized{changed.__name__}", (changed,), top)


@functools.cache
def _converted_subclass(kind: type[Any]) -> type[Converted]:
    """The converted form of a class that somebody derived from one of torch."""

    def reduce(self: Any, protocol: Any) -> Any:
        # Pickles name classes by where they are written, and this one is written nowhere.
        state = self.__getstate__() if hasattr(self, "__getstate__") else vars(self)
        return _empty_converted, (kind,), state

    return type(f"Converted{kind.__name__}", (Converted, kind), {"__reduce_ex__": reduce})


def _empty_converted(kind: Any) -> nn.Module:
    made = _converted_subclass(kind)
    return made.__new__(made)
