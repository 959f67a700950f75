"""Batches of images, and of windows of one second of recordings.

Batches depend on seed and epoch alone, so a run that is continued sees what it would have seen.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from diffstride.lab.data.images import DecodedImages, ImageSplit
from diffstride.lab.data.labelled_files import DataError
from diffstride.lab.data.recordings import WINDOW_LENGTH, Recordings

Tasks: TypeAlias = Mapping[str, Recordings]


class Loader:
    """The base of loaders. Whoever trains sets ``epoch`` and ``place``."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.epoch: Callable[[], int] = lambda: 0
        # The number of this process, and how many there are: they share every batch.
        self.place: Callable[[], tuple[int, int]] = lambda: (0, 1)

    def generator(self, *purpose: int) -> torch.Generator:
        """Return a generator of random numbers for one purpose in this epoch, such as a step."""
        mixed = 0
        for number in (self.seed, self.epoch(), *purpose):
            mixed = mixed * 1_000_003 + number
        return torch.Generator().manual_seed(mixed % 2**63)


@dataclass(frozen=True)
class Augmentation:
    """Random changes to training images."""

    crop_padding: int = 0
    flip: bool = False

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        if self.crop_padding:
            images = shift(images, self.crop_padding, generator)
        return flip(images, generator) if self.flip else images


def flip(images: Tensor, generator: torch.Generator) -> Tensor:
    """Mirror each image left to right, or not."""
    mirrored = torch.rand(len(images), 1, 1, 1, generator=generator) < 0.5
    return torch.where(mirrored, images.flip(-1), images)


def shift(images: Tensor, padding: int, generator: torch.Generator) -> Tensor:
    """Cut each image out of itself with a border of zeros, anywhere."""
    height, width = images.shape[-2:]
    padded = F.pad(images, [padding] * 4)
    corners = torch.randint(2 * padding + 1, (2, len(images)), generator=generator).T.tolist()
    places = zip(padded, corners, strict=True)
    return torch.stack([x[:, top : top + height, left : left + width] for x, (top, left) in places])


class ImageBatches(Loader):
    """A loader of normalised images and labels; each process augments its part of a batch."""

    def __init__(
        self,
        split: ImageSplit,
        batch_size: int,
        *,
        mean: Tensor,
        std: Tensor,
        augmentation: Augmentation | None = None,
        shuffle: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__(seed)
        self.split, self.batch_size = split, batch_size
        self.mean, self.std = mean.reshape(1, -1, 1, 1), std.reshape(1, -1, 1, 1)
        self.augmentation, self.shuffle = augmentation, shuffle

    def __len__(self) -> int:
        # In training the last images, too few for a batch, would make a noisy step: leave them out.
        if self.shuffle:
            return max(1, len(self.split) // self.batch_size)
        return -(-len(self.split) // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        order = torch.arange(len(self.split))
        if self.shuffle:
            order = torch.randperm(len(self.split), generator=self.generator(0, 0))
        rank, processes = self.place()
        batches = [b[rank::processes] for b in torch.split(order, self.batch_size)[: len(self)]]

        def take(step: int) -> Tensor:
            changed = self.augmentation is not None
            generator = self.generator(step + 1, 2 * rank + 1) if changed else None
            return self.split.take(batches[step], generator)

        # Decoding takes as long as a step on a fast device: be two batches ahead.
        with ThreadPoolExecutor(1) as thread:
            coming = deque(thread.submit(take, step) for step in range(len(batches))[:2])
            for step, batch in enumerate(batches):
                if step + 2 < len(batches):
                    coming.append(thread.submit(take, step + 2))
                yield self.finished(coming.popleft().result().float() / 255, batch, step)

    def finished(self, images: Tensor, numbers: Tensor, step: int) -> Any:
        """Return what a step gets, of this process' part of its images, of values from 0 to 1."""
        return self.augmented(self.normalised(images), step), self.split.labels[numbers]

    def seen(self, numbers: Tensor) -> Tensor:
        """Return some images as the network gets them, but of values from 0 to 255."""
        return self.split.take(numbers).float()

    def normalised(self, images: Tensor) -> Tensor:
        """Return images of values from 0 to 1 as the network gets them."""
        return (images - self.mean) / self.std

    def augmented(self, images: Tensor, step: int) -> Tensor:
        """Return the images of a step after random changes, if there are to be any."""
        if self.augmentation is None:
            return images
        return self.augmentation(images, self.generator(step + 1, 2 * self.place()[0]))


def statistics(split: ImageSplit) -> tuple[Tensor, Tensor]:
    """Return the mean and standard deviation of each channel, of values from 0 to 1."""
    if isinstance(split, DecodedImages):
        images = split.images
    else:  # files take long to decode: a thousand, spread over the set
        images = split.take(torch.linspace(0, len(split) - 1, min(len(split), 1000)).long())
    # One channel at a time: as floats, all of them may not fit into memory.
    channels = (channel.float() / 255 for channel in images.transpose(0, 1))
    moments = [torch.stack([x.mean(), x.std().clamp(min=1e-3)]) for x in channels]
    mean, std = torch.stack(moments, dim=1)
    return mean, std


class AudioBatches(Loader):
    """A loader of random windows, as many of each task: waves (batch, samples) and labels."""

    def __init__(
        self, tasks: Tasks, batch_size: int, *, steps: int | None = None, seed: int = 0
    ) -> None:
        if batch_size < len(tasks):
            wanted = f"at least the number of tasks, {len(tasks)}"
            raise DataError(f"--data.batch_size must be {wanted}, got {batch_size}")
        super().__init__(seed)
        self.tasks, self.batch_size = dict(tasks), batch_size
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
                share = slice((rank - i) % processes, None, processes)
                chosen = chosen[share]
                spare = [max(0, recordings.length(j) - WINDOW_LENGTH) + 1 for j in chosen.tolist()]
                firsts = (fractions[share] * torch.tensor(spare)).long().tolist()
                places = list(zip(chosen.tolist(), firsts, strict=True))
                batch[name] = (recordings.windows(places), recordings.labels[chosen])
            yield batch


class AudioEvaluation(Loader):
    """A loader of all recordings, cut into windows one after another; a rest is one too.

    Yields, for one task at a time, waves (batch, samples) and the number of each one's recording.
    """

    def __init__(self, tasks: Tasks, batch_size: int) -> None:
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
