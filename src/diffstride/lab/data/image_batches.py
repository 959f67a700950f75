"""Batches of images, augmented as a whole: no image is touched by itself."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from diffstride.lab.data.images import Encoded, ImageSplit, Split


@dataclass(frozen=True)
class Augmentation:
    """What is done to training images at random."""

    crop_padding: int = 0
    flip: bool = False

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        if self.crop_padding:
            images = shift(images, self.crop_padding, generator)
        if self.flip:
            images = flip(images, generator)
        return images


def flip(images: Tensor, generator: torch.Generator) -> Tensor:
    """Mirror each image left to right, or not."""
    mirrored = torch.rand(len(images), 1, 1, 1, generator=generator) < 0.5
    return torch.where(mirrored, images.flip(-1), images)


def shift(images: Tensor, padding: int, generator: torch.Generator) -> Tensor:
    """Cut each image out of itself with a border of zeros, anywhere."""
    batch, channels, height, width = images.shape
    padded = F.pad(images, [padding] * 4)
    top, left = torch.randint(2 * padding + 1, (2, batch, 1), generator=generator)
    rows = (top + torch.arange(height))[:, None, :, None]
    columns = (left + torch.arange(width))[:, None, None, :]
    each = torch.arange(batch)[:, None, None, None]
    return padded[each, torch.arange(channels)[None, :, None, None], rows, columns]


class Batches:
    """A loader: iterate for normalised images and labels, anew and otherwise in each epoch.

    Order and augmentation follow from seed and epoch alone, so that a run that is continued sees
    what it would have seen. Several processes share every batch: each reads its part, and draws
    its own augmentation.
    """

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
        self.split = split
        self.batch_size = batch_size
        self.mean, self.std = mean.reshape(1, -1, 1, 1), std.reshape(1, -1, 1, 1)
        self.augmentation = augmentation
        self.shuffle = shuffle
        self.seed = seed
        self.epoch: Callable[[], int] = lambda: 0
        """Says which epoch it is: whoever trains sets it."""
        self.place: Callable[[], tuple[int, int]] = lambda: (0, 1)
        """Says which of how many processes this is: whoever trains sets it."""

    def __len__(self) -> int:
        # In training a rest would make a step of its own, noisy and of another size.
        if self.shuffle:
            return max(1, len(self.split) // self.batch_size)
        return -(-len(self.split) // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.arange(len(self.split))
        if self.shuffle:
            order = torch.randperm(len(self.split), generator=self._generator(0))
        batches = torch.split(order, self.batch_size)[: len(self)]
        rank, processes = self.place()
        parts = [batch[rank::processes] for batch in batches]
        for step, (chosen, pixels) in enumerate(zip(parts, self._pixels(parts, rank), strict=True)):
            images = (pixels.float() / 255 - self.mean) / self.std
            if self.augmentation is not None:
                images = self.augmentation(images, self._generator(step + 1, 2 * rank))
            yield images, self.split.labels[chosen]

    def _pixels(self, parts: list[Tensor], rank: int) -> Iterator[Tensor]:
        def take(step: int) -> Tensor:
            generator = self._generator(step + 1, 2 * rank + 1) if self.shuffle else None
            return self.split.take(parts[step], generator)

        if not isinstance(self.split, Encoded):
            yield from map(take, range(len(parts)))
            return
        # Decoding takes as long as a step on a fast device: be two batches ahead.
        with ThreadPoolExecutor(1) as ahead:
            coming = [ahead.submit(take, step) for step in range(min(2, len(parts)))]
            for step in range(len(parts)):
                if step + 2 < len(parts):
                    coming.append(ahead.submit(take, step + 2))
                yield coming.pop(0).result()

    def _generator(self, step: int, use: int = 0) -> torch.Generator:
        mixed = 0
        for number in (self.seed, self.epoch(), step, use):
            mixed = mixed * 1_000_003 + number
        return torch.Generator().manual_seed(mixed % 2**63)


def statistics(split: ImageSplit) -> tuple[Tensor, Tensor]:
    """The mean and standard deviation of each channel, of values from 0 to 1.

    Of files, which take long to decode, those of a thousand spread over the set.
    """
    if isinstance(split, Split):
        images = split.images
    else:
        images = split.take(torch.linspace(0, len(split) - 1, min(len(split), 1000)).long())
    mean, std = [], []
    for channel in images.transpose(0, 1):  # one at a time: as floats, all of them may not fit
        values = channel.float() / 255
        mean.append(values.mean())
        std.append(values.std().clamp(min=1e-3))
    return torch.stack(mean), torch.stack(std)
