"""How strides are trained: with a penalty, in groups of an optimiser."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from diffstride.layers.resizer import Resizer, learned_strides, resizers
from diffstride.layers.undo import Undo


def stride_penalty(model: nn.Module | Iterable[Resizer]) -> Tensor:
    """Return the paper's regulariser: J = Σ_l Π_{i≤l} 1/(S_h^i · S_w^i), over layers by depth.

    With a fixed number of channels, what the convolutions after layer l cost is in proportion to
    the l-th term. Add it to the loss with a weight λ, and strides grow where accuracy does not need
    what they drop. On the way up, strides are divided by instead: maps grow by S_h · S_w there, and
    where a learned stride is undone they are again what they were before it. Each branch of a
    :class:`diffstride.MultiScale2d` has a term; what follows has the size of the first.

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
    layers = [x for _, x in resizers(model)] if isinstance(model, nn.Module) else list(model)
    beside = {x.stride_owner for x in layers if x.is_beside}
    if isinstance(model, nn.Module):
        layers = [x for x in layers if isinstance(x, Undo) or x.stride_owner is x]
    total, area = torch.zeros(()), torch.ones(())
    read = area  # by the layer that runs beside the next one, if that does
    for layer in dict.fromkeys(layers):
        undoes = isinstance(layer, Undo)
        owner = layer.undone.stride_owner if isinstance(layer, Undo) else layer.stride_owner
        if owner is None:  # a fixed size, or one that goes back to where a fixed one came from
            continue
        if owner not in beside:
            read = area
        factor = owner.differentiable_strides().prod()
        shrinks = (owner.rule.way == "down") != undoes
        made = read.to(factor) / factor if shrinks else read.to(factor) * factor
        total = total.to(made) + made
        if owner not in beside:
            area = made
    return total


def parameter_groups(
    model: nn.Module,
    lr: float,
    weight_decay: float,
    stride_lr: float | None = None,
    *,
    with_strides: bool = True,
) -> list[dict[str, Any]]:
    """Split the parameters of a model into groups for any ``torch.optim`` optimiser.

    Weight decay pulls what it is applied to towards 0: a stride would be dragged to its lower bound
    whatever the loss says. So strides never decay, nor do biases and the vectors of normalisation
    layers; everything else does.

    Args:
        model: any module; layers with a learnable stride are found by type.
        lr: the learning rate.
        weight_decay: of the parameters that decay.
        stride_lr: the learning rate of strides, ``lr`` unless given.
        with_strides: False leaves strides out, for an optimiser of their own:
            :class:`diffstride.StrideOptimizer`.

    A learning-rate schedule that takes one maximum for all groups would overrule ``stride_lr``:
    give ``OneCycleLR`` a list, ``[group["lr"] for group in groups]``.

    Returns:
        Up to three groups, named ``"weights"``, ``"vectors"`` and ``"strides"``; none is empty and
        no parameter is in two. Parameters that need no gradient are left out.

    >>> import torch
    >>> from diffstride import DiffStride2d
    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), DiffStride2d(), nn.BatchNorm2d(8))
    >>> groups = parameter_groups(model, lr=0.1, weight_decay=5e-4, stride_lr=1.0)
    >>> [(g["name"], len(g["params"]), g["lr"], g["weight_decay"]) for g in groups]
    [('weights', 1, 0.1, 0.0005), ('vectors', 3, 0.1, 0.0), ('strides', 1, 1.0, 0.0)]
    >>> optimiser = torch.optim.SGD(groups, momentum=0.9)
    """
    strides = {p for layer in learned_strides(model).values() for p in layer.parameters()}
    stride_lr = lr if stride_lr is None else stride_lr
    learned = [p for p in model.parameters() if p.requires_grad]
    groups = [
        ("weights", [p for p in learned if p not in strides and p.ndim > 1], lr, weight_decay),
        ("vectors", [p for p in learned if p not in strides and p.ndim <= 1], lr, 0.0),
        ("strides", [p for p in learned if p in strides and with_strides], stride_lr, 0.0),
    ]
    keys = ("name", "params", "lr", "weight_decay")
    return [dict(zip(keys, group, strict=True)) for group in groups if group[1]]
