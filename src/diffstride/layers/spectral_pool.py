"""Layers that downsample by cutting the spectrum, with a stride that is given."""

from collections.abc import Sequence

import torch

from diffstride.core import arguments
from diffstride.core.rule import AxisPlan, Rule, plan
from diffstride.layers.resizer import Resizer, Size


class SpectralPoolNd(Resizer):
    """Spectral pooling on any number of axes: :func:`diffstride.functional.spectral_pool`."""

    def __init__(
        self,
        stride: float | Sequence[float] | None = None,
        *,
        norm: str = "ortho",
        basis: str = "fourier",
        path: str = "auto",
        output_size: int | Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        arguments.one_given(stride, output_size)
        if output_size is not None:
            output_size = arguments.whole_numbers(output_size, self.axes)
        self.rule = Rule(0.0, output_size=output_size, norm=norm, basis=basis, path=path)
        self.stride: tuple[float, ...] | None = None
        if stride is not None:
            self.stride = arguments.per_axis(stride, self.axes, "stride")
            arguments.check_strides(self.stride)

    @property
    def strides(self) -> tuple[float, ...]:
        """The strides, one per axis; 1 where the output size is given instead."""
        return (1.0,) * self.axes if self.stride is None else self.stride

    def strides_for(self, size: Sequence[int]) -> tuple[float, ...]:
        if self.stride is not None:
            return self.stride
        return tuple(n / m for n, m in zip(size, self.output_size(size), strict=True))

    def scale_stride(self, factor: float) -> None:
        if self.stride is None:
            super().scale_stride(factor)
        # A hair less: a size that is N/S exactly must not be rounded down for a last digit.
        strides = self.scaled_strides(factor)
        self.stride = tuple(max(1.0, stride * (1 - 2.0**-40)) for stride in strides)

    def plans(self, size: Size, device: torch.device, known: Size | None = None) -> list[AxisPlan]:
        return plan(self.rule, size, self.strides, device, numbers=self.strides)

    def extra_repr(self) -> str:
        stride = f"stride=({', '.join(f'{s:.4g}' for s in self.strides)})"
        size = stride if self.stride else f"output_size={self.rule.output_size}"
        basis = "" if self.basis == "fourier" else f", basis={self.basis!r}"
        path = "" if self.path == "auto" else f", path={self.path!r}"
        return f"{size}, norm={self.norm!r}{basis}{path}"


class SpectralPool1d(SpectralPoolNd):
    """Spectral pooling along one axis; arguments as for :class:`SpectralPool2d`.

    Input (batch, channels, N) or (channels, N), output the same with ⌊N/S⌋ samples.

    >>> SpectralPool1d(stride=2.5)(torch.rand(8, 16, 100)).shape
    torch.Size([8, 16, 40])
    """

    axes = 1


class SpectralPool2d(SpectralPoolNd):
    """Spectral pooling of images: keeps the ⌊H/S⌋ × ⌊W/S⌋ lowest frequencies, with no window.

    Input (batch, channels, H, W) or (channels, H, W).

    Args:
        stride: one number of at least 1, or one per axis; need not be whole.
        norm, basis, path: as for :class:`DiffStride2d`.
        output_size: the size to come out, instead of a stride.

    Raises:
        ValueError: if not exactly one of ``stride`` and ``output_size`` is given, or an argument is
            out of range; the message names it.

    >>> SpectralPool2d(stride=2.5)
    SpectralPool2d(stride=(2.5, 2.5), norm='ortho')
    >>> SpectralPool2d(output_size=(7, 9))(torch.rand(8, 16, 32, 32)).shape
    torch.Size([8, 16, 7, 9])
    """

    axes = 2


class SpectralPool3d(SpectralPoolNd):
    """Spectral pooling along three axes; arguments as for :class:`SpectralPool2d`.

    Input (batch, channels, D, H, W) or (channels, D, H, W).

    >>> SpectralPool3d(stride=2)(torch.rand(2, 4, 8, 16, 16)).shape
    torch.Size([2, 4, 4, 8, 8])
    """

    axes = 3
