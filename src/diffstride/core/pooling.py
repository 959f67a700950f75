"""Downsampling with a stride that can be learned, its window, and its fixed counterpart."""

from collections.abc import Sequence

import torch
from torch import Tensor

from diffstride.core import arguments
from diffstride.core.per_example import diff_stride_each
from diffstride.core.resample import resample
from diffstride.core.rule import Rule, axis_weights, plan
from diffstride.core.tracing import shape_of


def diff_stride(
    x: Tensor,
    stride: float | Sequence[float] | Tensor,
    *,
    smoothness: float | Sequence[float] = 4.0,
    crop: bool = True,
    output_size: int | Sequence[int] | None = None,
    size_multiple: int = 1,
    norm: str = "ortho",
    convention: str = "paper",
    window: str = "ramp",
    basis: str = "fourier",
    path: str = "auto",
) -> Tensor:
    """Downsample by a real stride, differentiably in the input and in the stride.

    For every spatial axis, of N samples and stride S:

    1. kept length M = ⌊N/S + 2R⌋, from 1 to N; ⌊N/S⌋ with ``convention="tight"``;
    2. window m(f) = clip((R + N/(2S) + δ − |f|) / R, 0, 1), see :func:`window`;
    3. y = D · diag(m) · E · x: E finds the M lowest real Fourier coefficients of x, D makes M
       samples of them.

    The gradient of the stride flows through the window; the size is an integer and has none.

    Args:
        x: (batch, channels, *spatial) or (channels, *spatial), floating point, any memory format.
        stride: one number of at least 1 per spatial axis, as numbers or as a tensor; a single
            number stands for every spatial axis of a batched input. A stride above the length of
            its axis acts as that length. A tensor (batch, axes) has the strides of each example.
        smoothness: R, over how many frequencies the window falls, one number or one per axis. With
            0 it does not, and the stride has no gradient.
        crop: False keeps the size and applies the window alone.
        output_size: the size to come out whatever the stride, for compilers and hardware that
            need it to stay; the window still moves with the stride.
        size_multiple: rounds the kept length up to a multiple of this, at most to N.
        norm: ``"ortho"`` (the paper's; a constant grows by √(N/M) per axis), ``"forward"`` (keeps
            the mean) or ``"backward"`` (N/M).
        convention: ``"paper"`` has δ = 1 on the last axis and 0 on the others, ``"symmetric"`` has
            δ = 0 everywhere, so that axes can be swapped. With ``"tight"`` the window's fall ends
            at N/(2S), where that of the others begins, so that stride 2 makes 16 of 32 samples.
        window: the shape of the window's fall, ``"ramp"`` (the paper's) or ``"raised_cosine"``.
        basis: the functions of an axis of which the lowest are kept. ``"fourier"`` (the paper's)
            joins both ends of an axis; ``"dct"``, that of the discrete cosine transform, mirrors
            the axis at its ends. Sizes are the same.
        path: ``"operator"`` (matrix products), ``"fft"``, or ``"auto"``, which takes the cheaper
            one for the length of each axis. The numbers are the same.

    Returns:
        The downsampled tensor, in the dtype and memory format of ``x``; its size is
        ``output_size(x's spatial size, stride, smoothness=smoothness, crop=crop)``. With strides of
        each example's own it is that if ``output_size`` or ``crop=False`` says one size for all,
        else a list of (channels, *spatial), one for each example: :func:`padded` makes a batch.

    Raises:
        TypeError: if ``x`` is not a floating-point tensor, or the stride's values can't be read.
        ValueError: if another argument is not what is said above; the message names it.

    >>> x = torch.ones(1, 1, 32, 32)
    >>> stride = torch.tensor([2.0, 2.0], requires_grad=True)
    >>> diff_stride(x, stride).shape
    torch.Size([1, 1, 24, 24])
    >>> diff_stride(x, 3.1, smoothness=1.0, norm="forward").mean()
    tensor(1.)
    """
    rule = Rule(smoothness, crop, output_size, size_multiple, norm, convention, window, basis, path)
    if isinstance(stride, Tensor) and stride.ndim == 2:
        return diff_stride_each(x, stride, rule)  # type: ignore[return-value]
    axes = spatial_axes(x, stride, "stride")
    return resample(x, plan(rule, shape_of(x)[-axes:], stride, x.device), path=path)


def spectral_pool(
    x: Tensor,
    stride: float | Sequence[float] | None = None,
    *,
    output_size: int | Sequence[int] | None = None,
    norm: str = "ortho",
    basis: str = "fourier",
    path: str = "auto",
) -> Tensor:
    """Downsample by cutting the spectrum: :func:`diff_stride` without a window.

    An axis of N samples keeps M = ⌊N/S⌋ of them (at least 1), or ``output_size``.

    Args:
        x: (batch, channels, *spatial) or (channels, *spatial), floating point, any memory format.
        stride: one number of at least 1 per spatial axis, or one for all of a batched input.
        output_size: the size to come out, instead of a stride; at most the size of ``x``.
        norm, basis, path: as for :func:`diff_stride`.

    Raises:
        TypeError: if ``x`` is not a floating-point tensor.
        ValueError: if not exactly one of ``stride`` and ``output_size`` is given, or an argument is
            out of range; the message names it.

    >>> spectral_pool(torch.rand(2, 3, 15, 20), stride=2.5).shape
    torch.Size([2, 3, 6, 8])
    >>> spectral_pool(torch.rand(2, 3, 15, 20), output_size=(7, 20)).shape
    torch.Size([2, 3, 7, 20])
    """
    name, given = arguments.one_given(stride, output_size)
    rule = Rule(0.0, output_size=output_size, norm=norm, basis=basis, path=path)
    axes = spatial_axes(x, given, name)
    # A size that is given goes with any stride.
    plans = plan(rule, shape_of(x)[-axes:], 1.0 if stride is None else stride, x.device)
    return resample(x, plans, path=path)


