"""Classifiers with learnable strides for Lightning: of images, and of recordings."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from diffstride.lab.runs.config import Config
from diffstride.lab.training.learner import Learner
from diffstride.lab.training.processes import process, sum_over_processes, wide

# By task: waves, and their labels in training or the numbers of their recordings in evaluation.
AudioBatch = dict[str, tuple[Tensor, Tensor]]


class Classifier(Learner):
    """Trains any network that scores images, as a config says."""

    measures: ClassVar = dict.fromkeys(("train", "test"), ("loss", "accuracy", "top5"))

    def training_step(self, batch: Any, step: int) -> Tensor:
        images, labels = batch
        mixed = self.config.data.mixup > 0
        if mixed:
            images, share = self._mixed(images)
        scores = self.model(images)
        loss = self._loss(scores, labels)
        if mixed:
            loss = share * loss + (1 - share) * self._loss(scores, labels.flip(0))
        self.count_answers("train", loss.sum(), scores, labels)
        return self.regularised(loss.mean())

    def _loss(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of each example by itself."""
        smoothing = self.config.optim.label_smoothing
        return F.cross_entropy(scores, labels, label_smoothing=smoothing, reduction="none")

    def _mixed(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return each image blended with another (mixup), and its share, one half at least."""
        alpha = torch.tensor(float(self.config.data.mixup))
        share = torch.distributions.Beta(alpha, alpha).sample((len(images),)).to(images)
        share = torch.maximum(share, 1 - share)
        return torch.lerp(images.flip(0), images, share[:, None, None, None]), share

    def validation_step(self, batch: Any, step: int) -> None:
        images, labels = batch
        self.count_test(self.model(images), labels)

    def count_test(self, scores: Tensor, labels: Tensor, task: str = "") -> None:
        """Add scores of test examples to the sums."""
        loss = F.cross_entropy(scores, labels, reduction="sum")
        right = self.count_answers("test", loss, scores, labels, task)
        self.of_each.setdefault(task, []).append(right)
        self.answers.setdefault(task, []).append(scores.argmax(1))

    def count_answers(
        self, split: str, loss: Tensor, scores: Tensor, labels: Tensor, task: str = ""
    ) -> Tensor:
        """Add a batch, of which ``loss`` is the sum over examples; return which ones are right."""
        ranked = scores.detach().topk(min(5, scores.shape[1])).indices == labels[:, None]
        self.count(split, task, len(labels), loss, ranked[:, 0].sum(), ranked.any(1).sum())
        return ranked[:, 0]


class AudioClassifier(Classifier):
    """Learns from windows, and is judged on recordings: by the mean score of their windows.

    Args:
        model: makes scores of spectrograms, or with several tasks scores of each by name.
        config, input_size: as for any classifier; the size is (1, frames, channels).
        frontend: makes spectrograms of waves, on the device of the model.
        classes, labels: by task, their number, and that of every recording for evaluation.
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

    def score_windows(self, waves: Tensor) -> dict[str, Tensor]:
        """Return the scores of every window, by task."""
        scores = self.model(self.frontend(waves))
        return scores if isinstance(scores, dict) else dict.fromkeys(self.labels, scores)

    def training_step(self, batch: AudioBatch, step: int) -> Tensor:
        scores = self.score_windows(torch.cat([waves for waves, _ in batch.values()]))
        sizes = [len(labels) for _, labels in batch.values()]
        losses = []
        for i, (task, (_, labels)) in enumerate(batch.items()):
            task_scores = torch.split(scores[task], sizes)[i]
            loss = self._loss(task_scores, labels)
            self.count_answers("train", loss.sum(), task_scores, labels, task)
            losses.append(loss.mean())
        return self.regularised(torch.stack(losses).mean())

    def on_validation_epoch_start(self) -> None:
        super().on_validation_epoch_start()
        # Sums over the windows of each recording; the last column counts them.
        options: Any = dict(dtype=wide(self.device), device=self.device)
        self.scores = {
            task: torch.zeros(len(labels), self.classes[task] + 1, **options)
            for task, labels in self.labels.items()
        }

    def validation_step(self, batch: AudioBatch, step: int) -> None:
        for task, (waves, recordings) in batch.items():
            if len(recordings):  # a process may have no part in the last batch
                scores = self.score_windows(waves)[task].to(wide(self.device))
                counted = torch.cat([scores, torch.ones_like(scores[:, :1])], 1)
                self.scores[task].index_add_(0, recordings, counted)

    def on_validation_epoch_end(self) -> None:
        rank, processes = process()
        for task, sums in self.scores.items():
            sum_over_processes(sums)
            # Each process counts its part of the recordings.
            sums, labels = sums[rank::processes], self.labels[task][rank::processes]
            self.count_test(sums[:, :-1] / sums[:, -1:], labels.to(sums.device), task)
