"""Follows the strides of any Lightning module while it trains."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lightning import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torch.optim import Optimizer

from diffstride.analysis.cost_model import CostModel
from diffstride.core.arguments import per_axis
from diffstride.lab.runs.documents import write_rows
from diffstride.lab.training.loss_gradients import LossGradients
from diffstride.lab.training.recorded_facts import OURS
from diffstride.lab.training.recorder import Recorder
from diffstride.lab.training.stride_rows import StridesNow, stride_row, strides_now
from diffstride.layers.resizer import learned_strides


class StrideMonitor(Callback):
    """Logs every stride of a module, what it makes of the size, what it costs and what it buys.

    For any Lightning module: ``Trainer(callbacks=[StrideMonitor(input_size=(3, 32, 32))])``. At the
    end of each epoch Lightning logs ``strides/<layer>/<axis>`` and its ``loss_gradient``,
    ``stride_penalty`` and, if the size of one example is known, what one per cent more of each
    stride saves, ``cost_saved``, up to which frequency everything passes this layer and all before
    it, ``cutoff``, and ``mmacs``, the multiply-accumulates of the network in millions.

    All of these are in ``trainer.logged_metrics`` and ``trainer.callback_metrics``, so that
    checkpoints and early stopping can follow them: ``ModelCheckpoint(monitor="mmacs")``. They are
    also there at the end of a validation, for callbacks that look then.

    The gradient of the loss is S·∂loss/∂S, its mean over the steps of the epoch: one per cent more
    of a stride changes the loss by a hundredth of it. It is that of the whole loss, with all
    penalties, as it is before gradients are clipped; over all batches of a step and all processes.

    Args:
        input_size: of one example, (channels, *spatial), for sizes and costs; that of the module's
            ``example_input_array`` unless given.
        path: a CSV file to keep up to date: epoch, step, layer, axis, stride, sizes in and out,
            cost saved, gradient of the loss and its standard error, cut-off. Axes that share a
            stride have the three before the last together, in the line of the first axis.
        sampling_rate: of an example, one number or one for each axis; cut-offs are in its unit, and
            in cycles per sample without it.
        folder: of a run, which a :class:`diffstride.lab.Recorder` writes for ``diffstride report``,
            with all that was logged of an epoch: new, empty, or that of a training to go on with.
        options: those of the recorder, such as ``settings`` and ``judged_by``.

    >>> from lightning import Trainer
    >>> monitor = StrideMonitor(input_size=(3, 32, 32), path="strides.csv")
    >>> trainer = Trainer(callbacks=[monitor], logger=False, enable_checkpointing=False)
    """

    def __init__(
        self,
        input_size: tuple[int, ...] | None = None,
        path: str | Path | None = None,
        *,
        sampling_rate: float | Sequence[float] | None = None,
        folder: str | Path | None = None,
        **options: Any,
    ) -> None:
        self.input_size, self.path, self.sampling_rate = input_size, path, sampling_rate
        if input_size is not None:
            self._rates(input_size)
        self.rows: list[dict[str, Any]] = []
        self.totals: dict[str, float] = {}  # what was logged last, without strides
        self.gradients = LossGradients()
        self.folder, self.options = folder, options
        self.recorder: Recorder | None = None
        self._recorded: dict[str, Tensor] = {}  # the metrics that the recorder has
        self._known: tuple[tuple[int, int], StridesNow] | None = None
        """At which epoch and step strides were looked at last, and what was found."""

    def _rates(self, input_size: Sequence[int]) -> tuple[float, ...]:
        rate = 1.0 if self.sampling_rate is None else self.sampling_rate
        return per_axis(rate, len(input_size) - 1, "sampling_rate")

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.rows:
            self._write(trainer)
        else:  # the strides before the first step, which Lightning has no place for
            metrics = self._add(trainer, pl_module, epoch=0).metrics
            for logger in trainer.loggers:
                logger.log_metrics(metrics, step=trainer.global_step)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.folder is not None:
            epochs = trainer.max_epochs if (trainer.max_epochs or 0) > 0 else None
            options = {"optimizer": trainer.optimizers, "epochs": epochs} | self.options
            options["sampling_rate"] = self.sampling_rate
            size = self._size(pl_module)
            self.recorder = Recorder(self.folder, _network(pl_module), size, **options)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._record(trainer, trainer.current_epoch)  # what the module logged after this callback

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._record(trainer, trainer.current_epoch)
        self._close()

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        self._close()

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer
    ) -> None:
        self.gradients.add(_network(pl_module), optimizer)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # For those that monitor the end of a validation; loggers get it at the end of the epoch.
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._log(pl_module, self._now(trainer, pl_module, trainer.current_epoch + 1), False)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._log(pl_module, self._add(trainer, pl_module, trainer.current_epoch + 1), True)
        if self.recorder is not None:
            self.recorder.gradients = self.gradients
            self._record(trainer, trainer.current_epoch + 1, begins=True)
        self.gradients = LossGradients()

    def _add(self, trainer: Trainer, module: LightningModule, epoch: int) -> StridesNow:
        """Add the strides to those of the file."""
        now = self._now(trainer, module, epoch)
        self.totals = now.totals
        self.rows += now.rows
        self._write(trainer)
        return now

    def _now(self, trainer: Trainer, module: LightningModule, epoch: int) -> StridesNow:
        moment = (epoch, trainer.global_step)
        if self._known is None or self._known[0] != moment:
            self._known = moment, self._look(module, *moment)
        return self._known[1]

    def _look(self, module: LightningModule, epoch: int, step: int) -> StridesNow:
        network, size = _network(module), self._size(module)
        costs, rates = (None, ()) if size is None else (CostModel(network, size), self._rates(size))
        means = self.gradients.means()
        return strides_now(network, costs, rates, means, epoch=epoch, step=step)

    def _size(self, module: LightningModule) -> tuple[int, ...] | None:
        """Return the size of one example, if it is known."""
        example = module.example_input_array
        if self.input_size is None and isinstance(example, Tensor):
            return tuple(example.shape[1:])
        return self.input_size

    def _record(self, trainer: Trainer, epoch: int, begins: bool = False) -> None:
        """Record what was logged since the last time; only a call that begins an epoch adds it."""
        if self.recorder is None or not (begins or self.recorder.logged == epoch > 0):
            return
        found = dict(trainer.callback_metrics)
        # What was not logged again, such as a validation of an earlier epoch, is the same tensor.
        new = {name: x for name, x in found.items() if x is not self._recorded.get(name)}
        self._recorded = found
        ours = self._known[1].metrics if self._known else {}
        parts = [f"{name}_{part}" for name in found for part in ("step", "epoch")]
        metrics = {name: x for name, x in new.items() if name not in (*OURS, *ours, *parts)}
        self.recorder.log(epoch, **metrics)

    def _close(self) -> None:
        if self.recorder is not None:
            self.recorder.close()
            self.recorder = None

    def _log(self, module: LightningModule, now: StridesNow, logger: bool) -> None:
        # All processes have the same numbers; the mean of these is what Lightning wants to be told.
        several = module.trainer.world_size > 1
        options: dict[str, Any] = {"on_step": False, "on_epoch": True, "batch_size": 1}
        with warnings.catch_warnings():
            # Without a logger they are in logged_metrics all the same.
            warnings.filterwarnings("ignore", ".*no logger configured")
            module.log_dict(now.metrics, logger=logger, sync_dist=several, **options)

    def _write(self, trainer: Trainer) -> None:
        if self.path is not None and trainer.is_global_zero:
            write_rows(Path(self.path), self.rows)

    def state_dict(self) -> dict[str, Any]:
        # The sums are empty at the end of an epoch, and not in a checkpoint from within one.
        return {"rows": self.rows, "gradients": self.gradients.sums}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.rows = list(map(stride_row, state_dict["rows"]))  # older ones had fewer columns
        self.gradients.sums = dict(state_dict.get("gradients", {}))


def _network(module: LightningModule) -> nn.Module:
    """Return the network of a module: what it calls so, if all learned strides are in there."""
    network = getattr(module, "model", None)
    if not isinstance(network, nn.Module):
        return module
    inside = set(learned_strides(network).values())
    return network if inside >= set(learned_strides(module).values()) else module
