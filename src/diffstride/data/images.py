"""Labelled images as tensors: all in memory, or each decoded when it is wanted."""

import io
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import torch
from torch import Tensor

from diffstride.data.opening import open_files
from diffstride.data.sources import IMAGE, DataError, Files, each

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

        def part(i: int, picture: Any) -> Any:
            if draws is None:
                return middle(picture, (self.side, self.side), MARGIN)
            box = random_part(picture.width, picture.height, draws[i])
            return picture.resize((self.side, self.side), _smooth(), box=box)

        def decode(job: tuple[int, tuple[str, bytes]]) -> Tensor:
            i, (name, data) = job
            return to_pixels(part(i, _open_or_raise(name, data).convert("RGB")))

        if not len(chosen):  # a process may have no part in the last batch
            return torch.empty(0, *self.size, dtype=torch.uint8)
        files = self.files.read(chosen.tolist())
        return torch.stack(list(self._threads.map(decode, enumerate(files))))

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
        kept = (
            readable(f, _open_or_raise, skipped) if skip_corrupt else f
            for f in (opened.train, opened.test)
        )
        train_files, test_files = kept
        return Images(
            Encoded(train_files, image_size),
            Encoded(test_files, image_size),
            opened.classes,
            tuple(skipped),
        )
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
            picture = _open_or_raise(name, data)
        except DataError:
            if skipped is None:
                raise
            skipped.append(name)
            continue
        pixels = to_pixels(picture if side is None else middle(picture, (side, side)))
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


def _open_or_raise(name: str, data: bytes) -> Any:
    """A picture of a set that is read for training, from which it may be left out."""
    try:
        return open_picture(name, data)
    except DataError as error:
        raise DataError(
            f"{error}: remove it, or leave out such images with --data.skip_corrupt"
        ) from error


def open_picture(name: str, data: bytes) -> Any:
    """A picture, grey or coloured.

    Raises:
        DataError: if it can't be read.
    """
    import numpy as np
    from PIL import Image, UnidentifiedImageError

    try:
        picture: Any = Image.open(io.BytesIO(data))
        if picture.mode == "F":
            raise ValueError("its pixels are fractions, of a range that it does not say")
        if picture.mode.startswith("I"):  # 16 bits: PIL would cut them off, not scale them
            picture = Image.fromarray((np.asarray(picture) // 256).clip(0, 255).astype(np.uint8))
        return picture.convert("L" if picture.mode in ("1", "L") else "RGB")
    except Exception as error:
        reason: Any = error
        if not data:
            reason = "there is no such file, or it is empty"
        elif isinstance(error, UnidentifiedImageError):  # it would say where in memory it is
            reason = "its format is not known"
        raise DataError(f"{name} can't be read as an image ({reason})") from error


def middle(picture: Any, size: tuple[int, int], margin: float = 1.0) -> Any:
    """The middle of a picture, which is scaled to cover ``margin`` times ``size``, height first."""
    wanted = size[::-1]
    scale = max(n * margin / m for n, m in zip(wanted, picture.size, strict=True))
    width, height = (max(n, round(m * scale)) for n, m in zip(wanted, picture.size, strict=True))
    picture = picture.resize((width, height), _smooth())
    left, top = (width - wanted[0]) // 2, (height - wanted[1]) // 2
    return picture.crop((left, top, left + wanted[0], top + wanted[1]))


def _smooth() -> Any:
    from PIL import Image

    return Image.Resampling.BICUBIC


def to_pixels(picture: Any) -> Tensor:
    """Of a picture, as bytes (channels, height, width)."""
    import numpy as np

    pixels = torch.from_numpy(np.array(picture))
    return pixels[None] if pixels.ndim == 2 else pixels.permute(2, 0, 1)


def _shape(images: Tensor) -> str:
    return "×".join(str(n) for n in images.shape[-2:])
