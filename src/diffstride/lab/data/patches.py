"""Square parts of images of any size: at random to train on, and the middle of each for tests."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from diffstride.lab.data.labelled_files import IMAGE, DataError, FileSet, decode_all
from diffstride.lab.data.pictures import read_pixels


class Patches:
    """Images in memory as bytes, each (channels, height, width), and the class of each.

    Grey ones among coloured ones are made coloured.

    Args:
        images, labels: of a training or a test set.
        side: of the square that is cut out of each, none of which may be smaller.
        channels: as many as the images have at most, unless given.
    """

    def __init__(
        self, images: Sequence[Tensor], labels: Tensor, side: int, channels: int | None = None
    ) -> None:
        smallest = min(images, key=lambda image: min(image.shape[1:]))
        check_covers(side, smallest)
        self.images, self.labels, self.side = images, labels, side
        self.size = (channels or max(map(len, images)), side, side)

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, chosen: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return the middle of each chosen image, or with a generator a random part."""
        if not len(chosen):  # a process may have no part in the last batch
            return torch.empty(0, *self.size, dtype=torch.uint8)
        draws: list[Any] = [None] * len(chosen)
        if generator is not None:
            draws = torch.rand(len(chosen), 2, generator=generator).tolist()
        parts = zip(chosen.tolist(), draws, strict=True)
        return torch.stack([self._part(self.images[i], draw) for i, draw in parts])

    def _part(self, image: Tensor, draw: Sequence[float] | None) -> Tensor:
        """Return the middle of an image, or the part at these shares of its spare height, width."""
        spare = [size - self.side for size in image.shape[1:]]
        if draw is None:
            top, left = (number // 2 for number in spare)
        else:  # one more place than there are pixels to spare; rounding may not make it another
            places = zip(draw, spare, strict=True)
            top, left = (min(int(share * (number + 1)), number) for share, number in places)
        part = image[:, top : top + self.side, left : left + self.side]
        return part.expand(self.size[0], -1, -1)


def read_patches(
    files: FileSet, patch: int, side: int | None = None, skipped: list[str] | None = None
) -> Patches:
    """Decode images into memory, of each of which a patch is to be cut; with ``side``, scaled.

    Images that can't be read, or are smaller than a patch, are errors, or their names are added to
    ``skipped``.
    """

    def decode(name: str, data: bytes) -> Tensor:
        pixels = read_pixels(name, data, side)
        check_covers(patch, pixels, name)
        return pixels

    kept, _, images = zip(*decode_all(files, decode, IMAGE, skipped), strict=True)
    return Patches(images, files.labels[list(kept)], patch)


def check_covers(patch: int, image: Tensor, name: str = "an image") -> None:
    """Raise a DataError if a patch is larger than an image."""
    height, width = image.shape[1:]
    if min(height, width) < patch:
        wanted = f"--data.patch {patch} must be no larger than images"
        raise DataError(f"{name} is {height}×{width}: {wanted}")
