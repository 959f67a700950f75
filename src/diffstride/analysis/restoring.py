"""Copy a network, or run it and leave it as it was; those for which that fails are refused."""

import copy
import functools
import operator
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.nn.parameter import is_lazy

from diffstride.layers.conversion_record import replaced_method
from diffstride.layers.converted import CONVERTED, torch_class
from diffstride.layers.resizer import Resizer, learned_strides

_CONTAINERS = (OrderedDict, dict, list, set, deque)
_FIXED = (tuple, frozenset)
_PARALLEL = (DataParallel, DistributedDataParallel)


def check_runnable(model: nn.Module) -> None:
    """Raise a ValueError unless a network can be run, and what its layers do can be seen."""
    for name, module in model.named_modules():
        where, kind = name or "the model", type(module).__name__
        if isinstance(module, torch.jit.ScriptModule):
            raise ValueError(
                f"{where} was made by torch.jit, and its layers can't be seen from outside: give "
                f"the network that it was made of"
            )
        if any(is_lazy(x) for x in (*module._parameters.values(), *module._buffers.values())):
            raise ValueError(
                f"{where} ({kind}) is lazy and has no weights yet: run the model once, to make them"
            )


def check_copyable(model: nn.Module, doing: str) -> None:
    """Raise a ValueError unless a network can be run, and its layers changed in a copy of it.

    ``doing`` is the verb of the advice: what to do with another network instead.
    """
    check_runnable(model)
    for name, module in model.named_modules():
        where, kind = name or "the model", type(module).__name__
        if isinstance(module, _PARALLEL):
            raise ValueError(
                f"{where} is wrapped in {kind}: {doing} {name or 'model'}.module, and wrap what "
                f"comes out"
            )
        if _is_compiled(module):
            raise ValueError(
                f"{where} is compiled: {doing} the network that it was made of, and compile what "
                f"comes out (of torch.compile(model), model._orig_mod is that network)"
            )
        if method := replaced_method(module):
            raise ValueError(
                f"{where} ({kind}) had its method {method} replaced by another function, which a "
                f"copy would share: {doing} the network before that, or write a subclass instead"
            )


