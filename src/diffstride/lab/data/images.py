"""Labelled images as tensors: all in memory, or each decoded when it is needed."""

import contextlib
import io
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor
from torch.nn import functional as F

from diffstride.lab.data.labelled_files import IMAGE, DataError, FileSet, decode_all, unreadable
from diffstride.lab.data.opening import open_files
from diffstride.lab.data.splitting import HoldOut

# After training on random parts, images are scaled to cover this much more than their size before
# the middle is cut out: 224 pixels of 256.
MARGIN = 8 / 7
MOST_PIXELS = 180_000_000  # more than any camera has, and few enough to be decoded
LONGEST_SIDE = 65_535  # the longest side that JPEG can hold
ORIENTATION = 0x0112  # the entry of EXIF that says which way the camera was held
BICUBIC = Image.Resampling.BICUBIC

_LOCK = threading.Lock()


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


ImageSplit: TypeAlias = DecodedImages | EncodedImages


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


def load_digits(limit: int | None = None, held_out: float | None = None) -> ImageDataset:
    """Return the 1797 digits of scikit-learn at 32×32; a quarter, always the same, is for tests.

    With ``held_out``, that part of the other three quarters takes its place.
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
    trained = DecodedImages(train[:limit], train_labels[:limit])
    tested = DecodedImages(test[:limit], test_labels[:limit])
    return ImageDataset(trained, tested, tuple("0123456789"))


def load(
    path: str,
    *,
    label: str | None = None,
    image_size: int | None = None,
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
    both = [read_images(files, image_size, skipped if skip_corrupt else None) for files in splits]
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

    def decode(name: str, data: bytes) -> Tensor:
        picture = open_picture(name, data)
        return to_pixels(picture if side is None else middle(name, picture, (side, side)))

    decoded = []
    for i, name, pixels in decode_all(files, decode, IMAGE, skipped):
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


def open_picture(name: str, data: bytes) -> Any:
    """Return a picture, grey or coloured, upright and on white, or raise a DataError."""
    try:
        # PIL warns of pictures that cameras make, and not of lines that are millions of pixels
        # long. Here it reads the header only, whatever the size.
        with _LOCK:
            usual, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
            try:
                picture: Any = Image.open(io.BytesIO(data))
            finally:
                Image.MAX_IMAGE_PIXELS = usual
        width, height = picture.size
        if max(width, height) > LONGEST_SIDE or width * height > MOST_PIXELS:
            most = f"{LONGEST_SIDE:,} along a side and {MOST_PIXELS:,} in all are the most"
            raise ValueError(f"it has {height:,}×{width:,} pixels, and {most}")
        if picture.mode == "F":
            raise ValueError("its pixels are fractions, of a range that it does not say")
        orientation = 1
        with contextlib.suppress(Exception):  # EXIF may be damaged, and the pixels need not be
            orientation = picture.getexif().get(ORIENTATION, 1)
        return _opaque(picture if orientation == 1 else ImageOps.exif_transpose(picture))
    except Exception as error:
        unknown = isinstance(error, UnidentifiedImageError)  # it would say where in memory it is
        reason = "its format is not known" if unknown else error
        reason = reason if data else "there is no such file, or it is empty"
        raise DataError(f"{name} can't be read as an image ({reason})") from error


def _opaque(picture: Any) -> Any:
    """Return a picture with 8 bits for grey or for red, green and blue, on white."""
    if picture.mode.startswith("I"):  # 16 bits: PIL would cut them off, not scale them
        values = np.asarray(picture)
        grey = (values // 256).clip(0, 255).astype(np.uint8)
        if "transparency" in picture.info:  # the one value that stands for nothing
            grey = np.where(values == picture.info["transparency"], np.uint8(255), grey)
        return Image.fromarray(grey)
    mode = "L" if picture.mode in ("1", "L") else "RGB"
    if picture.has_transparency_data:
        seen = picture.convert("LA") if picture.mode == "La" else picture
        white = Image.new("RGBA", picture.size, "white")
        picture = Image.alpha_composite(white, seen.convert("RGBA"))
    return picture.convert(mode)


def middle(name: str, picture: Any, size: tuple[int, int], margin: float = 1.0) -> Any:
    """Scale a picture as :func:`covering` says, and return its middle, of this height and width."""
    height, width = size
    scaled = covering(name, picture.size, size, margin)
    left, top = (scaled[0] - width) // 2, (scaled[1] - height) // 2
    return picture.resize(scaled, BICUBIC).crop((left, top, left + width, top + height))


def covering(
    name: str, picture_size: tuple[int, int], size: tuple[int, int], margin: float = 1.0
) -> tuple[int, int]:
    """Return the width and height at which a picture covers ``margin`` times a height and width."""
    (old_width, old_height), (wanted_height, wanted_width) = picture_size, size
    factor = max(wanted_width * margin / old_width, wanted_height * margin / old_height)
    width = max(wanted_width, round(old_width * factor))
    height = max(wanted_height, round(old_height * factor))
    if width * height > MOST_PIXELS:
        needed = f"{height:,}×{width:,} to cover {wanted_height:,}×{wanted_width:,}"
        now = f"has {old_height:,}×{old_width:,} pixels"
        raise DataError(f"{name} {now}, and would have {needed}; {MOST_PIXELS:,} is the most")
    return width, height


def to_pixels(picture: Any) -> Tensor:
    """Return the pixels (channels, height, width) of a picture as bytes."""
    pixels = torch.from_numpy(np.array(picture))
    return pixels[None] if pixels.ndim == 2 else pixels.permute(2, 0, 1)
