"""A classifier with learnable strides, for Lightning."""

from collections.abc import Callable
from typing import Any

import torch
from lightning import LightningModule
from torch import Tensor, nn
from torch.nn import functional as F

from diffstride.analysis.budget import fit_budget
from diffstride.analysis.parameter_groups import parameter_groups
from diffstride.analysis.penalty import stride_penalty
from diffstride.lab.runs.config import Config

OPTIMISERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}


class Classifier(LightningModule):
    """Any network that makes scores of images, trained as a config says."""

    def __init__(self, model: nn.Module, config: Config, input_size: tuple[int, ...]) -> None:
        super().__init__()
        self.model = model
        self.config = config
        self.input_size = input_size
        self.sums: dict[str, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)  # type: ignore[no-any-return]

    def on_train_epoch_start(self) -> None:
        # What is random besides batches, dropout for one, follows from seed and epoch as well: a
        # run that is continued at an epoch needs no more than their numbers.
        torch.manual_seed(self.config.seed * 1_000_003 + self.current_epoch)
        self.sums = {}

    def training_step(self, batch: Any, step: int) -> Tensor:
        images, labels = batch
        share = None
        if self.config.data.mixup > 0:
            images, share = self._mixed(images)
        scores = self(images)
        loss = self._loss(scores, labels)
        if share is not None:
            loss = share * loss + (1 - share) * self._loss(scores, labels.flip(0))
        self.count("train", loss.sum(), scores, labels)
        return self.regularised(loss.mean())

    def regularised(self, loss: Tensor) -> Tensor:
        """The loss with what the config makes strides cost in it."""
        if self.config.stride_penalty:
            loss = loss + self.config.stride_penalty * stride_penalty(self.model)
        return loss

    def on_train_batch_end(self, *_: Any) -> None:
        self.keep_budget()

    def keep_budget(self) -> None:
        """Let strides grow until the network costs no more than it may."""
        if self.config.macs_budget is not None:
            fit_budget(self.model, self.input_size, 1e6 * self.config.macs_budget)

    def _loss(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Of each example by itself."""
        smoothing = self.config.optim.label_smoothing
        return F.cross_entropy(scores, labels, label_smoothing=smoothing, reduction="none")

    def _mixed(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Mixup: each image blended with another, and its share of it, one half at least."""
        alpha = torch.tensor(float(self.config.data.mixup))
        share = torch.distributions.Beta(alpha, alpha).sample((len(images),)).to(images)
        share = torch.maximum(share, 1 - share)
        return torch.lerp(images.flip(0), images, share[:, None, None, None]), share

    def on_validation_epoch_start(self) -> None:
        self.sums = {k: v for k, v in self.sums.items() if k.startswith("train")}

    def validation_step(self, batch: Any, step: int) -> None:
        images, labels = batch
        scores = self(images)
        loss = F.cross_entropy(scores, labels, reduction="sum")
        self.count("test", loss, scores, labels)

    def count(
        self, split: str, loss: Tensor, scores: Tensor, labels: Tensor, task: str = ""
    ) -> None:
        """Add up, precisely: the mean must not depend on how batches are shared out.

        Every process counts, also one that has no part in a batch: all must know of the same.
        ``loss`` is the sum over examples.
        """
        n = len(labels)
        ranked = scores.detach().topk(min(5, scores.shape[1])).indices == labels[:, None]
        precise = wide(loss.device)
        numbers = torch.stack([ranked[:, 0].sum(), ranked.any(1).sum(), labels.new_tensor(n)])
        counts = torch.cat([loss.detach().to(precise)[None], numbers.to(precise)])
        key = f"{split}/{task}"
        self.sums[key] = self.sums.get(key, torch.zeros_like(counts)) + counts

    def means(self, everywhere: bool = True) -> dict[str, float]:
        """Loss and accuracies since the beginning of the epoch, over all processes or this one.

        Of several tasks, the mean over tasks, and the accuracy of each by its name.
        """
        keys = sorted(self.sums)
        if not keys:
            return {}
        totals = torch.stack([self.sums[key] for key in keys])
        distributed = torch.distributed
        if everywhere and distributed.is_available() and distributed.is_initialized():
            distributed.all_reduce(totals)
        found: dict[str, dict[str, list[float]]] = {}
        for key, (*sums, n) in zip(keys, totals.tolist(), strict=True):
            split, task = key.split("/", 1)
            if n:
                found.setdefault(split, {})[task] = [total / n for total in sums]
        means = {}
        for split in ("train", "test"):
            tasks = found.get(split, {})
            for i, name in enumerate(("loss", "accuracy", "top5")):
                if tasks:
                    means[f"{split}_{name}"] = sum(m[i] for m in tasks.values()) / len(tasks)
            if len(tasks) > 1:
                means |= {f"{split}_accuracy_{task}": m[1] for task, m in tasks.items()}
        return means

    def configure_optimizers(self) -> Any:
        told = self.config.optim
        groups = parameter_groups(self.model, told.lr, told.weight_decay, stride_lr=told.stride_lr)
        options: dict[str, Any] = {"momentum": told.momentum} if told.name == "sgd" else {}
        optimiser = OPTIMISERS[told.name](groups, **options)
        steps = int(self.trainer.estimated_stepping_batches)
        if told.schedule == "constant":
            return optimiser
        schedule: torch.optim.lr_scheduler.LRScheduler
        if told.schedule == "onecycle":
            schedule = torch.optim.lr_scheduler.OneCycleLR(
                optimiser, [group["lr"] for group in groups], total_steps=steps
            )
        else:
            schedule = torch.optim.lr_scheduler.LambdaLR(
                optimiser, lambda step: self._factor(step, steps)
            )
        return {
            "optimizer": optimiser,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }

    def _factor(self, step: int, steps: int) -> float:
        """What the learning rate is multiplied by at a step of schedule "steps"."""
        told = self.config.optim
        if step < told.warmup_steps:
            return 0.1
        passed = sum(step >= round(part * steps) for part in told.milestones)
        return float(0.1**passed)


def wide(device: torch.device) -> torch.dtype:
    """Double precision, where a device has it."""
    return torch.float32 if device.type == "mps" else torch.float64
