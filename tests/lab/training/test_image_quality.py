"""PSNR and SSIM are what sums over single pixels say, of each image by itself."""

import math

import numpy as np
import pytest
import torch

from diffstride.lab.training.image_quality import SMALLEST, psnr, ssim

SIZES = [(6, 6), (7, 11), (8, 6), (10, 13), (16, 9)]


def pair(height, width, channels=1, number=2, noise=0.2):
    clean = torch.rand(number, channels, height, width)
    return (clean + noise * torch.randn_like(clean)).clamp(0, 1), clean


def slow_psnr(image, clean):
    errors = [(a - b) ** 2 for a, b in zip(image.flatten(), clean.flatten(), strict=True)]
    return 10 * math.log10(1 / (sum(errors) / len(errors)))


def slow_ssim(image, clean):
    """The mean over pixels and channels, from the definition: weighted moments about the means."""
    offsets = range(-5, 6)
    weights = {(i, j): math.exp(-(i * i + j * j) / (2 * 1.5**2)) for i in offsets for j in offsets}
    total = sum(weights.values())
    found = []
    for x, y in zip(image, clean, strict=True):
        height, width = x.shape
        for row in range(height):
            for column in range(width):
                values = []
                for (i, j), weight in weights.items():
                    a, b = mirrored(row + i, height), mirrored(column + j, width)
                    values.append((weight / total, float(x[a, b]), float(y[a, b])))
                mean_x = sum(w * a for w, a, _ in values)
                mean_y = sum(w * b for w, _, b in values)
                var_x = sum(w * (a - mean_x) ** 2 for w, a, _ in values)
                var_y = sum(w * (b - mean_y) ** 2 for w, _, b in values)
                both = sum(w * (a - mean_x) * (b - mean_y) for w, a, b in values)
                light = (2 * mean_x * mean_y + 1e-4) / (mean_x**2 + mean_y**2 + 1e-4)
                found.append(light * (2 * both + 9e-4) / (var_x + var_y + 9e-4))
    return sum(found) / len(found)


def mirrored(place, size):
    """A place outside, mirrored at the last pixel, which is not repeated."""
    place = abs(place)
    return place if place < size else 2 * (size - 1) - place


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", SIZES)
def test_psnr_is_that_of_the_mean_squared_error_of_each_image(size, channels):
    images, clean = pair(*size, channels)
    expected = [slow_psnr(*both) for both in zip(images.numpy(), clean.numpy(), strict=True)]
    torch.testing.assert_close(psnr(images, clean), torch.tensor(expected), rtol=1e-5, atol=0)


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("size", SIZES[:3])
def test_ssim_is_its_definition_at_each_pixel(size, channels):
    images, clean = pair(*size, channels)
    expected = [
        slow_ssim(*both)
        for both in zip(images.double().numpy(), clean.double().numpy(), strict=True)
    ]
    np.testing.assert_allclose(ssim(images, clean).numpy(), expected, rtol=2e-4)


@pytest.mark.parametrize("measure", [psnr, ssim])
def test_images_of_a_batch_do_not_know_one_another(measure):
    images, clean = pair(9, 8, number=5)
    together = measure(images, clean)
    each = [measure(images[i : i + 1], clean[i : i + 1]) for i in range(5)]
    torch.testing.assert_close(together, torch.cat(each), rtol=1e-5, atol=0)
    assert measure(images[:0], clean[:0]).shape == (0,)


def test_what_is_beyond_black_and_white_does_not_count():
    clean = torch.rand(1, 1, 8, 8)
    clean[..., :4], clean[..., 4:] = 0, 1
    beyond = torch.where(clean == 0, -0.5, 1.5)
    assert ssim(beyond, clean).item() == pytest.approx(1, abs=1e-6)
    assert psnr(beyond, clean).item() == psnr(clean, clean).item()


def test_of_equal_images_both_are_the_highest_and_finite():
    clean = torch.rand(1, 3, 8, 8)
    assert ssim(clean, clean).item() == pytest.approx(1, abs=1e-6)
    assert 100 < psnr(clean, clean).item() < math.inf
    almost = clean.clone()
    almost[0, 0, 0, 0] = (almost[0, 0, 0, 0] - 1e-3).abs()
    assert psnr(almost, clean) < psnr(clean, clean)


def test_ssim_has_windows_for_the_smallest_images_and_no_smaller_ones():
    assert ssim(*pair(SMALLEST, SMALLEST)).shape == (2,)
    with pytest.raises(RuntimeError):
        ssim(*pair(SMALLEST, SMALLEST - 1))
