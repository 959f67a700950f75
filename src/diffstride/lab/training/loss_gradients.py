"""What more of a stride would do to the loss: its gradient, averaged over the steps of an epoch."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from diffstride.lab.training.processes import wide
from diffstride.layers.resizer import learned_strides


class LossGradient(NamedTuple):
    """How the loss changes with the logarithm of a stride: a hundredth of it is for one per cent.

    The error is the standard error of the mean; of a single step it is not known.
    """

    mean: float
    error: float | None


class LossGradients:
    """The sums of S·∂loss/∂S of all strides that learn, of which means are made.

    They stay on the device of the strides until the means are asked for: adding a step makes no
    accelerator wait. Processes that train together need no more than their own sums, because the
    gradients that an optimiser gets are the means over all processes already.
    """

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        """By layer: how many steps there were, the sums, and the sums of squares."""

    def add(self, network: nn.Module, optimiser: Optimizer) -> None:
        """Add the gradients that an optimiser is about to use.

        Strides that it does not have, or that got no gradient, are left out; as are steps whose
        gradients are not finite, which mixed precision leaves out too.
        """
        stepped = {id(p) for group in optimiser.param_groups for p in group["params"]}
        for name, layer in learned_strides(network).items():
            stride = layer._parameters.get("stride")  # None, if it is computed from something else
            if stride is None or stride.grad is None or id(stride) not in stepped:
                continue
            dtype = wide(stride.device)
            gradient = stride.detach().to(dtype) * stride.grad.detach().to(dtype)
            step = torch.stack([torch.ones_like(gradient), gradient, gradient**2])
            step = torch.where(gradient.isfinite().all(), step, 0.0)
            before = self.sums.get(name)
            self.sums[name] = step if before is None else before.to(step) + step

    def means(self) -> dict[str, list[LossGradient]]:
        """Return the means by layer: one for each axis, or one for all that share a stride."""
        found = {}
        for name, sums in self.sums.items():
            found[name] = [_mean(*each) for each in zip(*sums.tolist(), strict=True) if each[0]]
        return found


def _mean(count: float, total: float, squares: float) -> LossGradient:
    mean = total / count
    if count < 2:
        return LossGradient(mean, None)
    variance = max(0.0, squares - total * mean) / (count - 1)
    return LossGradient(mean, math.sqrt(variance / count))
