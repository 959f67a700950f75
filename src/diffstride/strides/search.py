"""Finds the strides of any network, with a training of one's own."""

import copy
from collections.abc import Callable

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
            own, and returns its loss on examples that are held out, always the same, in eval mode.
            Half of the steps that one would train it for is enough.
        budget: what the network may cost, ``Budget(model, input_size, macs=...)``.
        trials: how often to train it.
        seed: of what is tried.

    Returns:
        What was found.

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
        raise ValueError("budget must be of the model that is searched, and is of another")
    chooser = StrideTrials(StrideSpace(budget), trials, seed=seed)
    state = copy.deepcopy(network.state_dict())
    modes = {module: module.training for module in network.modules()}

    def begin_at(point: Point) -> None:
        network.load_state_dict(state)
        network.zero_grad()
        for module, mode in modes.items():
            module.training = mode
        chooser.space.write(point)

    points: list[Point] = []
    scores: list[float] = []
    while wave := chooser.next(points, scores):
        for point in wave:
            begin_at(point)
            score = train()
            scores.append(score.item() if isinstance(score, Tensor) else float(score))
            points.append(point)
    begin_at(points[best(points, scores)])
    return StridePlan.of(model, budget.model.input_size)
