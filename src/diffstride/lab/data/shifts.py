"""Examples that are moved by whole samples: what leaves is lost, and nothing comes in again."""

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor


def moved(x: Tensor, offsets: Sequence[int]) -> Tensor:
    """Return examples (batch, channels, *spatial) moved by so many samples along each axis.

    Above 0 is down, or to the right, or later. What goes over a border is lost, and what comes in
    at the other side repeats the row of samples that was outermost there: nothing is wrapped, and
    no edge comes in that was not there before.

    >>> moved(torch.tensor([[[1.0, 2.0, 3.0, 4.0]]]), (1,))
    tensor([[[1., 1., 2., 3.]]])
    >>> moved(torch.tensor([[[1.0, 2.0, 3.0, 4.0]]]), (-2,))
    tensor([[[3., 4., 4., 4.]]])
    """
    if len(offsets) != x.ndim - 2:
        wanted = f"one offset for each spatial axis of {tuple(x.shape)}"
        raise ValueError(f"moved needs {wanted}, got {tuple(offsets)}")
    for dim, offset in enumerate(offsets, start=2):
        if offset:
            size = x.shape[dim]
            places = (torch.arange(size, device=x.device) - offset).clamp(0, size - 1)
            x = x.index_select(dim, places)
    return x


def directions(along: Sequence[bool]) -> list[tuple[int, ...]]:
    """Return every direction in which examples can be moved along some of their axes.

    Each has −1, 0 or 1 for each axis, with 0 for all axes that are not to be moved along. In an
    image there are eight: up, down, left, right and the four between them, which come last.

    >>> directions([True, False])
    [(-1, 0), (1, 0)]
    >>> len(directions([True, True]))
    8
    """
    steps = [(-1, 0, 1) if is_moved else (0,) for is_moved in along]
    every = filter(any, itertools.product(*steps))
    return sorted(every, key=lambda direction: [step != 0 for step in direction[::-1]])
