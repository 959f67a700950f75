"""Strides that are compared with one set of weights for all of them, while these are trained.

Every step of training runs at other strides, so that weights learn to work with any; in rounds,
candidates are compared on examples that are held out, all with these weights, and what is tried
next is near those that did best. For comparison with a search, whose networks have weights of
their own.
"""

import contextlib
import statistics
from collections.abc import Callable, Iterator, Sequence
from random import Random

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from diffstride.strides.space import Point, StrideSpace

ROUNDS = (0.25, 0.4, 0.55, 0.7, 0.85, 1.0)
"""When candidates are compared, as parts of all steps."""
SPREADS = (0.3, 0.25, 0.2, 0.15, 0.1)
"""After each round: how far from the best what is tried lies, in logarithms of strides."""
FIRST, LATER, KEPT = 48, 24, 8
"""How many candidates the first round and later ones compare, and how many are kept."""


class SharedWeights:
    """Chooses the strides of every step of a training, and learns which are best.

    Args:
        space: the strides among which to look.
        steps: how many steps there will be.
        score: returns the loss of the network on held-out examples with the strides it has.
        seed: of what is tried.
        rounds: when candidates are compared, as parts of all steps.
    """

    def __init__(
        self,
        space: StrideSpace,
        steps: int,
        score: Callable[[], float],
        *,
        seed: int,
        rounds: Sequence[float] = ROUNDS,
    ) -> None:
        self.space, self.score, self.numbers = space, score, Random(seed)
        self.ends = [round(part * steps) for part in rounds]
        # As many are compared in all, however many rounds there are.
        self.first = FIRST + (len(ROUNDS) - len(rounds)) * LATER
        self.step = self.rounds = 0
        self.kept: list[Point] = []

    def begin_step(self) -> None:
        """Set the strides to try in this step."""
        self.space.write(self._new())

    def end_step(self) -> None:
        """Compare candidates if this was the last step of a round."""
        self.step += 1
        if self.step not in self.ends:
            return
        wanted = LATER if self.kept else self.first
        candidates = [*self.kept, *(self._new() for _ in range(wanted - len(self.kept)))]
        scores = []
        for candidate in candidates:
            self.space.write(candidate)
            scores.append(self.score())
        ranked = sorted(range(len(scores)), key=scores.__getitem__)
        self.kept, self.rounds = [candidates[i] for i in ranked[:KEPT]], self.rounds + 1

    def _new(self) -> Point:
        """Return strides anywhere before the first round; then some near the best."""
        if not self.kept:
            return self.space.random(self.numbers)
        spread = SPREADS[min(self.rounds, len(SPREADS)) - 1]
        one, other = self.numbers.choices(self.kept, k=2)
        return self.space.between(one, other, spread, self.numbers)

    @property
    def best(self) -> Point:
        """The middle of the best candidates, which their chances have less part in than in one."""
        columns = zip(*self.kept, strict=True)
        return self.space.fitted([statistics.fmean(column) for column in columns])


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
