"""Batches of images, all images of a batch augmented at once."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from diffstride.lab.data.images import DecodedImages, EncodedImages, ImageSplit
from diffstride.lab.data.loader import Loader


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
    cut = [
        image[:, top : top + height, left : left + width]
        for image, (top, left) in zip(padded, corners, strict=True)
    ]
    return torch.stack(cut)


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
        self.split = split
        self.batch_size = batch_size
        self.mean, self.std = mean.reshape(1, -1, 1, 1), std.reshape(1, -1, 1, 1)
        self.augmentation = augmentation
        self.shuffle = shuffle

    def __len__(self) -> int:
        # In training the last images, too few for a batch, would make a noisy step: leave them out.
        if self.shuffle:
            return max(1, len(self.split) // self.batch_size)
        return -(-len(self.split) // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.arange(len(self.split))
        if self.shuffle:
            order = torch.randperm(len(self.split), generator=self.generator(0, 0))
        rank, processes = self.place()
        batches = [
            batch[rank::processes] for batch in torch.split(order, self.batch_size)[: len(self)]
        ]
        for step, pixels in enumerate(self._pixels(batches, rank)):
            images = (pixels.float() / 255 - self.mean) / self.std
            if self.augmentation is not None:
                images = self.augmentation(images, self.generator(step + 1, 2 * rank))
            yield images, self.split.labels[batches[step]]

    def _pixels(self, batches: list[Tensor], rank: int) -> Iterator[Tensor]:
        def take(step: int) -> Tensor:
            generator = self.generator(step + 1, 2 * rank + 1) if self.shuffle else None
            return self.split.take(batches[step], generator)

        if not isinstance(self.split, EncodedImages):
            yield from map(take, range(len(batches)))
            return
        # Decoding takes as long as a step on a fast device: be two batches ahead.
        with ThreadPoolExecutor(1) as thread:
            coming: deque[Future[Tensor]] = deque()
            for step in range(len(batches)):
                coming.append(thread.submit(take, step))
                if len(coming) > 2:
                    yield coming.popleft().result()
            yield from (batch.result() for batch in coming)


def statistics(split: ImageSplit) -> tuple[Tensor, Tensor]:
    """Return the mean and standard deviation of each channel, of values from 0 to 1.

    For files, which take long to decode, they are those of a thousand spread over the set.
    """
    if isinstance(split, DecodedImages):
        images = split.images
    else:
        images = split.take(torch.linspace(0, len(split) - 1, min(len(split), 1000)).long())
    # One channel at a time: as floats, all of them may not fit into memory.
    channels = (channel.float() / 255 for channel in images.transpose(0, 1))
    moments = [(values.mean(), values.std().clamp(min=1e-3)) for values in channels]
    mean, std = (torch.stack(numbers) for numbers in zip(*moments, strict=True))
    return mean, std
