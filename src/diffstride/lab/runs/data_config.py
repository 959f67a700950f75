"""The settings of the data of a run. As of all settings, the text under a field is its help."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from diffstride.lab.runs.limits import limited

try:
    from tyro.conf import UseAppendAction
except ModuleNotFoundError:  # who only reports reads settings, and no command line
    UseAppendAction: Any = None  # type: ignore[no-redef]

HELD_OUT = "the held-out part of the training set"

OF_KIND = {  # settings that only data of some kinds have
    "images": (
        "image_size",
        "patch",
        "noise",
        "crop_padding",
        "flip",
        "inception_crop",
        "mixup",
        "spacing",
    ),
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
    held_out: float | None = limited(None, least=0, most=1)
    """Judge on this part of the training examples of each class, always the same ones, and leave
    the test set alone; for choosing settings. The rest is trained on."""
    group: str | None = None
    """With test_fraction or held_out: the column of what must not be in both sets, such as the
    speaker. In folders by class it is "folder", the one that a file is in within its class, or
    "prefix", its name up to the first "_"."""
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
    task: Annotated[tuple[str, ...], UseAppendAction] = ()
    """For audio, instead of path: NAME=PATH or NAME=PATH:LABEL, for each task of one network."""
    cache: str = "~/.cache/diffstride"
    """For recordings: the folder in which they are kept decoded."""
    # Larger batches, images or shifts would fill the memory of any machine before the first step.
    batch_size: int = limited(256, least=1, most=2**16)
    """Examples in a step, over all processes and tasks."""
    image_size: int | None = limited(None, least=1, most=2**13)
    """The side to which images are scaled; they stay as they are unless given."""
    patch: int | None = limited(None, least=1, most=2**13)
    """With noise: the side of a square that is cut out of each image, which may be of any size;
    anywhere in training, and from its middle in tests. All of it unless given."""
    noise: float | None = limited(None, least=0, most=1)
    """Learn to take away noise of this strength instead of classes: the standard deviation of what
    is added to each pixel, as part of the range from black to white. It needs --model.name unet."""
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
        if self.group is not None and self.test_fraction is None and self.held_out is None:
            parts = "--data.test_fraction or --data.held_out"
            raise ValueError(f"--data.group is what {parts} keeps together: give one of them too")
        for name in ("test_fraction", "held_out", "rate", "spacing", "noise"):
            value = getattr(self, name)
            if value is not None and 0 in (value if isinstance(value, tuple) else (value,)):
                raise ValueError(f"--data.{name} must be above 0, got {value}")
        for name in ("test_fraction", "held_out"):
            if getattr(self, name) == 1:
                raise ValueError(f"--data.{name} must be below 1: something must be trained on")
        for name in ("test_fraction", "group"):
            if self.kind == "images" and self.path is None and getattr(self, name) is not None:
                own = "the digits have a test set of their own, and no groups"
                raise ValueError(f"--data.{name} is for data of --data.path: {own}")
        if self.patch is not None and self.noise is None:
            raise ValueError(
                "--data.patch is for --data.noise: to classify, give --data.image_size"
            )
        if self.patch is not None and self.inception_crop:
            raise ValueError("--data.patch and --data.inception_crop both cut out parts: give one")
        if self.noise is not None and self.mixup:
            raise ValueError(
                "--data.mixup blends classes, and --data.noise has none: leave it at 0"
            )
        if self.spacing is not None and len(self.spacing) > 2:
            wanted = "one number, or one each for height and width"
            raise ValueError(f"--data.spacing must be {wanted}, got {len(self.spacing)}")
