"""Densely connected networks, which downsample in the transitions between their blocks."""

import torch
from torch import Tensor, nn

from diffstride.layers.joined import JoiningSequential
from diffstride.models.network import Network
from diffstride.models.spec import Spec, Stride, initialise

BLOCKS, GROWTH, BOTTLENECK = (6, 12, 24, 16), 32, 4


class DenseLayer(nn.Module):
    """1×1 then 3×3 convolution; what comes out is appended to what came in."""

    def __init__(self, spec: Spec, inputs: int, growth: int) -> None:
        super().__init__()
        inner = BOTTLENECK * growth
        narrow = [spec.norm(inputs), nn.ReLU(), spec.conv(inputs, inner, 1)]
        grow = [spec.norm(inner), nn.ReLU(), spec.conv(inner, growth, 3)]
        self.layers = nn.Sequential(*narrow, *grow)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.layers(x)], 1)


class DenseNet(Network):
    """A stem, dense blocks with transitions between them, the mean over space, a linear layer."""

    def __init__(self, spec: Spec, strides: list[Stride | None]) -> None:
        super().__init__()
        growth = spec.channels(GROWTH)
        channels = 2 * growth
        self.stem = JoiningSequential(*spec.stem_layers(channels))
        self.blocks, self.transitions = nn.ModuleList(), nn.ModuleList()
        # The textbook network pools in a transition, which has no convolution to stride.
        kind = "average" if spec.downsampling == "strided" else spec.downsampling
        for i, layers in enumerate(BLOCKS):
            if i > 0:
                layer, _ = spec.downsample(strides[i - 1], kind)
                fewer = spec.norm(channels), nn.ReLU(), spec.conv(channels, channels // 2, 1)
                self.transitions.append(spec.placed([*fewer, layer], after=3, before=2))
                channels //= 2
            inputs = range(channels, channels + layers * growth, growth)
            self.blocks.append(nn.Sequential(*(DenseLayer(spec, n, growth) for n in inputs)))
            channels += layers * growth
        last = spec.mean(), nn.Linear(channels, spec.classes)
        self.head = nn.Sequential(spec.norm(channels), nn.ReLU(), *last)
        initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks[0](self.stem(x))
        for transition, block in zip(self.transitions, list(self.blocks)[1:], strict=True):
            x = block(transition(x))
        return self.head(x)  # type: ignore[no-any-return]


def densenet121(spec: Spec) -> DenseNet:
    """DenseNet-BC with blocks of 6, 12, 24 and 16 layers and growth 32 (Huang et al. 2017).

    The paper varies two downsamplings: those of the first two transitions, (2, 2) with
    ``stem="cifar"`` unless others are given. The third then has none; give three strides to have
    it downsample too. With ``stem="imagenet"`` there are three, (2, 2, 2), as published. Where
    others have a strided convolution, a transition has an average pooling, and so has
    ``downsampling="strided"`` here.

    >>> import torch
    >>> from diffstride import models
    >>> model = models.create("densenet121", num_classes=10, width=0.25, strides=(2, 2, 1.5))
    >>> model(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    if spec.stem == "cifar" and (spec.strides is None or len(spec.strides) in (2, 2 * spec.dims)):
        return DenseNet(spec, [*spec.read_strides("transition", (2.0, 2.0)), None])
    return DenseNet(spec, [*spec.read_strides("transition", (2.0, 2.0, 2.0))])
