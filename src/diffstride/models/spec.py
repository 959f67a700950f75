"""What a network is asked to be, and the layers it is built of in 1, 2 or 3 dimensions."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, TypeAlias

from torch import nn

from diffstride.core import arguments
from diffstride.layers.factory import KINDS, Downsampling, downsample
from diffstride.layers.joined import JoiningSequential

Stride: TypeAlias = float | Sequence[float]

STEMS = ("cifar", "imagenet")
PLACEMENTS = ("after", "before")


@dataclass(frozen=True)
class Spec:
    """The arguments of :func:`diffstride.models.create`, checked, and what they make."""

    num_classes: int | Mapping[str, int]
    in_channels: int
    downsampling: str
    strides: Sequence[Stride] | None
    smoothness: float
    shared: bool
    width: float
    dims: int
    stem: str
    stem_downsampling: str
    placement: str
    options: Mapping[str, Any]
    """Of the layers that downsample."""

    def __post_init__(self) -> None:
        arguments.check_choice(self.downsampling, KINDS, "downsampling")
        arguments.check_choice(self.stem_downsampling, KINDS, "stem_downsampling")
        arguments.check_choice(self.stem, STEMS, "stem")
        arguments.check_choice(self.placement, PLACEMENTS, "placement")
        if self.dims not in (1, 2, 3):
            raise ValueError(f"dims must be 1, 2 or 3, got {self.dims}")
        if self.strides is not None and not isinstance(self.strides, Sequence):
            raise ValueError(f"strides must be a sequence, one a site, got {self.strides!r}")
        if not self.width > 0:
            raise ValueError(f"width must be above 0, got {self.width}")

    @property
    def classes(self) -> int:
        if not isinstance(self.num_classes, int):
            raise ValueError(
                f"num_classes must be one number for this network, got {self.num_classes!r}: "
                f"several tasks are for audio_cnn"
            )
        return self.num_classes

    def channels(self, number: int) -> int:
        """Return ``width`` times as many channels, at least one."""
        return max(1, round(self.width * number))

    def read_strides(self, kind: str, default: Sequence[float], first: int = 1) -> list[Stride]:
        """Return the strides of sites that are called ``kind`` and numbered from ``first`` on."""
        strides, count = default if self.strides is None else self.strides, len(default)
        is_flat = len(strides) == count * self.dims and self.dims > 1  # one for each site and axis
        if is_flat and all(isinstance(stride, Real) for stride in strides):
            return [strides[i : i + self.dims] for i in range(0, len(strides), self.dims)]  # type: ignore[misc]
        if len(strides) != count:
            sites = ", ".join(f"{kind} {i}" for i in range(first, first + count))
            raise ValueError(f"strides must be {count}, one for each of {sites}; got {strides!r}")
        return list(strides)

    def downsample(self, stride: Stride | None, kind: str | None = None) -> Downsampling:
        """Return a downsampling of the kind asked for, or of another; without a stride, none."""
        if stride is None:
            return Downsampling(nn.Identity(), (1,) * self.dims)
        options = {"smoothness": self.smoothness, "shared": self.shared, **self.options}
        return downsample(kind or self.downsampling, stride, self.dims, **options)

    @property
    def is_first(self) -> bool:
        """Whether a block downsamples before its first convolution."""
        return self.placement == "before"

    def placed(self, layers: Sequence[nn.Module], after: int, before: int) -> nn.Sequential:
        """Return layers of which one downsamples, numbered by where it comes with each placement.

        Their names are those that they have with the placement ``"after"``.
        """
        order = list(range(len(layers)))
        if self.is_first:
            order.insert(before, order.pop(after))
        return JoiningSequential(OrderedDict((str(i), layers[i]) for i in order))

    def conv(self, inputs: int, outputs: int, kernel: int, **options: Any) -> nn.Module:
        """Return a convolution without bias that keeps the size, apart from its stride."""
        options = {"padding": kernel // 2, "bias": False, **options}
        return self._layer("Conv", inputs, outputs, kernel, **options)

    def norm(self, channels: int, **options: Any) -> nn.Module:
        return self._layer("BatchNorm", channels, **options)

    def stem_conv(self, outputs: int, kernel: int, stride: Stride) -> list[nn.Module]:
        """Return the first convolution, which downsamples as ``stem_downsampling`` says."""
        layer, conv_stride = self.downsample(stride, self.stem_downsampling)
        return [self.conv(self.in_channels, outputs, kernel, stride=conv_stride), layer]

    def stem_layers(self, outputs: int) -> list[nn.Module]:
        """Return a 3×3 convolution, or for large images what ImageNet networks begin with."""
        if self.stem == "cifar":
            return [self.conv(self.in_channels, outputs, 3)]
        pool = self._layer("MaxPool", 3, 2, padding=1)
        return [*self.stem_conv(outputs, 7, 2), self.norm(outputs), nn.ReLU(), pool]

    def mean(self) -> nn.Module:
        """Return the mean over space."""
        return nn.Sequential(self._layer("AdaptiveAvgPool", 1), nn.Flatten())

    def _layer(self, kind: str, *arguments: Any, **options: Any) -> nn.Module:
        """Return a layer of torch for so many dimensions."""
        layer: nn.Module = getattr(nn, f"{kind}{self.dims}d")(*arguments, **options)
        return layer


def initialise(model: nn.Module) -> None:
    """Initialise all convolutions as He et al. do."""
    for module in model.modules():
        if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
