"""Layers for the way up where no layer on the way down says how far: by a factor, or learned."""

from collections.abc import Sequence
from typing import Any

import torch

from diffstride.core import arguments
from diffstride.core.rule import REPLACING, AxisPlan, Rule, plan
from diffstride.layers.diffstride import DiffStrideNd
from diffstride.layers.resizer import Resizer, Size


class SpectralUpsampleNd(Resizer):
    """Spectral upsampling on any number of axes: zeros for the frequencies that are not there."""

    is_planned = False

    def __init__(
        self,
        scale: float | Sequence[float] | None = None,
        *,
        norm: str = "ortho",
        basis: str = "fourier",
        path: str = "auto",
        output_size: int | Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        arguments.one_given(scale, output_size, "scale")
        if output_size is not None:
            output_size = arguments.whole_numbers(output_size, self.axes)
        self.rule = Rule(0.0, output_size=output_size, norm=norm, basis=basis, path=path, way="up")
        self.scale: tuple[float, ...] | None = None
        if scale is not None:
            self.scale = arguments.per_axis(scale, self.axes, "scale")
            arguments.check_strides(self.scale, "scale")

    @property
    def strides(self) -> tuple[float, ...]:
        """The scales, one per axis; 1 where the output size is given instead."""
        return (1.0,) * self.axes if self.scale is None else self.scale

    def strides_for(self, size: Sequence[int]) -> tuple[float, ...]:
        if self.scale is not None:
            return tuple(1 / scale for scale in self.scale)
        return tuple(n / m for n, m in zip(size, self.output_size(size), strict=True))

    def scale_stride(self, factor: float) -> None:
        if self.scale is None:
            super().scale_stride(factor)
        # A hair less: a size that is S·N exactly must not be rounded up for a last digit.
        self.scale = tuple(max(1.0, s * (1 - 2.0**-40)) for s in self.scaled_strides(factor))

    def plans(self, size: Size, device: torch.device, known: Size | None = None) -> list[AxisPlan]:
        return plan(self.rule, size, self.strides, device, numbers=self.strides)

    def extra_repr(self) -> str:
        scale = f"scale=({', '.join(f'{s:.4g}' for s in self.strides)})"
        size = scale if self.scale else f"output_size={self.rule.output_size}"
        basis = "" if self.basis == "fourier" else f", basis={self.basis!r}"
        path = "" if self.path == "auto" else f", path={self.path!r}"
        return f"{size}, norm={self.norm!r}{basis}{path}"


class SpectralUpsample1d(SpectralUpsampleNd):
    """Spectral upsampling along one axis; arguments as for :class:`SpectralUpsample2d`.

    Input (batch, channels, N) or (channels, N), output the same with ⌈S·N⌉ samples.

    >>> SpectralUpsample1d(scale=2.5)(torch.rand(8, 16, 40)).shape
    torch.Size([8, 16, 100])
    """

    axes = 1


class SpectralUpsample2d(SpectralUpsampleNd):
    """Spectral upsampling of images: the same frequencies on more samples, and no others.

    Input (batch, channels, H, W) or (channels, H, W), output the same with ⌈S·H⌉ × ⌈S·W⌉ samples,
    of which ``SpectralPool2d`` with the stride S and the same norm makes the input again, exactly.

    Args:
        scale: S, one number of at least 1, or one per axis; need not be whole.
        norm, basis, path: as for :class:`DiffStride2d`. With ``"ortho"`` a constant becomes
            smaller by as much as it grows on the way down, with ``"forward"`` it stays.
        output_size: the size to come out, instead of a scale; at least that of the input.

    Raises:
        ValueError: if not exactly one of ``scale`` and ``output_size`` is given, or an argument is
            out of range; the message names it.

    >>> SpectralUpsample2d(scale=2)
    SpectralUpsample2d(scale=(2, 2), norm='ortho')
    >>> SpectralUpsample2d(output_size=(37, 50))(torch.rand(8, 16, 17, 22)).shape
    torch.Size([8, 16, 37, 50])
    """

    axes = 2


class SpectralUpsample3d(SpectralUpsampleNd):
    """Spectral upsampling along three axes; arguments as for :class:`SpectralUpsample2d`.

    Input (batch, channels, D, H, W) or (channels, D, H, W).

    >>> SpectralUpsample3d(scale=(1, 2, 2))(torch.rand(2, 4, 8, 8, 8)).shape
    torch.Size([2, 4, 8, 16, 16])
    """

    axes = 3


class DiffUpsampleNd(DiffStrideNd):
    """Upsampling with a learnable stride, on any number of axes.

    This is :func:`diffstride.functional.diff_upsample` with a parameter. All that is said of the
    parameter of :class:`DiffStrideNd` holds of this one too.
    """

    way = "up"
    is_planned = False

    def __init__(
        self,
        stride: float | Sequence[float] = 2.0,
        *,
        smoothness: float | Sequence[float] = REPLACING["smoothness"],
        convention: str = REPLACING["convention"],
        **options: Any,
    ) -> None:
        if "crop" in options:
            raise TypeError(
                f"{type(self).__name__} has no argument crop: there is nothing to cut on the way up"
            )
        super().__init__(stride, smoothness=smoothness, convention=convention, **options)

    def strides_for(self, size: Sequence[int]) -> tuple[float, ...]:
        return tuple(1 / stride for stride in self.strides)


class DiffUpsample1d(DiffUpsampleNd):
    """Upsampling along one axis, for signals; arguments as for :class:`DiffUpsample2d`.

    Input (batch, channels, N) or (channels, N), output the same with ⌈S·N⌉ samples.

    >>> DiffUpsample1d(stride=4.0)(torch.rand(8, 16, 25)).shape
    torch.Size([8, 16, 100])
    """

    axes = 1


class DiffUpsample2d(DiffUpsampleNd):
    """Upsampling with a learnable stride along each of two axes, for decoders without an encoder.

    Input (batch, channels, H, W) or (channels, H, W), output the same with ⌈S·H⌉ × ⌈S·W⌉ samples,
    or ⌈S·(H − 2R)⌉ × ⌈S·(W − 2R)⌉ if windows are not tight: that of which :class:`DiffStride2d`
    with the same arguments makes H × W. What is computed, in what order:
    :func:`diffstride.functional.diff_upsample`. A decoder that has an encoder is better made of
    layers that follow it: ``layer.up()``.

    Args:
        stride: the initial stride, by which axes grow, one number or one per axis, at least 1.
        smoothness, convention: of the window; R is 1 and windows are tight unless given, so that
            stride 2 makes 32 × 32 of 16 × 16.
        options: every other argument of :class:`DiffStride2d` but ``crop``: ``shared``,
            ``learnable``, ``output_size``, ``size_multiple``, ``min_stride``, ``max_stride``,
            ``norm``, ``window``, ``basis``, ``path``, ``device``, ``dtype``. As a stride grows, so
            do maps: ``max_stride`` bounds the memory that they take.

    Raises:
        TypeError: for an argument that it does not have.
        ValueError: for an argument out of range; the message names it.

    Attributes:
        stride: the parameter, with one element per axis, or one in all when shared.

    >>> layer = DiffUpsample2d(stride=2.0)
    >>> layer
    DiffUpsample2d(stride=(2, 2), learnable=True, smoothness=1, convention='tight')
    >>> layer.output_size((16, 17))
    (32, 34)
    >>> layer(torch.rand(8, 16, 16, 17)).square().mean().backward()
    >>> layer.stride.grad.shape
    torch.Size([2])
    """

    axes = 2


class DiffUpsample3d(DiffUpsampleNd):
    """Upsampling along three axes, for volumes and video; arguments as for :class:`DiffUpsample2d`.

    Input (batch, channels, D, H, W) or (channels, D, H, W).

    >>> DiffUpsample3d(stride=(1.0, 2.0, 2.0))(torch.rand(2, 4, 8, 8, 8)).shape
    torch.Size([2, 4, 8, 16, 16])
    """

    axes = 3
