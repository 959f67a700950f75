"""From a config to what is trained: data, network, loaders, and what is written down before."""

import os
import platform
import subprocess
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

import diffstride
from diffstride import models
from diffstride.lab.data import batches, images, recordings
from diffstride.lab.data.batches import AudioBatches, AudioEvaluation, ImageBatches
from diffstride.lab.data.labelled_files import AUDIO, DataError
from diffstride.lab.data.opening import open_files
from diffstride.lab.data.spectrogram import CHANNELS, FRAME_RATE, HOP, LogMel, log_mel
from diffstride.lab.runs.axes import OF_SOUND, as_facts, image_axes
from diffstride.lab.runs.config import Config, DataConfig, ModelConfig
from diffstride.lab.training.classifier import AudioClassifier, Classifier

MOST_SAMPLES = 2000  # of an example that a report draws
Facts = Mapping[str, Any]  # what a run keeps of its data, so that a network works without them


class Prepared(NamedTuple):
    """Everything a run needs, made from its config."""

    facts: Facts
    module: Classifier
    train: ImageBatches | AudioBatches
    test: ImageBatches | AudioEvaluation


def prepare(config: Config, known: Facts | None = None) -> Prepared:
    """Read the data and build the network of a config.

    With the facts of a run, data must have its classes, and are normalised as its data were.
    """
    config.check()
    return (_audio if config.data.kind == "audio" else _images)(config, known)


def build_model(config: ModelConfig, facts: Facts) -> nn.Module:
    """Return the network for data of which these are the facts."""
    settings, classes = asdict(config), facts["classes"]
    settings["shared"] = settings.pop("shared_stride")
    del settings["smoothness_end"]  # of a callback
    several = isinstance(classes, Mapping)
    numbers = {k: len(v) for k, v in classes.items()} if several else len(classes)
    return models.create(num_classes=numbers, in_channels=facts["size"][0], **settings)


def _images(config: Config, known: Facts | None) -> Prepared:
    options = config.data
    if options.path is None:
        data = images.load_digits(options.limit)
    else:
        data = images.load(
            options.path,
            label=options.label,
            image_size=options.image_size,
            limit=options.limit,
            skip_corrupt=options.skip_corrupt,
            encoded=options.inception_crop,
            classes=known["classes"] if known else None,
        )
    if known is None:
        mean, std = batches.statistics(data.train)
    else:
        _check_classes(list(data.classes), known, options.path)
        mean, std = (torch.tensor(known[name]) for name in ("mean", "std"))
        channels, trained_on = data.size[0], known["size"][0]
        if channels != trained_on:
            wrong = f"has images of {channels} channels, and the run was trained on {trained_on}"
            raise DataError(f"{options.path} {wrong}")
    facts = {
        "size": data.size,
        **as_facts(image_axes(options.spacing)),
        "classes": data.classes,
        "mean": mean.tolist(),
        "std": std.tolist(),
        "train": len(data.train),
        "test": len(data.test),
        "skipped": data.skipped,
    }
    torch.manual_seed(config.seed)
    module = Classifier(build_model(config.model, facts), config, data.size)
    train = ImageBatches(
        data.train,
        min(options.batch_size, len(data.train)),
        augmentation=batches.Augmentation(options.crop_padding, options.flip),
        shuffle=True,
        seed=config.seed,
        mean=mean,
        std=std,
    )
    test = ImageBatches(data.test, options.batch_size, mean=mean, std=std)
    return Prepared(facts, module, train, test)


