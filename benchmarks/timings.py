"""How far predicted milliseconds are from measured ones, and a budget in milliseconds from itself.

    python -m benchmarks.timings [--quick]

ResNet-18 at half its width and the audio network, tight windows with R = 1, a forward pass and a
step of training. A table is made of each; then the network is timed at strides that the table was
not made from, and at strides that were fitted to a budget of the median of these times. Settings
take turns; "measured" is the median, "least" the least time of all rounds, which other programs on
the machine disturb less.
"""

import copy
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.harness import arguments, interleaved, report
from diffstride import Budget, CostModel, Timings, models
from diffstride.analysis.timing_runs import random_settings, set_strides, step_of
from diffstride.layers.resizer import learned_strides

NETWORKS: dict[str, tuple[str, dict[str, Any], tuple[int, ...]]] = {
    "resnet18": ("resnet18", {"width": 0.5}, (3, 32, 32)),
    "audio": ("audio_cnn", {}, (1, 64, 100)),
}
OTHER_SEED = 1
"""Not the one of the settings that tables are made from."""


def network(name: str, quick: bool) -> nn.Module:
    kind, options, _ = NETWORKS[name]
    options = {**options, "width": 0.125} if quick else options
    return models.create(kind, num_classes=10, smoothness=1.0, convention="tight", **options)


def measured(steps: dict[str, Callable[[], None]], rounds: int) -> dict[str, tuple[float, float]]:
    """Return the median and the least milliseconds of every step, in turns."""
    times: dict[str, list[float]] = {name: [] for name in steps}

    def timed(name: str) -> Callable[[], None]:
        def run() -> None:
            start = time.perf_counter()
            steps[name]()
            times[name].append(time.perf_counter() - start)

        return run

    medians = interleaved({name: timed(name) for name in steps}, rounds)
    return {name: (1e3 * medians[name], 1e3 * min(times[name])) for name in steps}


def rows_of(name: str, training: bool, options: Any) -> list[dict[str, Any]]:
    model, size = network(name, options.quick), NETWORKS[name][2]
    batch, count, what = 2 if options.quick else 16, 10, "training" if training else "forward"
    started = time.perf_counter()
    effort = {"seconds": 1, "settings": 8} if options.quick else {"seconds": 20, "settings": 24}
    timings = Timings.measure(model, size, batch=batch, training=training, **effort)
    took = time.perf_counter() - started
    print(f"{name}, {what}: the table took {took:.0f} s, and expects to be off by ", end="")
    print(f"{timings.error:.1%} on average, {timings.worst:.1%} at most", flush=True)
    costs = CostModel(model, size)
    drawn = random_settings(costs.layers, count, OTHER_SEED)
    budget = statistics.median(costs.value(timings, strides) for strides in drawn)
    fitted = copy.deepcopy(model)
    Budget(fitted, size, ms=budget, timings=timings).hold()
    x = torch.randn(batch, *size)
    steps, predicted = {"budget": step_of(fitted, x, training)}, {"budget": budget}
    for i, strides in enumerate(drawn):
        one = copy.deepcopy(model)
        set_strides(learned_strides(one), strides)
        steps[f"setting {i + 1}"] = step_of(one, x, training)
        predicted[f"setting {i + 1}"] = costs.value(timings, strides)
    found = measured(steps, options.rounds)
    rows = []
    for side, (median, least) in found.items():
        row: dict[str, Any] = {"network": name, "what": what, "strides": side}
        row |= {"predicted ms": predicted[side], "measured ms": median, "least ms": least}
        row |= {"off": f"{predicted[side] / median - 1:+.1%}"}
        rows.append(row | {"off the least": f"{predicted[side] / least - 1:+.1%}"})
    return rows[1:] + rows[:1]


def main() -> None:
    options = arguments(__doc__ or "")
    rows = []
    for name in NETWORKS:
        for training in (False,) if options.quick else (False, True):
            rows += rows_of(name, training, options)
    batch = 2 if options.quick else 16
    note = (
        f"batches of {batch}; 10 settings of strides that tables were not made from, then strides "
        f"fitted to a budget; medians of {options.rounds} interleaved rounds"
    )
    report("timings", rows, options, note)


if __name__ == "__main__":
    main()
