"""What to do differently while torch follows a computation instead of only carrying it out."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

# Some workarounds are for the oldest version alone: with others they would cost something.
OLD_TORCH = tuple(int(number) for number in torch.__version__.split(".")[:2]) < (2, 7)


def is_traced() -> bool:
    """Return whether ``torch.jit.trace`` looks on."""
    return bool(torch.jit.is_tracing())  # type: ignore[attr-defined,no-untyped-call]


def is_followed() -> bool:
    """Return whether a compiler, ``torch.jit.trace`` or forward-mode differentiation looks on.

    All want operations that they can see through. The first two plan memory by themselves; the
    last gives wrong second derivatives of functions whose derivatives are written by hand.
    """
    return torch.compiler.is_compiling() or is_traced() or forward_ad._current_level >= 0


@contextmanager
def unfollowed() -> Iterator[None]:
    """For ``torch.jit.trace``: sizes and values read in here are numbers, not steps of the trace.

    A trace is for inputs of one size and for the strides of its moment, whatever is done.
    """
    state = torch._C._get_tracing_state()
    set_state: Any = torch._C._set_tracing_state  # type: ignore[attr-defined]
    set_state(None)
    try:
        yield
    finally:
        set_state(state)


def shape_of(x: Tensor) -> tuple[int, ...]:
    """Return the shape of a tensor, in plain numbers also while ``torch.jit.trace`` looks on.

    >>> shape_of(torch.ones(2, 3))
    (2, 3)
    """
    if is_traced():
        with unfollowed():
            return tuple(x.shape)
    return tuple(x.shape)