def output_size(
    size: int | Sequence[int],
    stride: arguments.Numbers,
    *,
    smoothness: float | Sequence[float] = 4.0,
    crop: bool = True,
    size_multiple: int = 1,
    convention: str = "paper",
    window: str = "ramp",
) -> tuple[int, ...]:
    """Return the spatial size that :func:`diff_stride` makes of ``size``.

    With ``smoothness=0`` it is also the one that :func:`spectral_pool` makes.

    Args:
        size: N of each axis; one number for one axis.
        stride, smoothness, crop, size_multiple, convention, window: as for :func:`diff_stride`.

    Raises:
        ValueError: if an argument is out of range; the message names it.

    >>> output_size((32, 32), 2.0)
    (24, 24)
    >>> output_size((32, 32), (2.0, 3.1), smoothness=0)
    (16, 10)
    >>> output_size((32, 32), 2.1, size_multiple=8)
    (24, 24)
    >>> output_size((32, 32), 2.0, convention="tight")
    (16, 16)
    """
    spatial = (size,) if isinstance(size, int) else tuple(size)
    rule = Rule(smoothness, crop, None, size_multiple, convention=convention, window=window)
    strides = arguments.per_axis(stride, len(spatial), "stride")
    arguments.check_strides(strides)
    return rule.size_after(spatial, strides)


def window(
    size: int,
    stride: float | Tensor,
    *,
    smoothness: float = 4.0,
    offset: float = 0.0,
    crop: bool = True,
    convention: str = "symmetric",
    window: str = "ramp",
    basis: str = "fourier",
) -> Tensor:
    """Return the window of one axis, for the frequencies f that are kept.

    They are 0, 1, … ⌊M/2⌋ in the Fourier basis, and 0, ½, 1, … (M−1)/2 in that of the DCT.

    1. M = ``output_size(size, stride)``, or N without ``crop``.
    2. S is clamped to what an axis of N samples can use, from S_min(N) to N.
    3. m(f) = clip((R + N/(2S) + δ − f) / R, 0, 1) for each f, or another window of that cut-off;
       for R = 0 it is 1 on the frequencies that are kept. A tight window ends at the cut-off:
       m(f) = clip((N/(2S) − f) / min(R, N/(2S)), 0, 1).

    Args:
        size: N, the length of the axis.
        stride: S, a number or a tensor with one; differentiable.
        smoothness: R, how many frequencies the fall takes.
        offset: δ; 1 on the last axis with ``convention="paper"``, else 0.
        crop: whether frequencies that are not kept are left out.
        convention: ``"tight"`` ends the fall at N/(2S), the others begin it there.
        window, basis: as for :func:`diff_stride`.

    Returns:
        A vector of one value from 0 to 1 for each frequency, in the dtype of ``stride`` if it has
        one.

    Raises:
        ValueError: if an argument is out of range; the message names it.

    >>> window(12, 3.0, smoothness=2.0)
    tensor([1.0000, 1.0000, 1.0000, 0.5000, 0.0000])
    >>> window(6, 2.0, smoothness=1.0, basis="dct")
    tensor([1.0000, 1.0000, 1.0000, 1.0000, 0.5000])
    """
    rule = Rule(smoothness, convention=convention, window=window, basis=basis)
    (kept,) = rule.band((size,), arguments.per_axis(stride, 1, "stride"))
    dtype = torch.get_default_dtype()
    if not isinstance(stride, Tensor):
        stride = torch.tensor(stride, dtype=torch.float64)
    elif stride.is_floating_point():
        dtype = stride.dtype
    length = kept if crop else size
    (width,) = rule.widths(1)
    weights, _ = axis_weights(rule, size, kept, length, stride.reshape(()), width, offset)
    return weights.to(dtype)


def spatial_axes(x: Tensor, given: arguments.Numbers, name: str) -> int:
    """Return how many spatial axes ``x`` has: one for each number, or all if only one is given."""
    arguments.check_tensor(x)
    if isinstance(given, Tensor) and given.ndim <= 1:
        shape = shape_of(given)  # without reading it
    else:
        numbers = arguments.to_numbers(given, name)
        shape = (len(numbers),) if isinstance(numbers, tuple) else ()
    if shape:
        arguments.check_rank(x, shape[0])
        return shape[0]
    if x.ndim < 3:
        raise ValueError(
            f"input must be (batch, channels, *spatial) when {name} is a single number, got "
            f"{x.ndim} dimensions of shape {tuple(x.shape)}: pass one number per axis"
        )
    return x.ndim - 2
