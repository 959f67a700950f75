"""Train, continue, evaluate: what the commands do."""

import logging
import os
import pickle
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from lightning import Trainer
from lightning.pytorch.loggers import TensorBoardLogger
from torch import nn

from diffstride import models
from diffstride.data import digits, images
from diffstride.data.batches import Augmentation, Batches, statistics
from diffstride.data.images import Images
from diffstride.data.sources import DataError
from diffstride.tools import StrideTable, stride_table
from diffstride.training.callbacks import Checkpoints, Metrics, Progress, StrideMonitor
from diffstride.training.config import Config, ModelConfig
from diffstride.training.module import Classifier
from diffstride.training.runs import Run, RunError, read_rows


class Prepared(NamedTuple):
    """Everything a run needs, made from its config."""

    data: Images
    module: Classifier
    train: Batches
    test: Batches


def train(config: Config, recipe: str) -> Run:
    """Make a run and train it to its end."""
    prepared = prepare(config)  # before the folder: what is wrong with data leaves none
    run = Run.of(config, recipe)
    if is_first_process():
        Run.create(config, recipe, describe(prepared))
    _fit(run, config, prepared, checkpoint=None)
    return run


def resume(folder: str | Path) -> Run:
    """Continue a run from its last whole checkpoint."""
    run = Run.open(folder)
    config = run.config
    checkpoint = newest_checkpoint(run)
    _fit(run, config, prepare(config), checkpoint)
    return run


def prepare(config: Config) -> Prepared:
    """Read the data and build the network."""
    config.check()
    data = load_data(config)
    torch.manual_seed(config.seed)
    model = build(config.model, data.size, len(data.classes))
    module = Classifier(model, config, data.size)
    mean, std = statistics(data.train)
    told = config.data
    augmentation = Augmentation(told.crop_padding, told.flip)
    train = Batches(
        data.train,
        min(told.batch_size, len(data.train)),
        augmentation=augmentation,
        shuffle=True,
        seed=config.seed,
        mean=mean,
        std=std,
    )
    test = Batches(data.test, told.batch_size, mean=mean, std=std)
    return Prepared(data, module, train, test)


def describe(prepared: Prepared) -> dict[str, Any]:
    """What a run folder keeps of its data, so that a network can be used without them."""
    data = prepared.data
    return {
        "size": data.size,
        "classes": data.classes,
        "mean": prepared.train.mean.flatten().tolist(),
        "std": prepared.train.std.flatten().tolist(),
        "train": len(data.train),
        "test": len(data.test),
        "skipped": data.skipped,
    }


def load_data(config: Config) -> Images:
    told = config.data
    if told.path is None:
        return digits.load(told.limit)
    return images.load(
        told.path,
        image_size=told.image_size,
        limit=told.limit,
        skip_corrupt=told.skip_corrupt,
        encoded=told.inception_crop,
    )


def build(told: ModelConfig, size: Sequence[int], classes: int) -> nn.Module:
    """The network for images of this size."""
    return models.create(
        told.name,
        num_classes=classes,
        in_channels=size[0],
        downsampling=told.downsampling,
        strides=told.strides,
        smoothness=told.smoothness,
        shared=told.shared_stride,
        width=told.width,
        stem=told.stem,
    )


def is_first_process() -> bool:
    """Whether this is the process that writes and prints."""
    names = ("RANK", "SLURM_PROCID", "LOCAL_RANK", "NODE_RANK")
    return all(int(os.environ.get(name, 0)) == 0 for name in names)


def _fit(run: Run, config: Config, prepared: Prepared, checkpoint: Path | None) -> None:
    size = prepared.data.size
    metrics = Metrics(run.folder / "metrics.csv", size)
    told = config.trainer
    with _quiet():
        trainer = Trainer(
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
        )
        prepared.train.epoch = lambda: trainer.current_epoch
        for batches in (prepared.train, prepared.test):
            batches.place = lambda: (trainer.global_rank, trainer.world_size)
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


def newest_checkpoint(run: Run) -> Path | None:
    """The last checkpoint that can be read; what can't be is said, and left alone.

    Raises:
        RunError: if there are some, and none can be read.
    """
    files = run.checkpoint_files()
    for path in files:
        try:
            read_checkpoint(path)
        except RunError as error:
            print(f"{error}: trying the one before", flush=True)
            continue
        return path
    if files:
        raise RunError(f"{run.folder}: none of its {len(files)} checkpoints can be read")
    return None


def read_checkpoint(path: Path) -> dict[str, Any]:
    """A checkpoint, of which nothing is executed.

    Raises:
        RunError: if it is damaged, or holds more than numbers.
    """
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(state, dict) or "state_dict" not in state:
            raise ValueError("it holds no state")
    except (OSError, ValueError, RuntimeError, EOFError, KeyError, pickle.UnpicklingError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RunError(f"{path} can't be read ({first})") from error
    return state


def load_model(run: Run, best: bool = False) -> nn.Module:
    """The network of a run as it is after its last epoch, or as it was after its best one."""
    path = run.best_file if best and run.best_file.exists() else newest_checkpoint(run)
    if path is None:
        raise RunError(f"{run.folder} has no checkpoint yet: continue it with `diffstride resume`")
    data = run.data
    model = build(run.config.model, data["size"], len(data["classes"]))
    state = read_checkpoint(path)["state_dict"]
    model.load_state_dict({name.removeprefix("model."): value for name, value in state.items()})
    return model.eval()


def evaluate(
    folder: str | Path, data_path: str | None = None, best: bool = False
) -> dict[str, float]:
    """Loss and accuracies of a run's network on its test images, or on others."""
    run = Run.open(folder)
    config = run.config
    module = Classifier(load_model(run, best), config, tuple(run.data["size"])).eval()
    told = config.data if data_path is None else replace(config.data, path=data_path)
    data = load_data(replace(config, data=told))
    known = run.data
    if list(data.classes) != known["classes"]:
        raise DataError(
            f"{told.path} must have the classes {', '.join(known['classes'])} that the run was "
            f"trained on, got {', '.join(data.classes)}"
        )
    mean, std = (torch.tensor(known[name]) for name in ("mean", "std"))
    with torch.inference_mode():
        for i, batch in enumerate(Batches(data.test, told.batch_size, mean=mean, std=std)):
            module.validation_step(batch, i)
    return module.means()


def table(folder: str | Path, best: bool = False) -> StrideTable:
    """The stride table of a run's network."""
    run = Run.open(folder)
    return stride_table(load_model(run, best), tuple(run.data["size"]))


def summary(folder: str | Path) -> list[str]:
    """The last accuracy of a run, and what it learned."""
    run = Run.open(folder)
    last = read_rows(run.folder / "metrics.csv")[-1]
    lines = [f"test accuracy {float(last['test_accuracy']):.2%} after {last['epoch']} epochs"]
    if skipped := run.data["skipped"]:
        lines.append(f"{len(skipped)} images could not be read and were left out: data.json")
    if run.config.model.downsampling in ("diffstride", "spectral"):
        return [*lines, str(table(folder))]
    return [*lines, f"{float(last['mmacs']):.1f} M MACs, no strides to learn"]
