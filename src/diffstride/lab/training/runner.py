"""Train a run from its beginning, or continue it."""

import json
import logging
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path

from lightning import Trainer
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.pytorch.loggers import TensorBoardLogger

from diffstride.lab.runs.config import Config
from diffstride.lab.runs.documents import RunError
from diffstride.lab.runs.lock import locked
from diffstride.lab.runs.run_folder import Run
from diffstride.lab.training import callbacks
from diffstride.lab.training.environment import describe_environment
from diffstride.lab.training.examples import choose_examples
from diffstride.lab.training.preparation import Prepared, prepare
from diffstride.lab.training.progress import Progress
from diffstride.lab.training.restored_examples import RestoredExamples
from diffstride.lab.training.run_timings import timings_of
from diffstride.lab.training.stride_jitter import StrideJitter
from diffstride.lab.training.stride_monitor import StrideMonitor
from diffstride.lab.training.trained_run import SealedCheckpoints, newest_checkpoint

# Called with the folder of a run that is trained, while no other process may write it.
Conclude = Callable[[Path], None]


def train(config: Config, recipe: str, conclude: Conclude | None = None) -> Run:
    """Make a run and train it to its end, then conclude it. Returns the run.

    If it fails before an epoch is finished, no folder is left. If there is a run of this name
    already, or another process makes one, that is a ValueError.
    """
    config.check()
    run = Run.of(config, recipe)
    with _alone(run, conclude) as is_first, _nothing_left(run) if is_first else nullcontext():
        if is_first:
            run.check_new()
        prepared = prepare(config)
        timings = prepared.module.timings = timings_of(run, config, prepared.module)
        prepared.module.keep_budget()
        trainer = _trainer(run, config, prepared)
        if is_first:
            environment = describe_environment(config.seed)
            examples = choose_examples(prepared)
            if timings is not None:
                timings.save(run.timings_file)
            run.create(config, environment, prepared.facts, examples)
        _fit(trainer, prepared)
    return run


def resume(folder: str | Path, conclude: Conclude | None = None) -> Run:
    """Continue a run from the last checkpoint that can be read, then conclude it. Returns the run.

    If another process trains it, or it can't be continued, that is a ValueError.
    """
    run = Run.open(folder)
    with _alone(run, conclude):
        config, facts = run.config, run.data
        checkpoint, _ = newest_checkpoint(run)
        prepared = prepare(config, facts)
        timings = prepared.module.timings = timings_of(run, config, prepared.module)
        if timings is not None and not run.timings_file.exists():
            timings.save(run.timings_file)
        prepared.module.keep_budget()
        found = json.loads(json.dumps(prepared.facts))
        if prepared.ratio != 1:  # a network in training is not brought to another rate
            found["rate"] *= prepared.ratio
        for name in ("size", "train", "test", "rate"):
            then, now = facts.get(name), found.get(name)
            if then != now:
                change = f"{name} was {then} and is {now} now"
                raise RunError(f"{run.folder} was trained on other data: {change}")
        _fit(_trainer(run, config, prepared), prepared, checkpoint)
    return run


def is_first_process() -> bool:
    """Return whether this is the process that writes and prints."""
    names = ("RANK", "SLURM_PROCID", "LOCAL_RANK", "NODE_RANK")
    return all(int(os.environ.get(name, 0)) == 0 for name in names)


@contextmanager
def _alone(run: Run, conclude: Conclude | None) -> Iterator[bool]:
    """Lock a run, conclude it at the end, and yield True, in the process that writes and prints."""
    if not is_first_process():
        yield False
        return
    with locked(run.folder):
        yield True
        if conclude is not None:
            conclude(run.folder)


@contextmanager
def _nothing_left(run: Run) -> Iterator[None]:
    """Leave the folder as it was before, if training fails before it has finished an epoch."""
    before = set(run.folder.iterdir())
    try:
        yield
    except Exception:
        if not run.checkpoint_files():
            for path in set(run.folder.iterdir()) - before:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        raise


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Lightning's advice on what was decided here already."""
    logger = logging.getLogger("lightning.pytorch")
    level = logger.level
    logger.setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            logger.setLevel(level)


@_quiet()
def _trainer(run: Run, config: Config, prepared: Prepared) -> Trainer:
    size, rates = tuple(prepared.facts["size"]), prepared.facts.get("sampling_rate")
    monitor = StrideMonitor(size, run.strides_file, sampling_rate=rates)
    writer = callbacks.RunWriter(run, monitor)
    end = config.model.smoothness_end
    schedule = (
        [callbacks.SmoothnessSchedule(config.model.smoothness, end)] if end is not None else []
    )
    noisy = config.data.noise is not None
    pictures = [RestoredExamples(run, prepared)] if noisy else []
    strides = [StrideJitter()] if config.optim.strides_by == "jitter" else []
    settings = asdict(config.trainer)
    del settings["steps"]  # of the loader
    # A job that is requeued is resumed by whoever requeues it, from the end of an epoch.
    slurm = [SLURMEnvironment(auto_requeue=False)] if SLURMEnvironment.detect() else []
    return Trainer(
        max_epochs=settings.pop("epochs"),
        **settings,
        callbacks=[
            *strides,
            *schedule,
            callbacks.FiniteNumbers(),
            monitor,
            *pictures,
            writer,
            Progress(),
        ],
        logger=TensorBoardLogger(run.folder, name="tensorboard", version=""),
        default_root_dir=run.folder,
        enable_checkpointing=False,
        enable_progress_bar=False,  # ours shows one
        enable_model_summary=False,
        num_sanity_val_steps=0,
        deterministic=True,
        use_distributed_sampler=False,  # batches know their part
        plugins=[*slurm, SealedCheckpoints()],
    )


@_quiet()
def _fit(trainer: Trainer, prepared: Prepared, checkpoint: Path | None = None) -> None:
    train, test = prepared.train, prepared.test
    train.epoch = lambda: trainer.current_epoch
    train.place = test.place = lambda: (trainer.global_rank, trainer.world_size)
    try:
        trainer.fit(prepared.module, train, test, ckpt_path=checkpoint, weights_only=True)
    except SystemExit as stop:
        # How Lightning ends after Ctrl-C, without a word.
        raise KeyboardInterrupt from stop
    except FloatingPointError:
        raise
    except Exception as error:
        # Strides that are no numbers any more fail in many ways.
        if not callbacks.is_finite(prepared.module):
            raise callbacks.diverged("weights or strides became infinite", trainer) from error
        # How torch refuses to multiply a gradient by a number that its precision has not.
        if isinstance(error, RuntimeError) and "without overflow" in str(error):
            raise callbacks.diverged("a step became infinite", trainer) from error
        raise
