"""Copy a network, or run it, so that it is exactly what it was before."""

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from diffstride.analysis.held import CONTAINERS, Saved, held, held_modules
from diffstride.layers.resizer import learned_strides


def unwrapped(model: nn.Module) -> nn.Module:
    """The network inside whatever trains it in parallel or compiles it."""
    while True:
        if isinstance(model, DataParallel | DistributedDataParallel):
            model = model.module
        elif "_orig_mod" in model._modules:
            model = model.get_submodule("_orig_mod")
        else:
            return model


def is_compiled(module: nn.Module) -> bool:
    return "_orig_mod" in module._modules or module._compiled_call_impl is not None


def copied(model: nn.Module) -> nn.Module:
    """A copy of a network, also of one that keeps tensors which it computed."""
    # Tensors that were computed, of which some modules keep one, can't be copied as they are: a
    # copy has their values until it computes its own. deepcopy knows what is copied by its id.
    computed = {
        id(value): value.detach().clone()
        for _, value in held(model)
        if isinstance(value, Tensor) and not value.is_leaf
    }
    return copy.deepcopy(model, computed)


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Every module in eval mode, and afterwards in the mode that it had itself."""
    before = [(module, module.training) for module in held_modules(model)]
    try:
        for module, _ in before:
            module.training = False
        yield
    finally:
        for module, training in before:
            module.training = training


@contextmanager
def replaced_tensors(model: nn.Module, new: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Every tensor of a network replaced by another, for a while; strides stay.

    Parameters, buffers and tensors that are plain attributes, also in lists and dictionaries. One
    tensor in several places is replaced by one. Afterwards everything holds the objects again that
    it had, and none that it has been given since: some networks keep what they compute, and some
    make parts of themselves when they first run.
    """
    found = list(held(model))
    strides = {part for m in learned_strides(model).values() for part in m.modules()}
    known = {x: x for part in strides for x in (*part.parameters(), *part.buffers())}

    def replace(tensor: Tensor) -> Tensor:
        if tensor not in known:
            known[tensor] = new(tensor)
        return known[tensor]

    before = [(owner, Saved(x)) for owner, x in found if isinstance(x, CONTAINERS)]
    try:
        for owner, saved in before:
            if owner not in strides:
                saved.replace(replace)
        yield
    finally:
        for _, saved in before:
            saved.put_back()


def unchanged(model: nn.Module) -> AbstractContextManager[None]:
    """Whatever a network does to itself when it runs is undone afterwards."""
    # Parameters can't change in eval mode, all else might.
    return replaced_tensors(model, lambda x: x if isinstance(x, nn.Parameter) else x.clone())


def uncompiled(model: nn.Module) -> Any:
    """Run parts that were compiled as the Python they were: compiled ones call no hooks."""
    if any(is_compiled(module) for module in held_modules(model)):
        return torch.compiler.set_stance("force_eager")
    return nullcontext()
