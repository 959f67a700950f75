"""Run a network once to see what happens in it, and leave it exactly as it was."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from diffstride.analysis.held import CONTAINERS, Saved, held, held_modules
from diffstride.layers.resizer import learned_strides

Check = Callable[[nn.Module, Tensor], None]
"""Called before a layer: the layer, and its input."""
Hook = Callable[[nn.Module, Tensor, Any], None]
"""Called after a layer: the layer, its input, and its output."""


def first_tensor(args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """What a layer was called with, whether it was given by place or by name."""
    found: Tensor = next(x for x in (*args, *kwargs.values()) if isinstance(x, Tensor))
    return found


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
    # copy has their values until it computes its own.
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
    known = {id(x): x for part in strides for x in (*part.parameters(), *part.buffers())}

    def replace(tensor: Tensor) -> Tensor:
        if id(tensor) not in known:
            known[id(tensor)] = new(tensor)
        return known[id(tensor)]

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


def run_once(
    model: nn.Module,
    input_size: Sequence[int],
    layers: Sequence[nn.Module],
    check: Check,
    begin: Callable[[], Hook],
) -> None:
    """Run one example through a network in eval mode, and a hook after each of some layers.

    Tensors have shapes and no values (the meta device of torch), so that nothing is computed. A
    network that can't run like that, because it makes tensors of its own or looks at values, is run
    again with an input of zeros: ``begin`` is called before each pass, and makes the hook.
    """
    tensors = [*model.parameters(), *model.buffers()]
    like = next((x for x in tensors if x.is_floating_point()), torch.zeros(()))
    try:
        with replaced_tensors(model, lambda x: x.detach().to("meta")):
            x = torch.empty(1, *input_size, device="meta", dtype=like.dtype)
            _run_with_hooks(model, x, layers, check, begin())
    except Exception:  # whatever a network says of tensors without values
        with unchanged(model):
            x = torch.zeros(1, *input_size, device=like.device, dtype=like.dtype)
            _run_with_hooks(model, x, layers, check, begin())


def _run_with_hooks(
    model: nn.Module, x: Tensor, layers: Sequence[nn.Module], check: Check, hook: Hook
) -> None:
    def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
        check(module, first_tensor(args, kwargs))

    def leave(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        hook(module, first_tensor(args, kwargs), output)

    handles = [
        handle
        for layer in layers
        for handle in (
            layer.register_forward_pre_hook(enter, with_kwargs=True),
            layer.register_forward_hook(leave, with_kwargs=True),
        )
    ]
    try:
        with eval_mode(model), torch.no_grad(), uncompiled(model):
            model(x)
    finally:
        for handle in handles:
            handle.remove()


def uncompiled(model: nn.Module) -> Any:
    """Run parts that were compiled as the Python they were: compiled ones call no hooks."""
    if any(is_compiled(module) for module in held_modules(model)):
        return torch.compiler.set_stance("force_eager")
    return nullcontext()
