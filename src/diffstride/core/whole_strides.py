"""Sizes that a stride makes as in a strided convolution, ⌈N/S⌉, for the methods that need no basis.

They are described, with what each was published as, in ``docs/rivals.md``.
"""

import math
from collections.abc import Sequence

from diffstride.core import arguments
from diffstride.core.windows import FLOAT32


def strided_length(size: int, stride: float) -> int:
    """Return ⌈N/S⌉, how many samples of an axis a stride leaves: at least 1, at most N.

    A size that is whole but for what single precision made of the stride is not rounded up.

    >>> strided_length(7, 2), strided_length(2, 5)
    (4, 1)
    """
    return max(1, min(size, math.ceil(size / stride / (1 + 4 * FLOAT32))))


def strided_size(size: Sequence[int], strides: Sequence[float]) -> tuple[int, ...]:
    """Return ⌈N/S⌉ for each axis."""
    arguments.check_strides(strides)
    arguments.check_sizes(size)
    return tuple(strided_length(n, s) for n, s in zip(size, strides, strict=True))


def whole_strides(stride: arguments.Numbers, axes: int, method: str) -> tuple[int, ...]:
    """Return one whole stride for each axis; raise a ValueError for any other."""
    strides = arguments.per_axis(stride, axes, "stride")
    arguments.check_strides(strides)
    if not all(s.is_integer() for s in strides):
        raise ValueError(
            f"stride must be whole for {method}, which moves by whole samples; got {strides}: "
            f"round it, or use 'spectral', 'diffstride' or 'bilinear', which take any stride"
        )
    return tuple(int(s) for s in strides)
