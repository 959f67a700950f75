"""What learns by Lightning, whatever its task is: a network whose strides may learn as well."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from lightning import LightningModule
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW
from torch.optim.lr_scheduler import LambdaLR, OneCycleLR

from diffstride.analysis.budget import Budget
from diffstride.analysis.timings import Timings
from diffstride.analysis.training import parameter_groups, stride_penalty
from diffstride.lab.runs.config import Config
from diffstride.lab.runs.scores import score_of
from diffstride.lab.training.processes import sum_over_processes, wide
from diffstride.layers.resizer import learned_strides
from diffstride.strides.optimiser import StrideOptimizer

OPTIMISERS: dict[str, Any] = {"sgd": SGD, "adam": Adam, "adamw": AdamW}

STRIDE_LR = 0.01
"""The part of itself by which a stride moves in a step at most, unless the config says another."""


class Learner(LightningModule):
    """Trains a network as a config says; a class derived from it knows what is asked and counted.

    It says so with the steps of Lightning, which call :meth:`count`.
    """

    measures: ClassVar[Mapping[str, Sequence[str]]]
    """By split, what is counted of each example: the loss, the score, and what there is besides."""

    def __init__(self, model: nn.Module, config: Config, input_size: tuple[int, ...]) -> None:
        super().__init__()
        self.model, self.config, self.input_size = model, config, input_size
        self.score = score_of(config.data.noise)
        """What the network is judged by."""
        # By split and task: the sum of each measure, and last the number of examples.
        self.sums: dict[tuple[str, str], Tensor] = {}
        # By task: the score of each test example that was counted.
        self.of_each: dict[str, list[Tensor]] = {}
        # The same of classifiers: the class that each test example was taken for.
        self.answers: dict[str, list[Tensor]] = {}
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

    def on_validation_epoch_start(self) -> None:
        self.sums = {key: sums for key, sums in self.sums.items() if key[0] == "train"}
        self.of_each, self.answers = {}, {}

    # By hand: torchmetrics needs a metric for each measure, split and task, each gathered by
    # itself, and a second way to read them for one process. One reduction here is less code, and
    # precise: means must not depend on how batches are shared out.
    def count(self, split: str, task: str, number: int, *measures: Tensor) -> None:
        """Add so many examples to the sums, of which these are the sums of each measure.

        Every process counts, also one that has no part in a batch: all must have the same keys.
        """
        numbers = (*measures, torch.tensor(number))
        dtype = wide(measures[0].device)
        sums = torch.stack([x.detach().to(measures[0].device, dtype) for x in numbers])
        self.sums[split, task] = self.sums.get((split, task), torch.zeros_like(sums)) + sums

    def means(self, everywhere: bool = True) -> dict[str, float]:
        """Return the mean of each measure since the epoch began, over all processes or this one.

        With several tasks: the mean over tasks, and the score of each by its name.
        """
        if not self.sums:
            return {}
        keys = sorted(self.sums)
        totals = torch.cat([self.sums[key] for key in keys])
        if everywhere:
            sum_over_processes(totals)
        parts = torch.split(totals, [len(self.sums[key]) for key in keys])
        means = {}
        for split, measures in self.measures.items():
            tasks = {
                task: [total / examples for total in sums]
                for (of_split, task), part in zip(keys, parts, strict=True)
                for *sums, examples in [part.tolist()]
                if of_split == split and examples
            }
            for i, measure in enumerate(measures if tasks else ()):
                means[f"{split}_{measure}"] = sum(m[i] for m in tasks.values()) / len(tasks)
            if len(tasks) > 1:
                means |= {f"{split}_{self.score.name}_{task}": m[1] for task, m in tasks.items()}
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
