"""Strides that keep a network within what it may cost."""

import copy
from collections.abc import Sequence

import torch
from torch import nn

from diffstride.layers import DiffStrideNd
from diffstride.tools.cost import cost, soft_macs

_GROWTH = 0.1
"""By how much of itself a stride grows at most at once: what it saves is only known close by."""
_ROUNDS = 200
_ENDLESS = 1e6


def fit_budget(model: nn.Module, input_size: Sequence[int], macs: float) -> None:
    """Let learnable strides grow as little as brings a network within a budget.

    To be called after every step of an optimiser: together they descend along the loss as far as
    the budget allows. Strides that save more multiply-accumulates grow more, so that in the end no
    stride could be exchanged for another at the same cost and a smaller loss.

    Args:
        model: any network with learnable strides.
        input_size: of one example, (channels, *spatial).
        macs: multiply-accumulates that one example may cost, as :func:`cost` counts them.

    Raises:
        ValueError: if no stride makes it as cheap as that.

    >>> from diffstride import DiffStride2d, cost
    >>> model = nn.Sequential(DiffStride2d(2.0, smoothness=1.0), nn.Conv2d(8, 8, 3, padding=1))
    >>> fit_budget(model, (8, 32, 32), 100_000)
    >>> cost(model, (8, 32, 32)).macs <= 100_000
    True
    """
    layers = [m for m in model.modules() if isinstance(m, DiffStrideNd) and m.stride.requires_grad]
    strides = [layer.stride for layer in layers]
    if not strides:
        raise ValueError("the model has no learnable stride that could grow")
    before = [stride.detach().clone() for stride in strides]
    with torch.enable_grad():
        for _ in range(_ROUNDS):
            used = soft_macs(model, input_size)
            excess = used.item() - macs
            if excess <= 0:
                return
            slopes = torch.autograd.grad(used, strides, allow_unused=True)
            found = [
                torch.zeros_like(s) if g is None else g
                for s, g in zip(strides, slopes, strict=True)
            ]
            # Where the cost, were it a plane, would be the budget; the point next to this one.
            length = sum(float(g.square().sum()) for g in found)
            with torch.no_grad():
                for layer, slope in zip(layers, found, strict=True):
                    # A step may have left it out of its range, from where nothing is in sight.
                    stride = layer.stride.clamp(layer.min_stride, layer.max_stride)
                    growth = -slope * (excess / max(length, 1e-30))
                    layer.stride.copy_(stride + growth.minimum(_GROWTH * stride))
    with torch.no_grad():
        for stride, value in zip(strides, before, strict=True):
            stride.copy_(value)
    least = least_macs(model, input_size)
    raise ValueError(
        f"a budget of {macs / 1e6:.4g} M MACs can't be met: whatever its strides, the network "
        f"costs {least / 1e6:.4g} M; a smaller smoothness R makes its maps smaller"
    )


def least_macs(model: nn.Module, input_size: Sequence[int]) -> int:
    """What a network costs when its learnable strides are as large as they may be.

    >>> from diffstride import DiffStride2d
    >>> model = nn.Sequential(DiffStride2d(2.0, smoothness=1.0), nn.Conv2d(8, 8, 3, padding=1))
    >>> least_macs(model, (8, 32, 32))
    32064
    """
    model = copy.deepcopy(model)
    for module in model.modules():
        if isinstance(module, DiffStrideNd):
            # A new one: that of a network on the meta device has no value to change.
            endless = torch.full_like(module.stride, _ENDLESS, device="cpu")
            module.stride = nn.Parameter(endless)
    return cost(model, input_size).macs
