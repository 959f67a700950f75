"""Mean scores of test examples that are drawn again: how far they may be off."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from diffstride.lab.training.learner import Learner
from diffstride.lab.training.trained_run import count_answers

RESAMPLES = 1000
SEED = 0
AT_ONCE = 2**22  # numbers of a part of the resamples, which are drawn a few at a time

Scores: TypeAlias = Mapping[str, NDArray[Any]]
"""By task: of each test example its score; of classes, whether the answer is right."""


class Difference(NamedTuple):
    """By how much the score of one network is higher than another's, with a band of 95 %."""

    scores: tuple[float, float]
    """Of the other, and of the one."""
    mean: float
    low: float
    high: float


def scores_of_each(module: Learner, batches: Iterable[Any]) -> Scores:
    """Return the score of each test example: which ones a classifier gets right."""
    count_answers(module, batches)
    return {name: torch.cat(parts).cpu().numpy() for name, parts in module.of_each.items()}


def difference(other: Scores, one: Scores) -> Difference:
    """Return how much higher the score of one network is, on the same test examples.

    Of several tasks, the mean. Examples are drawn again, the same ones for both networks: what both
    find hard is no difference.

    >>> wrong, right = np.zeros(50, bool), np.ones(50, bool)
    >>> difference({"": wrong}, {"": right})
    Difference(scores=(0.0, 1.0), mean=1.0, low=1.0, high=1.0)
    """
    both, drawn = mean_scores([other, one])
    low, high = np.percentile(drawn[:, 1] - drawn[:, 0], (2.5, 97.5))
    before, after = map(float, both)
    return Difference((before, after), after - before, float(low), float(high))


def mean_scores(of_each: Sequence[Scores]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean score of each setting, and those of (resamples, settings)."""
    generator, tasks = np.random.default_rng(SEED), list(of_each[0])
    means, drawn = np.zeros(len(of_each)), np.zeros((RESAMPLES, len(of_each)))
    for task in tasks:
        table = np.stack([scores[task] for scores in of_each], 1).astype(np.float64)
        count = len(table)
        means += table.mean(0)
        at_once = max(1, AT_ONCE // count)
        for start in range(0, RESAMPLES, at_once):
            part = drawn[start : start + at_once]
            times = generator.multinomial(count, np.full(count, 1 / count), len(part))
            part += times @ table / count
    # Divided at last: of many tasks without a mistake, the mean is 1 and not a digit more.
    return means / len(tasks), drawn / len(tasks)
