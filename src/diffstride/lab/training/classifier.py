"""Classifiers with learnable strides for Lightning: of images, and of recordings."""

from collections.abc import Mapping
from typing import Any

import torch
from lightning import LightningModule
from torch import Tensor, distributed, nn
from torch.nn import functional as F
from torch.optim import SGD, Adam, AdamW
from torch.optim.lr_scheduler import LambdaLR, OneCycleLR

from diffstride.analysis.budget import Budget
from diffstride.analysis.timings import Timings
from diffstride.analysis.training import parameter_groups, stride_penalty
from diffstride.lab.runs.config import Config
from diffstride.layers.resizer import learned_strides
from diffstride.strides.optimiser import StrideOptimizer

OPTIMISERS: dict[str, Any] = {"sgd": SGD, "adam": Adam, "adamw": AdamW}

STRIDE_LR = 0.01
"""The part of itself by which a stride moves in a step at most, unless the config says another."""

# By task: waves, and their labels in training or the numbers of their recordings in evaluation.
AudioBatch = dict[str, tuple[Tensor, Tensor]]


class Classifier(LightningModule):
    """Trains any network that scores images, as a config says."""

    def __init__(self, model: nn.Module, config: Config, input_size: tuple[int, ...]) -> None:
        super().__init__()
        self.model, self.config, self.input_size = model, config, input_size
        # By split and task: the sums of loss, right answers and top-5 answers; examples.
        self.sums: dict[tuple[str, str], Tensor] = {}
        # By task: of each test example that was counted, whether the first answer is right.
        self.right: dict[str, list[Tensor]] = {}
        self._budget: Budget | None = None
        self.stride_optimiser: StrideOptimizer | None = None
        """Where strides have one of their own."""
        self._stride_state: dict[str, Any] = {}
        self.timings: Timings | None = None
        """For a budget in milliseconds."""

    def on_train_epoch_start(self) -> None:
        # What is random besides batches, dropout for one, follows from seed and epoch as well: a
        # run that is continued at an epoch needs no more than their numbers.
        torch.manual_seed(self.config.seed * 1_000_003 + self.current_epoch)
        self.sums = {}

    def training_step(self, batch: Any, step: int) -> Tensor:
        images, labels = batch
        mixed = self.config.data.mixup > 0
        if mixed:
            images, share = self._mixed(images)
        scores = self.model(images)
        loss = self._loss(scores, labels)
        if mixed:
            loss = share * loss + (1 - share) * self._loss(scores, labels.flip(0))
        self.count("train", loss.sum(), scores, labels, "")
        return self.regularised(loss.mean())

    def regularised(self, loss: Tensor) -> Tensor:
        """Return the loss with the penalty on strides that the config asks for."""
        if self.config.stride_penalty:
            loss = loss + self.config.stride_penalty * stride_penalty(self.model)
        return loss

    def on_train_start(self) -> None:
        if self.config.optim.strides_by == "gradient" and learned_strides(self.model):
            steps, rate = int(self.trainer.estimated_stepping_batches), self.config.optim.stride_lr
            lr = STRIDE_LR if rate is None else rate
            self.stride_optimiser = StrideOptimizer(self.model, lr, steps=steps, budget=self.budget)
            if self._stride_state:
                self.stride_optimiser.load_state_dict(self._stride_state)

    def optimizer_zero_grad(self, *_: Any) -> None:
        self.zero_grad()  # that of strides as well, which no optimiser of Lightning may have

    def on_train_batch_end(self, *_: Any) -> None:
        if self.stride_optimiser is not None:
            self.stride_optimiser.step()
        else:
            self.keep_budget()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if self.stride_optimiser is not None:
            checkpoint["stride_optimiser"] = self.stride_optimiser.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self._stride_state = checkpoint.get("stride_optimiser", {})

    @property
    def budget(self) -> Budget | None:
        """What the config says that the network may cost, if it does."""
        macs, ms = self.config.macs_budget, self.config.ms_budget
        if self._budget is None and not (macs is None and ms is None):
            # Made when it is needed: it can't be sent between processes.
            limit: dict[str, Any] = {"ms": ms, "timings": self.timings}
            if macs is not None:
                limit = {"macs": 1e6 * macs}
            limit["spend"] = self.config.spend
            self._budget = Budget(self.model, self.input_size, **limit)
        return self._budget

    def keep_budget(self) -> None:
        """Bring strides to where the network costs no more than the config allows, or that."""
        if self.budget is not None:
            self.budget.hold()

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

    def on_validation_epoch_start(self) -> None:
        self.sums = {key: sums for key, sums in self.sums.items() if key[0] == "train"}
        self.right = {}

    def validation_step(self, batch: Any, step: int) -> None:
        images, labels = batch
        self.count_test(self.model(images), labels)

    def count_test(self, scores: Tensor, labels: Tensor, task: str = "") -> None:
        """Add scores of test examples to the sums."""
        loss = F.cross_entropy(scores, labels, reduction="sum")
        self.count("test", loss, scores, labels, task)

    # By hand: torchmetrics needs three metrics a split and task, each gathered by itself, and a
    # second way to read them for one process. One reduction here is less code, and precise: means
    # must not depend on how batches are shared out.
    def count(self, split: str, loss: Tensor, scores: Tensor, labels: Tensor, task: str) -> None:
        """Add a batch, of which ``loss`` is the sum over examples, to the sums.

        Every process counts, also one that has no part in a batch: all must have the same keys.
        """
        ranked = scores.detach().topk(min(5, scores.shape[1])).indices == labels[:, None]
        if split == "test":
            self.right.setdefault(task, []).append(ranked[:, 0])
        hits = [ranked[:, 0].sum(), ranked.any(1).sum(), labels.new_tensor(len(labels))]
        sums = torch.stack([number.detach().to(wide(loss.device)) for number in (loss, *hits)])
        self.sums[split, task] = self.sums.get((split, task), torch.zeros_like(sums)) + sums

    def means(self, everywhere: bool = True) -> dict[str, float]:
        """Return loss and accuracies since the epoch began, over all processes or this one.

        With several tasks: the mean over tasks, and the accuracy of each by its name.
        """
        if not self.sums:
            return {}
        keys = sorted(self.sums)
        totals = torch.stack([self.sums[key] for key in keys])
        if everywhere:
            sum_over_processes(totals)
        means = {}
        for split in ("train", "test"):
            tasks = {
                task: [total / examples for total in sums]
                for (of_split, task), (*sums, examples) in zip(keys, totals.tolist(), strict=True)
                if of_split == split and examples
            }
            for i, metric in enumerate(("loss", "accuracy", "top5") if tasks else ()):
                means[f"{split}_{metric}"] = sum(m[i] for m in tasks.values()) / len(tasks)
            if len(tasks) > 1:
                means |= {f"{split}_accuracy_{task}": m[1] for task, m in tasks.items()}
        return means

    def configure_optimizers(self) -> Any:
        optim = self.config.optim
        groups = parameter_groups(
            self.model,
            optim.lr,
            optim.weight_decay,
            stride_lr=optim.stride_lr,
            with_strides=optim.strides_by == "with_weights",
        )
        momentum = {"momentum": optim.momentum} if optim.name == "sgd" else {}
        optimiser = OPTIMISERS[optim.name](groups, **momentum)
        if optim.schedule == "constant":
            return optimiser
        steps = int(self.trainer.estimated_stepping_batches)

        def factor(step: int) -> float:
            """Return what schedule "steps" multiplies the learning rate by."""
            if step < optim.warmup_steps:
                return 0.1
            return float(0.1 ** sum(step >= round(part * steps) for part in optim.milestones))

        schedule: Any
        if optim.schedule == "onecycle":
            schedule = OneCycleLR(optimiser, [group["lr"] for group in groups], total_steps=steps)
        else:
            schedule = LambdaLR(optimiser, factor)
        return {"optimizer": optimiser, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


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

    def score(self, waves: Tensor) -> dict[str, Tensor]:
        """Return the scores of every window, by task."""
        scores = self.model(self.frontend(waves))
        return scores if isinstance(scores, dict) else dict.fromkeys(self.labels, scores)

    def training_step(self, batch: AudioBatch, step: int) -> Tensor:
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
        options: Any = dict(dtype=wide(self.device), device=self.device)
        self.scores = {
            task: torch.zeros(len(labels), self.classes[task] + 1, **options)
            for task, labels in self.labels.items()
        }

    def validation_step(self, batch: AudioBatch, step: int) -> None:
        for task, (waves, recordings) in batch.items():
            if len(recordings):  # a process may have no part in the last batch
                scores = self.score(waves)[task].to(wide(self.device))
                counted = torch.cat([scores, torch.ones_like(scores[:, :1])], 1)
                self.scores[task].index_add_(0, recordings, counted)

    def on_validation_epoch_end(self) -> None:
        rank, processes = process()
        for task, sums in self.scores.items():
            sum_over_processes(sums)
            # Each process counts its part of the recordings.
            sums, labels = sums[rank::processes], self.labels[task][rank::processes]
            self.count_test(sums[:, :-1] / sums[:, -1:], labels.to(sums.device), task)


def wide(device: torch.device) -> torch.dtype:
    """Return double precision, where a device has it."""
    return torch.float32 if device.type == "mps" else torch.float64


def process() -> tuple[int, int]:
    """Return the number of this process, and how many share the training."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


def sum_over_processes(values: Tensor) -> None:
    """Add up a tensor over all processes, in place."""
    if process()[1] > 1:
        distributed.all_reduce(values)
