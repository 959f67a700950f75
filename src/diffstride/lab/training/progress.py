"""How far a run is: a bar in a terminal; in a log, a line a minute besides those of its epochs."""

import time
from collections.abc import Callable
from typing import Any

from lightning import Callback, Trainer

from diffstride.lab.runs.waiting import Pace, say
from diffstride.lab.training.lines import loss_and_score, strides_text

TESTING = 1 / 3  # what a batch of testing takes of a step, before any was tested


class Progress(Callback):
    """Shows a bar over all epochs with loss, score and strides in a terminal.

    Without a terminal it prints a line when nothing was printed for most of a minute, in training
    and in testing. Short epochs have none: their own line comes before.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.bar: Any = None
        self.pace: Pace | None = None  # of lines, without a terminal
        self.clock = clock
        # How many batches this process has had, and their seconds: of training, of testing.
        self.batches, self.seconds, self.before = [0, 0], [0.0, 0.0], 0.0

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        if not trainer.is_global_zero:
            return
        console = Console()
        if not console.is_terminal:
            self.pace, self.before = Pace(self.clock), self.clock()
            return
        self.bar = Progress(
            TextColumn("epoch {task.fields[epoch]} of " + str(trainer.max_epochs)),
            BarColumn(bar_width=20),
            TimeRemainingColumn(),
            TextColumn("{task.fields[text]}"),
            console=console,
            transient=True,
        )
        self.bar.add_task("", total=int(trainer.estimated_stepping_batches))
        self._show(trainer, "")
        self.bar.start()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self.bar is not None:
            text = loss_and_score(pl_module, pl_module.means(everywhere=False), "train")
            self._show(trainer, text + strides_text(pl_module.model))
        elif self.pace is not None:
            self._count(0)
            if self.pace.due():
                step, steps = batch_idx + 1, int(trainer.num_training_batches)
                left = self._seconds_left(trainer, step, 0)
                self._print(trainer, pl_module, f"step {step} of {steps}", left)

    def on_validation_batch_end(
        self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, *_: Any
    ) -> None:
        if self.pace is not None:
            self._count(1)
            if self.pace.due():
                step, steps = batch_idx + 1, _tests(trainer)
                left = self._seconds_left(trainer, int(trainer.num_training_batches), step)
                self._print(trainer, pl_module, f"testing {step} of {steps}", left)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        if self.pace is not None:  # the epoch has just had its line
            self.pace.restart()
            self.before = self.clock()

    def _count(self, kind: int) -> None:
        now = self.clock()
        self.batches[kind] += 1
        self.seconds[kind] += now - self.before
        self.before = now

    def _seconds_left(self, trainer: Trainer, steps: int, tests: int) -> float:
        """Return what the rest of the run takes if batches take as long as they did so far.

        Of this epoch, so many steps and batches of testing are done.
        """
        epochs = (trainer.max_epochs or 1) - trainer.current_epoch
        step = self.seconds[0] / max(1, self.batches[0])
        test = self.seconds[1] / self.batches[1] if self.batches[1] else TESTING * step
        steps_left = epochs * int(trainer.num_training_batches) - steps
        return steps_left * step + (epochs * _tests(trainer) - tests) * test

    def _print(self, trainer: Trainer, module: Any, where: str, left: float) -> None:
        means = module.means(everywhere=False)
        split = "test" if module.score.column in means else "train"
        epoch = f"epoch {trainer.current_epoch + 1} of {trainer.max_epochs}, {where}"
        so_far = loss_and_score(module, means, split)
        say(f"{epoch}  {so_far} so far  about {left:,.0f} s left")

    def _show(self, trainer: Trainer, text: str) -> None:
        state = {"completed": trainer.global_step, "epoch": trainer.current_epoch + 1}
        self.bar.update(self.bar.task_ids[0], **state, text=text)

    def on_train_end(self, *_: Any, **__: Any) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None

    on_exception = on_train_end


def _tests(trainer: Trainer) -> int:
    """Return how many batches are tested after an epoch."""
    return int(sum(trainer.num_val_batches))
