"""The paper's regulariser: what strides cost, whatever the network around them."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from diffstride.layers.diffstride import DiffStrideNd
from diffstride.layers.resizer import learned_strides


def stride_penalty(model: nn.Module | Iterable[DiffStrideNd]) -> Tensor:
    """J = Σ_l Π_{i≤l} 1/(S_h^i · S_w^i), over the layers in order of depth.

    With a fixed number of channels, what the convolutions after layer l cost is in proportion to
    the l-th term. Add it to the loss with a weight λ, and strides grow where accuracy does not need
    what they drop.

    Args:
        model: a module, whose layers are taken in the order they were registered, each once however
            often it is used; or the layers themselves, where that is another order.

    Returns:
        A scalar, differentiable in the strides; 0 for a model without learnable strides.

    >>> from diffstride import DiffStride2d
    >>> model = nn.Sequential(DiffStride2d(2.0), nn.ReLU(), DiffStride2d((2.0, 1.0)))
    >>> stride_penalty(model).item()  # 1/4 + 1/4 · 1/2
    0.375
    """
    layers = learned_strides(model).values() if isinstance(model, nn.Module) else model
    total, area = torch.zeros(()), torch.ones(())
    for layer in dict.fromkeys(layers):
        strides = layer.differentiable_strides()
        area = area.to(strides) / strides.prod()
        total = total.to(area) + area
    return total
