"""Pictures from files, as people see them: grey or coloured, upright, on white."""

import contextlib
import io
import threading
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from diffstride.lab.data.labelled_files import DataError

MOST_PIXELS = 180_000_000  # more than any camera has, and few enough to be decoded
LONGEST_SIDE = 65_535  # the longest side that JPEG can hold
ORIENTATION = 0x0112  # the entry of EXIF that says which way the camera was held
BICUBIC = Image.Resampling.BICUBIC

_LOCK = threading.Lock()


def read_pixels(name: str, data: bytes, side: int | None = None) -> Tensor:
    """Return the pixels of the picture in a file; with ``side``, of its middle at this size."""
    picture = open_picture(name, data)
    return to_pixels(picture if side is None else middle(name, picture, (side, side)))


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


def to_png(image: Tensor) -> bytes:
    """Return an image (channels, height, width) of values from 0 to 1 as a PNG; 1 or 3 channels."""
    pixels = (255 * image.clamp(0, 1)).round().to(torch.uint8)
    values = pixels[0] if len(pixels) == 1 else pixels.permute(1, 2, 0)
    file = io.BytesIO()
    Image.fromarray(values.numpy()).save(file, "PNG")
    return file.getvalue()
