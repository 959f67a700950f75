"""From a config to what is trained: data, network and loaders."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from diffstride import models
from diffstride.lab.data import images, recordings
from diffstride.lab.data.batches import (
    AudioBatches,
    AudioEvaluation,
    Augmentation,
    ImageBatches,
    statistics,
)
from diffstride.lab.data.images import ImageDataset
from diffstride.lab.data.labelled_files import AUDIO, DataError
from diffstride.lab.data.opening import open_files
from diffstride.lab.data.recordings import WINDOW_LENGTH, Recordings
from diffstride.lab.data.spectrogram import CHANNELS, FRAME_RATE, HOP, LogMel, log_mel
from diffstride.lab.runs.config import Config, DataConfig, ModelConfig
from diffstride.lab.training.audio_classifier import AudioClassifier
from diffstride.lab.training.classifier import Classifier

Facts = Mapping[str, Any]
"""What a run folder keeps of its data, so that a network can be used without them."""


class Prepared(NamedTuple):
    """Everything a run needs, made from its config."""

    facts: Facts
    module: Classifier
    train: ImageBatches | AudioBatches
    test: ImageBatches | AudioEvaluation


def prepare(config: Config, known: Facts | None = None) -> Prepared:
    """Read the data and build the network.

    Args:
        config: what is wanted.
        known: the facts of a run that these data are for; they must have its classes, and are
            normalised as its were.
    """
    config.check()
    return (_audio if config.data.kind == "audio" else _images)(config, known)


def build_model(config: ModelConfig, facts: Facts) -> nn.Module:
    """Return the network for data of which these are the facts."""
    settings = asdict(config)
    settings["shared"] = settings.pop("shared_stride")
    classes = facts["classes"]
    several = isinstance(classes, Mapping)
    return models.create(
        num_classes={k: len(v) for k, v in classes.items()} if several else len(classes),
        in_channels=facts["size"][0],
        **settings,
    )


def _images(config: Config, known: Facts | None) -> Prepared:
    data = _load_images(config.data, known["classes"] if known else None)
    if known is None:
        mean, std = statistics(data.train)
    else:
        _check_classes(list(data.classes), known, config.data.path)
        mean, std = (torch.tensor(known[name]) for name in ("mean", "std"))
        if data.size[0] != known["size"][0]:
            raise DataError(
                f"{config.data.path} has images of {data.size[0]} channels, and the run was "
                f"trained on {known['size'][0]}"
            )
    facts = {
        "size": data.size,
        "classes": data.classes,
        "mean": mean.tolist(),
        "std": std.tolist(),
        "train": len(data.train),
        "test": len(data.test),
        "skipped": data.skipped,
    }
    torch.manual_seed(config.seed)
    module = Classifier(build_model(config.model, facts), config, data.size)
    batch_size = config.data.batch_size
    train = ImageBatches(
        data.train,
        min(batch_size, len(data.train)),
        augmentation=Augmentation(config.data.crop_padding, config.data.flip),
        shuffle=True,
        seed=config.seed,
        mean=mean,
        std=std,
    )
    test = ImageBatches(data.test, batch_size, mean=mean, std=std)
    return Prepared(facts, module, train, test)


def _load_images(config: DataConfig, classes: Sequence[str] | None) -> ImageDataset:
    if config.path is None:
        return images.load_digits(config.limit)
    return images.load(
        config.path,
        label=config.label,
        image_size=config.image_size,
        limit=config.limit,
        skip_corrupt=config.skip_corrupt,
        encoded=config.inception_crop,
        classes=classes,
    )


def _audio(config: Config, known: Facts | None) -> Prepared:
    options = config.data
    train, test, classes = {}, {}, {}
    for name, (path, label) in _tasks(options).items():
        opened = open_files(path, AUDIO, layout=options.layout, label=label, limit=options.limit)
        classes[name] = opened.classes
        train[name], test[name] = (
            recordings.load(files, options.cache, path, skip_corrupt=options.skip_corrupt)
            for files in (opened.train, opened.test)
        )

    def by_task(values: Mapping[str, Any]) -> Any:
        """Return the values of several tasks by name, or that of a single one."""
        return values if options.task else values[""]

    if known is None:
        mean, std = _spectrogram_statistics(train)
    else:
        _check_classes(by_task({name: list(names) for name, names in classes.items()}), known)
        mean, std = known["mean"][0], known["std"][0]
    skipped = (path for name in train for split in (train, test) for path in split[name].skipped)
    facts = {
        "size": (1, WINDOW_LENGTH // HOP, CHANNELS),
        "axes": ("time", "frequency"),
        "sampling_rate": (FRAME_RATE, 1),
        "classes": by_task(classes),
        "mean": [mean],
        "std": [std],
        "train": by_task({name: len(split) for name, split in train.items()}),
        "test": by_task({name: len(split) for name, split in test.items()}),
        "skipped": list(dict.fromkeys(skipped)),  # each once: tasks may be of the same recordings
    }
    torch.manual_seed(config.seed)
    module = AudioClassifier(
        build_model(config.model, facts),
        config,
        facts["size"],
        LogMel(mean, std),
        {name: len(names) for name, names in classes.items()},
        {name: split.labels for name, split in test.items()},
    )
    batch_size, steps = config.data.batch_size, config.trainer.steps
    return Prepared(
        facts,
        module,
        AudioBatches(train, batch_size, steps=steps, seed=config.seed),
        AudioEvaluation(test, batch_size),
    )


def _tasks(config: DataConfig) -> dict[str, tuple[str, str | None]]:
    """Return path and label of each task by name; a single task has the name ""."""
    if not config.task:
        if config.path is None:
            raise DataError("audio needs --data.path, or a --data.task for each of several tasks")
        return {"": (config.path, config.label)}
    if config.path is not None:
        raise DataError("--data.path is for one task and --data.task for several: give one of them")
    tasks = {}
    for text in config.task:
        name, _, rest = text.partition("=")
        path, _, label = rest.rpartition(":") if ":" in rest else (rest, "", "")
        if Path(rest).expanduser().exists():  # whatever is in its name
            path, label = rest, ""
        if name in tasks or hasattr(nn.ModuleDict, name):
            raise DataError(f"--data.task {text}: {name!r} is taken, give the task another name")
        if not (name.isidentifier() and path):
            raise DataError(
                f"--data.task must be NAME=PATH or NAME=PATH:LABEL, NAME of letters and digits, "
                f"got {text!r}"
            )
        tasks[name] = (path, label or None)
    return tasks


def _spectrogram_statistics(tasks: Mapping[str, Recordings]) -> tuple[float, float]:
    """Return the mean and standard deviation of spectrograms, from a few windows of every task."""
    (batch,) = AudioBatches(tasks, 100 * len(tasks), steps=1)
    values = log_mel(torch.cat([waves for waves, _ in batch.values()]))
    return values.mean().item(), max(values.std().item(), 1e-3)


def _check_classes(classes: Any, known: Facts, path: str | None = None) -> None:
    if classes != known["classes"]:
        raise DataError(
            f"{path or 'these data'} must have the classes {known['classes']} that the run was "
            f"trained on, got {classes}"
        )
