"""Convolutions with a learnable stride, as drop-ins for ``torch.nn.ConvNd``."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from diffstride.core import arguments
from diffstride.core.conv import ORDERS, convolve, convolved_size, work_of
from diffstride.core.rule import REPLACING, Rule
from diffstride.core.tracing import shape_of
from diffstride.layers.diffstride import DiffStride1d, DiffStride2d, DiffStride3d, DiffStrideNd
from diffstride.layers.resizer import AxisConstants, Resizer, Size
from diffstride.layers.spectral_pool import SpectralPoolNd


class DiffStrideConvNd(Resizer):
    """Convolution without a stride, then :class:`DiffStrideNd`, in the cheapest exact order."""

    convolution: ClassVar[type[nn.Conv1d] | type[nn.Conv2d] | type[nn.Conv3d]]
    downsampling: ClassVar[type[DiffStrideNd]]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: float | Sequence[float] = 2.0,
        padding: int | Sequence[int] | str = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        order: str = "auto",
        **downsampling: Any,
    ) -> None:
        super().__init__()
        arguments.check_choice(order, ORDERS, "order")
        # Checked, initialised and described by torch itself, then taken over.
        make: Any = self.convolution
        options = (padding, dilation, groups, bias, padding_mode, device, dtype)
        convolution = make(in_channels, out_channels, kernel_size, 1, *options)
        self._description: str = convolution.extra_repr()
        self.kernel_size = convolution.kernel_size
        self.padding, self.padding_mode = convolution.padding, padding_mode
        self.dilation, self.groups = convolution.dilation, groups
        self.order = order
        self.weight: nn.Parameter = convolution.weight
        self.bias: nn.Parameter | None = convolution.bias
        make = {**REPLACING, "device": device, "dtype": dtype, **downsampling}
        self.downsample: DiffStrideNd | SpectralPoolNd = self.downsampling(stride, **make)
        self.axes = self.downsample.axes

    @property
    def rule(self) -> Rule:
        return self.downsample.rule

    @rule.setter
    def rule(self, rule: Rule) -> None:
        self.downsample.rule = rule

    @property
    def stride_owner(self) -> DiffStrideNd | None:
        return self.downsample.stride_owner

    @property
    def stride(self) -> Any:
        """The parameter, with one element per axis, or one in all when shared."""
        return self.downsample.stride

    @property
    def strides(self) -> tuple[float, ...]:
        return self.downsample.strides

    def strides_for(self, size: Sequence[int]) -> tuple[float, ...]:
        return self.downsample.strides_for(self.convolved_size(size))

    def convolved_size(self, size: Sequence[int]) -> tuple[int, ...]:
        """Return the size after the convolution, before it is downsampled."""
        return convolved_size(size, self.kernel_size, padding=self.padding, dilation=self.dilation)

    def size_after(self, size: Sequence[int], strides: Sequence[float]) -> tuple[int, ...]:
        return self.downsample.size_after(self.convolved_size(size), strides)

    def soft_size(self, size: Size, whole: Sequence[int], strides: Size) -> Size:
        return self.downsample.soft_size(self.convolved_size(size), whole, strides)

    def macs(self, channels: int, outputs: int, size: Size, kept: Size) -> Any:
        full = convolved_size(size, self.kernel_size, padding=self.padding, dilation=self.dilation)
        order = None if self.order == "auto" else self.order
        return sum(work_of(self, self.rule, channels, size, full, kept, order))

    def constants(self, size: Sequence[int], like: Tensor) -> list[AxisConstants]:
        return self.downsample.constants(self.convolved_size(size), like)

    def forward(self, x: Tensor) -> Tensor:
        self.downsample.check(x)
        self.note(shape_of(x)[-self.axes :])
        size = self.convolved_size(shape_of(x)[-self.axes :])
        self.downsample.note(size)
        known = self.downsample.prepare(size)
        plans = self.downsample.plans(size, x.device, known)
        names = ("padding", "dilation", "groups", "padding_mode", "order")
        options = {name: getattr(self, name) for name in names}
        return convolve(x, self.weight, self.bias, plans, rule=self.rule, **options)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        # A convolution with a fixed stride has none in its state: this layer keeps the one it has.
        for name, parameter in self.downsample.named_parameters(prefix=f"{prefix}downsample"):
            state_dict.setdefault(name, parameter.detach())
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def extra_repr(self) -> str:
        return self._description.replace(f", stride={(1,) * self.axes}", "")


class DiffStrideConv1d(DiffStrideConvNd):
    """``nn.Conv1d`` whose stride is learned; arguments as for :class:`DiffStrideConv2d`.

    Input (batch, in_channels, N) or (in_channels, N).

    >>> DiffStrideConv1d(2, 4, 5, stride=4.0, padding=2)(torch.rand(8, 2, 100)).shape
    torch.Size([8, 4, 25])
    """

    convolution = nn.Conv1d
    downsampling = DiffStride1d


class DiffStrideConv2d(DiffStrideConvNd):
    """``nn.Conv2d`` whose stride is learned: the convolution without a stride, then DiffStride.

    Input (batch, in_channels, H, W) or (in_channels, H, W), output the same with out_channels, of
    the size of ``nn.Conv2d`` with a stride of 1, divided by S and rounded down.

    The order in which it is computed is the cheapest that gives the same numbers, see
    :func:`diffstride.functional.diff_stride_conv`. The state dict of an ``nn.Conv2d`` loads.

    Args:
        in_channels, out_channels, kernel_size, padding, dilation, groups, bias, padding_mode:
            as for ``nn.Conv2d``.
        device, dtype: of all parameters.
        stride: the initial stride, one number or one per axis, at least 1.
        order: ``"auto"``, ``"after"``, ``"before"``, ``"taps"`` or ``"spectral"``: how, not what.
        downsampling: every other argument of :class:`DiffStride2d`. Windows are tight and R is 1
            unless given, so that sizes are those of a strided convolution.

    Raises:
        ValueError: for an argument out of range; the message names it.

    Attributes:
        weight, bias: as in ``nn.Conv2d``.
        downsample: the :class:`DiffStride2d` that holds the stride. A :class:`SpectralPool2d` may
            take its place, with a stride that is fixed.

    >>> layer = DiffStrideConv2d(3, 8, 3, stride=2.0, padding=1)
    >>> layer(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 8, 16, 16])
    >>> layer
    DiffStrideConv2d(
      3, 8, kernel_size=(3, 3), padding=(1, 1)
      (downsample): DiffStride2d(stride=(2, 2), learnable=True, smoothness=1, convention='tight')
    )
    """

    convolution = nn.Conv2d
    downsampling = DiffStride2d


class DiffStrideConv3d(DiffStrideConvNd):
    """``nn.Conv3d`` whose stride is learned; arguments as for :class:`DiffStrideConv2d`.

    Input (batch, in_channels, D, H, W) or (in_channels, D, H, W).

    >>> DiffStrideConv3d(1, 4, 3, stride=2, padding=1)(torch.rand(1, 8, 8, 8)).shape
    torch.Size([4, 4, 4, 4])
    """

    convolution = nn.Conv3d
    downsampling = DiffStride3d
