"""What to do differently while torch records a computation instead of only carrying it out."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


def is_traced() -> bool:
    """Whether ``torch.jit.trace`` looks on."""
    return bool(torch.jit.is_tracing())  # type: ignore[attr-defined,no-untyped-call]


def is_recorded() -> bool:
    """Whether a compiler or ``torch.jit.trace`` looks on.

    Both want operations that they can see through, and plan memory by themselves.
    """
    return torch.compiler.is_compiling() or is_traced()


@contextmanager
def unrecorded() -> Iterator[None]:
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
    """The shape of a tensor, in plain numbers also while ``torch.jit.trace`` looks on.

    >>> shape_of(torch.ones(2, 3))
    (2, 3)
    """
    if is_traced():
        with unrecorded():
            return tuple(x.shape)
    return tuple(x.shape)
