"""What happens around training: strides are followed, metrics written, checkpoints kept."""

import math
import os
import sys
import time
from pathlib import Path
from typing import Any

from lightning import Callback, LightningModule, Trainer
from torch import nn

from diffstride.analysis.cost import cost
from diffstride.analysis.penalty import stride_penalty
from diffstride.files import write
from diffstride.lab.runs.documents import write_rows
from diffstride.lab.runs.run_folder import Run
from diffstride.layers import DiffStrideNd


class StrideMonitor(Callback):
    """Logs every stride of a module, and what it makes of the size, at the end of each epoch.

    For any Lightning module: ``Trainer(callbacks=[StrideMonitor(input_size=(3, 32, 32))])``.
    Loggers get ``strides/<layer>/<axis>``, ``stride_penalty`` and, if the size of one example is
    given, the ``mmacs`` of the network.

    Args:
        input_size: of one example, (channels, *spatial); for sizes and costs.
        path: a CSV file to keep up to date: epoch, step, layer, axis, stride, sizes in and out.
    """

    def __init__(
        self, input_size: tuple[int, ...] | None = None, path: str | Path | None = None
    ) -> None:
        self.input_size = input_size
        self.path = None if path is None else Path(path)
        self.rows: list[dict[str, Any]] = []

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not self.rows:  # the strides before the first step
            self._note(trainer, pl_module, epoch=0)
        else:
            self._write(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._note(trainer, pl_module, epoch=trainer.current_epoch + 1)

    def _note(self, trainer: Trainer, module: LightningModule, epoch: int) -> None:
        network = getattr(module, "model", module)
        sizes, metrics = self._sizes(network)
        for name, layer in network.named_modules():
            if not isinstance(layer, DiffStrideNd):
                continue
            size_in, size_out = sizes.get(name, ((), ()))
            for axis, stride in enumerate(layer.strides):
                metrics[f"strides/{name}/{axis}"] = stride
                self.rows.append(
                    {
                        "epoch": epoch,
                        "step": trainer.global_step,
                        "layer": name,
                        "axis": axis,
                        "stride": stride,
                        "input_size": size_in[axis] if size_in else "",
                        "output_size": size_out[axis] if size_out else "",
                    }
                )
        metrics["stride_penalty"] = stride_penalty(network).item()
        for logger in trainer.loggers:
            logger.log_metrics(metrics, step=trainer.global_step)
        self._write(trainer)

    def _write(self, trainer: Trainer) -> None:
        if self.path is not None and trainer.is_global_zero:
            write_rows(self.path, self.rows)

    def _sizes(self, network: nn.Module) -> tuple[dict[str, Any], dict[str, float]]:
        if self.input_size is None:
            return {}, {}
        found = cost(network, self.input_size)
        sizes = {use.name: (use.input_size, use.output_size) for use in reversed(found.layers)}
        return sizes, {"mmacs": found.macs / 1e6}

    def state_dict(self) -> dict[str, Any]:
        return {"rows": self.rows}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.rows = list(state_dict["rows"])


class Metrics(Callback):
    """Writes a line an epoch to metrics.csv, and shows it; how long it took to times.csv."""

    def __init__(self, path: Path, input_size: tuple[int, ...]) -> None:
        self.path = path
        self.input_size = input_size
        self.rows: list[dict[str, Any]] = []
        self.times: list[dict[str, Any]] = []
        self.began = 0.0

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # What the checkpoint knows, for files that are damaged or an epoch ahead of it.
        if self.rows:
            self._write(trainer)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.began = time.monotonic()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        means = pl_module.means()
        if not math.isfinite(means["train_loss"]):
            # Before anything of this epoch is written: what is kept can be continued.
            raise exploded(f"the loss became {means['train_loss']}", trainer)
        row = {
            "epoch": trainer.current_epoch + 1,
            "step": trainer.global_step,
            "lr": trainer.optimizers[0].param_groups[0]["lr"],
            **means,
            "stride_penalty": stride_penalty(pl_module.model).item(),
            "mmacs": cost(pl_module.model, self.input_size).macs / 1e6,
        }
        self.rows.append(row)
        for logger in trainer.loggers:
            logger.log_metrics(means, step=trainer.global_step)
        # Apart from metrics, which are the same whenever the same is trained.
        seconds = round(time.monotonic() - self.began, 3)
        self.times.append({"epoch": row["epoch"], "step": row["step"], "seconds": seconds})
        self._write(trainer)
        if trainer.is_global_zero:
            try:
                print(self.line(row, pl_module.model), flush=True)
            except BrokenPipeError:  # nobody reads any more: train on
                sys.stdout = Path(os.devnull).open("w")

    def _write(self, trainer: Trainer) -> None:
        if trainer.is_global_zero:
            write_rows(self.path, self.rows)
            write_rows(self.path.with_name("times.csv"), self.times)

    @staticmethod
    def line(row: dict[str, Any], model: nn.Module) -> str:
        strides = strides_of(model)
        return (
            f"epoch {row['epoch']:3}  loss {row['train_loss']:.3f}  "
            f"accuracy {row['test_accuracy']:.2%}" + (f"  strides {strides}" if strides else "")
        )

    def state_dict(self) -> dict[str, Any]:
        return {"rows": self.rows, "times": self.times}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.rows, self.times = list(state_dict["rows"]), list(state_dict["times"])


class Checkpoints(Callback):
    """Keeps the last two epochs and the best one; a file is there whole or not at all."""

    def __init__(self, run: Run, metrics: Metrics) -> None:
        self.run = run
        self.metrics = metrics

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # Comes after Metrics in the list of callbacks, so that its last line is in the file.
        accuracies = [row["test_accuracy"] for row in self.metrics.rows]
        own = self.run.checkpoint_file(trainer.current_epoch + 1)
        # The best first: who is killed between the two repeats the epoch, and writes both.
        best = accuracies[-1] >= max(accuracies)
        trainer.save_checkpoint(self.run.best_file if best else own)
        if not trainer.is_global_zero:
            return
        if best:
            write(own, self.run.best_file.read_bytes())
        for old in self.run.checkpoint_files()[2:]:
            old.unlink()


class Progress(Callback):
    """A bar over the whole run with loss, accuracy and strides; only where somebody looks."""

    def __init__(self) -> None:
        self.bar: Any = None
        self.task: Any = None

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console()
        if not (trainer.is_global_zero and console.is_terminal):
            return
        self.bar = Progress(
            TextColumn("epoch {task.fields[epoch]} of " + str(trainer.max_epochs)),
            BarColumn(bar_width=20),
            TimeRemainingColumn(),
            TextColumn("{task.fields[text]}"),
            console=console,
            transient=True,
        )
        done, total = trainer.global_step, int(trainer.estimated_stepping_batches)
        epoch = trainer.current_epoch + 1
        self.task = self.bar.add_task("", total=total, completed=done, epoch=epoch, text="")
        self.bar.start()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self.bar is None:
            return
        found = pl_module.means(everywhere=False)
        text = f"loss {found['train_loss']:.3f}  accuracy {found['train_accuracy']:.1%}"
        if strides := strides_of(pl_module.model):
            text += f"  strides {strides}"
        epoch = trainer.current_epoch + 1
        self.bar.update(self.task, completed=trainer.global_step, epoch=epoch, text=text)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._stop()

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        self._stop()

    def _stop(self) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None


def strides_of(model: nn.Module) -> str:
    """All strides of a network in a line."""
    return ", ".join(
        "×".join(f"{s:.2f}" for s in layer.strides)
        for layer in model.modules()
        if isinstance(layer, DiffStrideNd)
    )


def exploded(what: str, trainer: Trainer) -> FloatingPointError:
    """The error of a training that went astray."""
    epoch = trainer.current_epoch + 1
    left = "what was learned before is kept" if epoch > 1 else "nothing was learned, no run is left"
    return FloatingPointError(
        f"{what} in epoch {epoch}: try a smaller --optim.lr or --optim.stride_lr; {left}"
    )
