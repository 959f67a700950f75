"""What all loaders share: random numbers that can be repeated, and the part of each process."""

from collections.abc import Callable

import torch


class Loader:
    """The base of loaders whose batches depend on seed and epoch alone.

    So a run that is continued sees what it would have seen. Several processes share every batch.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.epoch: Callable[[], int] = lambda: 0
        """Returns the number of the epoch; whoever trains sets it."""
        self.place: Callable[[], tuple[int, int]] = lambda: (0, 1)
        """Returns the number of this process, and how many there are; whoever trains sets it."""

    def generator(self, *purpose: int) -> torch.Generator:
        """Return a generator of random numbers for one purpose in this epoch, such as a step."""
        mixed = 0
        for number in (self.seed, self.epoch(), *purpose):
            mixed = mixed * 1_000_003 + number
        return torch.Generator().manual_seed(mixed % 2**63)
