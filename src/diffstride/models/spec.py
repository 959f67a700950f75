"""What a network is asked to be, and the parts it is built of in 1, 2 or 3 dimensions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, TypeAlias

from torch import nn

from diffstride.core import arguments
from diffstride.layers.factory import KINDS, Downsampling, downsample

Stride: TypeAlias = float | Sequence[float]

STEMS = ("cifar", "imagenet")
_CONVOLUTIONS: dict[int, Any] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
_NORMS: dict[int, Any] = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
_MEANS: dict[int, Any] = {
    1: nn.AdaptiveAvgPool1d,
    2: nn.AdaptiveAvgPool2d,
    3: nn.AdaptiveAvgPool3d,
}
_POOLS: dict[int, Any] = {1: nn.MaxPool1d, 2: nn.MaxPool2d, 3: nn.MaxPool3d}


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
    options: Mapping[str, Any]
    """Of the layers that downsample."""

    def __post_init__(self) -> None:
        arguments.check_choice(self.downsampling, KINDS, "downsampling")
        arguments.check_choice(self.stem_downsampling, KINDS, "stem_downsampling")
        arguments.check_choice(self.stem, STEMS, "stem")
        if self.dims not in _CONVOLUTIONS:
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
        """A number of channels, ``width`` times as many."""
        return max(1, round(self.width * number))

    def read_strides(self, sites: Sequence[str], default: Sequence[Stride]) -> list[Stride]:
        """One stride a site, or a ValueError that names the sites.

        They may also be given flat, one a site and axis.
        """
        if self.strides is None:
            return list(default)
        flat = len(self.strides) == len(sites) * self.dims and self.dims > 1
        if flat and all(isinstance(stride, Real) for stride in self.strides):
            return [self.strides[i : i + self.dims] for i in range(0, len(self.strides), self.dims)]  # type: ignore[misc]
        if len(self.strides) != len(sites):
            raise ValueError(
                f"strides must be {len(sites)}, one for each of {', '.join(sites)}; "
                f"got {self.strides!r}"
            )
        return list(self.strides)

    def downsample(self, stride: Stride, kind: str | None = None) -> Downsampling:
        """A downsampling of the kind asked for, or of another."""
        return downsample(
            kind or self.downsampling,
            stride,
            self.dims,
            smoothness=self.smoothness,
            shared=self.shared,
            **self.options,
        )

    def conv(self, inputs: int, outputs: int, kernel: int, **options: Any) -> nn.Module:
        """A convolution without bias that keeps the size, apart from its stride."""
        options = {"padding": kernel // 2, "bias": False, **options}
        return _CONVOLUTIONS[self.dims](inputs, outputs, kernel, **options)  # type: ignore[no-any-return]

    def norm(self, channels: int, **options: Any) -> nn.Module:
        return _NORMS[self.dims](channels, **options)  # type: ignore[no-any-return]

    def stem_conv(self, outputs: int, kernel: int, stride: Stride) -> list[nn.Module]:
        """The first convolution, which downsamples as ``stem_downsampling`` says."""
        layer, conv_stride = self.downsample(stride, self.stem_downsampling)
        return [self.conv(self.in_channels, outputs, kernel, stride=conv_stride), layer]

    def stem_pool(self) -> nn.Module:
        """The pooling of an ImageNet stem."""
        return _POOLS[self.dims](3, 2, padding=1)  # type: ignore[no-any-return]

    def mean(self) -> nn.Module:
        """The mean over space."""
        return nn.Sequential(_MEANS[self.dims](1), nn.Flatten())


def initialise(model: nn.Module) -> None:
    """He initialisation of all convolutions."""
    for module in model.modules():
        if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
