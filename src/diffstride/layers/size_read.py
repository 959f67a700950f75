"""What a layer that is undone tells the layer that undoes it: the size that it read last."""

import threading
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from diffstride.core.tracing import shape_of

FORWARD = -1
"""What torch calls the backward pass that a thread carries out where it carries out none."""


class SizeRead:
    """The spatial size that a layer read last: numbers alone, that no state and no copy has.

    The layer and those that undo it share one. Threads that run a network side by side, as
    ``nn.DataParallel`` does with copies of its layers, see each the size that they read themselves.
    """

    def __init__(self) -> None:
        self.last: tuple[int, ...] | None = None
        self.is_of_thread = False
        self._of_threads = threading.local()

    def note(self, size: tuple[int, ...]) -> None:
        """Remember a size."""
        if torch.compiler.is_dynamo_compiling():
            from diffstride.layers import outside_graphs  # which loads the compiler

            outside_graphs.note(self, size)
        else:
            self.note_in_thread(size)

    def note_in_graph(self, size: tuple[int, ...]) -> None:
        """Remember a size in a graph, which can't look into threads."""
        self.last, self.is_of_thread = size, False

    def note_in_thread(self, size: tuple[int, ...]) -> None:
        """Remember a size that this thread has read."""
        self.last, self.is_of_thread = size, True
        self._of_threads.read = size, _backward_pass()

    def read(self) -> tuple[int, ...] | None:
        """Return the size that was read last; by this thread, if it has read one."""
        if torch.compiler.is_dynamo_compiling() or not self.is_of_thread:
            return self.last
        # A backward pass that computes something again may do so in a thread of its own, as on a
        # GPU. What such a thread has read in an earlier one is of another input.
        size, during = getattr(self._of_threads, "read", (None, None))
        return size if during in (FORWARD, _backward_pass()) else self.last

    def __reduce__(self) -> tuple[type["SizeRead"], tuple[()]]:
        return SizeRead, ()  # a copy has read nothing yet


class NotesInput:
    """A hook before a layer of torch that stands where one was that is undone: it notes sizes too.

    ``shortening`` is by how many samples less an axis had when it came to the layer that was there,
    behind a convolution.
    """

    def __init__(self, size_read: SizeRead, shortening: Sequence[int]) -> None:
        self.size_read, self.shortening = size_read, tuple(shortening)

    def __call__(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        axes = zip(shape_of(inputs[0])[-len(self.shortening) :], self.shortening, strict=True)
        self.size_read.note(tuple(n - k for n, k in axes))


def _backward_pass() -> int:
    """Return the number of the backward pass that this thread carries out."""
    return torch._C._current_graph_task_id()  # as torch.utils.checkpoint asks for it
