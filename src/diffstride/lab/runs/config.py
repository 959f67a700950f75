"""What a run is told. The text under a field is its help on the command line.

Nothing heavy is imported here, so that help comes at once.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Annotated, Any, Literal, TypeAlias

import tyro

ModelName: TypeAlias = Literal[
    "resnet18",
    "preact_resnet18",
    "preact_resnet56",
    "densenet121",
    "efficientnet_b0",
    "audio_cnn",
]
Kind: TypeAlias = Literal["strided", "average", "max", "spectral", "diffstride"]


@dataclass(frozen=True)
class ModelConfig:
    """The network."""

    name: ModelName = "resnet18"
    """Which network."""
    downsampling: Kind = "diffstride"
    """What every site downsamples with."""
    strides: tuple[float, ...] | None = None
    """One a site, or one a site and axis; initial ones where they are learned."""
    smoothness: float = 4.0
    """R, over how many frequencies the window of a learnable stride falls."""
    convention: Literal["paper", "symmetric"] = "paper"
    """Whether the window of the last axis is one frequency wider, as in the paper. Learnable
    strides need smoothness 2 or more with "paper", 1 or more with "symmetric"."""
    shared_stride: bool = False
    """Whether a site learns one stride for all axes instead of one each."""
    width: float = 1.0
    """Multiplies all channels."""
    stem: Literal["cifar", "imagenet"] = "cifar"
    """Whether the network begins at full size or as for large images."""


@dataclass(frozen=True)
class DataConfig:
    """The data, and what is done to them in training."""

    kind: Literal["images", "audio"] = "images"
    """What is classified."""
    path: str | None = None
    """A folder of parquet files or of files by class, or the name of a dataset to download.
    Without one, images are handwritten digits that need no network."""
    label: str | None = None
    """The column of labels, where there are several."""
    layout: Literal["auto", "files", "urban_scenes", "birds", "nsynth", "speech_commands"] = "auto"
    """Of audio: the dataset whose official folders path has, found out unless given."""
    task: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Of audio, instead of path: NAME=PATH or NAME=PATH:LABEL, for each task of one network."""
    cache: str = "~/.cache/diffstride"
    """Of audio: the folder that decoded recordings are kept in."""
    batch_size: int = 256
    """Examples a step, over all processes and tasks."""
    image_size: int | None = None
    """The side that images are brought to; as they are unless given."""
    crop_padding: int = 0
    """By how many pixels an image is shifted at most, at random."""
    flip: bool = False
    """Whether images are mirrored at random."""
    inception_crop: bool = False
    """Whether a random part, 8 % to 100 %, of each image is brought to image_size.
    Images are then decoded anew every time instead of held in memory, in colour."""
    mixup: float = 0.0
    """The parameter of mixup, its alpha; 0 for none."""
    limit: int | None = None
    """How many training examples are used at most; all unless given."""
    skip_corrupt: bool = False
    """Whether files that can't be read are left out and counted, instead of an error.
    With inception_crop, all images are tried before training."""


@dataclass(frozen=True)
class OptimConfig:
    """How the weights and strides are trained."""

    name: Literal["sgd", "adam", "adamw"] = "sgd"
    """Which optimiser."""
    lr: float = 0.1
    """The learning rate."""
    momentum: float = 0.9
    """Of SGD."""
    weight_decay: float = 5e-3
    """Of weights; strides, biases and normalisations have none."""
    stride_lr: float | None = None
    """The learning rate of strides; lr unless given. Short runs need more than that."""
    schedule: Literal["steps", "onecycle", "constant"] = "steps"
    """How the learning rate changes."""
    milestones: tuple[float, ...] = ()
    """Of schedule "steps": when the rate becomes a tenth, as parts of the run: 0.5 is half way."""
    warmup_steps: int = 0
    """Of schedule "steps": for so many steps at first, the rate is a tenth."""
    label_smoothing: float = 0.0
    """How much of the target is spread over all classes."""


@dataclass(frozen=True)
class TrainerConfig:
    """How long, and on what."""

    epochs: int = 400
    """Passes over the training data."""
    steps: int | None = None
    """Of audio: the batches of an epoch; as many as there are data for unless given."""
    accelerator: str = "auto"
    """As for Lightning: "cpu", "gpu", "mps" or "auto"."""
    devices: int = 1
    """How many devices, or processes on a CPU."""
    num_nodes: int = 1
    """How many machines."""
    strategy: str = "auto"
    """As for Lightning: "ddp", "fsdp" or "auto"."""
    precision: Literal["32-true", "bf16-mixed"] = "32-true"
    """Of activations; strides and spectra stay at full precision."""


