"""Finds strides by trying many while a network trains, at a cost that stays the same.

The gradient of a window tells which frequencies the training examples miss. It does not tell what
other sizes of maps do to everything behind them, nor what helps on examples that were not trained
on. So here strides are tried out: every step of training runs at others, so that one set of weights
learns to work with all of them; now and then candidates are compared on examples that are held out,
all with these weights; and what is tried next is near those that did best.
"""

import math
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from diffstride.strides.space import Point, StrideSpace

ROUNDS = (0.25, 0.4, 0.55, 0.7, 0.85, 1.0)
"""When candidates are compared, as parts of all steps."""
SPREADS = (0.3, 0.25, 0.2, 0.15, 0.1)
"""After each round: how far from the best what is tried lies, in logarithms of strides."""
FIRST, LATER, KEPT = 48, 24, 8
"""How many candidates the first round and later ones compare, and how many are kept."""


class StrideTrials:
    """Chooses the strides of every step of a training, and learns which are best.

    Call :meth:`begin_step` before a step, :meth:`end_step` after it, and :meth:`finish` in the end,
    which sets the strides that were found. What is tried depends on the seed and the number of the
    step alone, so that processes that train together stay together.

    Args:
        space: the strides among which to look.
        steps: how many steps there will be.
        score: tells how bad the network is with the strides it has: its loss on held-out examples,
            for one. Within a round it must use the same examples. What is no finite number is never
            best.
        seed: of what is tried.
    """

    def __init__(
        self, space: StrideSpace, steps: int, score: Callable[[], float], *, seed: int = 0
    ) -> None:
        if steps < len(ROUNDS):
            raise ValueError(f"a search needs {len(ROUNDS)} steps of training or more, got {steps}")
        self.space, self.steps, self.score, self.seed = space, steps, score, seed
        self.step = 0
        self.kept: list[Point] = []
        """The best candidates so far, the best first."""
        self.history: list[dict[str, Any]] = []
        """Of each round: after which step, the scores of all candidates, the strides kept."""
        last = range(steps + 1 - len(ROUNDS), steps + 1)  # so that each of those left has a step
        self._ends = [min(round(x * steps), end) for x, end in zip(ROUNDS, last, strict=True)]

    @property
    def rounds(self) -> int:
        """How many rounds are over."""
        return len(self.history)

    def begin_step(self) -> None:
        """Set the strides to try in this step."""
        self.space.write(self._new(Random(f"{self.seed} step {self.step}")))

    def end_step(self) -> bool:
        """Count a step; compare candidates if it is the last of a round, and return whether."""
        self.step += 1
        if self.rounds == len(self._ends) or self.step < self._ends[self.rounds]:
            return False
        numbers = Random(f"{self.seed} round {self.rounds}")
        wanted = LATER if self.kept else FIRST
        candidates = [*self.kept, *(self._new(numbers) for _ in range(wanted - len(self.kept)))]
        scores = []
        for candidate in candidates:
            self.space.write(candidate)
            scores.append(self.score())
        ranked = sorted(
            (i for i, x in enumerate(scores) if math.isfinite(x)), key=scores.__getitem__
        )
        if not ranked:
            raise FloatingPointError(
                f"after step {self.step} no strides have a score that is a finite number, the "
                f"first of {len(scores)} have {scores[0]}: training diverged, or the score is "
                f"wrong; try a smaller learning rate"
            )
        self.kept = [candidates[i] for i in ranked[:KEPT]]
        self.history.append({"step": self.step, "scores": scores, "kept": self.kept})
        return True

    def _new(self, numbers: Random) -> Point:
        """Return strides anywhere before the first round; then some near the best."""
        if not self.kept:
            return self.space.random(numbers)
        spread = SPREADS[min(self.rounds, len(SPREADS)) - 1]
        one, other = numbers.choices(self.kept, k=2)
        return self.space.between(one, other, spread, numbers)

    @property
    def best(self) -> Point:
        """The middle of the best candidates, which their chances have less part in than in one."""
        return self.space.middle(self.kept)

    def finish(self) -> None:
        """Set the strides that were found so far; without a round, they stay as they are."""
        if self.kept:
            self.space.write(self.best)

    def state_dict(self) -> dict[str, Any]:
        """Return how far it has come, in plain numbers."""
        return {"step": self.step, "kept": self.kept, "history": list(self.history)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where another one was."""
        self.step, self.history = int(state["step"]), list(state["history"])
        self.kept = [tuple(point) for point in state["kept"]]
