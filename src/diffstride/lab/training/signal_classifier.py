"""A classifier of raw signals for Lightning."""

from typing import Any

import torch
from torch import Tensor, nn

from diffstride.lab.runs.config import Config
from diffstride.lab.training.classifier import AudioClassifier
from diffstride.lab.training.processes import wide


class SignalClassifier(AudioClassifier):
    """Learns from windows of signals, and is judged on signals.

    The score of a signal is the mean over its windows, each of which counts by how many of its
    samples are real and not added at its end.

    Args:
        model: makes scores of signals (batch, channels, samples) and how long each really is.
        config, input_size: as for any classifier; the size is (channels, samples).
        classes, labels: their number, and the class of every signal for evaluation.
    """

    def __init__(
        self,
        model: nn.Module,
        config: Config,
        input_size: tuple[int, ...],
        classes: int,
        labels: Tensor,
    ) -> None:
        super().__init__(model, config, input_size, nn.Identity(), {"": classes}, {"": labels})

    def training_step(self, batch: Any, step: int) -> Tensor:
        signals, real, labels = batch
        scores = self.model(signals, real)
        loss = self._loss(scores, labels)
        self.count_answers("train", loss.sum(), scores, labels)
        return self.regularised(loss.mean())

    def validation_step(self, batch: Any, step: int) -> None:
        signals, real, numbers = batch
        if len(numbers):  # a process may have no part in the last batch
            weights = real[:, None].to(wide(self.device))
            scores = self.model(signals, real).to(weights.dtype)
            self.scores[""].index_add_(0, numbers, torch.cat([scores * weights, weights], 1))