@dataclass(frozen=True)
class Config:
    """A run."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    stride_penalty: float = 0.0
    """The weight λ of the paper's regulariser on strides."""
    macs_budget: float | None = None
    """Multiply-accumulates a network may cost, in millions: after every step, strides grow until
    it does not cost more."""
    seed: int = 0
    """Of weights, batches and augmentation."""
    name: str | None = None
    """The folder of the run in out; recipe, downsampling and seed unless given."""
    out: str = "runs"
    """Where the folder of the run is made."""

    def check(self) -> None:
        """Raise a ValueError unless every number makes sense; the message names the option."""
        for name, number in _numbers(self):
            if not math.isfinite(number):
                raise ValueError(f"--{name} must be a finite number, got {number}")
        if self.name is not None:
            check_name(self.name)
        counts = {
            "data.batch_size": self.data.batch_size,
            "trainer.epochs": self.trainer.epochs,
            "trainer.devices": self.trainer.devices,
            "trainer.num_nodes": self.trainer.num_nodes,
            "data.image_size": self.data.image_size,
            "data.limit": self.data.limit,
            "trainer.steps": self.trainer.steps,
        }
        for name, count in counts.items():
            if count is not None and count < 1:
                raise ValueError(f"--{name} must be at least 1, got {count}")
        # More would fill the memory of any machine before the first step.
        most = {"data.batch_size": 2**16, "data.image_size": 2**13, "data.crop_padding": 2**10}
        for name, limit in most.items():
            value = getattr(self.data, name.removeprefix("data."))
            if value is not None and value > limit:
                raise ValueError(f"--{name} must be at most {limit:,}, got {value:,}")
        processes = self.trainer.devices * self.trainer.num_nodes
        if self.data.batch_size % processes:
            raise ValueError(
                f"--data.batch_size must be a multiple of the {processes} processes that share "
                f"it, got {self.data.batch_size}"
            )
        amounts = {
            "optim.lr": self.optim.lr,
            "optim.stride_lr": self.optim.stride_lr or 0.0,
            "optim.weight_decay": self.optim.weight_decay,
            "data.crop_padding": self.data.crop_padding,
            "data.mixup": self.data.mixup,
            "optim.momentum": self.optim.momentum,
            "optim.warmup_steps": self.optim.warmup_steps,
            "model.smoothness": self.model.smoothness,
            "stride_penalty": self.stride_penalty,
        }
        for name, amount in amounts.items():
            if not amount >= 0:
                raise ValueError(f"--{name} must be at least 0, got {amount}")
        if not all(0 <= part <= 1 for part in self.optim.milestones):
            raise ValueError(
                f"--optim.milestones must be parts of the run from 0 to 1, got "
                f"{' '.join(map(str, self.optim.milestones))}"
            )
        if not 0 <= self.optim.label_smoothing <= 1:
            raise ValueError(
                f"--optim.label_smoothing must be from 0 to 1, got {self.optim.label_smoothing}"
            )
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"--seed must be from 0 to {2**32 - 1}, got {self.seed}")
        told = self.data
        if len(told.task) * processes > told.batch_size:
            raise ValueError(
                f"--data.batch_size must be at least {len(told.task) * processes}, one example for "
                f"each of {len(told.task)} tasks and {processes} processes, got {told.batch_size}"
            )
        if told.kind == "audio":
            of_images = (told.image_size, told.crop_padding, told.flip, told.inception_crop)
            if any(of_images) or told.mixup:
                raise ValueError(
                    "--data.image_size, crop_padding, flip, inception_crop and mixup are for "
                    "images, and --data.kind is audio"
                )
        elif told.task or self.trainer.steps:
            raise ValueError("--data.task and --trainer.steps are for --data.kind audio")
        if self.macs_budget is not None and not self.macs_budget > 0:
            raise ValueError(f"--macs_budget must be above 0, got {self.macs_budget}")


def check_name(name: str) -> None:
    """Raise a ValueError unless this can be the name of a run: a folder, directly in ``out``."""
    if name in ("", ".", "..") or not name.isprintable() or set(name) & set("/\\:"):
        raise ValueError(
            f"--name must be the name of one folder, without / or \\ or : and printable, got "
            f"{name!r}: --out says where that folder is"
        )


def _numbers(config: Any, prefix: str = "") -> Iterator[tuple[str, float]]:
    """Every number that is no whole one, by the name of its option."""
    for place in fields(config):
        name, value = f"{prefix}{place.name}", getattr(config, place.name)
        if is_dataclass(value):
            yield from _numbers(value, f"{name}.")
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, float):
                yield name, number
