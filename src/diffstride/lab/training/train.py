"""Train, continue, evaluate: what the commands do."""

import json
import logging
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from lightning import Trainer
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.pytorch.loggers import TensorBoardLogger
from torch import nn

from diffstride.analysis.stride_table import StrideTable, stride_table
from diffstride.lab.runs.config import Config
from diffstride.lab.runs.documents import read_rows
from diffstride.lab.runs.lock import locked
from diffstride.lab.runs.run_folder import Run, RunError
from diffstride.lab.training.callbacks import (
    Checkpoints,
    Metrics,
    Progress,
    StrideMonitor,
    exploded,
)
from diffstride.lab.training.checkpoints import (
    SealedCheckpoints,
    newest_checkpoint,
    read_checkpoint,
)
from diffstride.lab.training.example_inputs import choose
from diffstride.lab.training.prepare import Prepared, build, prepare


def train(config: Config, recipe: str, conclude: Callable[[Path], None] | None = None) -> Run:
    """Make a run and train it to its end, then conclude it while no other process may write it.

    If it fails before an epoch is finished, no folder is left.

    Raises:
        ValueError: if there is a run of this name already, or another process makes one.
    """
    config.check()
    run = Run.of(config, recipe)
    with _alone(run):
        with _nothing_left(run):
            if is_first_process():
                run.check_new()
            prepared = prepare(config)
            prepared.module.keep_budget()
            trainer = _trainer(run, config, prepared)
            if is_first_process():
                Run.create(config, recipe, prepared.facts, choose(prepared))
            _fit(trainer, prepared, checkpoint=None)
        if conclude is not None and is_first_process():
            conclude(run.folder)
    return run


def resume(folder: str | Path, conclude: Callable[[Path], None] | None = None) -> Run:
    """Continue a run from its last whole checkpoint, then conclude it as :func:`train` does.

    Raises:
        ValueError: if another process trains it, or it can't be continued.
    """
    run = Run.open(folder)
    with _alone(run):
        config = run.config
        known = run.data
        newest = newest_checkpoint(run)
        prepared = prepare(config, known)
        prepared.module.keep_budget()
        for name in ("size", "train", "test"):
            then, now = known.get(name), json.loads(json.dumps(prepared.facts[name]))
            if then != now:
                raise RunError(
                    f"{run.folder} was trained on other data: {name} was {then} and is {now} now"
                )
        _fit(_trainer(run, config, prepared), prepared, newest[0] if newest else None)
        if conclude is not None and is_first_process():
            conclude(run.folder)
    return run


@contextmanager
def _alone(run: Run) -> Iterator[None]:
    """While no other process writes the folder of a run; those that share its training don't."""
    with locked(run.folder) if is_first_process() else nullcontext():
        yield


@contextmanager
def _nothing_left(run: Run) -> Iterator[None]:
    """The folder as it was before, if training fails before it has finished an epoch."""
    if not is_first_process():
        yield
        return
    before = set(run.folder.iterdir())
    try:
        yield
    except Exception:
        if not run.checkpoint_files():
            for path in set(run.folder.iterdir()) - before:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        raise


def is_first_process() -> bool:
    """Whether this is the process that writes and prints."""
    names = ("RANK", "SLURM_PROCID", "LOCAL_RANK", "NODE_RANK")
    return all(int(os.environ.get(name, 0)) == 0 for name in names)


def _trainer(run: Run, config: Config, prepared: Prepared) -> Trainer:
    size = tuple(prepared.facts["size"])
    metrics = Metrics(run.folder / "metrics.csv", size)
    told = config.trainer
    # A job that is requeued is resumed by whoever requeues it, from a whole epoch.
    slurm = SLURMEnvironment(auto_requeue=False) if SLURMEnvironment.detect() else None
    with _quiet():
        return Trainer(
            max_epochs=told.epochs,
            accelerator=told.accelerator,
            devices=told.devices,
            num_nodes=told.num_nodes,
            strategy=told.strategy,
            precision=told.precision,
            callbacks=[
                StrideMonitor(size, run.folder / "strides.csv"),
                metrics,
                Checkpoints(run, metrics),
                Progress(),
            ],
            logger=TensorBoardLogger(run.folder, name="tensorboard", version=""),
            default_root_dir=run.folder,
            enable_checkpointing=False,
            enable_progress_bar=False,  # there is our own
            enable_model_summary=False,
            num_sanity_val_steps=0,
            deterministic=True,
            use_distributed_sampler=False,  # batches know their part
            plugins=[plugin for plugin in (slurm, SealedCheckpoints()) if plugin is not None],
        )


