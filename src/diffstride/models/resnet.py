"""Residual networks whose blocks share one downsampling between their branches."""

from typing import TypeAlias

from torch import Tensor, nn
from torch.nn import functional as F

from diffstride.core import arguments
from diffstride.layers import joined
from diffstride.models.network import Network, mean_over_time
from diffstride.models.spec import Spec, Stride, initialise

Stages: TypeAlias = list[tuple[int, Stride | None]]
"""The channels and the stride of each stage; None where it does not downsample."""


class Block(nn.Module):
    """Two convolutions, 3×3 unless told otherwise, beside a shortcut (He et al. 2016).

    The first block of a stage may downsample, and then both branches by the same layer, so that
    their sizes always agree: after the first convolution, run as one with it, and before the 1×1
    convolution of the shortcut, which has no extent, so that the numbers are the same, for less; or
    both at once, before the block.
    """

    def __init__(
        self, spec: Spec, inputs: int, outputs: int, stride: Stride | None, kernel: int = 3
    ) -> None:
        super().__init__()
        self.downsample, conv_stride = spec.downsample(stride)
        self.is_first = spec.is_first
        self.conv1 = spec.conv(inputs, outputs, kernel, stride=conv_stride)
        self.norm1 = spec.norm(outputs)
        self.conv2 = spec.conv(outputs, outputs, kernel)
        self.norm2 = spec.norm(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if _changes_shape(spec, inputs, outputs, stride):
            projection = spec.conv(inputs, outputs, 1, stride=conv_stride)
            self.shortcut = nn.Sequential(projection, spec.norm(outputs))

    def forward(self, x: Tensor) -> Tensor:
        if self.is_first:
            x = self.downsample(x)
            y, kept = self.conv1(x), x
        else:
            y = joined.run(self.conv1, self.downsample, x)
            kept = joined.again(self.downsample, x)
        y = self.norm2(self.conv2(F.relu(self.norm1(y))))
        return F.relu(y + self.shortcut(kept))


class PreActivationBlock(nn.Module):
    """The same with normalisation and ReLU before each convolution (He et al. 2016b)."""

    def __init__(self, spec: Spec, inputs: int, outputs: int, stride: Stride | None) -> None:
        super().__init__()
        self.downsample, conv_stride = spec.downsample(stride)
        self.is_first = spec.is_first
        self.norm1 = spec.norm(inputs)
        self.conv1 = spec.conv(inputs, outputs, 3, stride=conv_stride)
        self.norm2 = spec.norm(outputs)
        self.conv2 = spec.conv(outputs, outputs, 3)
        self.shortcut: nn.Module | None = None
        if _changes_shape(spec, inputs, outputs, stride):
            self.shortcut = spec.conv(inputs, outputs, 1, stride=conv_stride)

    def forward(self, x: Tensor) -> Tensor:
        x = self.downsample(x) if self.is_first else x
        activated = F.relu(self.norm1(x))
        # A projection starts from what is activated already, an identity from the input itself.
        kept = x if self.shortcut is None else activated
        if self.is_first:
            y = self.conv1(activated)
        else:
            y = joined.run(self.conv1, self.downsample, activated)
            kept = joined.again(self.downsample, kept)
        y = self.conv2(F.relu(self.norm2(y)))
        return y + (kept if self.shortcut is None else self.shortcut(kept))  # type: ignore[no-any-return]


def _changes_shape(spec: Spec, inputs: int, outputs: int, stride: Stride | None) -> bool:
    """Return whether a textbook shortcut has a convolution."""
    strides = arguments.per_axis(1.0 if stride is None else stride, spec.dims, "stride")
    return inputs != outputs or set(strides) != {1.0}


class ResNet(Network):
    """A stem, stages of blocks, the mean over space and a linear layer.

    Of signals, ``lengths`` may say how many samples of each are real and not added at its end.
    """

    def __init__(self, spec: Spec, block: type[nn.Module], stages: Stages, blocks: int) -> None:
        super().__init__()
        before = block is PreActivationBlock
        inputs = spec.channels(stages[0][0])
        self.stem = joined.JoiningSequential(*spec.stem_layers(inputs))
        # A block that activates its input needs no activation before it.
        if spec.stem == "cifar" and not before:
            self.stem.extend([spec.norm(inputs), nn.ReLU()])
        self.stages = nn.Sequential()
        for channels, stride in stages:
            outputs = spec.channels(channels)
            first = block(spec, inputs, outputs, stride)
            others = [block(spec, outputs, outputs, None) for _ in range(blocks - 1)]
            self.stages.append(nn.Sequential(first, *others))
            inputs = outputs
        end = [spec.norm(inputs), nn.ReLU()] if before else []
        self.head = nn.Sequential(*end, spec.mean(), nn.Linear(inputs, spec.classes))
        initialise(self)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        y = self.stages(self.stem(x))
        if lengths is None:
            return self.head(y)  # type: ignore[no-any-return]
        *activation, _, scores = self.head
        for layer in activation:
            y = layer(y)
        return scores(mean_over_time(y, lengths / x.shape[-1]))  # type: ignore[no-any-return]


def resnet18(spec: Spec) -> ResNet:
    """ResNet-18 (He et al. 2016), as in the paper's experiments.

    With ``stem="cifar"``, a 3×3 convolution, stages 2, 3 and 4 downsample, by (2, 2, 2) unless
    others are given. With ``stem="imagenet"``, 7×7 at stride 2 and a pooling of stride 2, stage 1
    does as well, by (1, 2, 2, 2).

    >>> import torch
    >>> from diffstride import models
    >>> model = models.create("resnet18", num_classes=10, strides=(2, 2, 2.5), width=0.25)
    >>> model(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    return ResNet(spec, Block, _four_stages(spec), blocks=2)


def preact_resnet18(spec: Spec) -> ResNet:
    """ResNet-18 with pre-activation blocks (He et al. 2016b); sites as in ``resnet18``.

    >>> import torch
    >>> from diffstride import models
    >>> model = models.create("preact_resnet18", num_classes=10, width=0.25)
    >>> model(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    return ResNet(spec, PreActivationBlock, _four_stages(spec), blocks=2)


def preact_resnet56(spec: Spec) -> ResNet:
    """ResNet-56 with pre-activation blocks: three stages of nine, with 16, 32 and 64 channels.

    Every stage downsamples in its first block, by (1, 2, 2) unless others are given.

    >>> import torch
    >>> from diffstride import models
    >>> model = models.create("preact_resnet56", num_classes=10, width=0.25)
    >>> model(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    strides = spec.read_strides("stage", (1.0, 2.0, 2.0))
    return ResNet(spec, PreActivationBlock, list(zip((16, 32, 64), strides, strict=True)), blocks=9)


def _four_stages(spec: Spec) -> Stages:
    if spec.stem == "cifar":
        strides = [None, *spec.read_strides("stage", (2.0, 2.0, 2.0), first=2)]
    else:
        strides = [*spec.read_strides("stage", (1.0, 2.0, 2.0, 2.0))]
    return list(zip((64, 128, 256, 512), strides, strict=True))
