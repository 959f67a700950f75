"""Each corruption on examples that can be worked out by hand."""

import itertools
import math

import pytest
import torch

from diffstride.lab.data.corruptions import (
    CORRUPTIONS,
    blurred,
    corrupted,
    faded,
    noisy,
    pixelated,
)

SHAPES = [(2, 3, 33), (2, 3, 16, 19), (2, 1, 8, 9, 10)]
NUMBERS = torch.tensor([0, 1])


@pytest.mark.parametrize("shape", SHAPES, ids=len)
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_strength_0_changes_nothing_and_each_is_stronger_than_the_one_before(name, shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    assert torch.equal(corrupted(x, name, 0, NUMBERS), x)
    changed = [corrupted(x, name, strength, NUMBERS) for strength in range(6)]
    assert all(y.shape == x.shape for y in changed)
    distances = [(y - x).square().mean().item() for y in changed]
    assert all(b > a for a, b in itertools.pairwise(distances)), distances


@pytest.mark.parametrize("name", [name for name in CORRUPTIONS if name != "noise"])
def test_what_is_constant_stays(name):
    x = torch.full((2, 3, 11, 13), 0.7)
    for strength in range(6):
        assert torch.allclose(corrupted(x, name, strength, NUMBERS), x)


def test_noise_has_its_standard_deviation_and_follows_from_the_number_of_an_example():
    x = torch.zeros(3, 1, 100, 100)
    y = noisy(x, 0.4, torch.tensor([5, 6, 5]))
    assert y[:2].std().item() == pytest.approx(0.4, rel=0.02)
    assert y[:2].mean().item() == pytest.approx(0, abs=0.01)
    assert torch.equal(y[0], y[2])
    assert not torch.allclose(y[0], y[1])
    assert torch.equal(noisy(x[1:2], 0.4, torch.tensor([6])), y[1:2])  # in any batch
    assert torch.allclose(noisy(x, 0.8, torch.tensor([5, 6, 5])), 2 * y)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0])
def test_a_blur_is_the_sum_over_neighbours(sigma):
    """A border goes on as it is: neighbours beyond it are the border."""
    x = torch.randn(1, 2, 6, 9, dtype=torch.float64)
    reach = math.ceil(4 * sigma)
    weights = [math.exp(-(k**2) / (2 * sigma**2)) for k in range(-reach, reach + 1)]
    weights = [w / sum(weights) for w in weights]
    expected = torch.zeros_like(x)
    height, width = x.shape[2:]
    for i in range(height):
        for j in range(width):
            for a, wa in enumerate(weights):
                for b, wb in enumerate(weights):
                    row = min(max(i + a - reach, 0), height - 1)
                    column = min(max(j + b - reach, 0), width - 1)
                    expected[..., i, j] += wa * wb * x[..., row, column]
    assert torch.allclose(blurred(x, sigma), expected, atol=1e-12)


def test_contrast_halves_the_distance_to_the_mean_of_each_channel():
    x = torch.tensor([[[[0.0, 2.0], [4.0, 6.0]], [[1.0, 1.0], [1.0, 5.0]]]])
    expected = [[[[1.5, 2.5], [3.5, 4.5]], [[1.5, 1.5], [1.5, 3.5]]]]
    assert faded(x, 0.5).tolist() == expected
    assert torch.allclose(faded(x, 1.0), x.mean((2, 3), keepdim=True).expand_as(x))


def test_pixels_are_the_means_of_blocks():
    x = torch.tensor([[[[1.0, 3.0, 10.0], [5.0, 7.0, 20.0], [0.0, 2.0, 8.0]]]])
    expected = [[4.0, 4.0, 15.0], [4.0, 4.0, 15.0], [1.0, 1.0, 8.0]]
    assert pixelated(x, 2)[0, 0].tolist() == expected
    assert torch.allclose(pixelated(x, 8), x.mean().expand_as(x))  # one block, larger than all
    signal = torch.arange(7.0).reshape(1, 1, 7)
    assert pixelated(signal, 3).flatten().tolist() == [1, 1, 1, 4, 4, 4, 6]
    assert torch.equal(pixelated(pixelated(x, 2), 2), pixelated(x, 2))
