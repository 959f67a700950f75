"""Sizes, bounds and gains of the operator: plain numbers in, plain numbers out.

Everything that must be known before a tensor is touched is decided here, so that it can be tested
without tensors and read without knowing Fourier analysis.
"""

import math
from collections.abc import Sequence

from diffstride.core import arguments


def kept_length(size: int, stride: float, smoothness: float) -> int:
    """M, the length of an axis after downsampling: ``floor(N/S + 2R)``, from 1 to N.

    >>> kept_length(32, 2.0, 4.0)
    24
    """
    stride = min(max(stride, 1.0), float(size))
    return max(1, math.floor(min(float(size), size / stride + 2 * smoothness)))


def lowest_stride(size: int, smoothness: float, offset: float) -> float:
    """S_min(N): the stride at which the window is ½ at the highest frequency of the axis.

    Below it, the ramp of the window would lie beyond the spectrum, where nothing is left to tell
    the stride to grow. Axes too short for such a stride get 1.

    >>> round(lowest_stride(32, 4.0, 0.0), 4)
    1.1429
    """
    half = size // 2 - smoothness / 2 - offset
    if half <= 0 or size / (2 * half) > size:
        return 1.0
    return size / (2 * half)


def offsets(axes: int, convention: str) -> tuple[float, ...]:
    """δ for each axis: by the paper's equations 1 on the last axis, which has the half spectrum."""
    last = 1.0 if convention == "paper" else 0.0
    return (0.0,) * (axes - 1) + (last,)


def scale(size: int, kept: int, norm: str) -> float:
    """What a transform pair without factors on its way in, 1/M on its way out, is multiplied by.

    The names are those of ``torch.fft``: a constant comes out N/M times as large with
    ``"backward"``, √(N/M) times with ``"ortho"`` and unchanged with ``"forward"``.
    """
    return {"backward": 1.0, "ortho": math.sqrt(kept / size), "forward": kept / size}[norm]


def output_size(
    size: int | Sequence[int],
    stride: arguments.Numbers,
    *,
    smoothness: float = 4.0,
    crop: bool = True,
    size_multiple: int = 1,
) -> tuple[int, ...]:
    """The spatial size that :func:`diff_stride` makes of ``size``.

    With ``smoothness=0`` it is also the one that :func:`spectral_pool` makes.

    >>> output_size((32, 32), 2.0)
    (24, 24)
    >>> output_size((32, 32), (2.0, 3.1), smoothness=0)
    (16, 10)
    >>> output_size((32, 32), 2.1, size_multiple=8)
    (24, 24)
    """
    sizes = (size,) if isinstance(size, int) else tuple(size)
    kept = _kept_lengths(sizes, stride, smoothness)
    if not crop:
        return sizes
    arguments.check_static(crop, None, size_multiple)
    return tuple(
        min(n, -(-m // size_multiple) * size_multiple) for n, m in zip(sizes, kept, strict=True)
    )


def pooled_size(
    size: Sequence[int],
    stride: arguments.Numbers | None,
    output_size: arguments.Numbers | None,
) -> tuple[int, ...]:
    """The spatial size that spectral pooling makes of ``size``, by a stride or as it is told.

    >>> pooled_size((32, 32), 3.1, None), pooled_size((32, 32), None, (7, 32))
    ((10, 10), (7, 32))
    """
    name, given = arguments.one_given(stride, output_size)
    if name == "stride":
        return _kept_lengths(size, given, smoothness=0.0)
    arguments.check_sizes(size)
    kept = arguments.whole_numbers(given, len(size))
    if any(m > n for m, n in zip(kept, size, strict=True)):
        raise ValueError(
            f"output_size must not be larger than the input, got {kept} for {tuple(size)}"
        )
    return kept


def _kept_lengths(
    size: Sequence[int], stride: arguments.Numbers, smoothness: float
) -> tuple[int, ...]:
    strides = arguments.per_axis(stride, len(size), "stride")
    arguments.check_strides(strides)
    arguments.check_smoothness(smoothness)
    arguments.check_sizes(size)
    return tuple(kept_length(n, s, smoothness) for n, s in zip(size, strides, strict=True))
