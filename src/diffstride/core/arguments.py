"""Reading arguments: what was given, or an error that says what was expected."""

import math
from collections.abc import Collection, Sequence
from numbers import Real
from typing import Any, TypeAlias

from torch import Tensor

from diffstride.core.tracing import is_traced, unfollowed

Numbers: TypeAlias = float | Sequence[float] | Tensor


def to_numbers(value: Numbers, name: str) -> float | tuple[float, ...]:
    """Read a number, or a flat sequence of numbers, out of what a user may pass as one.

    Raises:
        TypeError: if it holds no numbers, or its numbers can't be read (a tensor on the meta
            device, or one that ``torch.func.vmap`` maps over).
    """
    if isinstance(value, Tensor):
        if is_traced():
            with unfollowed():
                return to_numbers(_read(value, name), name)
        value = _read(value, name)
    several = isinstance(value, Sequence) and not isinstance(value, str)
    numbers: Sequence[Any] = value if several else [value]  # type: ignore[assignment]
    if not all(isinstance(number, Real) for number in numbers):
        raise TypeError(f"{name} must be a number or one number per axis, got {value!r}")
    floats = tuple(float(number) for number in numbers)
    return floats if several else floats[0]


def _read(tensor: Tensor, name: str) -> float | list[float]:
    if tensor.ndim > 1:
        raise TypeError(f"{name} must have one dimension at most, got {tuple(tensor.shape)}")
    try:
        # item() and not tolist(): inside torch.func.grad a tensor has values but no storage.
        return [v.item() for v in tensor.unbind()] if tensor.ndim == 1 else tensor.item()
    except RuntimeError as error:
        raise TypeError(
            f"{name} must have values that can be read, for the output size depends on them, got a "
            f"tensor on the meta device or mapped by vmap: pass numbers, or map the input alone"
        ) from error


def per_axis(value: Numbers, axes: int, name: str) -> tuple[float, ...]:
    """Return one number for each of ``axes`` axes; a single number stands for all of them.

    >>> per_axis(2, 3, "stride")
    (2.0, 2.0, 2.0)
    """
    numbers = to_numbers(value, name)
    if isinstance(numbers, float):
        return (numbers,) * axes
    if len(numbers) != axes:
        raise ValueError(
            f"{name} must be one number or {axes} (one per spatial axis), "
            f"got {len(numbers)}: {numbers}"
        )
    return numbers


def check_strides(strides: Sequence[float], name: str = "stride") -> None:
    """Raise a ValueError unless every stride is a finite number of at least 1."""
    for stride in strides:
        if not math.isfinite(stride):
            raise ValueError(f"{name} must be finite, got {stride} in {tuple(strides)}")
        if stride < 1:
            raise ValueError(f"{name} must be at least 1, got {stride} in {tuple(strides)}")


def check_tensor(x: object) -> None:
    """Raise a TypeError unless ``x`` is a floating-point tensor."""
    if not isinstance(x, Tensor):
        raise TypeError(f"input must be a tensor, got {type(x).__name__}")
    if not x.is_floating_point():
        raise TypeError(f"input must be floating point, got {x.dtype}: convert it first")


def check_rank(x: Tensor, axes: int) -> None:
    """Raise a ValueError unless ``x`` has ``axes`` spatial axes behind its channels."""
    if axes < 1 or x.ndim not in (axes + 1, axes + 2):
        raise ValueError(
            f"input must be (batch, channels, *spatial) or (channels, *spatial) with {axes} "
            f"spatial axes, got {x.ndim} dimensions of shape {tuple(x.shape)}"
        )


def check_choice(value: str, choices: Collection[str], name: str) -> None:
    """Raise a ValueError unless ``value`` is one of ``choices``."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}; got {value!r}")


def check_sizes(size: Sequence[int]) -> None:
    """Raise a ValueError unless every axis has at least 1 sample."""
    if any(n < 1 for n in size):
        raise ValueError(
            f"the input size must be at least 1 on every axis, got {tuple(size)}: if a stride "
            f"before it has grown so far that nothing was left, hold that with max_stride"
        )


def spatial_size(size: int | Sequence[int], axes: int) -> tuple[int, ...]:
    """Return a size without batch and channels, as a tuple of ``axes`` integers.

    >>> spatial_size((32, 24), 2)
    (32, 24)
    """
    spatial = (size,) if isinstance(size, int) else tuple(size)
    if len(spatial) != axes:
        raise ValueError(f"size must have {axes} spatial axes and no others, got {spatial}")
    return spatial


def one_given(
    stride: Numbers | None, output_size: Numbers | None, name: str = "stride"
) -> tuple[str, Numbers]:
    """Return the name and value of what says the size, or raise a ValueError unless one does."""
    both = {name: stride, "output_size": output_size}
    given = [(name, value) for name, value in both.items() if value is not None]
    if len(given) == 1:
        return given[0]
    raise ValueError(
        f"exactly one of {name} and output_size must be given, got {name}={stride!r} and "
        f"{output_size=}"
    )


def whole_numbers(wanted: Numbers, axes: int) -> tuple[int, ...]:
    """Return an output size as one integer per axis.

    >>> whole_numbers(3, 2)
    (3, 3)
    """
    numbers = per_axis(wanted, axes, "output_size")
    if not all(number.is_integer() and number >= 1 for number in numbers):
        raise ValueError(f"output_size must be whole numbers of at least 1, got {numbers}")
    return tuple(int(number) for number in numbers)


def fixed_size(size: Sequence[int], wanted: Numbers, way: str = "down") -> tuple[int, ...]:
    """Return an output size that was given, if it lies on the way from an input of this size."""
    check_sizes(size)
    made = whole_numbers(wanted, len(size))
    both = list(zip(made, size, strict=True))
    if way == "down" and any(m > n for m, n in both):
        raise ValueError(
            f"output_size must not be larger than the input, got {made} for {tuple(size)}: "
            f"spectral_resize and the layers for the way up make axes longer"
        )
    if way == "up" and any(m < n for m, n in both):
        raise ValueError(
            f"output_size must not be smaller than the input, got {made} for {tuple(size)}: "
            f"spectral_resize and the layers for the way down make axes shorter"
        )
    return made
