"""Records any training in plain PyTorch: its folder is that of a run, and reports read it."""

import contextlib
import time
import warnings
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from diffstride.analysis.cost_model import CostModel
from diffstride.analysis.restoring import unwrapped
from diffstride.lab.runs.documents import STEP_SECONDS
from diffstride.lab.runs.lock import locked
from diffstride.lab.runs.recorded_folder import RecordedRun
from diffstride.lab.training.environment import describe_environment
from diffstride.lab.training.loss_gradients import LossGradients
from diffstride.lab.training.processes import process
from diffstride.lab.training.recorded_facts import (
    check_installed,
    facts,
    input_size,
    known,
    number,
    optimizers,
)
from diffstride.lab.training.step_times import StepTimes
from diffstride.lab.training.stride_rows import StridesNow, strides_now
from diffstride.layers.resizer import learned_strides, resizers

USUAL = ("ramp", "fourier", "down")
"""The window, the basis and the way that the report can draw."""
WHOLE = "model"
"""What a site is called that is a whole network."""
_OPEN: "weakref.WeakValueDictionary[Path, Recorder]" = weakref.WeakValueDictionary()


class Recorder:
    """Writes the folder of a run from a training loop of your own, for ``diffstride report``.

    After each call of :meth:`log` the folder has the metrics that were given, every stride, what
    it makes of the size, what it costs, and how long the epoch took. Files are written whole or not
    at all: a training that is stopped loses the epoch in progress at most. A second recorder of the
    same folder goes on behind the last epoch there. Of several processes that train together, the
    first writes. It needs the extra ``report``, and no Lightning.

    Args:
        folder: of the run: new, empty, or that of a recording to go on with.
        model: any network, with learnable strides or without; it is left as it is.
        example: a batch for the network, or the size of one example, (channels, *spatial); for
            sizes, costs and cut-offs, which are left out without it.
        optimizer: the optimiser of the model, or all of them. With it the recorder counts steps,
            times them, and follows what more of each stride would do to the loss, by gradients as
            the optimiser gets them; not if its ``step`` is given a closure, which makes them.
        epochs: how many there will be, if that is known.
        judged_by: the metric that the report puts first, such as ``"val_f1"``; unless given, an
            accuracy on test or validation data if there is one, or else what is most like it.
        settings: anything to be listed in the report: ``{"lr": 0.1, "data": "my photographs"}``.
        sampling_rate: of an example, one number or one for each axis; cut-offs are in its unit, and
            in cycles per pixel or sample without it.
        units: of the cut-offs with a sampling rate, a word or one for each axis: ``"Hz"``.
        axes: the name of each axis: time, or depth, height and width, unless given.

    Raises:
        ValueError: if the folder has other files, or a recording of another network.
        ModuleNotFoundError: if the extra ``report`` is not installed.

    >>> import tempfile, torch
    >>> from diffstride import DiffStride2d
    >>> model, folder = nn.Sequential(DiffStride2d(2.0), nn.Conv2d(1, 4, 3)), tempfile.mkdtemp()
    >>> with Recorder(folder, model, torch.rand(8, 1, 16, 16)) as recorder:
    ...     for loss in (0.9, 0.5):
    ...         recorder.log(train_loss=loss, val_accuracy=0.75)
    >>> print((Path(folder) / "metrics.csv").read_text().strip())
    epoch,step,train_loss,val_accuracy,stride_penalty,mmacs
    1,,0.9,0.75,0.25,0.015248
    2,,0.5,0.75,0.25,0.015248
    """

    def __init__(
        self,
        folder: str | Path,
        model: nn.Module,
        example: Tensor | Sequence[int] | None = None,
        *,
        optimizer: Optimizer | Sequence[Optimizer] = (),
        epochs: int | None = None,
        judged_by: str | None = None,
        settings: Mapping[str, Any] | None = None,
        sampling_rate: float | Sequence[float] | None = None,
        units: str | Sequence[str] | None = None,
        axes: Sequence[str] | None = None,
    ) -> None:
        check_installed()
        self.model = unwrapped(model)
        self.folder = Path(folder).expanduser()
        self._costs = None if example is None else CostModel(self.model, input_size(example))
        sites = learned_strides(self.model)
        size = None if self._costs is None else self._costs.input_size
        first = next(iter(sites.values()), None)
        count = len(size) - 1 if size else first.axes if first else 2
        self._sites = {name: layer for name, layer in sites.items() if layer.axes == count}
        if others := [name for name in sites if name not in self._sites]:
            wrong = f"strides of {', '.join(others)} are not recorded: the data have"
            warnings.warn(f"{wrong} {count} axes, and these layers have not", stacklevel=2)
        data, self._rates = facts(size, sampling_rate, units, axes)
        self._known = known(epochs, judged_by, settings)
        followed = optimizers(optimizer)
        self.gradients, self._times, self._began = LossGradients(), StepTimes(), time.monotonic()
        self._counts, self._taken, self._step_before = bool(followed), 0, 0
        self.logged, self._last_before = 0, 0
        """The last epoch that this recorder was given; 0 before the first."""
        self._is_open, self._writes = True, process()[0] == 0
        self._end = contextlib.ExitStack()
        self._run = RecordedRun(self.folder)
        if self._writes:
            self._open(data)
        for i, each in enumerate(followed):
            self._follow(each, counts=i == 0)

    def _open(self, data: Mapping[str, Any]) -> None:
        place = self.folder.resolve()
        if (before := _OPEN.get(place)) is not None:  # a cell of a notebook that is run again
            before.close()
        with contextlib.ExitStack() as stack:
            if not self.folder.is_file():  # which reading refuses
                stack.enter_context(locked(self.folder))
            self._run.read()
            self._last_before = self._run.last_epoch
            sites = [(name or WHOLE, i) for name, x in self._sites.items() for i in range(x.axes)]
            self._run.check_same(sites, data)
            self._config = self._describe()
            self._run.write_known(self._config, data, describe_environment())
            if not self._run.stride_rows:
                self._run.stride_rows = self._look(0).rows
                self._run.write_tables()
            self._end = stack.pop_all()
        _OPEN[place] = self

    def _follow(self, optimizer: Optimizer, counts: bool) -> None:
        """Look at the gradients that an optimiser gets, and at the time that its steps take."""

        def before(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            # A closure makes the gradients only now. The first argument is the optimiser.
            if all(closure is None for closure in (*args[1:], *kwargs.values())):
                self.gradients.add(self.model, optimizer)

        def after(*_: Any) -> None:
            self._taken += 1
            self._times.end_step()

        self._end.callback(optimizer.register_step_pre_hook(before).remove)
        if counts:
            self._end.callback(optimizer.register_step_post_hook(after).remove)

    def log(self, epoch: int | None = None, **metrics: float | Tensor) -> None:
        """Add an epoch that is done, with any metrics; or add metrics to the epoch added last.

        Names that begin with ``train_`` are drawn beside those that begin with ``val_`` or
        ``test_``. Accuracies are parts of 1, or all in per cent. Strides are those of the first
        call for an epoch.

        Args:
            epoch: how many epochs are done, so that the first is 1; one more than before unless
                given. The first call may go back to an epoch that is in the folder already, as a
                training does that goes on from a checkpoint: what came after it is forgotten.
            metrics: numbers by name.
        """
        if not self._is_open:
            raise ValueError(f"the recorder of {self.folder} is closed: make another one to go on")
        epoch = self._next(epoch)
        given = {name: number(name, value) for name, value in metrics.items()}
        run = self._run
        if not self._writes:
            pass
        elif epoch == self.logged:
            run.metric_rows[-1] |= given
            run.write_tables()
        else:
            self._add(epoch, given)
        self.logged = epoch

    def _next(self, epoch: int | None) -> int:
        """Return the number of the epoch that is logged."""
        if epoch is None:
            return (self.logged or self._last_before) + 1
        if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch < 1:
            count = "how many epochs are done, from 1 on"
            advice = "in a loop over range(n) it is epoch + 1, or leave it out"
            raise ValueError(f"epoch must be {count}, got {epoch!r}: {advice}")
        if epoch < self.logged:
            raise ValueError(f"epoch must be at least {self.logged}, the last one, got {epoch}")
        return epoch

    def _add(self, epoch: int, given: Mapping[str, float]) -> None:
        """Add an epoch to the tables, and begin another."""
        run = self._run
        run.go_back(epoch - 1)  # also of what was added as a call before was interrupted
        if not self.logged:
            self._step_before = int((run.metric_rows or [{}])[-1].get("step") or 0)
        now, seconds = self._look(epoch), time.monotonic() - self._began
        step = self._step if self._counts else ""
        timed = round(self._times.mean(), 6) if self._times.number else ""
        times = {"seconds": round(seconds, 3), STEP_SECONDS: timed}
        run.stride_rows += now.rows
        run.time_rows.append({"epoch": epoch, "step": step, **times})
        run.metric_rows.append({"epoch": epoch, "step": step, **given, **now.totals})
        if (config := self._describe()) != self._config:  # a smoothness that changes, for one
            self._config = config
            run.write_config(config)
        run.write_tables()
        self.gradients, self._began = LossGradients(), time.monotonic()
        self._times.begin_epoch()

    @property
    def _step(self) -> int:
        """How many steps the training has taken, also before this recorder."""
        return self._step_before + self._taken

    def _look(self, epoch: int) -> StridesNow:
        """Return the strides as they are now, of the sites that are recorded."""
        moment = {"epoch": epoch, "step": self._step if self._counts else ""}
        means = self.gradients.means()
        now = strides_now(self.model, self._costs, self._rates, means, **moment)
        rows = [row for row in now.rows if row["layer"] in self._sites]
        return StridesNow([row | {"layer": row["layer"] or WHOLE} for row in rows], now.totals)

    def _describe(self) -> dict[str, Any]:
        """Return what config.yaml says, as the network is now."""
        rules = [layer.rule for layer in self._sites.values()]
        named = {(r.smoothness, r.convention, r.window, r.basis, r.way) for r in rules}
        kind = "diffstride" if rules else "spectral" if resizers(self.model) else "fixed"
        model: dict[str, Any] = {"name": type(self.model).__name__, "downsampling": kind}
        if len(named) == 1 and isinstance(rules[0].smoothness, float) and rules[0].way == "down":
            model |= {"smoothness": rules[0].smoothness, "convention": rules[0].convention}
        # The report draws windows by these two, and must not where layers have others.
        model["windows_alike"] = "smoothness" in model and named.pop()[2:] == USUAL
        return {"model": model, **self._known}

    def close(self) -> None:
        """Let go of the folder and the optimisers; all that was logged is written already."""
        self._is_open = False
        self._end.close()

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
