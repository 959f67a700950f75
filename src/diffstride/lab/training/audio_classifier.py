"""A classifier of recordings, for one task or several at once."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from diffstride.lab.runs.config import Config
from diffstride.lab.training.classifier import Classifier, process, sum_over_processes, wide

Batch = dict[str, tuple[Tensor, Tensor]]
"""By task: waves, and their labels in training or the numbers of their recordings in evaluation."""


class AudioClassifier(Classifier):
    """Learns from windows, and is judged on recordings: by the mean score of their windows.

    Args:
        model: makes scores of spectrograms, or with several tasks scores of each by name.
        config: what to train.
        input_size: of one spectrogram, (1, frames, channels).
        frontend: makes spectrograms of waves, on the device of the model.
        classes: how many there are, by task.
        labels: the class of every recording for evaluation, by task.
    """

    def __init__(
        self,
        model: nn.Module,
        config: Config,
        input_size: tuple[int, ...],
        frontend: nn.Module,
        classes: Mapping[str, int],
        labels: Mapping[str, Tensor],
    ) -> None:
        super().__init__(model, config, input_size)
        self.frontend = frontend
        self.classes, self.labels = dict(classes), dict(labels)
        self.scores: dict[str, Tensor] = {}

    def score(self, waves: Tensor) -> dict[str, Tensor]:
        """Return the scores of every window, by task."""
        scores = self.model(self.frontend(waves))
        return scores if isinstance(scores, dict) else dict.fromkeys(self.labels, scores)

    def training_step(self, batch: Batch, step: int) -> Tensor:
        scores = self.score(torch.cat([waves for waves, _ in batch.values()]))
        sizes = [len(labels) for _, labels in batch.values()]
        losses = []
        for i, (task, (_, labels)) in enumerate(batch.items()):
            task_scores = torch.split(scores[task], sizes)[i]
            loss = self._loss(task_scores, labels)
            self.count("train", loss.sum(), task_scores, labels, task)
            losses.append(loss.mean())
        return self.regularised(torch.stack(losses).mean())

    def on_validation_epoch_start(self) -> None:
        super().on_validation_epoch_start()
        # Sums over the windows of each recording; the last column counts them.
        self.scores = {
            task: torch.zeros(
                len(labels), self.classes[task] + 1, dtype=wide(self.device), device=self.device
            )
            for task, labels in self.labels.items()
        }

    def validation_step(self, batch: Batch, step: int) -> None:
        for task, (waves, recordings) in batch.items():
            if len(recordings):  # a process may have no part in the last batch
                scores = self.score(waves)[task].to(wide(self.device))
                counted = torch.cat([scores, torch.ones_like(scores[:, :1])], 1)
                self.scores[task].index_add_(0, recordings, counted)

    def on_validation_epoch_end(self) -> None:
        rank, processes = process()
        for task, sums in self.scores.items():
            sum_over_processes(sums)
            scores, labels = sums[:, :-1] / sums[:, -1:], self.labels[task].to(sums.device)
            # Each process counts its part of the recordings.
            scores, labels = scores[rank::processes], labels[rank::processes]
            loss = F.cross_entropy(scores, labels, reduction="sum")
            self.count("test", loss, scores, labels, task)
