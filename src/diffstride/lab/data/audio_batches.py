"""Batches of windows of one second: random ones for training, all of them for testing."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from diffstride.lab.data.labelled_files import DataError
from diffstride.lab.data.loader import Loader
from diffstride.lab.data.recordings import WINDOW_LENGTH, Recordings


class AudioBatches(Loader):
    """A loader of random windows: waves (batch, samples) and labels by task.

    In each batch all tasks have the same number of windows, or one more.
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
        super().__init__(seed)
        self.tasks = dict(tasks)
        self.batch_size = batch_size
        self.steps = steps or max(1, max(map(len, tasks.values())) * len(tasks) // batch_size)

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[dict[str, tuple[Tensor, Tensor]]]:
        rank, processes = self.place()
        generator = self.generator(0)
        order = {name: torch.tensor([], dtype=torch.long) for name in self.tasks}
        for _ in range(self.steps):
            batch = {}
            for i, (name, recordings) in enumerate(self.tasks.items()):
                number = len(range(i, self.batch_size, len(self.tasks)))
                while len(order[name]) < number:  # every recording once, then all of them again
                    again = torch.randperm(len(recordings), generator=generator)
                    order[name] = torch.cat([order[name], again])
                chosen, order[name] = order[name][:number], order[name][number:]
                fractions = torch.rand(number, generator=generator, dtype=torch.float64)
                # Shifted from task to task, so that processes get as many examples in all.
                part = slice((rank - i) % processes, None, processes)
                places = [
                    (recording, int(x * (max(0, recordings.length(recording) - WINDOW_LENGTH) + 1)))
                    for recording, x in zip(
                        chosen[part].tolist(), fractions[part].tolist(), strict=True
                    )
                ]
                batch[name] = (recordings.windows(places), recordings.labels[chosen[part]])
            yield batch


class AudioEvaluation(Loader):
    """A loader of all recordings, cut into windows one after another; a rest is one too.

    Yields, for one task at a time, waves (batch, samples) and the number of the recording that
    each is cut from.
    """

    def __init__(self, tasks: Mapping[str, Recordings], batch_size: int) -> None:
        super().__init__()
        self.tasks = dict(tasks)
        self.batches: list[tuple[str, list[tuple[int, int]]]] = []
        for name, recordings in tasks.items():
            places = [
                (recording, first)
                for recording in range(len(recordings))
                for first in range(0, recordings.length(recording), WINDOW_LENGTH)
            ]
            starts = range(0, len(places), batch_size)
            self.batches += [(name, places[start : start + batch_size]) for start in starts]

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[dict[str, tuple[Tensor, Tensor]]]:
        rank, processes = self.place()
        for name, batch in self.batches:
            places = batch[rank::processes]
            numbers = torch.tensor([recording for recording, _ in places], dtype=torch.long)
            yield {name: (self.tasks[name].windows(places), numbers)}
