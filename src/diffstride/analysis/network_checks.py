"""Networks that can't be run or changed as they are: each is refused with what to do instead."""

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.nn.parameter import is_lazy

from diffstride.analysis.restoring import is_compiled
from diffstride.layers.conversion_record import replaced_method
from diffstride.layers.converted import CONVERTED, torch_class
from diffstride.layers.resizer import Resizer


def check_runnable(model: nn.Module) -> None:
    """Raise a ValueError unless a network can be run, and what its layers do can be seen."""
    for name, module in model.named_modules():
        where = name or "the model"
        if isinstance(module, torch.jit.ScriptModule):
            raise ValueError(
                f"{where} was made by torch.jit, and its layers can't be seen from outside: give "
                f"the network that it was made of"
            )
        tensors = (*module._parameters.values(), *module._buffers.values())
        if any(is_lazy(x) for x in tensors):
            raise ValueError(
                f"{where} ({type(module).__name__}) is lazy and has no weights yet: run the model "
                f"once on an example, which makes them"
            )


def check_copyable(model: nn.Module, doing: str = "convert") -> None:
    """Raise a ValueError unless layers of a network can be changed in a copy of it.

    ``doing`` is what the copy is made for, a word for what to do with another network instead.
    """
    for name, module in model.named_modules():
        where = name or "the model"
        if isinstance(module, DataParallel | DistributedDataParallel):
            kind = type(module).__name__
            inner = f"{name}.module" if name else "model.module"
            raise ValueError(
                f"{where} is wrapped in {kind}: {doing} {inner}, and wrap what comes out"
            )
        if is_compiled(module):
            raise ValueError(
                f"{where} is compiled: {doing} the network that it was made of, and compile what "
                f"comes out (of torch.compile(model), model._orig_mod is that network)"
            )
        if method := replaced_method(module):
            raise ValueError(
                f"{where} ({type(module).__name__}) had its method {method} replaced by another "
                f"function, which a copy would share with the original: {doing} the network "
                f"before that, or write a subclass with a {method} of its own"
            )


def check_axes(
    name: str,
    layer: nn.Module,
    x: Tensor,
    advice: str = "input_size must be (channels, *spatial) of one example, without the batch",
) -> None:
    """Raise a ValueError unless a layer is given a batch."""
    axes = _axes(layer)
    if axes is not None and x.ndim != axes + 2:
        raise ValueError(
            f"{name or 'the model'} ({type(layer).__name__}) takes a batch of {axes + 2} axes: "
            f"(batch, channels, and {axes} more); it was given the shape {tuple(x.shape)}. "
            f"{advice}"
        )


def _axes(layer: nn.Module) -> int | None:
    """Return how many spatial axes a layer works on, None where that is not fixed."""
    if isinstance(layer, _ConvNd):
        return len(layer.kernel_size)
    if (base := torch_class(layer)) is not None:
        return CONVERTED[base][1]
    return layer.axes if isinstance(layer, Resizer) and not layer.follows else None