def check_axes(
    name: str,
    layer: nn.Module,
    x: Tensor,
    advice: str = "input_size must be (channels, *spatial) of one example, without the batch",
) -> None:
    """Raise a ValueError unless a layer whose number of axes is fixed is given a batch."""
    axes = None
    if isinstance(layer, _ConvNd):
        axes = len(layer.kernel_size)
    elif (base := torch_class(layer)) is not None:
        axes = CONVERTED[base][1]
    elif isinstance(layer, Resizer) and not layer.follows:
        axes = layer.axes
    if axes is not None and x.ndim != axes + 2:
        raise ValueError(
            f"{name or 'the model'} ({type(layer).__name__}) takes a batch of {axes + 2} axes: "
            f"(batch, channels, and {axes} more); it was given the shape {tuple(x.shape)}. "
            f"{advice}"
        )


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the network inside whatever trains it in parallel or compiles it."""
    while isinstance(model, _PARALLEL) or "_orig_mod" in model._modules:
        model = model.get_submodule("_orig_mod" if "_orig_mod" in model._modules else "module")
    return model


def _is_compiled(module: nn.Module) -> bool:
    return "_orig_mod" in module._modules or module._compiled_call_impl is not None


def held(model: nn.Module) -> Iterator[tuple[nn.Module, Any]]:
    """Yield every module, tensor and container in a network once, with the module that has it.

    They are looked for in the attributes of modules and of their classes, and in dictionaries,
    lists, sets, queues and tuples there, at any depth. The dictionary of a module's attributes is a
    container itself, as are those in which torch keeps parameters, submodules and hooks.
    """
    seen: dict[int, Any] = {}  # with the objects: the id of one that is gone may be given again
    waiting: list[tuple[nn.Module, Any]] = [(model, model)]
    while waiting:
        owner, value = waiting.pop()
        if not isinstance(value, (nn.Module, Tensor, *_CONTAINERS, *_FIXED)) or id(value) in seen:
            continue
        seen[id(value)] = value
        if isinstance(value, nn.Module):
            kinds = type(value).__mro__[: type(value).__mro__.index(nn.Module)]
            shared = [x for kind in kinds for x in vars(kind).values()]
            contents = [vars(value), *(x for x in shared if isinstance(x, _CONTAINERS))]
            owner = value
        else:
            contents = [] if isinstance(value, Tensor) else _values(value)
        yield owner, value
        waiting += [(owner, x) for x in reversed(contents)]


def copied(model: nn.Module) -> nn.Module:
    """Return a copy of a network, also of one that keeps tensors which it computed."""
    # Tensors that were computed, of which some modules keep one, can't be copied as they are: a
    # copy has their values until it computes its own. deepcopy knows what is copied by its id.
    computed = {
        id(value): value.detach().clone()
        for _, value in held(model)
        if isinstance(value, Tensor) and not value.is_leaf
    }
    return copy.deepcopy(model, computed)


@contextmanager
def restored(model: nn.Module, new: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Have a network in eval mode and uncompiled, with other tensors, and restore it afterwards.

    ``new`` replaces parameters, buffers and tensors that are plain attributes, also in lists and
    dictionaries; strides stay. One tensor in several places is replaced by one. Afterwards
    everything holds the objects again that it had, and none that it has been given since: some
    networks keep what they compute, and some make layers when they first run.
    """
    everything = list(held(model))
    modes = [(x, x.training) for _, x in everything if isinstance(x, nn.Module)]
    before = [(m, x, list(x), _values(x)) for m, x in everything if isinstance(x, _CONTAINERS)]
    strides = {module for layer in learned_strides(model).values() for module in layer.modules()}
    kept = {x for module in strides for x in (*module.parameters(), *module.buffers())}

    @functools.cache
    def replace(tensor: Tensor) -> Tensor:
        return tensor if tensor in kept else new(tensor)

    compiled = any(_is_compiled(module) for module, _ in modes)  # which would call no hooks
    try:
        for owner, container, keys, values in before:
            if owner not in strides:
                _fill(container, keys, [_replaced(value, replace) for value in values])
        for module, _ in modes:
            module.training = False
        with torch.compiler.set_stance("force_eager") if compiled else nullcontext():
            yield
    finally:
        for module, training in modes:
            module.training = training
        for _, container, keys, values in before:
            _fill(container, keys, values)


def _values(container: Any) -> list[Any]:
    return list(container.values() if isinstance(container, dict) else container)


def _fill(container: Any, keys: list[Any], values: list[Any]) -> None:
    """Have these values in a container, in a dictionary under these keys."""
    if _same([*container, *_values(container)], [*keys, *values]):
        return
    # By the methods of Python's classes: a subclass may refuse, or do something else too.
    kind: Any = next(kind for kind in _CONTAINERS if isinstance(container, kind))
    kind.clear(container)
    if isinstance(container, dict):
        for key, value in zip(keys, values, strict=True):
            kind.__setitem__(container, key, value)
    else:
        (set.update if kind is set else kind.extend)(container, values)


def _same(some: list[Any], others: list[Any]) -> bool:
    return len(some) == len(others) and all(map(operator.is_, some, others))


def _replaced(value: Any, new: Callable[[Tensor], Tensor]) -> Any:
    """Return a tensor's replacement, a tuple with those of its tensors, or the value itself."""
    if isinstance(value, Tensor):
        return new(value)
    if not isinstance(value, _FIXED):
        return value
    items = [_replaced(item, new) for item in value]
    kind: Any = type(value)
    make = getattr(kind, "_make", kind)
    # Whoever derived another class knows how it is made; with its tensors the network runs still.
    known = make is not kind or kind in _FIXED or kind.__module__ == "torch.return_types"
    return make(items) if known and not _same(items, list(value)) else value
