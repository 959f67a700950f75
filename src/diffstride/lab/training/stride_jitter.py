"""Strides that stay, and vary around that while a network trains."""

from random import Random
from typing import Any

from lightning import Callback, Trainer

from diffstride.strides.space import StrideSpace

SPREAD = 0.15
"""How far strides vary, as a part of themselves."""
REST = 0.15
"""The last part of a training, in which they do not, so that weights settle at their sizes."""


class StrideJitter(Callback):
    """Trains every step at strides near those of a network, of the same cost.

    Weights that work at many sizes do not depend on one. Whenever strides are looked at, they are
    the network's own.
    """

    def on_fit_start(self, trainer: Trainer, pl_module: Any) -> None:
        self.space, self.seed = StrideSpace(pl_module.budget), pl_module.config.seed
        self.steps, self.own = int(trainer.estimated_stepping_batches), self.space.read()

    def on_train_batch_start(self, trainer: Trainer, *_: Any) -> None:
        if trainer.global_step < (1 - REST) * self.steps:
            numbers = Random(f"{self.seed} jitter {trainer.global_step}")
            self.space.write(self.space.between(self.own, self.own, SPREAD, numbers))

    def on_train_batch_end(self, *_: Any) -> None:
        self.space.write(self.own)
