"""Finds the strides of any network, with a training of one's own."""

import copy
import math
from collections.abc import Callable
from numbers import Real

from torch import Tensor, nn

from diffstride.analysis.budget import Budget
from diffstride.analysis.restoring import unwrapped
from diffstride.strides.plan import StridePlan
from diffstride.strides.space import Point, StrideSpace
from diffstride.strides.trials import StrideTrials, best


def search(
    model: nn.Module,
    train: Callable[[], float | Tensor],
    budget: Budget,
    *,
    trials: int = 12,
    seed: int = 0,
) -> StridePlan:
    """Find strides at which a network is good and costs what it may.

    The network is trained again and again, each time for a short while from the same weights, at
    other strides of the same cost. What is tried follows from what came out before
    (`strides/trials.py`). Whatever strides the network begins with, the same ones are tried. In the
    end it has those that were found and the weights that it began with: train it, with
    ``plan.apply(model)`` at fixed strides.

    Args:
        model: a network with learnable strides, in which their windows should have no ramp
            (``smoothness=0``, ``convention="tight"``) so that it costs what it will cost later.
        train: trains the network from the weights it has, with an optimiser and a schedule of its
            own that leave strides as they are, and returns its loss on examples that are held out,
            always the same, in eval mode. Half of the steps that one would train it for is enough.
        budget: what the network may cost, ``Budget(model, input_size, macs=...)``.
        trials: how often to train it.
        seed: of what is tried.

    Returns:
        What was found.

    Raises:
        TypeError: if ``train`` returns no number.
        ValueError: if the budget is of another network or not spent, or ``train`` moves strides.
        FloatingPointError: if no training comes to a finite loss. After these errors, and after any
            of ``train`` itself, the network is what it was before.

    >>> import torch
    >>> from diffstride import DiffStride2d, parameter_groups
    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(
    ...     DiffStride2d(2.0, smoothness=0.0, convention="tight"),
    ...     nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    >>> x, y = torch.randn(64, 1, 16, 16), torch.randint(4, (64,))
    >>> def train():
    ...     groups = parameter_groups(model, lr=0.01, weight_decay=0.0, with_strides=False)
    ...     optimiser = torch.optim.Adam(groups)
    ...     for _ in range(3):
    ...         optimiser.zero_grad()
    ...         nn.functional.cross_entropy(model(x[:32]), y[:32]).backward()
    ...         optimiser.step()
    ...     return nn.functional.cross_entropy(model(x[32:]), y[32:])
    >>> budget = Budget(model, (1, 16, 16), macs=3_000)
    >>> plan = search(model, train, budget, trials=6)
    >>> plan.macs == budget.cost
    True
    """
    network = budget.model.model
    if network is not unwrapped(model):
        raise ValueError(
            "budget must be made for the model that is searched, and was made for another one: "
            "give Budget(model, ...) of this model"
        )
    chooser = StrideTrials(StrideSpace(budget), trials, seed=seed)
    restore = _restoring(network)

    def score_at(point: Point) -> float:
        restore()
        chooser.space.write(point)
        written = chooser.space.read()
        score = _number(train())
        if not math.dist(written, chooser.space.read()) <= _MOVED:
            raise ValueError(
                "train has moved strides, and must return the loss at strides that stay: leave "
                "them out of its optimiser; parameter_groups(model, ..., with_strides=False) does"
            )
        return score

    points: list[Point] = []
    scores: list[float] = []
    try:
        while wave := chooser.next(points, scores):
            scores += map(score_at, wave)
            points += wave
    finally:
        restore()
    chooser.space.write(points[best(points, scores)])
    return StridePlan.of(model, budget.model.input_size)


_MOVED = 1e-5
"""By how much logarithms of strides have changed that did not just lose a last digit."""


def _restoring(network: nn.Module) -> Callable[[], None]:
    """Return what brings a network back to the state and the modes that it has now."""
    state = copy.deepcopy(network.state_dict())
    modes = {module: module.training for module in network.modules()}
    # Those that no state has; by name, as a network may have others in their places.
    unsaved = {
        module: {name: copy.deepcopy(module._buffers[name]) for name in names}
        for module in network.modules()
        if (names := module._non_persistent_buffers_set)
    }

    def restore() -> None:
        network.load_state_dict(state)
        for module, buffers in unsaved.items():
            module._buffers.update(copy.deepcopy(buffers))
        network.zero_grad()
        for module, mode in modes.items():
            module.training = mode

    return restore


def _number(score: object) -> float:
    if isinstance(score, Tensor) and score.numel() == 1:
        return score.item()
    if not isinstance(score, Real):
        kind = type(score).__name__
        if isinstance(score, Tensor):
            kind = f"Tensor of shape {tuple(score.shape)}"
        raise TypeError(f"train must return its loss, one number for all examples; got a {kind}")
    return float(score)
