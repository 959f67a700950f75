"""Densely connected networks, which downsample in the transitions between their blocks."""

import torch
from torch import Tensor, nn

from diffstride.models.spec import Spec, Stride, initialise

BOTTLENECK = 4


class DenseLayer(nn.Module):
    """1×1 then 3×3 convolution; what comes out is appended to what came in."""

    def __init__(self, spec: Spec, inputs: int, growth: int) -> None:
        super().__init__()
        inner = BOTTLENECK * growth
        self.layers = nn.Sequential(
            spec.norm(inputs),
            nn.ReLU(),
            spec.conv(inputs, inner, 1),
            spec.norm(inner),
            nn.ReLU(),
            spec.conv(inner, growth, 3),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.layers(x)], 1)


class Transition(nn.Sequential):
    """Fewer channels by a 1×1 convolution, then the downsampling."""

    def __init__(self, spec: Spec, inputs: int, outputs: int, stride: Stride | None) -> None:
        layer: nn.Module = nn.Identity()
        if stride is not None:
            # The textbook network pools here: it has no convolution to stride.
            kind = "average" if spec.downsampling == "strided" else spec.downsampling
            layer, _ = spec.downsample(stride, kind)
        super().__init__(spec.norm(inputs), nn.ReLU(), spec.conv(inputs, outputs, 1), layer)


class DenseNet(nn.Module):
    """A stem, dense blocks with transitions between them, the mean over space, a linear layer."""

    def __init__(
        self, spec: Spec, blocks: tuple[int, ...], growth: int, strides: list[Stride | None]
    ) -> None:
        super().__init__()
        growth = spec.channels(growth)
        channels = 2 * growth
        if spec.stem == "cifar":
            self.stem = nn.Sequential(spec.conv(spec.in_channels, channels, 3))
        else:
            self.stem = nn.Sequential(
                *spec.stem_conv(channels, 7, 2),
                spec.norm(channels),
                nn.ReLU(),
                spec.stem_pool(),
            )
        self.blocks, self.transitions = nn.ModuleList(), nn.ModuleList()
        for i, layers in enumerate(blocks):
            self.blocks.append(
                nn.Sequential(
                    *(DenseLayer(spec, channels + j * growth, growth) for j in range(layers))
                )
            )
            channels += layers * growth
            if i < len(blocks) - 1:
                self.transitions.append(Transition(spec, channels, channels // 2, strides[i]))
                channels //= 2
        self.head = nn.Sequential(
            spec.norm(channels), nn.ReLU(), spec.mean(), nn.Linear(channels, spec.classes)
        )
        initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks[0](self.stem(x))
        for transition, block in zip(self.transitions, list(self.blocks)[1:], strict=True):
            x = block(transition(x))
        return self.head(x)  # type: ignore[no-any-return]


def densenet121(spec: Spec) -> DenseNet:
    """DenseNet-BC with blocks of 6, 12, 24 and 16 layers and growth 32 (Huang et al. 2017).

    The paper varies two downsamplings: those of the first two transitions, (2, 2) with
    ``stem="cifar"`` unless told otherwise. The third then has none; give three strides to have it
    downsample too. With ``stem="imagenet"`` there are three, (2, 2, 2), as published. Where others
    have a strided convolution, a transition has an average pooling, and so has
    ``downsampling="strided"`` here.
    """
    sites = ["transition 1", "transition 2", "transition 3"]
    if spec.stem == "cifar" and (spec.strides is None or len(spec.strides) in (2, 2 * spec.dims)):
        strides: list[Stride | None] = [*spec.read_strides(sites[:2], (2.0, 2.0)), None]
    else:
        strides = [*spec.read_strides(sites, (2.0, 2.0, 2.0))]
    return DenseNet(spec, blocks=(6, 12, 24, 16), growth=32, strides=strides)
