"""Settings by name: those of the paper, of the authors' release, and ones for a small machine."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PureWindowsPath
from typing import Any, NamedTuple

from diffstride.lab.runs.config import Config
from diffstride.lab.runs.config_file import read_config
from diffstride.lab.runs.run_folder import Run


class Recipe(NamedTuple):
    summary: str
    config: Config


def vary(config: Config, **sections: Mapping[str, Any]) -> Config:
    """Return a config with other settings in some of its sections.

    >>> vary(Config(), trainer={"epochs": 3}).trainer.epochs
    3
    """
    changed = {name: replace(getattr(config, name), **new) for name, new in sections.items()}
    return replace(config, **changed)


def recipe(summary: str, config: Config, **sections: Mapping[str, Any]) -> Recipe:
    """Return a recipe with a config that has other settings in some of its sections."""
    return Recipe(summary, vary(config, **sections))


# Section 3.2 of the paper.
CIFAR = vary(
    Config(),
    data=dict(batch_size=256, crop_padding=4, flip=True),
    optim=dict(lr=0.1, momentum=0.9, weight_decay=5e-3, milestones=(200 / 400, 300 / 400)),
    trainer=dict(epochs=400),
)
CIFAR10 = vary(CIFAR, data=dict(path="uoft-cs/cifar10"))

# Section 3.1 of the paper: a million batches, here a thousand to an epoch.
AUDIO = vary(
    Config(),
    model=dict(name="audio_cnn"),
    data=dict(kind="audio", batch_size=256),
    optim=dict(name="adam", lr=1e-4, weight_decay=0.0, schedule="constant"),
    trainer=dict(epochs=1000, steps=1000),
)

PUBLISHED_AUDIO = {
    "scenes": ("TUT Urban Acoustic Scenes 2018, 10 kinds of places", dict(layout="urban_scenes")),
    "birds": ("DCASE 2018 bird audio detection", dict(layout="birds")),
    "instruments": (
        "NSynth, 11 families of instruments",
        dict(layout="nsynth", label="instrument_family"),
    ),
    "pitch": ("NSynth, 128 pitches", dict(layout="nsynth", label="pitch")),
    "commands": ("Speech Commands v0.02, 35 words", dict(layout="speech_commands")),
}

# Of recipes that are not the paper's: what costs as much as strided networks, and trains best at
# that cost (docs/results.md).
OWN = dict(convention="tight", smoothness=1.0, placement="before")

# On signals as they are. A first stride of 4 makes 4 kHz of speech at 16 kHz.
SIGNALS = vary(
    Config(),
    model=dict(name="signal_cnn", **OWN),
    data=dict(kind="signals", batch_size=16, normalise="each"),
    optim=dict(name="adamw", lr=2e-3, weight_decay=0.05, stride_lr=0.03, schedule="onecycle"),
    trainer=dict(epochs=100),
)
WAVEFORM = vary(
    SIGNALS,
    model=dict(strides=(4.0, 4.0, 4.0, 4.0, 2.0)),
    data=dict(length=16_000, batch_size=64),
)
SMALL: dict[str, Any] = dict(model=dict(width=0.25), trainer=dict(epochs=40))

RECIPES = {
    "digits": recipe(
        "handwritten digits that come with scikit-learn, in a minute",
        Config(),
        model=dict(width=0.25, strides=(2.0, 2.0, 2.0), **OWN),
        data=dict(batch_size=64, crop_padding=3),
        optim=dict(name="adamw", lr=1e-3, weight_decay=0.01, stride_lr=0.03, schedule="onecycle"),
        trainer=dict(epochs=12),
    ),
    "denoise": recipe(
        "takes noise from images, with a U-Net; from those digits, in a minute",
        Config(),
        model=dict(name="unet", width=0.25, **OWN),
        data=dict(batch_size=16, crop_padding=3, noise=0.2),
        optim=dict(name="adamw", lr=5e-3, weight_decay=0.01, stride_lr=0.03, schedule="onecycle"),
        trainer=dict(epochs=6),
    ),
    "fashion_mnist": recipe(
        "Fashion-MNIST with the paper's settings for CIFAR",
        CIFAR,
        data=dict(path="zalando-datasets/fashion_mnist"),
    ),
    "cifar10": recipe("CIFAR-10 as in the paper: ResNet-18, 400 epochs", CIFAR10),
    "cifar100": recipe(
        "CIFAR-100 as in the paper: ResNet-18, 400 epochs",
        CIFAR,
        data=dict(path="uoft-cs/cifar100"),
    ),
    "cifar10_released": recipe(
        "CIFAR-10 as in the authors' release: pre-activation, mixup, label smoothing",
        CIFAR10,
        model=dict(name="preact_resnet18"),
        data=dict(batch_size=128, mixup=0.2),
        # Its boundaries are 18,000 and 32,000 steps, of the 390 in each of 400 epochs.
        optim=dict(
            milestones=(18_000 / 390 / 400, 32_000 / 390 / 400),
            weight_decay=5e-4,
            label_smoothing=0.2,
            warmup_steps=400,
        ),
    ),
    "cifar10_densenet": recipe(
        "CIFAR-10 with DenseNet-121, two strides (paper, appendix)",
        CIFAR10,
        model=dict(name="densenet121"),
    ),
    "cifar10_efficientnet": recipe(
        "CIFAR-10 at 128×128 with EfficientNet-B0, seven strides (paper, appendix)",
        CIFAR10,
        model=dict(name="efficientnet_b0", stem="imagenet"),
        data=dict(image_size=128, crop_padding=16),
    ),
    "imagenet": recipe(
        "ImageNet as in the paper: ResNet-18 with four strides, 90 epochs",
        CIFAR,
        model=dict(stem="imagenet", strides=(1.0, 2.0, 2.0, 2.0)),
        data=dict(path="ILSVRC/imagenet-1k", image_size=224, inception_crop=True, crop_padding=0),
        optim=dict(weight_decay=1e-3, milestones=(30 / 90, 60 / 90, 80 / 90)),
        trainer=dict(epochs=90),
    ),
    **{
        f"audio_{name}": recipe(f"{what}, as in the paper", AUDIO, data=data)
        for name, (what, data) in PUBLISHED_AUDIO.items()
    },
    "audio": recipe(
        "recordings of your own: --data.path, or --data.task for several tasks",
        AUDIO,
        model=OWN,
    ),
    "signals": recipe(
        "raw signals of your own, such as currents or sensors: --data.path",
        SIGNALS,
    ),
    "signals_small": recipe("the same for a small machine", SIGNALS, **SMALL),
    "waveform": recipe(
        "raw recordings: Speech Commands at 16 kHz, or your own: --data.path",
        WAVEFORM,
    ),
    "waveform_small": recipe("the same for a small machine", WAVEFORM, **SMALL),
    "audio_multitask": recipe(
        "one network for several tasks, as in the paper: --data.task NAME=PATH[:LABEL] for each",
        AUDIO,
    ),
}


def find(name: str) -> tuple[str, Config] | None:
    """Return a name for runs, and the config, of a recipe, a file or a run; None if it is none."""
    if name in RECIPES:
        return name, RECIPES[name].config
    path = Path(name).expanduser()
    if path.is_dir():
        path = Run(path).config_file
    if not path.is_file():
        return None
    return path.resolve().parent.name, replace(read_config(path), name=None)


def check_place(config: Config, name: str, words: Sequence[str]) -> None:
    """Raise a ValueError if the file ``name``, and not the command line, says to write elsewhere.

    ``config`` is that of the recipe or file, with what the words of the command line said.
    """
    place = Path(config.out)
    anchored = place.is_absolute() or PureWindowsPath(config.out).anchor
    elsewhere = anchored or ".." in place.parts or config.out.startswith("~")
    if elsewhere and _only_in_file("--out", name, words):
        wrong = f"would write its run into {config.out!r}, outside of this folder"
        advice = f"if you want that, say so with --out {config.out}; --out runs is the usual place"
        raise ValueError(f"{name} {wrong}: {advice}")


def rate_of_earlier_version(config: Config, name: str, words: Sequence[str]) -> str | None:
    """Return what to say of a stride_lr in a file that looks like one of an earlier version.

    It was a multiple of lr then, of 10 or 30 in what was written for short runs; a rate like that
    takes a stride from one end to the other in a step. The arguments are as in `check_place`.
    """
    rate = config.optim.stride_lr
    if rate is None or rate < 10 or not _only_in_file("--optim.stride_lr", name, words):
        return None
    now = f"{name}: stride_lr {rate:g} is taken for the learning rate of strides"
    then = "In files of earlier versions it was a multiple of lr"
    return f"{now}. {then}: if this is one, {rate * config.optim.lr:g} is the same"


def _only_in_file(option: str, name: str, words: Sequence[str]) -> bool:
    return name not in RECIPES and not any(word.partition("=")[0] == option for word in words)


TRAIN = "Train a network. Every option may be left out; defaults are the recipe's."


def override(
    config: Config, words: Sequence[str], program: str, description: str = TRAIN
) -> Config:
    """Return the config with what the command line says, ``--model.width 0.5`` for one.

    Exits with 2 and a message if that can't be understood, with 0 after ``--help``.
    """
    import tyro

    return tyro.cli(
        Config,
        args=words,
        default=config,
        prog=program,
        description=description,
        use_underscores=True,
    )
