"""Strides that are found by trials while a run trains."""

from itertools import islice
from typing import Any

import torch
from lightning import Callback, Trainer

from diffstride.lab.data.batches import Loader
from diffstride.lab.training.callbacks import diverged
from diffstride.lab.training.classifier import process, sum_over_processes, wide
from diffstride.strides.search import scoring
from diffstride.strides.space import StrideSpace
from diffstride.strides.trials import StrideTrials

EXAMPLES = 192
"""How many held-out examples, about, tell the score of a candidate."""


class StrideTrying(Callback):
    """Trains every step at other strides, and compares candidates on examples that are held out.

    Whenever strides are looked at, at the end of an epoch for one, they are the best so far.

    Args:
        batches: of the held-out examples, in random order.
    """

    def __init__(self, batches: Loader) -> None:
        self.batches = batches
        self.trials: StrideTrials | None = None
        self.state: dict[str, Any] = {}
        self._round: list[Any] = []

    def on_fit_start(self, trainer: Trainer, pl_module: Any) -> None:
        space = StrideSpace(pl_module.budget)
        steps, seed = int(trainer.estimated_stepping_batches), pl_module.config.seed
        self.trials = StrideTrials(space, steps, lambda: self._score(pl_module), seed=seed)
        self.begin = space.read()
        if self.state:
            self.trials.load_state_dict(self.state["trials"])
            self.begin = tuple(self.state["begin"])

    def on_train_batch_start(self, *_: Any) -> None:
        assert self.trials is not None
        self.trials.begin_step()

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        assert self.trials is not None
        try:
            if self.trials.end_step():
                self._round = []
        except FloatingPointError as error:
            raise diverged(
                "the loss with all strides that were tried became nan", trainer
            ) from error

    def on_validation_start(self, *_: Any) -> None:
        self._write_best()

    def on_train_epoch_end(self, *_: Any) -> None:
        self._write_best()

    def _write_best(self) -> None:
        assert self.trials is not None
        self.trials.space.write(self.begin)
        self.trials.finish()

    def _score(self, module: Any) -> float:
        """Return the loss on held-out examples, other ones in each round, with the strides set."""
        assert self.trials is not None
        if not self._round:
            rounds, size = self.trials.rounds, self.batches.batch_size  # type: ignore[attr-defined]
            self.batches.epoch = lambda: rounds
            some = islice(self.batches, -(-EXAMPLES // size))  # type: ignore[call-overload]
            self._round = [module.transfer_batch_to_device(b, module.device, 0) for b in some]
        with scoring(module), torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.trials.rounds)  # whatever is random is the same for all
            losses = torch.stack([module.loss_of(batch) for batch in self._round])
        total = losses.mean().to(wide(losses.device))
        sum_over_processes(total)
        return total.item() / process()[1]

    def state_dict(self) -> dict[str, Any]:
        if self.trials is None:
            return self.state
        return {"trials": self.trials.state_dict(), "begin": self.begin}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.state = state_dict
