"""A picture is read as people see it, and refused before memory is taken if it is too large."""

import io
import resource
import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from diffstride.lab.data import images, pictures
from diffstride.lab.data.images import EncodedImages
from diffstride.lab.data.labelled_files import DataError, FilePaths
from tests.lab.data.example_files import blank_picture, encode_picture, exif

RANDOM = np.random.default_rng(0)
COLOURS = RANDOM.integers(0, 256, (5, 7, 3), dtype=np.uint8)
GREYS = COLOURS[..., 0]
ALPHA = RANDOM.integers(0, 256, (5, 7), dtype=np.uint8)


def pixels(data, name="a.png"):
    """As (height, width, channels)."""
    return pictures.to_pixels(pictures.open_picture(name, data)).permute(1, 2, 0).numpy()


UPRIGHT = {
    1: lambda x: x,
    2: lambda x: x[:, ::-1],
    3: lambda x: x[::-1, ::-1],
    4: lambda x: x[::-1],
    5: lambda x: x.swapaxes(0, 1),
    6: lambda x: np.rot90(x, -1),
    7: lambda x: x[::-1, ::-1].swapaxes(0, 1),
    8: lambda x: np.rot90(x),
}
"""What is to be done to the pixels of a file for each way a camera can be held, by EXIF's table."""


@pytest.mark.parametrize("orientation", UPRIGHT)
@pytest.mark.parametrize("kind", ["png", "webp", "tiff"])
def test_pictures_are_upright(kind, orientation):
    options = {"lossless": True} if kind == "webp" else {}
    data = encode_picture(Image.fromarray(COLOURS), kind, exif=exif(orientation), **options)
    np.testing.assert_array_equal(pixels(data), UPRIGHT[orientation](COLOURS))


def test_photographs_are_upright_wherever_they_are_opened(tmp_path):
    """Left half black, right half white, and held so that it is to be turned to the right."""
    wide = np.zeros((32, 64), dtype=np.uint8)
    wide[:, 32:] = 255
    path = tmp_path / "photo.jpg"
    path.write_bytes(encode_picture(Image.fromarray(wide), "jpeg", exif=exif(6)))
    found = pixels(path.read_bytes())[..., 0]
    assert found.shape == (64, 32)
    assert found[:30].max() < 50 and found[34:].min() > 200
    split = EncodedImages(FilePaths("test", torch.zeros(1, dtype=torch.long), (path,)), 16)
    (middle,) = split.take(torch.tensor([0]))
    assert middle[:, :6].max() < 50 and middle[:, 10:].min() > 200


