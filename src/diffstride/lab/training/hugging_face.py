"""Follows the strides of a network that the ``Trainer`` of transformers trains."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from diffstride.analysis.cost_model import CostModel
from diffstride.analysis.restoring import unwrapped
from diffstride.lab.training.recorded_facts import OURS, input_size
from diffstride.lab.training.recorder import Recorder
from diffstride.lab.training.stride_rows import strides_now

SPEEDS = ("runtime", "samples_per_second", "steps_per_second", "model_preparation_time")
"""What an evaluation measures of itself, and not of the network."""
NAMES = {"loss": "train_loss", "learning_rate": "lr"}
"""What logs of a training are called in the folder of a run."""


class StrideCallback(TrainerCallback):
    """Adds strides and costs to what a ``Trainer`` of transformers logs, and records the training.

    ``Trainer(..., callbacks=[StrideCallback("runs/mine", example)])``. Logs get
    ``strides/<layer>/<axis>`` and, with an example, ``mmacs``, the multiply-accumulates in
    millions; evaluations get them with ``eval_`` before, so that ``metric_for_best_model`` and
    early stopping can follow them. ``trainer.state.log_history`` has them all. With a folder, a
    :class:`Recorder` writes the run there, an epoch at a time, for ``diffstride report``; a
    training that goes on from a checkpoint goes on in its folder.

    The callbacks of ``report_to`` come before those that a trainer is given, and do not see what
    this one adds, unless it is put first: ``docs/your_training.md`` shows how.

    Args:
        folder: of the run, new, empty or that of the training to go on with; without it, nothing
            is recorded.
        example: a batch for the network, or the size of one example, (channels, *spatial).
        options: those of :class:`Recorder`, such as ``settings`` and ``judged_by``.

    >>> from transformers import EarlyStoppingCallback
    >>> follow = StrideCallback("runs/mine", (3, 224, 224), settings={"data": "my photographs"})
    >>> callbacks = [follow, EarlyStoppingCallback(early_stopping_patience=3)]  # in this order
    """

    def __init__(
        self,
        folder: str | Path | None = None,
        example: Tensor | Sequence[int] | None = None,
        **options: Any,
    ) -> None:
        self.folder, self.options = folder, options
        self.size = None if example is None else input_size(example)
        self.recorder: Recorder | None = None
        self._costs: CostModel | None = None
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        self._losses: list[tuple[int, float]] = []  # each with the steps that it is the mean of
        self._others: dict[str, float] = {}
        self._ended: int | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **known: Any
    ) -> None:
        self._logged = state.global_step
        self._begin_epoch()
        if self.folder is None or not state.is_world_process_zero:
            return
        optimizer = known.get("optimizer")
        optimizer = getattr(optimizer, "optimizer", optimizer)  # within accelerate's, without hooks
        options: dict[str, Any] = {"optimizer": () if optimizer is None else optimizer}
        if args.max_steps <= 0:
            options["epochs"] = math.ceil(args.num_train_epochs)
        self.recorder = Recorder(self.folder, known["model"], self.size, **options | self.options)

    def on_epoch_begin(self, *_: Any, **__: Any) -> None:
        self._begin_epoch()

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **known: Any
    ) -> None:
        logs: dict[str, Any] | None = known.get("logs")
        if logs is None or "train_runtime" in logs or any(name[:5] == "eval_" for name in logs):
            return  # the summary at the end, or an evaluation, of which on_evaluate hears
        if "loss" in logs:
            self._losses.append((max(1, state.global_step - self._logged), logs["loss"]))
            self._logged = state.global_step
        self._keep({NAMES.get(k, k): v for k, v in logs.items() if k not in ("loss", "epoch")})
        found = self._now(known["model"])
        logs |= found
        state.log_history[-1] |= found

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **known: Any
    ) -> None:
        metrics: dict[str, Any] | None = known.get("metrics")
        if metrics is None:
            return
        self._keep({k: v for k, v in metrics.items() if k[:5] == "eval_" and k[5:] not in SPEEDS})
        found = {f"eval_{name}": value for name, value in self._now(known["model"]).items()}
        metrics |= found
        state.log_history[-1] |= found

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self._ended = max(1, math.ceil((state.epoch or 0) - 1e-3))
        self._keep({})

    def on_train_end(self, *_: Any, **__: Any) -> None:
        if self.recorder is not None:
            self.recorder.close()
            self.recorder = None

    def _keep(self, found: dict[str, Any]) -> None:
        """Keep what was logged in an epoch; from its end on, write it at once."""
        self._others |= {
            k: float(v) for k, v in found.items() if isinstance(v, int | float) and k not in OURS
        }
        if self.recorder is None or self._ended is None:
            return
        if self._losses:
            steps = sum(number for number, _ in self._losses)
            self._others["train_loss"] = sum(n * loss for n, loss in self._losses) / steps
        self.recorder.log(self._ended, **self._others)

    def _now(self, model: nn.Module) -> dict[str, float]:
        """Return the strides of the network as they are, and what it costs."""
        network = unwrapped(model)
        if self.size is not None and (self._costs is None or self._costs.model is not network):
            self._costs = CostModel(network, self.size)
        rates = () if self.size is None else (1.0,) * (len(self.size) - 1)
        found = strides_now(network, self._costs, rates).metrics
        return {k: v for k, v in found.items() if k.partition("/")[0] in ("strides", "mmacs")}
