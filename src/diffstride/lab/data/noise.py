"""Noise on images, and batches of noisy images with the clean ones."""

from typing import Any

import torch
from torch import Tensor

from diffstride.lab.data.batches import ImageBatches
from diffstride.lab.data.images import ImageSplit

OF_TESTS = 2**40  # what is added to the number of a test image: the seed of its noise


def add_noise(images: Tensor, noise: Tensor) -> Tensor:
    """Return images of values from 0 to 1 with noise, as files hold them: nothing is beyond."""
    return (images + noise).clamp(0, 1)


def without(inputs: Tensor, noise: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Return images without the noise that a network found in them.

    Args:
        inputs: what the network was given: images of values from 0 to 1, less ``mean``, divided by
            ``std``.
        noise: what it made of them.
    """
    return (inputs - noise) * std + mean


class NoisyBatches(ImageBatches):
    """A loader of normalised noisy images, the clean ones, and their numbers in the set.

    Clean images have values from 0 to 1. The noise of a step follows from seed and epoch; without
    ``shuffle``, that of an image from its number alone, and so is always the same.

    Args:
        strength: the standard deviation of the noise.
        split, batch_size, options: as for :class:`ImageBatches`.
    """

    def __init__(
        self, split: ImageSplit, batch_size: int, *, strength: float, **options: Any
    ) -> None:
        super().__init__(split, batch_size, **options)
        self.strength = strength

    def finished(self, images: Tensor, numbers: Tensor, step: int) -> Any:
        clean = self.augmented(images, step)
        if self.shuffle:
            generator = self.generator(step + 1, self.place()[0], 1)
            noise = torch.randn(clean.shape, generator=generator)
        else:
            noise = noise_of(numbers, self.split.size)
        return self.normalised(add_noise(clean, self.strength * noise)), clean, numbers

    def seen(self, numbers: Tensor) -> Tensor:
        return 255 * self.pair(numbers)[0]

    def pair(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Return some images with noise and without it, both of values from 0 to 1."""
        clean = self.split.take(numbers).float() / 255
        return add_noise(clean, self.strength * noise_of(numbers, self.split.size)), clean


def noise_of(numbers: Tensor, size: tuple[int, ...]) -> Tensor:
    """Return the noise of test images, of a standard deviation of 1."""
    generator = torch.Generator()
    drawn = [
        torch.randn(size, generator=generator.manual_seed(OF_TESTS + number))
        for number in numbers.tolist()
    ]
    return torch.stack(drawn) if drawn else torch.empty(0, *size)
