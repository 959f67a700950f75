"""Accuracies of test examples that are drawn again: how far they may be off."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from diffstride.lab.training.classifier import Classifier
from diffstride.lab.training.trained_run import count_answers

RESAMPLES = 1000
SEED = 0
AT_ONCE = 2**22  # numbers of a part of the resamples, which are drawn a few at a time

Right: TypeAlias = Mapping[str, NDArray[np.bool_]]
"""By task: of each test example, whether the answer is right."""


class Difference(NamedTuple):
    """By how much one network is more often right than another, with a band of 95 %."""

    accuracies: tuple[float, float]
    """Of the other, and of the one."""
    mean: float
    low: float
    high: float


def answers(module: Classifier, batches: Iterable[Any]) -> Right:
    """Return which test examples a network gets right."""
    count_answers(module, batches)
    return {name: torch.cat(parts).cpu().numpy() for name, parts in module.right.items()}


def difference(other: Right, one: Right) -> Difference:
    """Return how much more often one network is right than another, on the same test examples.

    Of several tasks, the mean. Examples are drawn again, the same ones for both networks: what both
    find hard is no difference.

    >>> wrong, right = np.zeros(50, bool), np.ones(50, bool)
    >>> difference({"": wrong}, {"": right})
    Difference(accuracies=(0.0, 1.0), mean=1.0, low=1.0, high=1.0)
    """
    accuracy, drawn = accuracies([other, one])
    low, high = np.percentile(drawn[:, 1] - drawn[:, 0], (2.5, 97.5))
    before, after = map(float, accuracy)
    return Difference((before, after), after - before, float(low), float(high))


def accuracies(right: Sequence[Right]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the accuracy of each setting, and those of (resamples, settings)."""
    generator, tasks = np.random.default_rng(SEED), list(right[0])
    accuracy, drawn = np.zeros(len(right)), np.zeros((RESAMPLES, len(right)))
    for task in tasks:
        table = np.stack([answers[task] for answers in right], 1).astype(np.float64)
        count = len(table)
        accuracy += table.mean(0)
        at_once = max(1, AT_ONCE // count)
        for start in range(0, RESAMPLES, at_once):
            part = drawn[start : start + at_once]
            times = generator.multinomial(count, np.full(count, 1 / count), len(part))
            part += times @ table / count
    # Divided at last: of many tasks without a mistake, the mean is 1 and not a digit more.
    return accuracy / len(tasks), drawn / len(tasks)
