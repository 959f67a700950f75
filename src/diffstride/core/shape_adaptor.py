"""The shape adaptor: a learnable mixture of a smaller map and the map itself (Liu et al. 2020)."""

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from diffstride.core import arguments
from diffstride.core.pooling import spatial_axes
from diffstride.core.tracing import shape_of
from diffstride.core.whole_strides import strided_length, strided_size

MODES = {1: "linear", 2: "bilinear", 3: "trilinear"}


def shape_adaptor(
    x: Tensor,
    share: float | Sequence[float] | Tensor,
    *,
    largest: int = 3,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Downsample by a factor from 1/K to 1 that is learned as the mixture of two branches.

    With one share σ for all axes:

    1. the factor s = 1/K + (1 − 1/K)·σ, and the size M = ⌈s·N⌉ of each axis;
    2. the smaller branch: the maximum of each K samples along every axis, ⌈N/K⌉ of them, resized to
       M by linear interpolation;
    3. the larger branch: the input, resized to M likewise;
    4. y = (1 − σ)·smaller + σ·larger.

    With a share for each axis, the same along one axis after the other. The gradient of the share
    flows through the mixture alone: sizes are whole numbers.

    Args:
        x: (batch, channels, *spatial) or (channels, *spatial), floating point, any memory format.
        share: σ, from 0 to 1: a number or a tensor without axes, for all axes together, or a
            sequence or a tensor with one for each.
        largest: K, the largest stride, at which σ = 0.
        output_size: M, if it is known already; with one share for all, ``x`` may then have no
            batch.

    Raises:
        TypeError: if ``x`` is not a floating-point tensor.
        ValueError: if a share is not from 0 to 1, ``largest`` is not a whole number above 1, or
            there are not 1 to 3 spatial axes, with one share for all or for each.

    >>> import torch
    >>> x = torch.tensor([[[0.0, 4.0, 2.0, 6.0]]])
    >>> shape_adaptor(x, 0.0, largest=2)
    tensor([[[4., 6.]]])
    >>> shape_adaptor(x, 1.0, largest=2)
    tensor([[[0., 4., 2., 6.]]])
    """
    check_largest(largest)
    largest = int(largest)
    arguments.check_tensor(x)
    axes = spatial_axes(x, share, "share") if output_size is None else len(output_size)
    arguments.check_rank(x, axes)
    if axes not in MODES:
        raise ValueError(f"a shape adaptor has 1 to 3 spatial axes, got {axes}")
    if output_size is None or not isinstance(share, Tensor):
        shares = arguments.per_axis(share, axes, "share")
        if not all(0 <= number <= 1 for number in shares):
            raise ValueError(f"share must be from 0 to 1, got {shares}")
    elif shape_of(share) not in ((), (axes,)):
        raise ValueError(
            f"share must have one number, or {axes} (one per spatial axis), got the shape "
            f"{shape_of(share)}"
        )
    if output_size is None:
        strides = [stride_of(number, largest) for number in shares]
        output_size = strided_size(shape_of(x)[-axes:], strides)
    batch = x if x.ndim == axes + 2 else x[None]
    if isinstance(share, Tensor):
        share = share.to(x.device, x.dtype)
    if isinstance(share, Sequence) or (isinstance(share, Tensor) and share.ndim):
        for axis in range(axes):
            batch = _mixed(batch, share[axis], largest, output_size, [axis])
    else:
        batch = _mixed(batch, share, largest, output_size, range(axes))
    return batch if x.ndim == axes + 2 else batch[0]


def _mixed(x: Tensor, share: Any, largest: int, kept: Sequence[int], axes: Sequence[int]) -> Tensor:
    """Return the mixture of both branches along some axes of a batch."""
    size = list(shape_of(x)[2:])
    kernel = [largest if i in axes else 1 for i in range(len(kept))]
    wanted = [kept[i] if i in axes else n for i, n in enumerate(size)]
    pool: Any = getattr(F, f"max_pool{len(kept)}d")
    smaller = _resized(pool(x, kernel, ceil_mode=True), wanted)
    y: Tensor = smaller * (1 - share) + _resized(x, wanted) * share
    return y


def _resized(x: Tensor, size: Sequence[int]) -> Tensor:
    if list(shape_of(x)[2:]) == list(size):
        return x
    return F.interpolate(x, tuple(size), mode=MODES[len(size)])


def stride_of(share: Any, largest: int) -> Any:
    """Return 1/s, the stride that goes with a share.

    >>> stride_of(0.25, 3)
    2.0
    """
    return 1 / (1 / largest + (1 - 1 / largest) * share)


def share_of(stride: Any, largest: int) -> Any:
    """Return the share that goes with a stride.

    >>> round(share_of(2.0, 3), 9)
    0.25
    """
    return (1 / stride - 1 / largest) / (1 - 1 / largest)


def check_largest(largest: float) -> None:
    """Raise a ValueError unless a map can be pooled by this number."""
    if not (largest > 1 and float(largest).is_integer()):
        raise ValueError(
            f"the largest stride of a shape adaptor must be a whole number above 1, got {largest}"
        )


def adaptor_macs(size: Sequence[Any], kept: Sequence[Any], largest: int, is_one: bool) -> Any:
    """Return the multiply-accumulates of one channel: both interpolations and the mixture.

    A linear interpolation along d axes weighs 2^d samples for each that it makes, and a map that
    has its size already is not interpolated.

    >>> adaptor_macs((32, 32), (16, 16), 4, is_one=True)
    2560
    """
    if is_one:
        return _macs(size, kept, largest, range(len(size)))
    current, total = list(size), 0
    for axis in range(len(size)):
        wanted = [kept[i] if i == axis else n for i, n in enumerate(current)]
        total = total + _macs(current, wanted, largest, [axis])
        current = wanted
    return total


def _macs(size: Sequence[Any], kept: Sequence[Any], largest: int, axes: Sequence[int]) -> Any:
    before = [int(n) for n in size]
    pooled = [strided_length(n, largest) if i in axes else n for i, n in enumerate(before)]
    after = [int(m) for m in kept]
    interpolations = (before != after) + (pooled != after)
    return math.prod(kept) * (2 + interpolations * 2 ** len(axes))
