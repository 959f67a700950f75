"""Batches of images in memory, augmented as a whole: no image is touched by itself."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from diffstride.data.images import Split


@dataclass(frozen=True)
class Augmentation:
    """What is done to training images at random."""

    crop_padding: int = 0
    flip: bool = False
    inception_crop: bool = False

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        if self.inception_crop:
            images = inception_crop(images, generator)
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


def inception_crop(images: Tensor, generator: torch.Generator) -> Tensor:
    """A random part of each image, 8 % to 100 % of its area and 3:4 to 4:3, at full size."""
    batch, _, height, width = images.shape
    area, ratio, y, x = torch.rand(4, batch, generator=generator)
    area = 0.08 + 0.92 * area
    ratio = torch.exp((2 * ratio - 1) * torch.log(torch.tensor(4 / 3)))
    tall, wide = (area / ratio).sqrt().clamp(max=1), (area * ratio).sqrt().clamp(max=1)
    # Coordinates run from −1 to 1; the middle may be anywhere the part still fits.
    theta = torch.zeros(batch, 2, 3)
    theta[:, 0, 0], theta[:, 1, 1] = wide, tall
    theta[:, 0, 2], theta[:, 1, 2] = (2 * x - 1) * (1 - wide), (2 * y - 1) * (1 - tall)
    grid = F.affine_grid(theta, [batch, 1, height, width], align_corners=False)
    return F.grid_sample(images, grid, align_corners=False, padding_mode="reflection")


class Batches:
    """A loader: iterate for normalised images and labels, anew and otherwise in each epoch.

    Order and augmentation follow from seed and epoch alone, so that a run that is continued sees
    what it would have seen. Several processes share every batch: each takes its part.
    """

    def __init__(
        self,
        split: Split,
        batch_size: int,
        *,
        mean: Tensor,
        std: Tensor,
        augmentation: Augmentation | None = None,
        shuffle: bool = False,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if batch_size % world_size:
            raise ValueError(
                f"batch_size must be a multiple of the {world_size} processes, got {batch_size}"
            )
        self.split = split
        self.batch_size = batch_size
        self.mean, self.std = mean.reshape(1, -1, 1, 1), std.reshape(1, -1, 1, 1)
        self.augmentation = augmentation
        self.shuffle = shuffle
        self.seed = seed
        self.rank, self.world_size = rank, world_size
        self.epoch: Callable[[], int] = lambda: 0
        """Says which epoch it is: whoever trains sets it."""

    def __len__(self) -> int:
        # In training a rest would make a step of its own, noisy and of another size.
        if self.shuffle:
            return max(1, len(self.split) // self.batch_size)
        return -(-len(self.split) // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.arange(len(self.split))
        if self.shuffle:
            order = torch.randperm(len(self.split), generator=self._generator(0))
        for step in range(len(self)):
            chosen = order[step * self.batch_size : (step + 1) * self.batch_size]
            images = (self.split.images[chosen].float() / 255 - self.mean) / self.std
            if self.augmentation is not None:
                images = self.augmentation(images, self._generator(step + 1))
            part = slice(self.rank, None, self.world_size)
            yield images[part], self.split.labels[chosen][part]

    def _generator(self, step: int) -> torch.Generator:
        mixed = (self.seed * 1_000_003 + self.epoch()) * 1_000_003 + step
        return torch.Generator().manual_seed(mixed % 2**63)


def statistics(split: Split) -> tuple[Tensor, Tensor]:
    """The mean and standard deviation of each channel, of values from 0 to 1."""
    channels = split.images.transpose(0, 1).flatten(1)
    mean, std = [], []
    for channel in channels:  # one at a time: as floats, all of them may not fit
        values = channel.float() / 255
        mean.append(values.mean())
        std.append(values.std().clamp(min=1e-3))
    return torch.stack(mean), torch.stack(std)
