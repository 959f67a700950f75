"""From a config to what is trained: data, network, loaders, and what is written down before."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from diffstride import models
from diffstride.lab.data import batches, images, recordings, signal_batches, signals
from diffstride.lab.data.batches import AudioBatches, AudioEvaluation, ImageBatches
from diffstride.lab.data.labelled_files import AUDIO, DataError
from diffstride.lab.data.noise import NoisyBatches
from diffstride.lab.data.opening import open_tasks
from diffstride.lab.data.signal_batches import SignalBatches, SignalEvaluation
from diffstride.lab.data.spectrogram import CHANNELS, FRAME_RATE, HOP, LogMel, log_mel
from diffstride.lab.data.splitting import HoldOut
from diffstride.lab.runs.axes import OF_SOUND, as_facts, image_axes
from diffstride.lab.runs.config import DENSE, Config, ModelConfig
from diffstride.lab.runs.data_config import DataConfig
from diffstride.lab.training.classifier import AudioClassifier, Classifier
from diffstride.lab.training.denoiser import Denoiser
from diffstride.lab.training.image_quality import SMALLEST
from diffstride.lab.training.learner import Learner
from diffstride.lab.training.signal_classifier import SignalClassifier

Facts = Mapping[str, Any]  # what a run keeps of its data, so that a network works without them


class Prepared(NamedTuple):
    """Everything a run needs, made from its config."""

    facts: Facts
    module: Learner
    train: ImageBatches | AudioBatches | SignalBatches
    test: ImageBatches | AudioEvaluation | SignalEvaluation
    ratio: float = 1.0
    """Of signals: their sampling rate, divided by the one that the network is for."""


def prepare(config: Config, known: Facts | None = None, at_own_rate: bool = False) -> Prepared:
    """Read the data and build the network of a config.

    With the facts of a run, data must have its classes, and are normalised as its data were.
    Signals are resampled to the rate that the config says, or stay ``at_own_rate``.
    """
    config.check()
    if config.data.kind == "signals":
        return _signals(config, known, at_own_rate)
    return (_audio if config.data.kind == "audio" else _images)(config, known)


def build_model(config: ModelConfig, facts: Facts) -> nn.Module:
    """Return the network for data of which these are the facts."""
    (channels, *spatial), settings, classes = facts["size"], asdict(config), facts["classes"]
    settings["shared"] = settings.pop("shared_stride")
    del settings["smoothness_end"]  # of a callback
    several = isinstance(classes, Mapping)
    numbers = {k: len(v) for k, v in classes.items()} if several else len(classes)
    if config.name in DENSE:
        numbers = channels
    return models.create(num_classes=numbers, in_channels=channels, dims=len(spatial), **settings)


def _images(config: Config, known: Facts | None) -> Prepared:
    options = config.data
    if options.path is None:
        data = images.load_digits(options.limit, options.held_out, options.patch)
    else:
        data = images.load(
            options.path,
            label=options.label,
            image_size=options.image_size,
            patch=options.patch,
            limit=options.limit,
            skip_corrupt=options.skip_corrupt,
            encoded=options.inception_crop,
            classes=known["classes"] if known and options.noise is None else None,
            test_fraction=options.test_fraction,
            held_out=options.held_out,
            group=options.group,
        )
    if known is None:
        mean, std = batches.statistics(data.train)
    else:
        if options.noise is None:
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
    network = build_model(config.model, facts)
    batch_size, scale = options.batch_size, dict[str, Any](mean=mean, std=std)
    changes = batches.Augmentation(options.crop_padding, options.flip)
    training = scale | dict(augmentation=changes, shuffle=True, seed=config.seed)
    few = min(batch_size, len(data.train))
    if options.noise is None:
        train = ImageBatches(data.train, few, **training)
        test = ImageBatches(data.test, batch_size, **scale)
        return Prepared(facts, Classifier(network, config, data.size), train, test)
    _check_sides(data.size, options.path)
    # At first no noise is found, and images stay as they are: from there it learns fastest.
    for values in network.get_submodule("head").parameters():
        nn.init.zeros_(values)
    noisy = NoisyBatches(data.train, few, strength=options.noise, **training)
    noisy_test = NoisyBatches(data.test, batch_size, strength=options.noise, **scale)
    return Prepared(facts, Denoiser(network, config, data.size, mean, std), noisy, noisy_test)


def _audio(config: Config, known: Facts | None) -> Prepared:
    options = config.data
    train, test, classes = {}, {}, {}
    tasks = _tasks(options)
    hold_out = HoldOut.of(options.test_fraction, options.held_out, options.group)
    opened = open_tasks(tasks, AUDIO, layout=options.layout, limit=options.limit, hold_out=hold_out)
    for name, (path, _) in tasks.items():
        *splits, classes[name] = opened[name]
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
    evaluation = AudioEvaluation(test, options.batch_size)
    return Prepared(facts, module, windows, evaluation)


def _signals(config: Config, known: Facts | None, at_own_rate: bool) -> Prepared:
    options = config.data
    if options.path is None:
        raise DataError("signals need --data.path: a folder or file of signals and their classes")
    data = signals.load(
        options.path,
        label=options.label,
        rate=options.rate,
        resample=not at_own_rate,
        limit=options.limit,
        skip_corrupt=options.skip_corrupt,
        classes=known["classes"] if known else None,
        cache=options.cache,
        test_fraction=options.test_fraction,
        held_out=options.held_out,
        group=options.group,
    )
    rate, length = data.test.rate, options.length
    ratio, each = 1.0, options.normalise == "each"
    if known is None:
        mean, std = signal_batches.statistics(data.train)
        length = length or max(data.train.length(i) for i in range(len(data.train)))
    else:
        _check_classes(list(data.classes), known, options.path)
        mean, std = (torch.tensor(known[name]) for name in ("mean", "std"))
        channels, length = known["size"]
        if channels != data.test.channels:
            wrong = f"has signals of {data.test.channels} channels"
            raise DataError(f"{options.path} {wrong}, and the run was trained on {channels}")
        if rate and known["rate"]:
            ratio, rate = rate / known["rate"], known["rate"]
    facts: dict[str, Any] = {
        "size": (data.test.channels, length),
        "axes": ("time",),
        "rate": rate,
        "sampling_rate": (rate or 1.0,),
        "units": ("Hz" if rate else "cycles per sample",),
        "classes": data.classes,
        "mean": mean.tolist(),
        "std": std.tolist(),
        "normalise": options.normalise,
        "train": len(data.train),
        "test": len(data.test),
        "skipped": list(dict.fromkeys((*data.train.skipped, *data.test.skipped))),
    }
    torch.manual_seed(config.seed)
    network = build_model(config.model, facts)
    module = SignalClassifier(network, config, facts["size"], len(data.classes), data.test.labels)
    batch_size, scale = options.batch_size, {} if each else {"mean": mean, "std": std}
    train = SignalBatches(
        data.train, min(batch_size, len(data.train)), length, seed=config.seed, **scale
    )
    window = max(1, round(length * ratio))
    test = SignalEvaluation(data.test, batch_size, window, **scale)
    return Prepared(facts, module, train, test, ratio)


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


def _check_sides(size: tuple[int, ...], path: str | None) -> None:
    if min(size[1:]) < SMALLEST:
        wanted = f"at least {SMALLEST} pixels a side, for SSIM to be measured"
        got = "×".join(map(str, size[1:]))
        raise DataError(f"{path or 'patches'}: noisy images must have {wanted}, got {got}")


def _check_classes(classes: Any, known: Facts, path: str | None = None) -> None:
    if classes != known["classes"]:
        wanted = f"the classes {known['classes']} that the run was trained on"
        raise DataError(f"{path or 'these data'} must have {wanted}, got {classes}")