def test_sixteen_bits_are_turned_too():
    values = RANDOM.integers(0, 65536, (5, 7), dtype=np.uint16)
    data = encode_picture(Image.fromarray(values), exif=exif(6))
    np.testing.assert_array_equal(pixels(data)[..., 0], np.rot90(values // 256, -1))


def test_damaged_exif_does_not_matter():
    data = encode_picture(Image.fromarray(COLOURS), exif=b"Exif\x00\x00no TIFF at all")
    np.testing.assert_array_equal(pixels(data), COLOURS)


def on_white(values, alpha):
    """The definition: what is transparent by a half is half white."""
    share = (alpha / 255).reshape(5, 7, 1)
    return share * values.reshape(5, 7, -1) + (1 - share) * 255


def palette(transparency):
    """A picture of three colours, and the indices of its pixels."""
    indices = GREYS % 3
    picture = Image.fromarray(indices, "L")
    picture = picture.convert("P")
    picture.putdata(indices.flatten().tolist())
    picture.putpalette([10, 20, 30, 200, 100, 0, 7, 77, 177])
    return indices, encode_picture(picture, transparency=transparency)


def test_what_is_transparent_is_shown_on_white():
    rgba = np.concatenate([COLOURS, ALPHA[..., None]], -1)
    grey_alpha = np.stack([GREYS, ALPHA], -1)
    cases = [(encode_picture(Image.fromarray(rgba)), on_white(COLOURS, ALPHA))]
    cases += [
        (encode_picture(Image.fromarray(rgba), "webp", lossless=True, exact=True), cases[0][1])
    ]
    cases += [(encode_picture(Image.fromarray(grey_alpha)), on_white(GREYS, ALPHA).repeat(3, -1))]
    for data, expected in cases:
        found = pixels(data)
        assert found.shape == (5, 7, 3)
        assert np.abs(found - expected).max() <= 1


def test_a_colour_may_stand_for_nothing():
    colour = COLOURS[2, 3].tolist()
    expected = np.where((COLOURS == colour).all(-1, keepdims=True), 255, COLOURS)
    data = encode_picture(Image.fromarray(COLOURS), transparency=tuple(colour))
    np.testing.assert_array_equal(pixels(data), expected)
    for values in (GREYS, GREYS.astype(np.uint16) * 257):
        key = int(values[2, 3])
        data = encode_picture(Image.fromarray(values), transparency=key)
        expected = np.where(values == key, 255, GREYS)
        np.testing.assert_array_equal(pixels(data)[..., 0], expected)
    indices, data = palette(transparency=1)
    table = np.array([[10, 20, 30], [255, 255, 255], [7, 77, 177]])
    np.testing.assert_array_equal(pixels(data), table[indices])
    indices, data = palette(transparency=bytes([255, 0, 128]))
    table[2] = [131, 166, 216]  # half white
    assert np.abs(pixels(data) - table[indices]).max() <= 1


EVERY = np.arange(256, dtype=np.uint8)
OPAQUE = {
    "RGB": np.stack([EVERY, EVERY[::-1], EVERY // 2], -1)[None],
    "L": EVERY[None],
    "RGBA": np.stack([EVERY, EVERY[::-1], EVERY // 2, np.full(256, 255, np.uint8)], -1)[None],
    "LA": np.stack([EVERY, np.full(256, 255, np.uint8)], -1)[None],
    "I;16": EVERY.astype(np.uint16)[None] * 256,
}


@pytest.mark.parametrize("mode", OPAQUE)
def test_what_is_opaque_is_what_it_was(mode):
    """Every value of a channel, bit for bit. Grey with an alpha channel was always coloured."""
    values = OPAQUE[mode]
    picture = Image.fromarray(values)
    assert picture.mode == mode
    expected = values // 256 if mode == "I;16" else np.asarray(picture.convert("RGB"))
    found = pixels(encode_picture(picture))
    if mode in ("L", "I;16"):
        assert found.shape[-1] == 1
        expected = expected.reshape(1, 256, -1)[..., :1]
    np.testing.assert_array_equal(found, expected.reshape(found.shape))
    for other, kind in (("1", "png"), ("P", "gif"), ("CMYK", "tiff"), ("YCbCr", "jpeg")):
        if mode == "RGB":
            data = encode_picture(picture.convert(other), kind)
            old = np.asarray(Image.open(io.BytesIO(data)).convert("L" if other == "1" else "RGB"))
            np.testing.assert_array_equal(pixels(data), old.reshape(1, 256, -1))


@pytest.mark.parametrize(
    ("width", "height", "text"),
    [
        (60_000_000, 1, "1×60,000,000"),
        (1, 60_000_000, "60,000,000×1"),
        (65_536, 1, "1×65,536"),
        (13_417, 13_417, "13,417×13,417"),
        (2**31 - 1, 2**31 - 1, "2,147,483,647×2,147,483,647"),
    ],
)
def test_pictures_that_are_too_large_are_refused_by_their_header(width, height, text, tmp_path):
    data = blank_picture(min(width, 60_000_000), 1)
    header = struct.pack(">II", width, height)
    body = b"IHDR" + header + data[24:29]
    data = data[:12] + body + struct.pack(">I", zlib.crc32(body)) + data[33:]
    message = rf"big\.png can't be read as an image \(it has {text} pixels, and 65,535 along a side"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DataError, match=message):
        pictures.open_picture("big.png", data)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # kilobytes


def test_photographs_of_a_hundred_million_pixels_are_read():
    """Of the largest cameras: 11,648 × 8,736. PIL would warn, and here warnings are errors."""
    picture = Image.new("1", (11_648, 8_736), 1)
    found = pictures.open_picture("a.png", encode_picture(picture))
    assert found.size == picture.size
    assert Image.MAX_IMAGE_PIXELS is not None  # for everybody else


def test_a_line_is_not_scaled_until_it_covers_a_square(tmp_path):
    paths = tmp_path / "line.png", tmp_path / "good.png"
    paths[0].write_bytes(blank_picture(60_000, 1))
    paths[1].write_bytes(encode_picture(Image.fromarray(COLOURS)))
    for path in paths:
        for split, name in (("train", "a"), ("train", "b"), ("test", "a")):
            folder = tmp_path / "set" / split / name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / path.name).write_bytes(path.read_bytes())
    message = r"line\.png has 1×60,000 pixels, and would have 64×3,840,000 to cover 64×64"
    with pytest.raises(DataError, match=message):
        images.load(str(tmp_path / "set"), image_size=64)
    for options in ({}, {"encoded": True}):
        data = images.load(str(tmp_path / "set"), image_size=64, skip_corrupt=True, **options)
        assert (len(data.train), len(data.test), len(data.skipped)) == (2, 1, 3)
