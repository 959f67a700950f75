"""Labelled images as tensors: all in memory, or each decoded when it is needed."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from diffstride.lab.data.labelled_files import IMAGE, DataError, FileSet, decode_all, unreadable
from diffstride.lab.data.opening import open_files
from diffstride.lab.data.patches import Patches, read_patches
from diffstride.lab.data.pictures import (
    BICUBIC,
    covering,
    middle,
    open_picture,
    read_pixels,
    to_pixels,
)
from diffstride.lab.data.splitting import HoldOut

# After training on random parts, images are scaled to cover this much more than their size before
# the middle is cut out: 224 pixels of 256.
MARGIN = 8 / 7


class DecodedImages:
    """Images (N, channels, height, width) in memory as bytes, and the class of each."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images, self.labels, self.size = images, labels, tuple(images.shape[1:])

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, chosen: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return the chosen images."""
        return self.images[chosen]


class EncodedImages:
    """Images that stay files, for sets that memory can't hold and random parts of the originals.

    They are coloured whatever the files are: a file that is not open yet can't be known to be grey.
    """

    def __init__(self, files: FileSet, side: int) -> None:
        self.files, self.labels, self.side, self.size = files, files.labels, side, (3, side, side)
        self._threads = ThreadPoolExecutor(os.cpu_count())

    def __len__(self) -> int:
        return len(self.files)

    def take(self, chosen: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Decode images on all cores: the middle of each, or with a generator a random part."""
        if not len(chosen):  # a process may have no part in the last batch
            return torch.empty(0, *self.size, dtype=torch.uint8)
        draws = None if generator is None else torch.rand(len(chosen), 10, 4, generator=generator)
        square = self.side, self.side

        def decode(i: int, file: tuple[str, bytes]) -> Tensor:
            try:
                picture = self.open(*file).convert("RGB")
            except DataError as error:
                raise unreadable(error, IMAGE) from error
            if draws is None:
                return to_pixels(middle(file[0], picture, square, MARGIN))
            box = random_part(picture.width, picture.height, draws[i])
            return to_pixels(picture.resize(square, BICUBIC, box=box))

        files = self.files.read(chosen.tolist())
        return torch.stack(list(self._threads.map(decode, range(len(files)), files)))

    def open(self, name: str, data: bytes) -> Any:
        """Return a picture, or raise a DataError if it can't be read, or scaled to this size."""
        picture = open_picture(name, data)
        covering(name, picture.size, (self.side, self.side), MARGIN)
        return picture

    def readable(self, skipped: list[str]) -> "EncodedImages":
        """Return the images that can be read; the names of others are added to ``skipped``."""
        # Only the size of each is kept: many pictures would be held at once.
        sizes = decode_all(self.files, lambda *file: self.open(*file).size, IMAGE, skipped)
        return EncodedImages(self.files.select([i for i, *_ in sizes]), self.side)


ImageSplit: TypeAlias = DecodedImages | EncodedImages | Patches


def random_part(width: int, height: int, draws: Tensor) -> tuple[float, float, float, float]:
    """Return the sides of a random part of an image (Szegedy et al., 2015).

    Each row of ``draws``, four numbers from 0 to 1, is a part: its area, from 8 % to 100 % of the
    image, its shape, from 3:4 to 4:3, and its place. The first that fits is taken, or else all.
    """
    for area, shape, x, y in draws.tolist():
        area = (0.08 + 0.92 * area) * width * height
        ratio = (4 / 3) ** (2 * shape - 1)
        wide, tall = (area * ratio) ** 0.5, (area / ratio) ** 0.5
        if wide <= width and tall <= height:
            left, top = x * (width - wide), y * (height - tall)
            return left, top, left + wide, top + tall
    return 0.0, 0.0, float(width), float(height)


class ImageDataset(NamedTuple):
    train: ImageSplit
    test: ImageSplit
    classes: tuple[str, ...]
    skipped: tuple[str, ...] = ()  # names of images that could not be read and were left out

    @property
    def size(self) -> tuple[int, ...]:
        """The channels, height and width of an image."""
        return self.train.size


