"""The audio network: convolutions along time and along frequency, for one task or several."""

from collections.abc import Mapping

from torch import Tensor, nn

from diffstride.core import arguments
from diffstride.models.network import Network
from diffstride.models.spec import Spec, Stride, initialise

CHANNELS = (64, 128, 256, 256, 512, 512)
STRIDES = (2.0, 2.0, 1.0, 2.0, 1.0, 2.0)


def audio_block(spec: Spec, inputs: int, outputs: int, stride: Stride) -> nn.Sequential:
    """Return 3×1 along time, then 1×3 along frequency, each with ReLU and normalisation.

    Strided, each convolution has the stride of its axis; otherwise the downsampling of both comes
    after the second one, or before the first.
    """
    layer, (time, frequency) = spec.downsample(stride)
    first = nn.Conv2d(inputs, outputs, (3, 1), (time, 1), padding=(1, 0))
    second = nn.Conv2d(outputs, outputs, (1, 3), (1, frequency), padding=(0, 1))
    along_time = [first, nn.ReLU(), spec.norm(outputs)]
    layers = [*along_time, second, layer, nn.ReLU(), spec.norm(outputs)]
    return spec.placed(layers, after=4, before=0)


class AudioCNN(Network):
    """Blocks, the maximum over time and frequency, and a linear layer for each task.

    Takes (batch, channels, time, frequency). With several tasks it returns the scores of each by
    name, or with ``task=`` of that one alone.
    """

    def __init__(self, spec: Spec, strides: list[Stride]) -> None:
        super().__init__()
        channels = [spec.in_channels, *map(spec.channels, CHANNELS)]
        sides = zip(channels, channels[1:], strides, strict=False)
        self.blocks = nn.Sequential(*(audio_block(spec, *side) for side in sides))
        self.head: nn.Linear | nn.ModuleDict
        if isinstance(spec.num_classes, Mapping):
            heads = {task: nn.Linear(channels[-1], n) for task, n in spec.num_classes.items()}
            self.head = nn.ModuleDict(heads)
        else:
            self.head = nn.Linear(channels[-1], spec.classes)
        initialise(self)

    def forward(self, x: Tensor, task: str | None = None) -> Tensor | dict[str, Tensor]:
        features = self.blocks(x).amax((-2, -1))
        if isinstance(self.head, nn.Linear):
            if task is not None:
                raise ValueError(
                    f"this network has one head and no task by name, got {task!r}: leave out task"
                )
            return self.head(features)  # type: ignore[no-any-return]
        if task is None:
            return {name: head(features) for name, head in self.head.items()}
        arguments.check_choice(task, list(self.head), "task")
        return self.head[task](features)  # type: ignore[no-any-return]


def audio_cnn(spec: Spec) -> AudioCNN:
    """The paper's audio network, for spectrograms (batch, 1, time, frequency).

    Six blocks with 64, 128, 256, 256, 512 and 512 channels and strides 2, 2, 1, 2, 1, 2, one number
    for a block or one each for time and frequency. ``num_classes`` is a number, or a mapping from
    task to number for a network with a head for each task.

    >>> import torch
    >>> from diffstride import models
    >>> model = models.create("audio_cnn", num_classes={"words": 35, "pitch": 128}, width=0.125)
    >>> scores = model(torch.rand(2, 1, 100, 64))
    >>> {task: tuple(score.shape) for task, score in scores.items()}
    {'words': (2, 35), 'pitch': (2, 128)}
    """
    if spec.dims != 2:
        raise ValueError(f"audio_cnn has dims=2, time and frequency, got {spec.dims}")
    return AudioCNN(spec, spec.read_strides("block", STRIDES))
