"""Recordings as windows of one second: at random for training, all of them for testing."""

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from diffstride.lab.data.recordings import WINDOW, Recordings
from diffstride.lab.data.sources import DataError


class Batches:
    """A loader of random windows: in each batch as many of one task as of any other.

    Yields waves (batch, samples) and labels by task. What is drawn follows from seed and epoch
    alone. Several processes share every batch.
    """

    def __init__(
        self,
        tasks: Mapping[str, Recordings],
        batch_size: int,
        *,
        steps: int | None = None,
        seed: int = 0,
    ) -> None:
        if batch_size < len(tasks):
            raise DataError(
                f"--data.batch_size must be at least the number of tasks, {len(tasks)}, got "
                f"{batch_size}"
            )
        self.tasks = dict(tasks)
        self.batch_size = batch_size
        self.seed = seed
        self.steps = steps or max(1, max(map(len, tasks.values())) * len(tasks) // batch_size)
        self.epoch: Callable[[], int] = lambda: 0
        self.place: Callable[[], tuple[int, int]] = lambda: (0, 1)

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[dict[str, tuple[Tensor, Tensor]]]:
        rank, processes = self.place()
        generator = torch.Generator().manual_seed(
            ((self.seed * 1_000_003 + self.epoch()) * 1_000_003) % 2**63
        )
        order: dict[str, Tensor] = {name: torch.tensor([], dtype=torch.long) for name in self.tasks}
        for _ in range(self.steps):
            batch = {}
            for i, (name, recordings) in enumerate(self.tasks.items()):
                number = len(range(i, self.batch_size, len(self.tasks)))
                while len(order[name]) < number:  # every recording once, then all of them again
                    again = torch.randperm(len(recordings), generator=generator)
                    order[name] = torch.cat([order[name], again])
                chosen, order[name] = order[name][:number], order[name][number:]
                where = torch.rand(number, generator=generator, dtype=torch.float64)
                # Shifted from task to task, so that processes get as many examples in all.
                own = slice((rank - i) % processes, None, processes)
                chosen, where = chosen[own], where[own]
                places = [
                    (r, int(x * (max(0, recordings.length(r) - WINDOW) + 1)))
                    for r, x in zip(chosen.tolist(), where.tolist(), strict=True)
                ]
                batch[name] = (recordings.windows(places), recordings.labels[chosen])
            yield batch


class Evaluation:
    """A loader of all recordings, cut into windows one after another; a rest is one too.

    Yields waves (batch, samples) and of which recording each is, by task.
    """

    def __init__(self, tasks: Mapping[str, Recordings], batch_size: int) -> None:
        self.tasks = dict(tasks)
        self.place: Callable[[], tuple[int, int]] = lambda: (0, 1)
        self.parts = [
            (name, windows[start : start + batch_size])
            for name, recordings in tasks.items()
            for windows in [_cut(recordings)]
            for start in range(0, len(windows), batch_size)
        ]

    def __len__(self) -> int:
        return len(self.parts)

    def __iter__(self) -> Iterator[dict[str, tuple[Tensor, Tensor]]]:
        rank, processes = self.place()
        for name, windows in self.parts:
            own = windows[rank::processes]
            owners = torch.tensor([recording for recording, _ in own], dtype=torch.long)
            yield {name: (self.tasks[name].windows(own), owners)}


def _cut(recordings: Recordings) -> list[tuple[int, int]]:
    return [
        (recording, first)
        for recording in range(len(recordings))
        for first in range(0, recordings.length(recording), WINDOW)
    ]
