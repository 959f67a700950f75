"""What it costs to know what a network costs: a cost model, and a budget that is held each step.

    python -m benchmarks.cost [--quick]

Beside it, the same by running the network each time, as :func:`diffstride.cost` and
:func:`diffstride.fit_budget` do. Strides are others each time, as they are in training, so that
little of what was computed before can be used again.
"""

import copy
from collections.abc import Callable

import torch

from benchmarks.harness import arguments, interleaved, report
from diffstride import Budget, CostModel, cost, fit_budget, models
from diffstride.layers.resizer import learned_strides

NETWORKS = {"resnet18": (3, 32, 32), "efficientnet_b0": (3, 224, 224)}
STEP = 0.01
"""By how much of itself a stride is moved in a step, about."""


def disturbed(model: torch.nn.Module) -> Callable[[], None]:
    """Return a function that moves the strides of a network a little, as a step does."""
    generator = torch.Generator().manual_seed(0)
    layers = list(learned_strides(model).values())

    def move() -> None:
        with torch.no_grad():
            for layer in layers:
                noise = torch.randn(layer.stride.shape, generator=generator)
                layer.stride.mul_((STEP * noise).exp()).clamp_(1.0, 6.0)

    return move


def random_strides(costs: CostModel) -> Callable[[], dict[str, tuple[float, ...]]]:
    """Return a function that draws strides for every layer, others each time."""
    generator = torch.Generator().manual_seed(0)

    def draw() -> dict[str, tuple[float, ...]]:
        drawn = {
            name: 1 + 2 * torch.rand(layer.axes, generator=generator)
            for name, layer in costs.layers.items()
        }
        return {name: tuple(numbers.tolist()) for name, numbers in drawn.items()}

    return draw


def sides(model: torch.nn.Module, size: tuple[int, ...]) -> dict[str, Callable[[], object]]:
    """Return what is timed, each way to hold a budget with a copy of the network of its own."""
    costs = CostModel(model, size)
    allowed, draw = costs.value(), random_strides(costs)
    held, fitted, moved = (copy.deepcopy(model) for _ in range(3))
    budget = Budget(held, size, macs=allowed)
    move_held, move_fitted = disturbed(held), disturbed(fitted)
    return {
        "random strides alone": draw,
        "value": lambda: costs.value("macs", draw()),
        "value and gradient": lambda: costs.gradient("macs", draw()),
        "cost(model, size)": lambda: cost(model, size),
        "a step of strides alone": disturbed(moved),
        "a step, Budget.hold": lambda: (move_held(), budget.hold()),
        "a step, fit_budget": lambda: (move_fitted(), fit_budget(fitted, size, allowed)),
    }


def main() -> None:
    options = arguments(__doc__ or "")
    options.rounds *= 20
    rows = []
    for name, size in NETWORKS.items():
        model = models.create(name, num_classes=10, smoothness=1.0, convention="tight")
        times = interleaved(sides(model, size), rounds=options.rounds)
        rows += [{"network": name, "what": what, "ms": 1e3 * t} for what, t in times.items()]
    note = (
        f"a step moves strides by about {STEP:.0%}, and the budget is what the network costs at "
        "the beginning"
    )
    report("cost", rows, options, note)


if __name__ == "__main__":
    main()
