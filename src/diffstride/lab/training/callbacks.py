"""What happens around training: metrics are written, checkpoints kept."""

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from torch import nn

from diffstride.files import write
from diffstride.lab.runs.config import ModelConfig
from diffstride.lab.runs.documents import STEP_SECONDS, write_rows
from diffstride.lab.runs.run_folder import Run
from diffstride.lab.runs.waiting import say
from diffstride.lab.training.lines import loss_and_score, strides_text
from diffstride.lab.training.step_times import StepTimes
from diffstride.lab.training.stride_monitor import StrideMonitor
from diffstride.layers.resizer import learned_strides


class SmoothnessSchedule(Callback):
    """Changes the smoothness R of all learnable strides evenly from epoch to epoch.

    For any Lightning module: ``Trainer(callbacks=[SmoothnessSchedule(2.0, 0.5)])`` lets strides
    learn with a wide ramp and end with a narrow one.
    """

    def __init__(self, start: float, end: float) -> None:
        self.model = ModelConfig(smoothness=start, smoothness_end=end)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        epochs = trainer.max_epochs or 1
        smoothness = self.model.in_epoch(trainer.current_epoch, epochs).smoothness
        for layer in learned_strides(pl_module).values():
            layer.smoothness = smoothness


class FiniteNumbers(Callback):
    """Ends a training whose numbers are not finite, before anything of the epoch is written."""

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        # Also on test data, and all weights: no loss of training tells of its last step.
        means = pl_module.means()
        for name, split in (("train_loss", "loss"), ("test_loss", "loss on test data")):
            if not math.isfinite(means.get(name, 0.0)):
                raise diverged(f"the {split} became {means[name]}", trainer)
        # Running statistics differ between processes, and all must come to one answer.
        if not trainer.strategy.reduce_boolean_decision(is_finite(pl_module)):
            raise diverged("weights or strides became infinite", trainer)


class RunWriter(Callback):
    """Writes metrics.csv, times.csv and checkpoints of a run after each epoch, and prints a line.

    The last two checkpoints are kept, and the best one. The monitor must come before this callback.
    """

    state_key = "Metrics"  # as in all checkpoints so far

    def __init__(
        self, run: Run, monitor: StrideMonitor, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.run, self.monitor, self.clock = run, monitor, clock
        self.rows: list[dict[str, Any]] = []
        self.times: list[dict[str, Any]] = []
        self.began = 0.0
        self.steps = StepTimes(clock)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # What the checkpoint knows, for files that are damaged or an epoch ahead of it.
        if self.rows:
            self._write(trainer)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.began = self.clock()
        self.steps.begin_epoch()

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if trainer.is_last_batch or self.steps.is_first:  # a GPU may be behind
            wait_for(pl_module.device)
        self.steps.end_step()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        means = pl_module.means()
        epoch = {"epoch": trainer.current_epoch + 1, "step": trainer.global_step}
        rate = trainer.optimizers[0].param_groups[0]["lr"]
        self.rows.append({**epoch, "lr": rate, **means, **self.monitor.totals})
        # Apart from metrics, which are the same in every run of the same config.
        seconds, step = self.clock() - self.began, self.steps.mean()
        self.times.append({**epoch, "seconds": round(seconds, 3), STEP_SECONDS: round(step, 6)})
        for logger in trainer.loggers:
            logger.log_metrics(means, step=trainer.global_step)
        self._write(trainer)
        if trainer.is_global_zero:
            now = loss_and_score(pl_module, means, "train", judged_on="test")
            say(f"epoch {epoch['epoch']:3}  {now}{strides_text(pl_module.model)}")
        path = self.run.checkpoint_file(epoch["epoch"])
        # The best first: who is killed between the two repeats the epoch, and writes both.
        column = pl_module.score.column
        is_best = means[column] >= max(row[column] for row in self.rows)
        trainer.save_checkpoint(self.run.best_file if is_best else path)
        if trainer.is_global_zero:
            if is_best:
                write(path, self.run.best_file.read_bytes())
            for old in self.run.checkpoint_files()[2:]:
                old.unlink()

    def _write(self, trainer: Trainer) -> None:
        if trainer.is_global_zero:
            write_rows(self.run.metrics_file, self.rows)
            write_rows(self.run.times_file, self.times)

    def state_dict(self) -> dict[str, Any]:
        return {"rows": self.rows, "times": self.times}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        # Those of older runs have no time of a step by itself.
        self.rows = list(state_dict["rows"])
        self.times = [
            {**row, STEP_SECONDS: row.get(STEP_SECONDS, "")} for row in state_dict["times"]
        ]


def wait_for(device: torch.device) -> None:
    """Wait until a device has done what it was asked to: a clock is read now."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def is_finite(module: nn.Module) -> bool:
    """Return whether all parameters and buffers of a network are finite."""
    return all(bool(x.isfinite().all()) for x in (*module.parameters(), *module.buffers()))


AFTER_DIVERGENCE = "try a smaller --optim.lr or --optim.stride_lr"
"""What nothing but the error of a training that diverged says."""


def diverged(what: str, trainer: Trainer) -> FloatingPointError:
    """Return the error of a training whose numbers became infinite or no numbers."""
    epoch, advice = trainer.current_epoch + 1, AFTER_DIVERGENCE
    left = "what was learned before is kept" if epoch > 1 else "nothing was learned, no run is left"
    return FloatingPointError(f"{what} in epoch {epoch}: {advice}; {left}")
