"""The network that goes down and up again: scores of every sample, pixel or voxel."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from diffstride.layers.resizer import Resizer
from diffstride.models.network import Network
from diffstride.models.spec import Spec, Stride, initialise

CHANNELS = (64, 128, 256, 512)
STRIDES = (2.0, 2.0, 2.0)
# What comes from below keeps its amplitude, as with interpolation, for it is put beside a skip that
# has its own. On the way down a normalisation follows, whatever this is.
RESIZING = {"norm": "forward"}
INTERPOLATION = {1: "linear", 2: "bilinear", 3: "trilinear"}


class UpBlock(nn.Module):
    """Back to the size of a skip, the skip put beside that, and two convolutions.

    Channels become fewer by a 1×1 convolution before the size grows. Both commute, so these are
    the numbers that the other order has, for less.
    """

    def __init__(self, spec: Spec, inputs: int, outputs: int, down: nn.Module) -> None:
        super().__init__()
        self.narrow = spec.conv(inputs, outputs, 1)
        self.up = down.up() if isinstance(down, Resizer) and down.is_planned else None
        """What undoes the layer on the way down; None where that works in no basis."""
        self.layers = nn.Sequential(*_twice(spec, 2 * outputs, outputs))
        self.mode = INTERPOLATION[spec.dims]

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        x = self.narrow(x)
        if self.up is None:
            x = F.interpolate(x, size=skip.shape[2:], mode=self.mode)
        else:
            x = self.up(x)
        return self.layers(torch.cat([skip, x], 1))  # type: ignore[no-any-return]


class UNet(Network):
    """Levels on the way down, the same sizes on the way up, and a 1×1 convolution.

    Takes (batch, channels, *spatial), of any spatial size that its downsampling can take, and
    returns (batch, num_classes, *spatial): scores of every place, at the very size of the input.
    """

    is_dense = True

    def __init__(self, spec: Spec, strides: list[Stride]) -> None:
        super().__init__()
        spec = replace(spec, options={**RESIZING, **spec.options})
        channels = [*map(spec.channels, CHANNELS)]
        self.levels = nn.ModuleList([nn.Sequential(*_twice(spec, spec.in_channels, channels[0]))])
        ups = []
        for inputs, outputs, stride in zip(channels, channels[1:], strides, strict=False):
            layer, conv_stride = spec.downsample(stride)
            first, *others = _twice(spec, inputs, outputs, stride=conv_stride)
            self.levels.append(spec.placed([first, layer, *others], after=1, before=0))
            ups.append(UpBlock(spec, outputs, inputs, layer))
        self.ups = nn.ModuleList(reversed(ups))
        """In the order in which they run, the smallest maps first."""
        self.head = spec.conv(channels[0], spec.classes, 1, bias=True)
        initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        skips: list[Tensor] = []
        for level in self.levels:
            x = level(x)
            skips.append(x)
        skips.pop()
        for up in self.ups:
            x = up(x, skips.pop())
        return self.head(x)  # type: ignore[no-any-return]


def _twice(spec: Spec, inputs: int, outputs: int, **options: Any) -> list[nn.Module]:
    """Return two convolutions of 3 taps, each with normalisation and ReLU."""
    first = [spec.conv(inputs, outputs, 3, **options), spec.norm(outputs), nn.ReLU()]
    return [*first, spec.conv(outputs, outputs, 3), spec.norm(outputs), nn.ReLU()]


def unet(spec: Spec) -> UNet:
    """A U-Net (Ronneberger et al. 2015): ``num_classes`` scores of every sample, pixel or voxel.

    Takes (batch, in_channels, *spatial) and returns (batch, num_classes, *spatial), exactly the
    input's size, whatever that is and whatever strides are learned. With as many classes as input
    channels the scores may as well be a signal or an image. It does not classify examples.

    Four levels with 64, 128, 256 and 512 channels, two convolutions of 3 taps in each; levels 2, 3
    and 4 downsample, by (2, 2, 2) unless others are given. On the way up every level has the size
    that it had on the way down, and what was made there is put beside what comes from below. A
    downsampling that cuts frequencies is undone by its ``up()``, which has nothing to learn, with
    ``norm="forward"`` unless another is given; a strided convolution, a pooling or another method,
    by linear interpolation to the size of the skip. Both come after the same 1×1 convolution and
    before the same two of 3 taps, so that networks with maps of the same sizes have the same
    convolutions, and differ by the work of resampling alone.

    >>> import torch
    >>> from diffstride import models
    >>> model = models.create("unet", num_classes=2, dims=1, in_channels=1, width=0.125)
    >>> model(torch.rand(2, 1, 101)).shape
    torch.Size([2, 2, 101])
    """
    if spec.stem != "cifar":
        raise ValueError(
            f"unet has stem='cifar', it begins at full size, to which it returns; got {spec.stem!r}"
        )
    return UNet(spec, spec.read_strides("level", STRIDES, first=2))
