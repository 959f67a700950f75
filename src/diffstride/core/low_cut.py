"""Frequency low-cut pooling: the lowest frequencies at a whole stride (Grabinski et al. 2022)."""

from collections.abc import Sequence

from torch import Tensor

from diffstride.core.pooling import spatial_axes, spectral_pool
from diffstride.core.tracing import shape_of
from diffstride.core.whole_strides import strided_size, whole_strides


def frequency_low_cut(x: Tensor, stride: int | Sequence[int] = 2) -> Tensor:
    """Downsample by a whole stride, by cutting all but the lowest frequencies.

    For every spatial axis, of N samples and stride S:

    1. the discrete Fourier transform;
    2. the M = ⌈N/S⌉ lowest frequencies are kept, as many negative as positive ones; for an even M
       the real part of frequency M/2, which M samples have a cosine of, and no sine;
    3. the inverse transform, on M samples, so that the mean stays what it was.

    The same as :func:`diffstride.functional.spectral_pool` with ``output_size`` ⌈N/S⌉ and
    ``norm="forward"``; the paper has S = 2.

    Args:
        x: (batch, channels, *spatial) or (channels, *spatial), floating point, any memory format.
        stride: one whole number per spatial axis, or one for all of a batched input.

    Raises:
        TypeError: if ``x`` is not a floating-point tensor.
        ValueError: if a stride is not whole.

    >>> import torch
    >>> frequency_low_cut(torch.tensor([[[1.0, -1.0, 1.0, -1.0]]]), 2)
    tensor([[[0., 0.]]])
    """
    strides = whole_strides(stride, spatial_axes(x, stride, "stride"), "frequency low-cut pooling")
    kept = strided_size(shape_of(x)[-len(strides) :], strides)
    return spectral_pool(x, output_size=kept, norm="forward")