def load_digits(
    limit: int | None = None, held_out: float | None = None, patch: int | None = None
) -> ImageDataset:
    """Return the 1797 digits of scikit-learn at 32×32; a quarter, always the same, is for tests.

    With ``held_out``, that part of the other three quarters takes its place. A ``patch`` is as in
    :func:`load`.
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    small, labels = torch.tensor(digits.images, dtype=torch.float32), torch.tensor(digits.target)
    images = F.interpolate(small.unsqueeze(1) / 16, size=32, mode="bicubic")
    pixels = (255 * images).round().clamp(0, 255).to(torch.uint8)
    train, test, train_labels, test_labels = train_test_split(
        pixels, labels, test_size=0.25, stratify=labels, random_state=0
    )
    if held_out is not None:
        kept, apart = HoldOut(held_out=held_out).split("digits", train_labels.tolist(), None)
        test, test_labels = train[apart], train_labels[apart]
        train, train_labels = train[kept], train_labels[kept]
    # These are shuffled: the first ones are from all over.
    train, train_labels, test, test_labels = (
        x[:limit] for x in (train, train_labels, test, test_labels)
    )
    trained: ImageSplit = DecodedImages(train, train_labels)
    tested: ImageSplit = DecodedImages(test, test_labels)
    if patch is not None:
        trained = Patches(list(train), train_labels, patch)
        tested = Patches(list(test), test_labels, patch)
    return ImageDataset(trained, tested, tuple("0123456789"))


def load(
    path: str,
    *,
    label: str | None = None,
    image_size: int | None = None,
    patch: int | None = None,
    limit: int | None = None,
    skip_corrupt: bool = False,
    encoded: bool = False,
    classes: Sequence[str] | None = None,
    test_fraction: float | None = None,
    held_out: float | None = None,
    group: str | None = None,
) -> ImageDataset:
    """Open a training and a test set of images, and read them into memory unless ``encoded``.

    Args:
        path, label, limit, classes, test_fraction, held_out, group: as in :func:`open_files`.
        image_size: the side to which the shorter side of images is scaled, before the middle is cut
            out; without it, images of different sizes are errors.
        patch: the side of a square that is cut out of each image, which may then be of any size:
            anywhere in training, and from its middle in tests.
        skip_corrupt: leave out images that can't be read, and say which; all are tried first.
        encoded: decode images when they are needed (:class:`EncodedImages`).
    """
    *splits, names = open_files(
        path,
        IMAGE,
        label=label,
        limit=limit,
        classes=classes,
        test_fraction=test_fraction,
        held_out=held_out,
        group=group,
    )
    skipped: list[str] = []
    if encoded:
        if image_size is None:
            raise DataError("random parts need a size to be brought to: give --data.image_size")
        coded = [EncodedImages(files, image_size) for files in splits]
        train, test = (images.readable(skipped) for images in coded) if skip_corrupt else coded
        return ImageDataset(train, test, names, tuple(skipped))
    left_out = skipped if skip_corrupt else None
    if patch is not None:
        cut = [read_patches(files, patch, image_size, left_out) for files in splits]
        channels = max(split.size[0] for split in cut)
        cut = [Patches(split.images, split.labels, patch, channels) for split in cut]
        return ImageDataset(cut[0], cut[1], names, tuple(skipped))
    both = [read_images(files, image_size, left_out) for files in splits]
    sizes = [_shape(split.images) for split in both]
    if sizes[0] != sizes[1]:
        wrong = f"training images are {sizes[0]} and test images {sizes[1]}"
        raise DataError(f"{path}: {wrong}: bring them to one size with --data.image_size")
    channels = max(split.size[0] for split in both)
    both = [DecodedImages(s.images.expand(-1, channels, -1, -1), s.labels) for s in both]
    return ImageDataset(both[0], both[1], names, tuple(skipped))


def read_images(
    files: FileSet, side: int | None = None, skipped: list[str] | None = None
) -> DecodedImages:
    """Decode images into memory; with ``side``, the middle of each at this size.

    Images that can't be read are errors, or their names are added to ``skipped``.
    """
    decoded = []
    for i, name, pixels in decode_all(files, partial(read_pixels, side=side), IMAGE, skipped):
        decoded.append((i, name, pixels))
        _, first_name, first = decoded[0]
        if pixels.shape[1:] != first.shape[1:]:
            sizes = f"{first_name} is {_shape(first)} and {name} {_shape(pixels)}"
            raise DataError(f"images differ in size, {sizes}: scale them with --data.image_size")
    kept, _, images = zip(*decoded, strict=True)
    channels = max(map(len, images))  # grey ones among coloured ones become coloured
    stacked = torch.stack([pixels.expand(channels, -1, -1) for pixels in images])
    return DecodedImages(stacked, files.labels[list(kept)])


def _shape(images: Tensor) -> str:
    return "×".join(map(str, images.shape[-2:]))
