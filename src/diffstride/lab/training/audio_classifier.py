"""A classifier of recordings, for one task or several at once."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from diffstride.lab.runs.config import Config
from diffstride.lab.training.classifier import Classifier, wide

Batch = dict[str, tuple[Tensor, Tensor]]


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
        """Of every window, by task."""
        found = self.model(self.frontend(waves))
        return found if isinstance(found, dict) else dict.fromkeys(self.labels, found)

    def training_step(self, batch: Batch, step: int) -> Tensor:
        scores = self.score(torch.cat([waves for waves, _ in batch.values()]))
        sizes = [len(labels) for _, labels in batch.values()]
        losses = []
        for i, (name, (_, labels)) in enumerate(batch.items()):
            part = torch.split(scores[name], sizes)[i]
            loss = self._loss(part, labels)
            self.count("train", loss.sum(), part, labels, name)
            losses.append(loss.mean())
        return self.regularised(torch.stack(losses).mean())

    def on_validation_epoch_start(self) -> None:
        super().on_validation_epoch_start()
        # Sums over the windows of each recording; the last column counts them.
        self.scores = {
            name: torch.zeros(
                len(labels), self.classes[name] + 1, dtype=wide(self.device), device=self.device
            )
            for name, labels in self.labels.items()
        }

    def validation_step(self, batch: Batch, step: int) -> None:
        for name, (waves, owners) in batch.items():
            if len(owners):  # a process may have no part in the last batch
                scores = self.score(waves)[name].to(wide(self.device))
                counted = torch.cat([scores, torch.ones_like(scores[:, :1])], 1)
                self.scores[name].index_add_(0, owners, counted)

    def on_validation_epoch_end(self) -> None:
        distributed = torch.distributed
        shared = distributed.is_available() and distributed.is_initialized()
        for name, sums in self.scores.items():
            if shared:
                distributed.all_reduce(sums)
            scores, labels = sums[:, :-1] / sums[:, -1:], self.labels[name].to(sums.device)
            if shared:  # each process counts its part
                part = slice(distributed.get_rank(), None, distributed.get_world_size())
                scores, labels = scores[part], labels[part]
            loss = F.cross_entropy(scores, labels, reduction="sum")
            self.count("test", loss, scores, labels, name)
