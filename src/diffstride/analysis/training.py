"""How strides are trained: with a penalty, within a budget, in groups of an optimiser."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from diffstride.analysis.cost import cost, soft_macs
from diffstride.layers.diffstride import DiffStrideNd
from diffstride.layers.resizer import learned_strides

_GROWTH = 0.1
"""By how much of itself a stride grows at most at once: what it saves is only known close by."""
_ROUNDS = 200
_HALVINGS = 4
_ENDLESS = 1e6


def stride_penalty(model: nn.Module | Iterable[DiffStrideNd]) -> Tensor:
    """Return the paper's regulariser: J = Σ_l Π_{i≤l} 1/(S_h^i · S_w^i), over layers by depth.

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
    stride_lr = lr if stride_lr is None else stride_lr
    learned = [p for p in model.parameters() if p.requires_grad]
    groups = [
        ("weights", [p for p in learned if p not in strides and p.ndim > 1], lr, weight_decay),
        ("vectors", [p for p in learned if p not in strides and p.ndim <= 1], lr, 0.0),
        ("strides", [p for p in learned if p in strides], stride_lr, 0.0),
    ]
    keys = ("name", "params", "lr", "weight_decay")
    return [dict(zip(keys, group, strict=True)) for group in groups if group[1]]


def fit_budget(model: nn.Module, input_size: Sequence[int], macs: float) -> None:
    """Let learnable strides grow as little as brings a network within a budget.

    To be called after every step of an optimiser: together they descend along the loss as far as
    the budget allows. Strides that save more multiply-accumulates grow more, as in a projection
    onto the budget.

    Args:
        model: any network with learnable strides.
        input_size: of one example, (channels, *spatial).
        macs: multiply-accumulates that one example may cost, as :func:`cost` counts them.

    Raises:
        ValueError: if no stride makes it as cheap as that, or a stride can't be set because it is
            computed from something else.

    >>> from diffstride import DiffStride2d, cost
    >>> model = nn.Sequential(DiffStride2d(2.0, smoothness=1.0), nn.Conv2d(8, 8, 3, padding=1))
    >>> fit_budget(model, (8, 32, 32), 100_000)
    >>> cost(model, (8, 32, 32)).macs <= 100_000
    True
    """
    layers = _learnable(model)
    if not layers:
        raise ValueError("the model has no learnable stride that could grow")
    began = _strides(layers)
    too_small: list[Tensor] = []
    used, slopes = _cost(model, input_size, layers)
    longer = 1.0
    for _ in range(_ROUNDS):
        if used <= macs or not any(slope.any() for slope in slopes):
            break  # the budget is met, or no stride makes a difference
        # A step may have left strides out of their range.
        too_small = [x.stride.detach().clamp(x.min_stride, x.max_stride) for x in layers]
        # To the nearest strides at which the cost, were it a plane, would be within the budget.
        steepness = sum(float(slope.square().sum()) for slope in slopes)
        factor = longer * (used - macs) / max(steepness, 1e-30)
        grown = [
            stride + (-slope * factor).minimum(_GROWTH * stride.double()).to(stride)
            for stride, slope in zip(too_small, slopes, strict=True)
        ]
        _set(layers, grown)
        was, (used, slopes) = used, _cost(model, input_size, layers)
        # Sizes are whole: where a step is too short to change one, the next is longer.
        longer = 2 * longer if used == was else 1.0
    if used <= macs:
        for _ in range(_HALVINGS if too_small else 0):  # back as far as the budget allows
            enough = _strides(layers)
            _set(layers, [(a + b) / 2 for a, b in zip(too_small, enough, strict=True)])
            if cost(model, input_size).macs > macs:
                too_small = _strides(layers)
                _set(layers, enough)
        return
    _set(layers, began)
    least = least_macs(model, input_size)
    advice = "a smaller smoothness R makes its maps smaller"
    if least == cost(model, input_size).macs:
        advice = (
            "no learnable stride makes a map smaller now: with crop=False or output_size sizes "
            "stay, as they do with a stride at its max_stride or in a layer that is not used"
        )
    raise ValueError(
        f"a budget of {macs / 1e6:.4g} M MACs can't be met: whatever its strides, the network "
        f"costs {least / 1e6:.4g} M; {advice}"
    )


@torch.enable_grad()  # without, nothing that is computed would seem to be learned
def _learnable(model: nn.Module) -> list[DiffStrideNd]:
    """Return the layers whose stride is learned; raise a ValueError if one can't be set."""
    layers = {k: v for k, v in learned_strides(model).items() if v.stride.requires_grad}
    for name, layer in layers.items():
        if "stride" not in layer._parameters:
            raise ValueError(
                f"{name or 'the model'} ({type(layer).__name__}) has a stride that is computed and "
                f"can't be set: call parametrize.remove_parametrizations(layer, 'stride'), or have "
                f"soft_macs in the loss instead of a budget"
            )
    return list(layers.values())


def _cost(
    model: nn.Module, input_size: Sequence[int], layers: list[DiffStrideNd]
) -> tuple[float, list[Tensor]]:
    """Return what the network costs, and how that changes with each stride."""
    with torch.enable_grad():
        used = soft_macs(model, input_size)
        total = max(used.item(), 1.0)
        strides = [layer.stride for layer in layers]
        slopes: Sequence[Tensor] = [torch.zeros_like(stride) for stride in strides]
        if used.requires_grad:  # otherwise it is the same whatever the strides
            # Of the share in the total: half precision has no numbers for more.
            slopes = torch.autograd.grad(used / total, strides, materialize_grads=True)
    # A stride at its end can't grow.
    free = [layer.stride.detach() < (layer.max_stride or math.inf) for layer in layers]
    return used.item(), [total * a.double() * b for a, b in zip(slopes, free, strict=True)]


def _strides(layers: list[DiffStrideNd]) -> list[Tensor]:
    return [layer.stride.detach().clone() for layer in layers]


@torch.no_grad()
def _set(layers: list[DiffStrideNd], strides: list[Tensor]) -> None:
    for layer, stride in zip(layers, strides, strict=True):
        layer.stride.copy_(stride)


def least_macs(model: nn.Module, input_size: Sequence[int]) -> int:
    """Return what a network costs when its learnable strides are as large as they may be.

    >>> from diffstride import DiffStride2d
    >>> model = nn.Sequential(DiffStride2d(2.0, smoothness=1.0), nn.Conv2d(8, 8, 3, padding=1))
    >>> least_macs(model, (8, 32, 32))
    32064
    """
    layers = _learnable(model)
    before = [layer.stride for layer in layers]
    try:
        for layer in layers:
            # A new one: that of a network on the meta device has no value to change.
            layer.stride = nn.Parameter(torch.full_like(layer.stride, _ENDLESS, device="cpu"))
        return cost(model, input_size).macs
    finally:
        for layer, stride in zip(layers, before, strict=True):
            layer.stride = stride
