"""From a config to what is trained: data, network and loaders."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from diffstride import models
from diffstride.lab.data import digits, images, recordings
from diffstride.lab.data.audio_batches import AudioBatches, AudioEvaluation
from diffstride.lab.data.image_batches import Augmentation, ImageBatches, statistics
from diffstride.lab.data.images import ImageDataset
from diffstride.lab.data.labelled_files import AUDIO, DataError
from diffstride.lab.data.opening import open_files
from diffstride.lab.data.recordings import WINDOW_LENGTH, Recordings
from diffstride.lab.data.spectrogram import CHANNELS, FRAME_RATE, HOP, LogMel, log_mel
from diffstride.lab.runs.config import Config, ModelConfig
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


def build(told: ModelConfig, facts: Facts) -> nn.Module:
    """The network for data of which these are the facts."""
    classes = facts["classes"]
    several = isinstance(classes, Mapping)
    return models.create(
        told.name,
        num_classes={k: len(v) for k, v in classes.items()} if several else len(classes),
        in_channels=facts["size"][0],
        downsampling=told.downsampling,
        strides=told.strides,
        smoothness=told.smoothness,
        convention=told.convention,
        shared=told.shared_stride,
        width=told.width,
        stem=told.stem,
    )


def _images(config: Config, known: Facts | None) -> Prepared:
    told = config.data
    data = _load_images(config, known["classes"] if known else None)
    if known is None:
        mean, std = statistics(data.train)
    else:
        _check_classes(list(data.classes), known, told.path)
        mean, std = (torch.tensor(known[name]) for name in ("mean", "std"))
        if data.size[0] != known["size"][0]:
            raise DataError(
                f"{told.path} has images of {data.size[0]} channels, and the run was trained on "
                f"{known['size'][0]}"
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
    module = Classifier(build(config.model, facts), config, data.size)
    train = ImageBatches(
        data.train,
        min(told.batch_size, len(data.train)),
        augmentation=Augmentation(told.crop_padding, told.flip),
        shuffle=True,
        seed=config.seed,
        mean=mean,
        std=std,
    )
    test = ImageBatches(data.test, told.batch_size, mean=mean, std=std)
    return Prepared(facts, module, train, test)


def _load_images(config: Config, classes: Sequence[str] | None) -> ImageDataset:
    told = config.data
    if told.path is None:
        return digits.load(told.limit)
    return images.load(
        told.path,
        label=told.label,
        image_size=told.image_size,
        limit=told.limit,
        skip_corrupt=told.skip_corrupt,
        encoded=told.inception_crop,
        classes=classes,
    )


def _audio(config: Config, known: Facts | None) -> Prepared:
    told = config.data
    train: dict[str, Recordings] = {}
    test: dict[str, Recordings] = {}
    classes = {}
    for name, (path, label) in _tasks(config).items():
        opened = open_files(path, AUDIO, layout=told.layout, label=label, limit=told.limit)
        classes[name] = opened.classes
        for files, found in ((opened.train, train), (opened.test, test)):
            found[name] = recordings.load(files, told.cache, path, skip_corrupt=told.skip_corrupt)
    several = bool(told.task)
    shown: Any = classes if several else classes[""]
    if known is None:
        mean, std = _level(train)
    else:
        _check_classes({k: list(v) for k, v in classes.items()} if several else list(shown), known)
        mean, std = known["mean"][0], known["std"][0]
    facts = {
        "size": (1, WINDOW_LENGTH // HOP, CHANNELS),
        "axes": ("time", "frequency"),
        "sampling_rate": (FRAME_RATE, 1),
        "classes": shown,
        "mean": [mean],
        "std": [std],
        "train": {k: len(v) for k, v in train.items()} if several else len(train[""]),
        "test": {k: len(v) for k, v in test.items()} if several else len(test[""]),
        # Each once: tasks may be of the same recordings.
        "skipped": list(
            dict.fromkeys(name for k in train for r in (train[k], test[k]) for name in r.skipped)
        ),
    }
    torch.manual_seed(config.seed)
    module = AudioClassifier(
        build(config.model, facts),
        config,
        facts["size"],
        LogMel(mean, std),
        {name: len(names) for name, names in classes.items()},
        {name: split.labels for name, split in test.items()},
    )
    return Prepared(
        facts,
        module,
        AudioBatches(train, told.batch_size, steps=config.trainer.steps, seed=config.seed),
        AudioEvaluation(test, told.batch_size),
    )


def _tasks(config: Config) -> dict[str, tuple[str, str | None]]:
    """Path and label of each task by name; a single one has none."""
    told = config.data
    if not told.task:
        if told.path is None:
            raise DataError("audio needs --data.path, or a --data.task for each of several tasks")
        return {"": (told.path, told.label)}
    if told.path is not None:
        raise DataError("--data.path is for one task and --data.task for several: give one of them")
    tasks = {}
    for text in told.task:
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


def _level(tasks: Mapping[str, Recordings]) -> tuple[float, float]:
    """The mean and standard deviation of spectrograms, from some windows of every task."""
    batches = AudioBatches(tasks, 100 * len(tasks), steps=1)
    (batch,) = batches
    values = log_mel(torch.cat([waves for waves, _ in batch.values()]))
    return values.mean().item(), max(values.std().item(), 1e-3)


def _check_classes(
    found: Sequence[str] | Mapping[str, Sequence[str]], known: Facts, path: str | None = None
) -> None:
    if found != known["classes"]:
        raise DataError(
            f"{path or 'these data'} must have the classes {known['classes']} that the run was "
            f"trained on, got {found}"
        )
