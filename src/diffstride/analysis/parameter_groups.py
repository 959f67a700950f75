"""Parameter groups for an optimiser that leaves strides to the loss."""

from typing import Any

from torch import nn

from diffstride.layers.resizer import learned_strides


def parameter_groups(
    model: nn.Module, lr: float, weight_decay: float, stride_lr: float | None = None
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
    strides = {layer.stride for layer in learned_strides(model).values()}
    groups: dict[str, dict[str, Any]] = {
        "weights": {"params": [], "lr": lr, "weight_decay": weight_decay},
        "vectors": {"params": [], "lr": lr, "weight_decay": 0.0},
        "strides": {
            "params": [],
            "lr": lr if stride_lr is None else stride_lr,
            "weight_decay": 0.0,
        },
    }
    for parameter in model.parameters():
        if parameter.requires_grad:
            name = "vectors" if parameter.ndim <= 1 else "weights"
            if parameter in strides:
                name = "strides"
            groups[name]["params"].append(parameter)
    return [{"name": name, **group} for name, group in groups.items() if group["params"]]
