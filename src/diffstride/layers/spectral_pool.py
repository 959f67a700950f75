"""Layers that downsample by cutting the spectrum, with a stride that is given."""

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor, nn

from diffstride.core import arguments, sizes
from diffstride.core.pooling import spectral_pool


class SpectralPoolNd(nn.Module):
    """Spectral pooling on any number of axes: :func:`diffstride.functional.spectral_pool`."""

    axes: ClassVar[int]

    def __init__(
        self,
        stride: float | Sequence[float] | None = None,
        *,
        output_size: int | Sequence[int] | None = None,
        norm: str = "ortho",
        path: str = "auto",
    ) -> None:
        super().__init__()
        arguments.one_given(stride, output_size)
        arguments.check_choice(norm, arguments.NORMS, "norm")
        arguments.check_choice(path, arguments.PATHS, "path")
        self.stride: tuple[float, ...] | None = None
        self.fixed_size: tuple[int, ...] | None = None
        if stride is not None:
            self.stride = arguments.per_axis(stride, self.axes, "stride")
            arguments.check_strides(self.stride)
        elif output_size is not None:
            self.fixed_size = arguments.whole_numbers(output_size, self.axes)
        self.norm = norm
        self.path = path

    def output_size(self, size: int | Sequence[int]) -> tuple[int, ...]:
        """The spatial size that comes out for an input of spatial size ``size``."""
        return sizes.pooled_size(
            arguments.spatial_size(size, self.axes), self.stride, self.fixed_size
        )

    def forward(self, x: Tensor) -> Tensor:
        return spectral_pool(
            x, self.stride, output_size=self.fixed_size, norm=self.norm, path=self.path
        )

    def extra_repr(self) -> str:
        size = (
            f"output_size={self.fixed_size}"
            if self.stride is None
            else f"stride=({', '.join(f'{s:.4g}' for s in self.stride)})"
        )
        path = "" if self.path == "auto" else f", path={self.path!r}"
        return f"{size}, norm={self.norm!r}{path}"


class SpectralPool1d(SpectralPoolNd):
    """Spectral pooling along one axis; arguments as for :class:`SpectralPool2d`.

    >>> import torch
    >>> SpectralPool1d(stride=2.5)(torch.rand(8, 16, 100)).shape
    torch.Size([8, 16, 40])
    """

    axes = 1


class SpectralPool2d(SpectralPoolNd):
    """Spectral pooling of images: keeps the ⌊H/S⌋ × ⌊W/S⌋ lowest frequencies, with no window.

    Input (batch, channels, H, W) or (channels, H, W).

    Args:
        stride: one number of at least 1, or one per axis; need not be whole.
        output_size: the size to come out, instead of a stride.
        norm: ``"ortho"``, ``"forward"`` or ``"backward"``: by how much a constant grows.
        path: ``"auto"``, ``"operator"`` or ``"fft"``: how it is computed, not what.

    Raises:
        ValueError: if not exactly one of ``stride`` and ``output_size`` is given, or an argument is
            out of range; the message names it.

    >>> import torch
    >>> SpectralPool2d(stride=2.5)
    SpectralPool2d(stride=(2.5, 2.5), norm='ortho')
    >>> SpectralPool2d(output_size=(7, 9))(torch.rand(8, 16, 32, 32)).shape
    torch.Size([8, 16, 7, 9])
    """

    axes = 2


class SpectralPool3d(SpectralPoolNd):
    """Spectral pooling along three axes; arguments as for :class:`SpectralPool2d`.

    >>> import torch
    >>> SpectralPool3d(stride=2)(torch.rand(2, 4, 8, 16, 16)).shape
    torch.Size([2, 4, 4, 8, 8])
    """

    axes = 3
