"""The settings of a run.

The text under a field is its help, which comes at once: nothing heavy is imported here.
"""

import dataclasses
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from diffstride.lab.runs.data_config import DataConfig
from diffstride.lab.runs.limits import check_limits, limited

ModelName: TypeAlias = Literal[
    "resnet18",
    "preact_resnet18",
    "preact_resnet56",
    "densenet121",
    "efficientnet_b0",
    "audio_cnn",
    "signal_cnn",
    "unet",
]
DENSE = ("unet",)
"""The networks that score every place of an example, and so classify none."""
Kind: TypeAlias = Literal[
    "strided",
    "average",
    "max",
    "spectral",
    "diffstride",
    "blur",
    "flc",
    "polyphase",
    "shape_adaptor",
    "bilinear",
]
OF_TORCH = ("strided", "average", "max")
"""Kinds of which layers of torch do the work: they have no table of strides."""
LEARNING = ("diffstride", "shape_adaptor", "bilinear")
CUTTING = ("diffstride", "spectral", "flc")
"""Kinds that let no frequency pass beyond their cut-off."""


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
    strides_by: Literal["with_weights", "gradient", "jitter"] = "with_weights"
    """What finds the strides. "with_weights": the optimiser of the weights, with a learning rate
    stride_lr, as in the paper; "gradient": one for strides alone, which moves each by at most the
    part stride_lr of itself in a step, 0.01 unless given, and rests at first and in the end;
    "jitter": they stay, and vary by some per cent from step to step, at one cost: it needs a budget
    to spend."""
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
        rate = self.optim.stride_lr
        if self.optim.strides_by == "gradient" and rate is not None and rate >= 1:
            wanted = f"the part of itself that a stride moves by in a step, below 1, got {rate}"
            raise ValueError(f"--optim.stride_lr must be {wanted}")
        if self.optim.strides_by == "jitter":
            if not self.spend:
                wanted = "--spend and --macs_budget or --ms_budget: strides vary at one cost"
                raise ValueError(f"--optim.strides_by jitter needs {wanted}")
            if self.model.downsampling != "diffstride":
                got = f"got {self.model.downsampling}"
                raise ValueError(f"strides vary with --model.downsampling diffstride, {got}")
        if self.ms_budget and self.timings is None and processes > 1:
            raise ValueError("--ms_budget with several processes needs --timings FILE")

    def _check_task(self) -> None:
        """Raise a ValueError unless the network makes what is asked for: scores, or an image."""
        name, noise = self.model.name, self.data.noise
        if noise is None and name in DENSE:
            scores = f"{name} scores every place of an example and not the whole"
            others = ", ".join(other for other in get_args(ModelName) if other not in DENSE)
            advice = f"Take one of {others}, or give --data.noise, which it learns to take away"
            raise ValueError(f"--model.name {name} can't classify: {scores}. {advice}")
        if noise is not None and name not in DENSE:
            wrong = f"--data.noise is taken away place by place, and {name} classifies the whole"
            raise ValueError(f"{wrong}: give --model.name {DENSE[0]}, or leave out the noise")
        if noise is not None and self.optim.label_smoothing:
            raise ValueError("--optim.label_smoothing is for classes, and --data.noise has none")

    def check(self) -> None:
        """Raise a ValueError unless every number makes sense; the message names the option."""
        check_limits(self)
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
        self._check_task()
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
