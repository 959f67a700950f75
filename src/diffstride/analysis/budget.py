"""Strides that keep a network within what it may cost."""

import math
from collections.abc import Sequence

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
    began = [layer.stride.detach().clone() for layer in layers]
    used, slopes = _cost(model, input_size, layers)
    longer = 1.0
    for _ in range(_ROUNDS):
        if used <= macs:
            return
        if not any(slope.any() for slope in slopes):
            break  # no stride makes a difference
        before = [_within(layer) for layer in layers]
        growth = _growth(layers, slopes, longer * (used - macs))
        _set(layers, [a + b for a, b in zip(before, growth, strict=True)])
        was, (used, slopes) = used, _cost(model, input_size, layers)
        # Sizes are whole: where a step is too short to change one, the next is longer.
        longer = 2 * longer if used == was else 1.0
        if used <= macs:
            _halve_back(model, input_size, macs, layers, before)
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
                f"{name or 'the model'} ({type(layer).__name__}) has a stride that is computed "
                f"from something else (torch.nn.utils.parametrize), and can't be given another: "
                f"take that away with parametrize.remove_parametrizations(layer, 'stride'), or "
                f"have soft_macs in the loss instead of a budget"
            )
    return list(layers.values())


def _cost(
    model: nn.Module, input_size: Sequence[int], layers: list[DiffStrideNd]
) -> tuple[float, list[Tensor]]:
    """What the network costs, and how that changes with each stride."""
    with torch.enable_grad():
        used = soft_macs(model, input_size)
        total = max(used.item(), 1.0)
        strides = [layer.stride for layer in layers]
        found: Sequence[Tensor | None] = [None] * len(strides)
        if used.requires_grad:  # otherwise it is the same whatever the strides
            # As parts of the whole: half precision has no numbers for more.
            found = torch.autograd.grad(used / total, strides, allow_unused=True)
    slopes = []
    for layer, slope in zip(layers, found, strict=True):
        slope = torch.zeros_like(layer.stride) if slope is None else slope
        most = math.inf if layer.max_stride is None else layer.max_stride
        helpful = layer.stride.detach() < most  # one at its end can't grow
        slopes.append(total * slope.double() * helpful)
    return used.item(), slopes


def _growth(layers: list[DiffStrideNd], slopes: list[Tensor], excess: float) -> list[Tensor]:
    """To the nearest strides at which the cost, were it a plane, would be less by ``excess``."""
    length = sum(float(slope.square().sum()) for slope in slopes)
    factor = excess / max(length, 1e-30)
    return [
        (-slope * factor).minimum(_GROWTH * _within(layer).double()).to(layer.stride)
        for layer, slope in zip(layers, slopes, strict=True)
    ]


def _halve_back(
    model: nn.Module,
    input_size: Sequence[int],
    macs: float,
    layers: list[DiffStrideNd],
    too_small: list[Tensor],
) -> None:
    """Return towards strides that were too small, as far as the budget allows."""
    for _ in range(_HALVINGS):
        enough = [layer.stride.detach().clone() for layer in layers]
        _set(layers, [(a + b) / 2 for a, b in zip(too_small, enough, strict=True)])
        if cost(model, input_size).macs > macs:
            too_small = [layer.stride.detach().clone() for layer in layers]
            _set(layers, enough)


def _within(layer: DiffStrideNd) -> Tensor:
    """A stride in its range, which a step may have left it out of."""
    return layer.stride.detach().clamp(layer.min_stride, layer.max_stride)


def _set(layers: list[DiffStrideNd], values: list[Tensor]) -> None:
    with torch.no_grad():
        for layer, value in zip(layers, values, strict=True):
            layer.stride.copy_(value)


def least_macs(model: nn.Module, input_size: Sequence[int]) -> int:
    """What a network costs when its learnable strides are as large as they may be.

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
            endless = torch.full_like(layer.stride, _ENDLESS, device="cpu")
            layer.stride = nn.Parameter(endless)
        return cost(model, input_size).macs
    finally:
        for layer, stride in zip(layers, before, strict=True):
            layer.stride = stride
