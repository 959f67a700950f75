"""Finds the strides of any network, with a training step of one's own."""

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from diffstride.analysis.budget import Budget
from diffstride.analysis.restoring import unwrapped
from diffstride.strides.plan import StridePlan
from diffstride.strides.space import StrideSpace
from diffstride.strides.trials import StrideTrials


def search(
    model: nn.Module,
    train_step: Callable[[], object],
    budget: Budget,
    *,
    score: Callable[[], float | Tensor],
    steps: int,
    seed: int = 0,
) -> StridePlan:
    """Find strides at which a network is good and costs what it may.

    In every step the network is trained with other strides of the same cost; six times on the way,
    candidates are compared on examples that are held out, and from then on only what is near the
    best is tried. Whatever strides the network begins with, the same ones are tried. Its weights
    were disturbed by that in the end: train it again from its beginning, with ``plan.apply(model)``
    for one.

    Args:
        model: a network with learnable strides, in which their windows should have no ramp
            (``smoothness=0``, ``convention="tight"``) so that it costs what it will cost later.
            Its weights are trained, and its strides are those found in the end.
        train_step: makes one step of training, of one batch: forward, backward, optimiser.
        budget: what the network may cost, ``Budget(model, input_size, macs=...)``.
        score: returns the loss on examples that are held out, some hundreds, always the same. It is
            called without gradients, in eval mode but for batch normalisation, which takes the
            statistics of the batch: running ones would be those of other strides.
        steps: how often to call ``train_step``: as often as one would to train the network.
        seed: of what is tried.

    Returns:
        What was found.

    >>> from diffstride import DiffStride2d
    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(
    ...     DiffStride2d(2.0, smoothness=0.0, convention="tight"),
    ...     nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    >>> x, y = torch.randn(64, 1, 16, 16), torch.randint(4, (64,))
    >>> optimiser = torch.optim.Adam(model[1].parameters())
    >>> def train_step():
    ...     optimiser.zero_grad()
    ...     nn.functional.cross_entropy(model(x[:32]), y[:32]).backward()
    ...     optimiser.step()
    >>> def score():
    ...     return nn.functional.cross_entropy(model(x[32:]), y[32:])
    >>> budget = Budget(model, (1, 16, 16), macs=3_000)
    >>> plan = search(model, train_step, budget, score=score, steps=20)
    >>> plan.macs == budget.cost
    True
    """
    network = budget.model.model
    if network is not unwrapped(model):
        raise ValueError("budget must be of the model that is searched, and is of another")

    def loss() -> float:
        with scoring(network):
            return float(score())

    trials = StrideTrials(StrideSpace(budget), steps, loss, seed=seed)
    for _ in range(steps):
        trials.begin_step()
        train_step()
        trials.end_step()
    trials.finish()
    return StridePlan.of(model, budget.model.input_size)


@contextlib.contextmanager
def scoring(model: nn.Module) -> Iterator[None]:
    """Let a network be run for its score: nothing of it changes, whatever strides it has.

    Batch normalisation takes the statistics of the batch, because its running ones are those of
    other strides; everything else is as in eval mode.
    """
    modes = {module: module.training for module in model.modules()}
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    model.eval()
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.training = True
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
