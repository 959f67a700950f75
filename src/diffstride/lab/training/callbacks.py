"""What happens around training: strides are followed, metrics written, checkpoints kept."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from torch import nn
from torch.optim import Optimizer

from diffstride.analysis.cost_model import CostModel
from diffstride.analysis.stride_table import cutoffs, savings
from diffstride.analysis.training import stride_penalty
from diffstride.core.arguments import per_axis
from diffstride.files import write
from diffstride.lab.runs.config import ModelConfig
from diffstride.lab.runs.documents import STEP_SECONDS, STRIDE_COLUMNS, write_rows
from diffstride.lab.runs.run_folder import Run
from diffstride.lab.runs.waiting import say
from diffstride.lab.training.lines import loss_and_score, strides_text
from diffstride.lab.training.loss_gradients import LossGradients
from diffstride.layers.resizer import learned_strides

LOGGED = {name: name for name in ("cost_saved", "loss_gradient", "cutoff")} | {"stride": "strides"}
"""The columns of strides.csv that loggers get, and what they call them."""


class StrideMonitor(Callback):
    """Logs every stride of a module, what it makes of the size, what it costs and what it buys.

    For any Lightning module: ``Trainer(callbacks=[StrideMonitor(input_size=(3, 32, 32))])``. At the
    end of each epoch loggers get ``strides/<layer>/<axis>`` and its ``loss_gradient``,
    ``stride_penalty`` and, if the size of one example is given, what one per cent more of each
    stride saves, ``cost_saved``, up to which frequency everything passes this layer and all before
    it, ``cutoff``, and the ``mmacs`` of the network.

    The gradient of the loss is S·∂loss/∂S, its mean over the steps of the epoch: one per cent more
    of a stride changes the loss by a hundredth of it. It is that of the whole loss, with all
    penalties, as it is before gradients are clipped; over all batches of a step and all processes.

    Args:
        input_size: of one example, (channels, *spatial); for sizes and costs.
        path: a CSV file to keep up to date: epoch, step, layer, axis, stride, sizes in and out,
            cost saved, gradient of the loss and its standard error, cut-off. Axes that share a
            stride have the three before the last together, in the line of the first axis.
        sampling_rate: of an example, one number or one for each axis; cut-offs are in its unit, and
            in cycles per sample without it.
    """

    def __init__(
        self,
        input_size: tuple[int, ...] | None = None,
        path: str | Path | None = None,
        *,
        sampling_rate: float | Sequence[float] | None = None,
    ) -> None:
        self.input_size, self.path = input_size, path
        axes, rate = len(input_size or ()) - 1, 1.0 if sampling_rate is None else sampling_rate
        self.rates = per_axis(rate, axes, "sampling_rate") if input_size else ()
        self.rows: list[dict[str, Any]] = []
        self.totals: dict[str, float] = {}  # what was logged last, without strides
        self.gradients = LossGradients()

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.rows:
            self._write(trainer)
        else:  # the strides before the first step
            self._log(trainer, pl_module, epoch=0)

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer
    ) -> None:
        self.gradients.add(_network(pl_module), optimizer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._log(trainer, pl_module, epoch=trainer.current_epoch + 1)
        self.gradients = LossGradients()

    def _log(self, trainer: Trainer, module: LightningModule, epoch: int) -> None:
        network = _network(module)
        self.totals = {"stride_penalty": stride_penalty(network).item()}
        sizes, saved, lets_pass = {}, {}, {}
        if self.input_size is not None:
            costs = CostModel(network, self.input_size)
            now, saved = costs.at(), savings(costs)
            lets_pass = cutoffs(now, self.input_size, self.rates)
            self.totals["mmacs"] = now.macs / 1e6
            for use in reversed(now.layers):  # of a layer used twice, the first time
                sizes[use.name] = (use.input_size, use.output_size)
        metrics, gradients = dict(self.totals), self.gradients.means()
        for name, layer in learned_strides(network).items():
            for axis, stride in enumerate(layer.strides):
                row = {"epoch": epoch, "step": trainer.global_step, "layer": name, "axis": axis}
                found: dict[str, Any] = {"stride": stride}
                if name in sizes:
                    found["input_size"], found["output_size"] = (n[axis] for n in sizes[name])
                for frequency in lets_pass.get(name, ())[axis : axis + 1]:
                    found["cutoff"] = frequency
                for percent in saved.get(name, ())[axis : axis + 1]:
                    found["cost_saved"] = percent
                for mean, error in gradients.get(name, ())[axis : axis + 1]:
                    found |= {"loss_gradient": mean, "loss_gradient_error": error}
                self.rows.append(_row(row | found))
                for column, prefix in LOGGED.items():
                    if column in found:
                        metrics[f"{prefix}/{name}/{axis}"] = found[column]
        for logger in trainer.loggers:
            logger.log_metrics(metrics, step=trainer.global_step)
        self._write(trainer)

    def _write(self, trainer: Trainer) -> None:
        if self.path is not None and trainer.is_global_zero:
            write_rows(Path(self.path), self.rows)

    def state_dict(self) -> dict[str, Any]:
        # The sums are empty at the end of an epoch, and not in a checkpoint from within one.
        return {"rows": self.rows, "gradients": self.gradients.sums}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.rows = list(map(_row, state_dict["rows"]))  # older ones had fewer columns
        self.gradients.sums = dict(state_dict.get("gradients", {}))


def _network(module: LightningModule) -> nn.Module:
    network: nn.Module = getattr(module, "model", module)
    return network


def _row(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of strides.csv, with empty cells for what was not found."""
    return dict.fromkeys(STRIDE_COLUMNS, "") | {k: v for k, v in found.items() if v is not None}


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


class StepTimes:
    """The mean time of the training steps of an epoch: no evaluation, no writing of files.

    A step lasts from the end of the one before to its own end, the making of its batch included.
    The first one of a process also loads code, allocates memory and starts threads: unless it is
    the only one of its epoch, it does not count.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.is_first = clock, True
        self.begin_epoch()

    def begin_epoch(self) -> None:
        self.began, self.ended, self.number = self.clock(), 0.0, 0
        self.first: float | None = None

    def end_step(self) -> None:
        self.ended, self.number = self.clock(), self.number + 1
        if self.is_first:
            self.is_first, self.first = False, self.ended

    def mean(self) -> float:
        """Return the seconds of a step of this epoch; it must have had one."""
        if self.first is not None and self.number > 1:
            return (self.ended - self.first) / (self.number - 1)
        return (self.ended - self.began) / self.number


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
