"""Square parts of images of any size."""

import numpy as np
import pytest
import torch
from PIL import Image

from diffstride.lab.data import images
from diffstride.lab.data.batches import statistics
from diffstride.lab.data.labelled_files import DataError
from diffstride.lab.data.patches import Patches
from tests.lab.data.example_files import encode_picture, write_parquet


def numbered(height, width, channels=1):
    """An image in which each pixel has a value of its own."""
    values = torch.arange(height * width, dtype=torch.uint8).reshape(1, height, width)
    return values.expand(channels, -1, -1)


@pytest.mark.parametrize("side", [1, 2, 3])
@pytest.mark.parametrize(("height", "width"), [(3, 4), (3, 3), (5, 7), (8, 3)])
def test_a_random_part_is_at_any_place_and_nowhere_else(side, height, width):
    image = numbered(height, width)
    patches = Patches([image], torch.zeros(1), side)
    drawn = patches.take(torch.zeros(600, dtype=torch.long), torch.Generator().manual_seed(0))
    places = {
        tuple(image[0, y : y + side, x : x + side].flatten().tolist())
        for y in range(height - side + 1)
        for x in range(width - side + 1)
    }
    assert {tuple(part.flatten().tolist()) for part in drawn} == places


@pytest.mark.parametrize(("height", "width"), [(4, 4), (5, 7), (6, 9)])
def test_the_middle_is_that_of_a_picture_that_is_cut(height, width):
    image = numbered(height, width)
    (part,) = Patches([image], torch.zeros(1), 4).take(torch.tensor([0]))
    top, left = (height - 4) // 2, (width - 4) // 2
    assert torch.equal(part, image[:, top : top + 4, left : left + 4])


def test_draws_that_round_to_one_stay_inside(monkeypatch):
    monkeypatch.setattr(torch, "rand", lambda *size, generator: torch.ones(size))
    image = numbered(3, 4)
    (part,) = Patches([image], torch.zeros(1), 2).take(torch.tensor([0]), torch.Generator())
    assert torch.equal(part, image[:, 1:, 2:])


def test_files_may_be_of_any_size_and_grey_ones_among_them(tmp_path):
    generator = np.random.default_rng(0)
    arrays = [generator.integers(0, 256, s, dtype=np.uint8) for s in ((9, 12, 3), (8, 8), (20, 9))]
    files = [(encode_picture(Image.fromarray(a)), i % 2) for i, a in enumerate(arrays)]
    path = write_parquet(tmp_path / "pack", files)
    with pytest.raises(DataError, match="images differ in size"):
        images.load(path)
    data = images.load(path, patch=8)
    assert data.size == (3, 8, 8)
    found = data.test.take(torch.arange(3))
    middles = [arrays[0][:8, 2:10], arrays[1], arrays[2][6:14, :8]]
    for part, expected in zip(found, middles, strict=True):
        coloured = np.broadcast_to(expected.reshape(8, 8, -1), (8, 8, 3))
        assert np.array_equal(part.permute(1, 2, 0), coloured)
    mean, std = statistics(data.train)
    values = found.float().transpose(0, 1).flatten(1) / 255
    torch.testing.assert_close((mean, std), (values.mean(1), values.std(1)))
    scaled = images.load(path, patch=8, image_size=10)  # first scaled, then cut
    whole = images.load(path, image_size=10)
    assert torch.equal(scaled.test.take(torch.arange(3)), whole.test.images[..., 1:9, 1:9])


def test_what_is_smaller_than_a_patch_is_an_error_or_left_out(tmp_path):
    files = [(encode_picture(Image.new("L", size)), i) for i, size in enumerate([(8, 7), (8, 8)])]
    path = write_parquet(tmp_path / "pack", [*files, *files])
    with pytest.raises(DataError, match=r"0.png is 7×8: --data.patch 8 must be no larger than"):
        images.load(path, patch=8)
    data = images.load(path, patch=8, skip_corrupt=True)
    assert (len(data.train), len(data.test)) == (2, 2)
    assert len(data.skipped) == 4
    with pytest.raises(DataError, match="an image is 32×32: "):
        images.load_digits(patch=33)


def test_digits_have_patches_too():
    whole, cut = images.load_digits(limit=5), images.load_digits(limit=5, patch=12)
    assert cut.size == (1, 12, 12)
    numbers = torch.arange(5)
    assert torch.equal(cut.test.take(numbers), whole.test.images[..., 10:22, 10:22])
    assert torch.equal(cut.train.labels, whole.train.labels)
    assert cut.test.take(numbers[:0]).shape == (0, 1, 12, 12)
