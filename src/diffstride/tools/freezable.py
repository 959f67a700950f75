"""Networks that can't be copied and changed as they are: each is refused with what to do."""

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

WRAPPERS = (nn.DataParallel, nn.parallel.DistributedDataParallel)


def check_freezable(model: nn.Module) -> None:
    """Raise a ValueError that names the first module which a frozen copy can't be made of."""
    for name, module in model.named_modules():
        reason = _reason(module, f"model.{name}" if name else "model")
        if reason:
            raise ValueError(f"{name or 'the model'} ({type(module).__name__}) {reason}")


def _reason(module: nn.Module, path: str) -> str | None:
    if isinstance(module, WRAPPERS):
        return f"is there to train in parallel: give the network inside it, {path}.module"
    if "_orig_mod" in module._modules:
        return f"is compiled: give the network inside it, {path}._orig_mod, and compile the result"
    if module._compiled_call_impl is not None:
        return "is compiled: give the network before compile() is called, and compile the result"
    if isinstance(module, torch.jit.ScriptModule):
        return "is a script, whose layers can't be replaced: give the network it was made of"
    tensors = (*module._parameters.values(), *module._buffers.values())
    if any(x is not None and is_lazy(x) for x in tensors):
        return "has no weights yet: run the model once, which makes them"
    if "forward" in vars(module):
        return (
            "has a forward that was set on this one object, which a copy would share with it: "
            "write a subclass with that forward"
        )
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, WeightNorm | SpectralNorm):
            kind = "weight_norm" if isinstance(hook, WeightNorm) else "spectral_norm"
            return (
                f"has its {hook.name} computed by torch.nn.utils.{kind}, which can't be copied: "
                f"use torch.nn.utils.parametrizations.{kind}"
            )
    return None
