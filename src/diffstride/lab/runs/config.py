"""The settings of a run.

The text under a field is its help, which comes at once: nothing heavy is imported here.
"""

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import tyro

T = TypeVar("T")


def limited(default: T, least: float = -math.inf, most: float = math.inf) -> T:
    """Return a field with a default and limits, which :meth:`Config.check` enforces."""
    return field(default=default, metadata={"limits": (least, most)})


ModelName: TypeAlias = Literal[
    "resnet18",
    "preact_resnet18",
    "preact_resnet56",
    "densenet121",
    "efficientnet_b0",
    "audio_cnn",
    "signal_cnn",
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
    """One for each site, or for each site and axis; where they are learned, the initial ones."""
    smoothness: float = limited(4.0, least=0)
    """R: over how many frequencies the window of a learnable stride falls."""
    smoothness_end: float | None = limited(None, least=0)
    """R in the last epoch, towards which it changes evenly from epoch to epoch; R stays as it is
    unless given."""
    convention: Literal["paper", "symmetric", "tight"] = "paper"
    """Where windows fall: behind the cut-off, and with "paper" one frequency later on the last
    axis; or, "tight", before it, so that maps are as small as those of strided layers. Learnable
    strides need smoothness 2 or more with "paper", else 1 or more."""
    placement: Literal["after", "before"] = "after"
    """Whether a block downsamples after its first convolution, as in the paper, or before it."""
    shared_stride: bool = False
    """Whether a site learns one stride for all axes instead of one each."""
    size_multiple: int = limited(1, least=1)
    """Rounds what learnable strides keep of an axis up to a multiple: 8 makes long signals fast."""
    width: float = 1.0
    """Multiplies all channels."""
    stem: Literal["cifar", "imagenet"] = "cifar"
    """Whether the network begins at full size or as for large images."""

    def in_epoch(self, epoch: int, epochs: int) -> "ModelConfig":
        """Return the network as it is in one of so many epochs, the first of which is 0.

        >>> ModelConfig(smoothness=2, smoothness_end=0.5).in_epoch(2, epochs=4).smoothness
        1.0
        """
        end = self.smoothness if self.smoothness_end is None else self.smoothness_end
        passed = min(1.0, epoch / (epochs - 1)) if epochs > 1 else 1.0
        smoothness = self.smoothness + (end - self.smoothness) * passed
        return dataclasses.replace(self, smoothness=smoothness, smoothness_end=None)


OF_KIND = {  # settings that only data of some kinds have
    "images": ("image_size", "crop_padding", "flip", "inception_crop", "mixup", "spacing"),
    "audio": ("task",),
    "signals": ("rate", "length", "normalise"),
}


@dataclass(frozen=True)
class DataConfig:
    """The data, and what is done to them in training."""

    kind: Literal["images", "audio", "signals"] = "images"
    """What is classified: images, spectrograms of sound, or signals as they are."""
    path: str | None = None
    """A folder of parquet files or of files by class, or the name of a dataset to download; of
    signals also a folder or file of arrays or tables. Without one, images are handwritten digits
    that need no network."""
    label: str | None = None
    """The column of labels, where there are several."""
    test_fraction: float | None = limited(None, least=0, most=1)
    """The part of the examples of each class to test on, where no test set is given: always the
    same ones."""
    group: str | None = None
    """With test_fraction: the column of what must not be in both sets, such as the speaker. In
    folders by class it is "folder", the one that a file is in within its class, or "prefix", its
    name up to the first "_"."""
    rate: float | None = limited(None, least=0)
    """For signals: samples a second, where files do not say. Files that say another are resampled
    in training."""
    length: int | None = limited(None, least=1, most=2**24)
    """For signals: how many samples the network sees at once; as many as the longest signal to
    train on has unless given. Shorter ones are filled up, longer ones cut into pieces."""
    normalise: Literal["set", "each"] = "set"
    """For signals: whether mean and spread are taken out as those of all of the training set, or
    as those of each signal or piece of one, so that how large it is tells nothing."""
    spacing: tuple[float, ...] | None = limited(None, least=0)
    """For images: millimetres from pixel to pixel, one number or one each for height and width; as
    the network sees them, that is after images were scaled to image_size."""
    layout: Literal["auto", "files", "urban_scenes", "birds", "nsynth", "speech_commands"] = "auto"
    """For audio: the dataset whose official folders are in path; recognised unless given."""
    task: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """For audio, instead of path: NAME=PATH or NAME=PATH:LABEL, for each task of one network."""
    cache: str = "~/.cache/diffstride"
    """For recordings: the folder in which they are kept decoded."""
    # Larger batches, images or shifts would fill the memory of any machine before the first step.
    batch_size: int = limited(256, least=1, most=2**16)
    """Examples in a step, over all processes and tasks."""
    image_size: int | None = limited(None, least=1, most=2**13)
    """The side to which images are scaled; they stay as they are unless given."""
    crop_padding: int = limited(0, least=0, most=2**10)
    """The most pixels by which an image is shifted at random."""
    flip: bool = False
    """Whether images are mirrored at random."""
    inception_crop: bool = False
    """Whether a random part, 8 % to 100 %, of each image is scaled to image_size.
    Images are then decoded anew every time instead of held in memory, in colour."""
    mixup: float = limited(0.0, least=0)
    """The parameter of mixup, its alpha; 0 for none."""
    limit: int | None = limited(None, least=1)
    """The most examples that are used of the training set, and also of the test set; all unless
    given."""
    skip_corrupt: bool = False
    """Whether files that can't be read are left out and counted, instead of an error.
    With inception_crop, all images are tried before training."""

    def check_kind(self) -> None:
        """Raise a ValueError if there are settings that data of this kind do not have."""
        usual = DataConfig()
        for kind, names in OF_KIND.items():
            given = [f"--data.{n}" for n in names if getattr(self, n) != getattr(usual, n)]
            if given and self.kind != kind:
                raise ValueError(f"{given[0]} is for {kind}, and --data.kind is {self.kind}")
        if self.group is not None and self.test_fraction is None:
            raise ValueError("--data.group is what --data.test_fraction keeps together: give both")
        for name in ("test_fraction", "rate", "spacing"):
            value = getattr(self, name)
            if value is not None and 0 in (value if isinstance(value, tuple) else (value,)):
                raise ValueError(f"--data.{name} must be above 0, got {value}")
        if self.test_fraction == 1:
            raise ValueError("--data.test_fraction must be below 1: something must be trained on")
        if self.spacing is not None and len(self.spacing) > 2:
            wanted = "one number, or one each for height and width"
            raise ValueError(f"--data.spacing must be {wanted}, got {len(self.spacing)}")


@dataclass(frozen=True)
class OptimConfig:
    """How the weights and strides are trained."""

    name: Literal["sgd", "adam", "adamw"] = "sgd"
    """Which optimiser."""
    lr: float = limited(0.1, least=0)
    """The learning rate."""
    momentum: float = limited(0.9, least=0)
    """The momentum of SGD."""
    weight_decay: float = limited(5e-3, least=0)
    """The decay of weights; strides, biases and normalisations have none."""
    stride_lr: float | None = limited(None, least=0)
    """The learning rate of strides; lr unless given. Short runs need more than that."""
    schedule: Literal["steps", "onecycle", "constant"] = "steps"
    """How the learning rate changes."""
    milestones: tuple[float, ...] = ()
    """For schedule "steps": when the rate becomes a tenth, as parts of the run: 0.5 is half way."""
    warmup_steps: int = limited(0, least=0)
    """For schedule "steps": for so many steps at first, the rate is a tenth."""
    label_smoothing: float = limited(0.0, least=0, most=1)
    """How much of the target is spread over all classes."""


@dataclass(frozen=True)
class TrainerConfig:
    """How long, and on what."""

    epochs: int = limited(400, least=1)
    """Passes over the training data."""
    steps: int | None = limited(None, least=1)
    """For audio: the batches of an epoch; as many as there are data for unless given."""
    accelerator: str = "auto"
    """As for Lightning: "cpu", "gpu", "mps" or "auto"."""
    devices: int = limited(1, least=1)
    """How many devices, or processes on a CPU."""
    num_nodes: int = limited(1, least=1)
    """How many machines."""
    strategy: str = "auto"
    """As for Lightning: "ddp", "fsdp" or "auto"."""
    precision: Literal["32-true", "bf16-mixed"] = "32-true"
    """The precision of activations; strides and spectra stay at full precision."""


@dataclass(frozen=True)
class Config:
    """A run."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    stride_penalty: float = limited(0.0, least=0)
    """The weight λ of the paper's regulariser on strides."""
    macs_budget: float | None = None
    """Multiply-accumulates a network may cost, in millions: strides are held to them."""
    ms_budget: float | None = None
    """Milliseconds that a batch of data.batch_size may take: strides are held to them."""
    ms_of: Literal["forward", "training"] = "forward"
    """What takes them: a forward pass, or a step of training."""
    timings: str | None = None
    """For ms_budget, a file of Timings.save, also of another machine; else this one is measured."""
    spend: bool = False
    """Keep the cost at its budget from both sides: strides learn only where it is spent."""
    seed: int = limited(0, least=0, most=2**32 - 1)
    """The seed of weights, batches and augmentation."""
    name: str | None = None
    """The folder of the run in out; recipe, downsampling and seed unless given."""
    out: str = "runs"
    """The folder in which the folder of the run is."""

    def _check_budgets(self, processes: int) -> None:
        given = {n: b for n in ("macs_budget", "ms_budget") if (b := getattr(self, n)) is not None}
        for name, budget in given.items():
            if budget <= 0:
                raise ValueError(f"--{name} must be above 0, got {budget}")
        if len(given) > 1:
            raise ValueError("--macs_budget and --ms_budget were both given: a run has one budget")
        if self.spend and not given:
            raise ValueError("--spend needs a budget to spend: --macs_budget or --ms_budget")
        if self.ms_budget and self.timings is None and processes > 1:
            raise ValueError("--ms_budget with several processes needs --timings FILE")

    def check(self) -> None:
        """Raise a ValueError unless every number makes sense; the message names the option."""
        for option, number, (least, most) in _numbers(self):
            if isinstance(number, float) and not math.isfinite(number):
                raise ValueError(f"--{option} must be a finite number, got {number}")
            if number < least:
                raise ValueError(f"--{option} must be at least {least}, got {number}")
            if number > most:
                raise ValueError(f"--{option} must be at most {most:,}, got {number:,}")
        if self.name is not None:
            check_name(self.name)
        processes = self.trainer.devices * self.trainer.num_nodes
        self._check_budgets(processes)
        data, milestones, tasks = self.data, self.optim.milestones, len(self.data.task)
        if not all(0 <= milestone <= 1 for milestone in milestones):
            given = f"parts of the run from 0 to 1, got {' '.join(map(str, milestones))}"
            raise ValueError(f"--optim.milestones must be {given}")
        given = f"the {processes} processes that share it, got {data.batch_size}"
        if data.batch_size % processes:
            raise ValueError(f"--data.batch_size must be a multiple of {given}")
        if tasks * processes > data.batch_size:
            each = f"one example for each of {tasks} tasks and {given}"
            raise ValueError(f"--data.batch_size must be at least {tasks * processes}, {each}")
        data.check_kind()
        masking = ("signal_cnn", "resnet18", "preact_resnet18", "preact_resnet56")
        if data.kind == "signals" and self.model.name not in masking:
            wanted = f"{', '.join(masking)}, which leave out what is added to short signals"
            raise ValueError(f"--model.name must be one of {wanted}, got {self.model.name}")
        if data.kind != "audio" and self.trainer.steps:
            raise ValueError("--trainer.steps is for --data.kind audio")


def check_name(name: str) -> None:
    """Raise a ValueError unless this can be the name of a run: a folder, directly in ``out``."""
    if name in ("", ".", "..") or not name.isprintable() or set(name) & set("/\\:"):
        rule = "the name of one folder, without / or \\ or : and printable"
        raise ValueError(f"--name must be {rule}, got {name!r}: --out says where that folder is")


def _numbers(config: Any, prefix: str = "") -> Iterator[tuple[str, float, tuple[float, float]]]:
    """Yield every number of a config, with the name of its option and its limits."""
    for setting in dataclasses.fields(config):
        option, value = f"{prefix}{setting.name}", getattr(config, setting.name)
        if dataclasses.is_dataclass(value):
            yield from _numbers(value, f"{option}.")
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, int | float):
                yield option, number, setting.metadata.get("limits", (-math.inf, math.inf))
