"""What each kind of use takes, found from how long a whole network took at many strides.

How long a network takes is a sum over its uses, and each use takes so much for every
multiply-accumulate, so much for every number that it reads or writes, and so much for being called.
These rates are at least 0, and such that the sums come near to what was measured. Maps of a network
change together, so that measurements alone can't tell every kind from every other one: where they
don't, all kinds have the same rates.
"""

import math
from collections.abc import Mapping, Sequence
from operator import mul
from typing import Any

import torch
from torch import Tensor, nn

from diffstride.analysis.uses import Amount, AnyAmount, Use
from diffstride.text import times

Rates = tuple[float, float, float]
"""Milliseconds for a multiply-accumulate, for a number that is read or written, and for a call."""
Work = Mapping[str, Sequence[float]]
"""By kind, how many of each of these there are."""

_VIEWS = {
    *("flatten", "view", "reshape", "squeeze", "unsqueeze", "permute", "transpose", "movedim"),
    *("expand", "chunk", "split", "unbind", "__getitem__", "detach", "unflatten", "expand_as"),
    *("view_as", "narrow", "select"),
}
"""Operations that move no number, only say how memory is to be read."""
_TIED = 1e-5
"""How strongly rates are held to what they would be without measurements that say otherwise."""
_SMALLEST = 0.2
"""Of the guess that each of the three has an equal part: at least so much is begun with."""
_FOLDS = 4


def kind_of(use: Use) -> str:
    """Return what is alike in uses that take as long for the same work."""
    sizes = [size[1] if len(size) > 1 else 1 for size in (use.input_sizes, use.output_sizes)]
    channels = " → ".join(dict.fromkeys(str(n) if isinstance(n, int) else "any" for n in sizes))
    layer: Any = use.layer
    if layer is None:
        return f"{use.name} {channels}"
    kind = f"{type(layer).__name__} {channels}"
    kernel, groups = getattr(layer, "kernel_size", None), getattr(layer, "groups", 1)
    if kernel is not None and not isinstance(layer, nn.Linear):
        kind += f", {times(kernel)}" if isinstance(kernel, tuple) else f", {kernel}"
    return f"{kind}, {groups} groups" if groups != 1 else kind


def amounts(use: Use) -> tuple[list[AnyAmount], list[AnyAmount], list[AnyAmount]]:
    """Return what a use is charged for: multiply-accumulates, numbers moved, and the call."""
    moved: list[AnyAmount] = [Amount(1, use.input_sizes), Amount(1, use.output_sizes)]
    return [use.macs], [] if use.name in _VIEWS and not use.layer else moved, [Amount(1)]


def work_by_kind(uses: Sequence[Use], numbers: Sequence[Any]) -> dict[str, list[float]]:
    """Return how much a network has to do, by kinds of uses, for the numbers of one evaluation."""
    found: dict[str, list[float]] = {}
    for use in uses:
        work = found.setdefault(kind_of(use), [0.0, 0.0, 0.0])
        for i, some in enumerate(amounts(use)):
            work[i] += sum(amount.of(numbers) for amount in some)
    return found


def fit_rates(works: Sequence[Work], measured: Sequence[float]) -> dict[str, Rates]:
    """Return rates by kind at which networks take what was measured, in milliseconds.

    What counts is by which part of itself a time is missed, so that small networks count too.

    >>> works = [{"relu 8": (0, n, 1)} for n in (100, 200, 400)]
    >>> rates = fit_rates(works, [1.1, 2.1, 4.1])["relu 8"]
    >>> abs(predicted({"relu 8": rates}, {"relu 8": (0, 300, 1)}) - 3.1) < 0.02
    True
    """
    general = [[sum(row[i] for row in work.values()) for i in range(3)] for work in works]
    # Before anything is known, each of the three has an equal part in every time.
    means = [sum(row[i] for row in general) / len(works) for i in range(3)]
    parts = sum(1 for mean in means if mean) or 1
    guess = [sum(measured) / len(works) / parts / mean if mean else 0.0 for mean in means]
    # A part that nothing is needed of in all may still be what one kind needs.
    both = zip(_scaled(general, measured, guess), guess, strict=True)
    shared = [max(rate, _SMALLEST * first) for rate, first in both]
    kinds = sorted({kind for work in works for kind in work})
    columns = [[x for kind in kinds for x in work.get(kind, (0, 0, 0))] for work in works]
    rates = _scaled(columns, measured, shared * len(kinds))
    return {k: (rates[3 * i], rates[3 * i + 1], rates[3 * i + 2]) for i, k in enumerate(kinds)}


def predicted(rates: Mapping[str, Rates], work: Work) -> float:
    """Return the milliseconds that work takes; a kind without rates counts nothing."""
    return sum(sum(map(mul, rates[kind], amount)) for kind, amount in work.items() if kind in rates)


def errors_unseen(works: Sequence[Work], measured: Sequence[float]) -> list[float]:
    """Return by which part each time is missed when it is left out, with others, of the fit."""
    errors = [0.0] * len(works)
    for fold in range(_FOLDS):
        known = [i for i in range(len(works)) if i % _FOLDS != fold]
        rates = fit_rates([works[i] for i in known], [measured[i] for i in known])
        for i in range(fold, len(works), _FOLDS):
            errors[i] = predicted(rates, works[i]) / measured[i] - 1
    return errors


def _scaled(
    rows: Sequence[Sequence[float]], measured: Sequence[float], guess: Sequence[float]
) -> list[float]:
    """Return guesses, each multiplied by a factor of at least 0, so that rows add up as measured.

    Minimises Σ(row·rate/measured − 1)² + ε·Σ(factor − 1)².
    """
    options: Any = {"dtype": torch.float64, "device": "cpu"}
    rates = torch.tensor(list(guess), **options)
    parts = torch.tensor(rows, **options) * rates / torch.tensor(measured, **options)[:, None]
    gram = parts.T @ parts + _TIED * torch.eye(len(rates), **options)
    factors = _at_least_zero(gram, parts.sum(0) + _TIED)
    is_used = (parts != 0).any(0)  # nothing is known of what does not occur
    return (factors * rates * is_used).tolist()


def _at_least_zero(gram: Tensor, aims: Tensor) -> Tensor:
    """Return x of at least 0 that minimises x·gram·x/2 − aims·x, as Lawson and Hanson do.

    Numbers that are not 0 are found by solving for these alone; one that would help is added, those
    that would fall below 0 are taken out again.
    """
    x = torch.zeros_like(aims)
    free = torch.zeros_like(aims, dtype=torch.bool)
    for _ in range(3 * len(aims)):
        slopes = (aims - gram @ x).masked_fill(free, -math.inf)
        best = int(slopes.argmax())
        if slopes[best] <= 1e-10 * aims.abs().max():
            break
        free[best] = True
        while True:
            new = torch.zeros_like(x)
            new[free] = torch.linalg.solve(gram[free][:, free], aims[free])
            falls = free & (new <= 0)
            if not falls.any():
                break
            # As far towards the solution as all stay above 0.
            step = (x[falls] / (x[falls] - new[falls])).min()
            x = x + step * (new - x)
            free &= x > 1e-12
        x = new
    return x
