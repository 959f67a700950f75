"""EfficientNet: inverted bottlenecks whose depthwise convolution downsamples."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from diffstride.layers import joined
from diffstride.models.network import Network
from diffstride.models.spec import Spec, Stride, initialise

# As published: batch statistics move slowly.
NORM = {"eps": 1e-3, "momentum": 0.01}
DROPOUT = DROP_PATH = 0.2


class Stage(NamedTuple):
    blocks: int
    kernel: int
    expansion: int
    channels: int
    stride: float


B0 = (
    Stage(1, 3, 1, 16, 1.0),
    Stage(2, 3, 6, 24, 2.0),
    Stage(2, 5, 6, 40, 2.0),
    Stage(3, 3, 6, 80, 2.0),
    Stage(3, 5, 6, 112, 1.0),
    Stage(4, 5, 6, 192, 2.0),
    Stage(1, 3, 6, 320, 1.0),
)


class SqueezeExcitation(nn.Module):
    """Scale each channel by what the means of all channels say."""

    def __init__(self, spec: Spec, channels: int, squeezed: int) -> None:
        super().__init__()
        self.reduce = spec.conv(channels, squeezed, 1, bias=True)
        self.expand = spec.conv(squeezed, channels, 1, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(list(range(2, x.ndim)), keepdim=True)
        scale: Tensor = self.expand(nn.functional.silu(self.reduce(mean))).sigmoid()
        return x * scale


class InvertedBottleneck(nn.Module):
    """Widen, convolve each channel by itself, squeeze and excite, narrow."""

    def __init__(
        self, spec: Spec, inputs: int, stage: Stage, stride: Stride | None, drop: float
    ) -> None:
        super().__init__()
        inner, outputs = inputs * stage.expansion, spec.channels(stage.channels)
        self.expand: nn.Module = nn.Identity()
        if stage.expansion > 1:
            wide = spec.conv(inputs, inner, 1), spec.norm(inner, **NORM)
            self.expand = nn.Sequential(*wide, nn.SiLU())
        self.downsample, conv_stride = spec.downsample(stride)
        self.is_first = spec.is_first
        self.depthwise = spec.conv(inner, inner, stage.kernel, stride=conv_stride, groups=inner)
        self.norm = spec.norm(inner, **NORM)
        self.excite = SqueezeExcitation(spec, inner, max(1, inputs // 4))
        self.narrow = nn.Sequential(spec.conv(inner, outputs, 1), spec.norm(outputs, **NORM))
        # The first block of a stage changes the shape, so it has nothing to add its input to.
        self.residual = stride is None and inputs == outputs
        self.drop = drop

    def forward(self, x: Tensor) -> Tensor:
        if self.is_first:
            y = self.depthwise(self.expand(self.downsample(x)))
        else:
            y = joined.run(self.depthwise, self.downsample, self.expand(x))
        y = self.narrow(self.excite(nn.functional.silu(self.norm(y))))
        return x + self._dropped(y) if self.residual else y

    def _dropped(self, y: Tensor) -> Tensor:
        """Leave the branch out for some examples while training: stochastic depth."""
        if not self.training or self.drop == 0:
            return y
        kept = torch.rand(len(y), *[1] * (y.ndim - 1), device=y.device) >= self.drop
        return y * kept / (1 - self.drop)


class EfficientNet(Network):
    """A stem, stages of inverted bottlenecks, a 1×1 convolution, the mean and a linear layer."""

    def __init__(self, spec: Spec, stages: tuple[Stage, ...], strides: list[Stride]) -> None:
        super().__init__()
        channels, last = spec.channels(32), spec.channels(1280)
        first = spec.stem_conv(channels, 3, 1 if spec.stem == "cifar" else 2)
        self.stem = joined.JoiningSequential(*first, spec.norm(channels, **NORM), nn.SiLU())
        self.stages = nn.Sequential()
        total, index = sum(stage.blocks for stage in stages), 0
        for stage, stride in zip(stages, strides, strict=True):
            blocks = nn.Sequential()
            for i in range(stage.blocks):
                stride_here, drop = stride if i == 0 else None, DROP_PATH * index / total
                blocks.append(InvertedBottleneck(spec, channels, stage, stride_here, drop))
                channels, index = spec.channels(stage.channels), index + 1
            self.stages.append(blocks)
        wide = spec.conv(channels, last, 1), spec.norm(last, **NORM), nn.SiLU()
        scores = nn.Dropout(DROPOUT), nn.Linear(last, spec.classes)
        self.head = nn.Sequential(*wide, spec.mean(), *scores)
        initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.stages(self.stem(x)))  # type: ignore[no-any-return]


def efficientnet_b0(spec: Spec) -> EfficientNet:
    """EfficientNet-B0 (Tan and Le 2019), whose seven stages have a stride each.

    The depthwise convolution of a stage's first block has the stride, or none and the downsampling
    after it; (1, 2, 2, 2, 1, 2, 1) unless others are given. The first convolution has stride 2 with
    ``stem="imagenet"`` and 1 with ``stem="cifar"``. Convolutions are padded evenly: weights trained
    with padding on one side, as in TensorFlow, see other borders at a stride of 2 and an even size.

    >>> import torch
    >>> from diffstride import models
    >>> model = models.create("efficientnet_b0", num_classes=1000, width=0.25)
    >>> model(torch.rand(2, 3, 64, 64)).shape
    torch.Size([2, 1000])
    """
    return EfficientNet(spec, B0, spec.read_strides("stage", [stage.stride for stage in B0]))
