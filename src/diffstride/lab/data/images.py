"""Labelled images as tensors: all in memory, or each decoded when it is wanted."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import torch
from torch import Tensor

from diffstride.lab.data.opening import open_files
from diffstride.lab.data.pictures import covering, middle, open_picture, smooth, to_pixels
from diffstride.lab.data.sources import IMAGE, DataError, Files, each

MARGIN = 8 / 7
"""Around the middle that is evaluated of an image of which parts were trained on: 224 of 256."""


@dataclass(frozen=True)
class Split:
    """Images (N, channels, height, width) as bytes, and the class of each."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def size(self) -> tuple[int, ...]:
        """Of one image: (channels, height, width)."""
        return tuple(self.images.shape[1:])

    def take(self, chosen: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return self.images[chosen]


@dataclass(frozen=True)
class Encoded:
    """Images that stay files, for sets that memory can't hold and parts of the original pixels.

    In training a random part of each is brought to ``side``, in evaluation its middle. They are
    coloured whatever the files are: what is not open yet can't be known to be grey.
    """

    files: Files
    side: int

    def __len__(self) -> int:
        return len(self.files)

    @property
    def size(self) -> tuple[int, ...]:
        return 3, self.side, self.side

    @property
    def labels(self) -> Tensor:
        return self.files.labels

    def take(self, chosen: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Decode some, on all cores; with a generator, a random part of each.

        Raises:
            DataError: for an image that can't be read.
        """
        draws = None if generator is None else torch.rand(len(chosen), 10, 4, generator=generator)

        def part(i: int, name: str, picture: Any) -> Any:
            if draws is None:
                return middle(name, picture, (self.side, self.side), MARGIN)
            box = random_part(picture.width, picture.height, draws[i])
            return picture.resize((self.side, self.side), smooth(), box=box)

        def decode(job: tuple[int, tuple[str, bytes]]) -> Tensor:
            i, (name, data) = job
            return to_pixels(part(i, name, self.open(name, data).convert("RGB")))

        if not len(chosen):  # a process may have no part in the last batch
            return torch.empty(0, *self.size, dtype=torch.uint8)
        files = self.files.read(chosen.tolist())
        return torch.stack(list(self._threads.map(decode, enumerate(files))))

    def open(self, name: str, data: bytes) -> Any:
        """A picture of which any part can be taken.

        Raises:
            DataError: if it can't be read, or is too long and narrow.
        """
        return _opened(name, data, self.side, MARGIN)

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(os.cpu_count())


ImageSplit: TypeAlias = Split | Encoded


@dataclass(frozen=True)
class Images:
    train: ImageSplit
    test: ImageSplit
    classes: tuple[str, ...]
    skipped: tuple[str, ...] = ()
    """The images that could not be read and were left out."""

    @property
    def size(self) -> tuple[int, ...]:
        """Of one image: (channels, height, width)."""
        return self.train.size


def load(
    path: str,
    *,
    label: str | None = None,
    image_size: int | None = None,
    limit: int | None = None,
    skip_corrupt: bool = False,
    encoded: bool = False,
    classes: Sequence[str] | None = None,
) -> Images:
    """Open a training and a test set, and read them into memory unless told otherwise.

    Args:
        path: a folder of parquet files, a folder with ``train`` and ``test`` folders of images by
            class, or the name of a dataset on the Hugging Face hub.
        label: the column of labels; without it, the one that holds classes, or is called so.
        image_size: the side all images are brought to, without changing their proportions: the
            shorter side is scaled to it and the middle is cut out.
        limit: how many training images are read at most.
        skip_corrupt: leave out images that can't be read, and say which; all are tried first.
        encoded: decode images when they are wanted (:class:`Encoded`).
        classes: their names, where the data have only numbers.

    Raises:
        DataError: for a missing folder, an image that can't be read (which one), sizes that
            differ, a label out of range, or fewer than two classes.
    """
    opened = open_files(path, IMAGE, label=label, limit=limit, classes=classes)
    skipped: list[str] = []
    if encoded:
        if image_size is None:
            raise DataError("random parts need a size to be brought to: give --data.image_size")
        pair = [Encoded(files, image_size) for files in (opened.train, opened.test)]
        if skip_corrupt:
            pair = [Encoded(readable(s.files, s.open, skipped), image_size) for s in pair]
        return Images(pair[0], pair[1], opened.classes, tuple(skipped))
    train, test = (
        _read(f, image_size, skipped if skip_corrupt else None) for f in (opened.train, opened.test)
    )
    if train.size[1:] != test.size[1:]:
        raise DataError(
            f"{path}: training images are {_shape(train.images)} and test images "
            f"{_shape(test.images)}: bring them to one size with --data.image_size"
        )
    channels = max(train.size[0], test.size[0])
    train, test = (Split(s.images.expand(-1, channels, -1, -1), s.labels) for s in (train, test))
    return Images(train, test, opened.classes, tuple(skipped))


def random_part(width: int, height: int, draws: Tensor) -> tuple[float, float, float, float]:
    """8 % to 100 % of an image's area, 3:4 to 4:3, anywhere (Szegedy et al., 2015).

    The first of the draws, rows of four numbers from 0 to 1, that fits into the image; the whole
    image if none does.
    """
    for area, shape, x, y in draws.tolist():
        area = (0.08 + 0.92 * area) * width * height
        ratio = (4 / 3) ** (2 * shape - 1)
        wide, tall = (area * ratio) ** 0.5, (area / ratio) ** 0.5
        if wide <= width and tall <= height:
            left, top = x * (width - wide), y * (height - tall)
            return left, top, left + wide, top + tall
    return 0.0, 0.0, float(width), float(height)


def readable(files: Files, decode: Callable[[str, bytes], Any], skipped: list[str]) -> Files:
    """The files that can be decoded; the names of others are added to ``skipped``."""
    kept = []
    for i, (name, data) in enumerate(each(files, f"checking the {files.split} set")):
        try:
            decode(name, data)
        except DataError:
            skipped.append(name)
        else:
            kept.append(i)
    if not kept:
        raise DataError(f"there is nothing to read in the {files.split} set")
    return files.select(kept)


def _read(files: Files, side: int | None, skipped: list[str] | None) -> Split:
    images: list[Tensor] = []
    labels: list[int] = []
    first = ""
    for i, (name, data) in enumerate(each(files, f"reading the {files.split} set")):
        try:
            picture = _opened(name, data, side)
        except DataError:
            if skipped is None:
                raise
            skipped.append(name)
            continue
        pixels = to_pixels(picture if side is None else middle(name, picture, (side, side)))
        if images and pixels.shape[1:] != images[0].shape[1:]:
            raise DataError(
                f"images differ in size, {first} is {_shape(images[0])} and {name} "
                f"{_shape(pixels)}: bring them to one with --data.image_size"
            )
        first = first or name
        images.append(pixels)
        labels.append(int(files.labels[i]))
    if not images:
        raise DataError(f"there is nothing to read in the {files.split} set")
    channels = max(x.shape[0] for x in images)
    stacked = torch.stack([x.expand(channels, -1, -1) for x in images])
    return Split(stacked, torch.tensor(labels))


def _opened(name: str, data: bytes, side: int | None, margin: float = 1.0) -> Any:
    """A picture of a set, from which it may be left out; it can be brought to ``side``, if any."""
    try:
        picture = open_picture(name, data)
        if side is not None:
            covering(name, picture.size, (side, side), margin)
        return picture
    except DataError as error:
        raise DataError(
            f"{error}: remove it, or leave out such images with --data.skip_corrupt"
        ) from error


def _shape(images: Tensor) -> str:
    return "×".join(str(n) for n in images.shape[-2:])
