"""How long a step of training takes."""

import time
from collections.abc import Callable


class StepTimes:
    """The mean time of the training steps of an epoch: no evaluation, no writing of files.

    A step lasts from the end of the one before to its own end, the making of its batch included.
    The first one of a process also loads code, allocates memory and starts threads: unless it is
    the only one of its epoch, it does not count.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.is_first = clock, True
        self.begin_epoch()

    def begin_epoch(self) -> None:
        self.began, self.ended, self.number = self.clock(), 0.0, 0
        self.first: float | None = None

    def end_step(self) -> None:
        self.ended, self.number = self.clock(), self.number + 1
        if self.is_first:
            self.is_first, self.first = False, self.ended

    def mean(self) -> float:
        """Return the seconds of a step of this epoch; it must have had one."""
        if self.first is not None and self.number > 1:
            return (self.ended - self.first) / (self.number - 1)
        return (self.ended - self.began) / self.number