def _audio(config: Config, known: Facts | None) -> Prepared:
    options = config.data
    train, test, classes = {}, {}, {}
    for name, (path, label) in _tasks(options).items():
        *splits, classes[name] = open_files(
            path, AUDIO, layout=options.layout, label=label, limit=options.limit
        )
        train[name], test[name] = (
            recordings.load(files, options.cache, path, skip_corrupt=options.skip_corrupt)
            for files in splits
        )

    def by_task(values: Mapping[str, Any]) -> Any:
        """Return the values of several tasks by name, or that of a single one."""
        return values if options.task else values[""]

    if known is None:  # from a few windows of every task
        (batch,) = AudioBatches(train, 100 * len(train), steps=1)
        values = log_mel(torch.cat([waves for waves, _ in batch.values()]))
        mean, std = values.mean().item(), max(values.std().item(), 1e-3)
    else:
        _check_classes(by_task({name: list(names) for name, names in classes.items()}), known)
        mean, std = known["mean"][0], known["std"][0]
    skipped = (path for name in train for split in (train, test) for path in split[name].skipped)
    facts = {
        "size": (1, recordings.WINDOW_LENGTH // HOP, CHANNELS),
        **as_facts(OF_SOUND),
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
    steps = config.trainer.steps
    windows = AudioBatches(train, options.batch_size, steps=steps, seed=config.seed)
    return Prepared(facts, module, windows, AudioEvaluation(test, options.batch_size))


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
            form = "NAME=PATH or NAME=PATH:LABEL, NAME of letters and digits"
            raise DataError(f"--data.task must be {form}, got {text!r}")
        tasks[name] = (path, label or None)
    return tasks


def _check_classes(classes: Any, known: Facts, path: str | None = None) -> None:
    if classes != known["classes"]:
        wanted = f"the classes {known['classes']} that the run was trained on"
        raise DataError(f"{path or 'these data'} must have {wanted}, got {classes}")


def choose_examples(prepared: Prepared) -> list[dict[str, Any]]:
    """Return test examples of three classes, each with its class, for a look without the data.

    Images are rows of grey values up to 255, recordings the spectrogram of a second as such an
    image, and signals their first samples, scaled to −1 … 1.
    """
    classes, test = prepared.facts["classes"], prepared.test
    signals = getattr(test, "signals", None)
    if signals is not None:
        labels = signals.labels
    elif isinstance(test, ImageBatches):
        labels = test.split.labels
    else:
        task, sounds = next(iter(test.tasks.items()))
        labels, classes = sounds.labels, classes[task] if task else classes
    first = {label: i for i, label in reversed(list(enumerate(labels.tolist())))}
    chosen = sorted(first[label] for label in sorted(first)[:3])
    names = [classes[label] for label in labels[chosen].tolist()]
    if signals is not None:
        whole = prepared.facts["size"][1]
        values = [_first_samples(signals, i, whole) for i in chosen]
        return [{"label": n, "samples": v} for n, v in zip(names, values, strict=True)]
    if isinstance(test, ImageBatches):
        maps = test.split.take(torch.tensor(chosen)).float().mean(1)
    else:
        maps = log_mel(sounds.windows([(i, 0) for i in chosen]))
        low, high = maps.amin((1, 2), keepdim=True), maps.amax((1, 2), keepdim=True)
        maps = 255 * (maps - low) / (high - low).clamp(min=1e-6)
    pixels = maps.round().int().tolist()
    return [{"label": n, "pixels": p} for n, p in zip(names, pixels, strict=True)]


def _first_samples(signals: Any, index: int, most: int) -> list[float]:
    """Return the beginning of the first channel of a signal, as far as there is signal."""
    length = min(MOST_SAMPLES, most, signals.length(index))
    (samples,), _ = signals.windows([(index, 0)], length)
    low, high = samples[0].double().aminmax()
    scaled = (2 * samples[0].double() - low - high) / (high - low).clamp(min=1e-12)
    return [round(value, 4) for value in scaled.tolist()]


def describe_environment(config: Config) -> dict[str, Any]:
    """Return the versions, machine, seed, commit and time of a run that begins now."""
    try:
        command = ["git", "rev-parse", "HEAD"]
        git = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
        commit = git.stdout.strip()
    except (OSError, subprocess.SubprocessError):
        commit = None
    return {
        "diffstride": diffstride.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "seed": config.seed,
        "commit": commit,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
