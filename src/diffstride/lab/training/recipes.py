"""Settings by name: those of the paper, of the authors' release, and ones for a small machine."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PureWindowsPath
from typing import NamedTuple

from diffstride.lab.runs import run_folder as runs
from diffstride.lab.runs.config import (
    Config,
    DataConfig,
    ModelConfig,
    OptimConfig,
    TrainerConfig,
)


class Recipe(NamedTuple):
    summary: str
    config: Config


# Section 3.2 of the paper.
CIFAR = Config(
    data=DataConfig(batch_size=256, crop_padding=4, flip=True),
    optim=OptimConfig(lr=0.1, momentum=0.9, weight_decay=5e-3, milestones=(200 / 400, 300 / 400)),
    trainer=TrainerConfig(epochs=400),
)

# Section 3.1 of the paper: a million batches, here a thousand to an epoch.
AUDIO = Config(
    model=ModelConfig(name="audio_cnn"),
    data=DataConfig(kind="audio", batch_size=256),
    optim=OptimConfig(name="adam", lr=1e-4, weight_decay=0.0, schedule="constant"),
    trainer=TrainerConfig(epochs=1000, steps=1000),
)

RECIPES = {
    "digits": Recipe(
        "handwritten digits that come with scikit-learn, in a minute",
        Config(
            model=ModelConfig(width=0.25, smoothness=2.0, strides=(3.0, 2.0, 3.0)),
            data=DataConfig(batch_size=64, crop_padding=3),
            optim=OptimConfig(
                name="adamw", lr=1e-3, weight_decay=0.01, stride_lr=0.03, schedule="onecycle"
            ),
            trainer=TrainerConfig(epochs=12),
        ),
    ),
    "fashion_mnist": Recipe(
        "Fashion-MNIST with the paper's settings for CIFAR",
        replace(CIFAR, data=replace(CIFAR.data, path="zalando-datasets/fashion_mnist")),
    ),
    "cifar10": Recipe(
        "CIFAR-10 as in the paper: ResNet-18, 400 epochs",
        replace(CIFAR, data=replace(CIFAR.data, path="uoft-cs/cifar10")),
    ),
    "cifar100": Recipe(
        "CIFAR-100 as in the paper: ResNet-18, 400 epochs",
        replace(CIFAR, data=replace(CIFAR.data, path="uoft-cs/cifar100")),
    ),
    "cifar10_released": Recipe(
        "CIFAR-10 as in the authors' release: pre-activation, mixup, label smoothing",
        replace(
            CIFAR,
            model=ModelConfig(name="preact_resnet18"),
            data=replace(CIFAR.data, path="uoft-cs/cifar10", batch_size=128, mixup=0.2),
            # Its boundaries are 18,000 and 32,000 steps, of the 390 in each of 400 epochs.
            optim=OptimConfig(
                weight_decay=5e-4,
                label_smoothing=0.2,
                warmup_steps=400,
                milestones=(18_000 / 390 / 400, 32_000 / 390 / 400),
            ),
        ),
    ),
    "cifar10_densenet": Recipe(
        "CIFAR-10 with DenseNet-121, two strides (paper, appendix)",
        replace(
            CIFAR,
            model=ModelConfig(name="densenet121"),
            data=replace(CIFAR.data, path="uoft-cs/cifar10"),
        ),
    ),
    "cifar10_efficientnet": Recipe(
        "CIFAR-10 at 128×128 with EfficientNet-B0, seven strides (paper, appendix)",
        replace(
            CIFAR,
            model=ModelConfig(name="efficientnet_b0", stem="imagenet"),
            data=replace(CIFAR.data, path="uoft-cs/cifar10", image_size=128, crop_padding=16),
        ),
    ),
    "imagenet": Recipe(
        "ImageNet as in the paper: ResNet-18 with four strides, 90 epochs",
        Config(
            model=ModelConfig(stem="imagenet", strides=(1.0, 2.0, 2.0, 2.0)),
            data=DataConfig(
                path="ILSVRC/imagenet-1k",
                batch_size=256,
                image_size=224,
                inception_crop=True,
                flip=True,
            ),
            optim=OptimConfig(
                lr=0.1, momentum=0.9, weight_decay=1e-3, milestones=(30 / 90, 60 / 90, 80 / 90)
            ),
            trainer=TrainerConfig(epochs=90),
        ),
    ),
    "audio_scenes": Recipe(
        "TUT Urban Acoustic Scenes 2018, 10 kinds of places, as in the paper",
        replace(AUDIO, data=replace(AUDIO.data, layout="urban_scenes")),
    ),
    "audio_birds": Recipe(
        "DCASE 2018 bird audio detection, as in the paper",
        replace(AUDIO, data=replace(AUDIO.data, layout="birds")),
    ),
    "audio_instruments": Recipe(
        "NSynth, 11 families of instruments, as in the paper",
        replace(AUDIO, data=replace(AUDIO.data, layout="nsynth", label="instrument_family")),
    ),
    "audio_pitch": Recipe(
        "NSynth, 128 pitches, as in the paper",
        replace(AUDIO, data=replace(AUDIO.data, layout="nsynth", label="pitch")),
    ),
    "audio_commands": Recipe(
        "Speech Commands v0.02, 35 words, as in the paper",
        replace(AUDIO, data=replace(AUDIO.data, layout="speech_commands")),
    ),
    "audio": Recipe("recordings of your own: --data.path, or --data.task for several tasks", AUDIO),
    "audio_multitask": Recipe(
        "one network for several tasks, as in the paper: --data.task NAME=PATH[:LABEL] for each",
        AUDIO,
    ),
}


def find(name: str) -> tuple[str, Config] | None:
    """The recipe of this name, or the config in this file or run, with the name of a run to be."""
    if name in RECIPES:
        return name, RECIPES[name].config
    path = Path(name).expanduser()
    if path.is_dir():
        path = path / "config.yaml"
    if not path.is_file():
        return None
    return path.resolve().parent.name, replace(runs.load(path), name=None)


def check_place(config: Config, name: str, words: Sequence[str]) -> None:
    """Raise a ValueError if a file, and nobody at the command line, wants to write elsewhere.

    Args:
        config: with what the command line said.
        name: of the recipe, or the path of the file.
        words: of the command line.
    """
    if name in RECIPES or any(word.partition("=")[0] == "--out" for word in words):
        return
    place = Path(config.out)
    anchored = place.is_absolute() or PureWindowsPath(config.out).anchor
    if anchored or ".." in place.parts or config.out.startswith("~"):
        raise ValueError(
            f"{name} would write its run into {config.out!r}, outside of this folder: if you want "
            f"that, say so with --out {config.out}; --out runs is the usual place"
        )


def override(config: Config, words: Sequence[str], program: str) -> Config:
    """The config with what the command line says, ``--model.width 0.5`` for one.

    Exits with 2 and a message if that can't be understood, with 0 after ``--help``.
    """
    import tyro

    return tyro.cli(
        Config,
        args=words,
        default=config,
        prog=program,
        description="Train a network. Every option may be left out; defaults are the recipe's.",
        use_underscores=True,
    )
