"""Lets strides follow the gradient of their windows, at a pace that is the same at any scale."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from diffstride.analysis.budget import Budget
from diffstride.layers.resizer import learned_strides

MEMORY, MEMORY_OF_SQUARES = 0.95, 0.99
"""How much of its mean is kept from step to step, of the gradient and of its square."""
ROUNDING = 1e-6
"""Less than this part of a gradient is what rounding left of it, and no direction."""


class StrideOptimizer(Optimizer):
    """Moves strides by per cent: learning that is the same for 16,000 samples and for 8.

    Strides are moved by their logarithms, by at most ``lr`` a step: 0.01 is one per cent. Gradients
    are averaged over some twenty steps, because that of one batch is mostly chance. Strides rest
    while weights are young, and again before training ends, so that weights can settle at the
    sizes found. With a budget the network costs that after every step: what is kept moves from
    where it helps less to where it helps more, and strides can't run away.

    Weights need an optimiser of their own: give it the groups of
    ``parameter_groups(model, lr, weight_decay, with_strides=False)``. Call ``step()`` of this one
    after its own, and ``zero_grad()`` of both, or that of the model: each knows its own alone.

    Args:
        model: a network with learnable strides.
        lr: by which part of itself a stride moves in a step, at most.
        steps: how many steps there will be.
        budget: what the network may cost; with ``spend=False`` at most.
        per_mac: of the gradient, follow only what is left along strides of the same cost, before it
            is averaged; for comparison, it found worse strides.
        rest: the parts of the training in which strides stay where they are: at first, in the end.

    Raises:
        ValueError: if the model has no stride to learn, or an argument is out of range.

    >>> import torch
    >>> from diffstride import Budget, DiffStride1d
    >>> model = nn.Sequential(
    ...     DiffStride1d(4.0, smoothness=2.0), nn.Conv1d(1, 4, 3, padding=1), DiffStride1d(2.0))
    >>> strides = StrideOptimizer(model, steps=10, budget=Budget(model, (1, 256), macs=10_000))
    >>> for _ in range(10):
    ...     _ = model(torch.rand(8, 1, 256)).square().mean().backward()
    ...     strides.step()
    ...     strides.zero_grad()
    """

    def __init__(
        self,
        model: nn.Module,
        lr: float = 0.01,
        *,
        steps: int,
        budget: Budget | None = None,
        per_mac: bool = False,
        rest: tuple[float, float] = (0.1, 0.2),
    ) -> None:
        self.layers = [x for x in learned_strides(model).values() if x.stride.requires_grad]
        if budget is not None:  # which may have fixed some
            self.layers = [x for x in self.layers if x in budget.variables.layers]
        strides = [layer.stride for layer in self.layers]
        if not strides:
            raise ValueError(
                "the model has no learnable stride to move: give one with a DiffStride layer"
            )
        if not 0 <= lr < 1:
            raise ValueError(
                f"lr must be a part of a stride, at least 0 and below 1 (0.01 is one per cent a "
                f"step), got {lr}"
            )
        if steps < 1:
            raise ValueError(
                f"steps must be the steps of the whole training, got {steps}: give at least 1"
            )
        if min(rest) < 0 or sum(rest) > 1:
            raise ValueError(
                f"rest must be two parts of a training, each from 0 to 1 and at most 1 together, "
                f"got {rest}"
            )
        self.budget, self.per_mac, self.steps, self.rest = budget, per_mac, steps, rest
        super().__init__([{"params": strides, "name": "strides"}], {"lr": lr, "number": 0})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move the strides, if it is time to, and bring them to their budget."""
        loss = None if closure is None else torch.enable_grad()(closure)()
        group = self.param_groups[0]
        done, group["number"] = group["number"] / self.steps, group["number"] + 1
        strides = [p for p in group["params"] if p.grad is not None]
        gradients = [p.grad.cpu().double() * p.cpu().double() for p in strides]  # by logarithms
        if self.per_mac and self.budget is not None and self.budget.spend:
            gradients = _at_one_cost(gradients, self.budget.slopes(strides))
        for stride, gradient in zip(strides, gradients, strict=True):
            if not gradient.isfinite().all():
                continue
            state = self.state[stride]
            if not state:
                state["number"], state["mean"] = 0, torch.zeros_like(gradient)
                state["square"] = torch.zeros_like(gradient)
            state["number"] += 1
            state["mean"].lerp_(gradient, 1 - MEMORY)
            state["square"].lerp_(gradient.square(), 1 - MEMORY_OF_SQUARES)
            if not self.rest[0] <= done < 1 - self.rest[1]:
                continue
            mean = state["mean"] / (1 - MEMORY ** state["number"])
            square = state["square"] / (1 - MEMORY_OF_SQUARES ** state["number"])
            moved = group["lr"] * (mean / square.sqrt().clamp(min=1e-30)).clamp(-1, 1)
            stride.copy_(stride.cpu().double() * torch.exp(-moved))
        for layer in self.layers:
            layer.stride.clamp_(layer.min_stride, layer.max_stride)
        if self.budget is not None:
            self.budget.hold()
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where another one was, to the last digit: torch rounds means as strides are."""
        super().load_state_dict(state_dict)
        numbers = state_dict["param_groups"][0]["params"]
        for number, stride in zip(numbers, self.param_groups[0]["params"], strict=True):
            if number in state_dict["state"]:
                self.state[stride] = copy.deepcopy(state_dict["state"][number])


def _at_one_cost(gradients: list[Tensor], slopes: list[Tensor]) -> list[Tensor]:
    """Return what is left of a gradient along points of one cost, whose slopes are given."""
    pairs = list(zip(gradients, slopes, strict=True))
    along = sum(float((g * s).sum()) for g, s in pairs)
    squares = sum(float(s.square().sum()) for s in slopes)
    if not squares:
        return gradients
    left = [g - along / squares * s for g, s in pairs]
    pairs = list(zip(left, gradients, strict=True))
    return [torch.where(x.abs() <= ROUNDING * g.abs(), 0.0, x) for x, g in pairs]