def _fit(trainer: Trainer, prepared: Prepared, checkpoint: Path | None) -> None:
    prepared.train.epoch = lambda: trainer.current_epoch
    for batches in (prepared.train, prepared.test):
        batches.place = lambda: (trainer.global_rank, trainer.world_size)
    with _quiet():
        try:
            trainer.fit(
                prepared.module,
                prepared.train,
                prepared.test,
                ckpt_path=checkpoint,
                weights_only=True,
            )
        except SystemExit as stop:
            # How Lightning ends after Ctrl-C, without a word.
            raise KeyboardInterrupt from stop
        except FloatingPointError:
            raise
        except Exception as error:
            # Strides that are no numbers any more fail in ways of their own.
            if all(bool(x.isfinite().all()) for x in prepared.module.parameters()):
                raise
            raise exploded("weights or strides became infinite", trainer) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Lightning's advice on what was decided here already."""
    logger = logging.getLogger("lightning.pytorch")
    level = logger.level
    logger.setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            logger.setLevel(level)


def newest_weights(run: Run, best: bool) -> dict[str, Any]:
    """Of the last epoch of a run, or of its best one."""
    if best:
        state = read_checkpoint(run.best_file) if run.best_file.exists() else None
    else:
        newest = newest_checkpoint(run)
        state = newest[1] if newest else None
    if state is None:
        raise RunError(f"{run.folder} has no checkpoint yet: continue it with `diffstride resume`")
    weights: dict[str, Any] = state["state_dict"]
    return weights


def load_model(run: Run, best: bool = False) -> nn.Module:
    """The network of a run as it is after its last epoch, or as it was after its best one."""
    model = build(run.config.model, run.data)
    weights = newest_weights(run, best)
    own = {name for name in weights if name.startswith("model.")}
    model.load_state_dict({name.removeprefix("model."): weights[name] for name in own})
    return model.eval()


def evaluate(
    folder: str | Path, data_path: str | None = None, best: bool = False
) -> dict[str, float]:
    """Loss and accuracies of a run's network on its test data, or on others."""
    run = Run.open(folder)
    config = run.config
    if data_path is not None:
        if config.data.task:
            raise RunError(
                f"{folder} is of several tasks, and one --data.path is not enough: evaluate it "
                f"without"
            )
        config = replace(config, data=replace(config.data, path=data_path))
    weights = newest_weights(run, best)
    prepared = prepare(config, run.data)
    module = prepared.module.eval()
    module.load_state_dict(weights)
    with torch.inference_mode():
        module.on_validation_epoch_start()
        for i, batch in enumerate(prepared.test):
            module.validation_step(batch, i)
        module.on_validation_epoch_end()
    return module.means()


def table(folder: str | Path, best: bool = False) -> StrideTable:
    """The stride table of a run's network."""
    run = Run.open(folder)
    facts = run.data
    rate = facts.get("sampling_rate")
    return stride_table(load_model(run, best), tuple(facts["size"]), sampling_rate=rate)


def summary(folder: str | Path) -> list[str]:
    """The last accuracy of a run, and what it learned."""
    run = Run.open(folder)
    last = read_rows(run.folder / "metrics.csv", "epoch", "test_accuracy", "mmacs")[-1]
    lines = [f"test accuracy {float(last['test_accuracy']):.2%} after {last['epoch']} epochs"]
    if skipped := run.data.get("skipped"):
        lines.append(f"{len(skipped)} files could not be read and were left out: data.json")
    if run.config.model.downsampling in ("diffstride", "spectral"):
        found = table(folder)
        lines.append(str(found))
        if cutoff := found.rows[0].cutoff:
            hertz, cycles = cutoff
            lines.append(
                f"the first layer passes up to {hertz:.1f} Hz along time and {cycles:.3f} cycles "
                f"per mel channel along frequency"
            )
        return lines
    return [*lines, f"{float(last['mmacs']):.1f} M MACs, no strides to learn"]
