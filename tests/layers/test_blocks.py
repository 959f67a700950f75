"""Matrix products in blocks compute what the FFT does, whatever the sizes."""

import math

import pytest
import torch

from diffstride.core import fft
from diffstride.layers.block_products import (
    LARGEST_BYTES,
    BlockProducts,
    Blocks,
    choose_blocks,
    work,
)

# Even, odd and prime, tiny, nothing dropped, next to nothing kept.
SIZES = [
    *[(n, m) for n in range(1, 9) for m in range(1, n + 1)],
    *[(64, 64), (64, 63), (60, 59), (101, 31), (100, 30), (360, 97), (360, 120), (997, 1)],
    *[(997, 2), (997, 251), (1000, 258), (1000, 1000), (4007, 1009), (4096, 1024)],
]


def example(size, kept, dtype=torch.float64):
    generator = torch.Generator().manual_seed(size * kept)
    weights = torch.rand(kept // 2 + 1, dtype=torch.float64, generator=generator)
    return torch.randn(2, size, 3, dtype=torch.float64, generator=generator).to(dtype), weights


@pytest.mark.parametrize(("size", "kept"), SIZES)
def test_any_size_is_resampled_as_by_fft(size, kept):
    x, weights = example(size, kept)
    expected = fft.apply(x, -2, kept, weights)
    # However many blocks there are, and wherever the axis is.
    for blocks in {choose_blocks(size, kept), max(1, kept // 40), math.gcd(size, 6), 7}:
        layer = BlockProducts(size, kept, weights, blocks)
        close = {"rtol": 0, "atol": 3e-7 * max(1.0, float(expected.abs().max()))}
        torch.testing.assert_close(layer(x, dim=-2), expected, **close)
        torch.testing.assert_close(layer(x.mT, dim=-1).mT, expected, **close)
        torch.testing.assert_close(layer(x[0].contiguous(), dim=0), expected[0], **close)


@pytest.mark.parametrize(("size", "kept"), [(16000, 4008), (16000, 4007), (997, 251)])
def test_single_precision_is_as_good_as_that_of_the_fft(size, kept):
    x, weights = example(size, kept)
    expected = fft.apply(x, -2, kept, weights)
    found = BlockProducts(size, kept, weights.float())(x.float(), dim=-2)
    assert (found - expected).abs().max() < 2e-6 * expected.abs().max()


@pytest.mark.parametrize(("size", "number"), [(1, 1), (12, 4), (12, 5), (12, 8), (13, 4), (5, 7)])
def test_every_sample_is_in_one_block(size, number):
    blocks = Blocks(size, number)
    period = size // blocks.repeats
    assert blocks.samples()[blocks.is_inside()].tolist() == list(range(period))
    assert blocks.is_inside().shape == (blocks.different, blocks.longest)
    assert blocks.different * blocks.repeats == number
    places = blocks.places()[blocks.is_inside()]
    assert ((places >= -1) & (places < 1)).all()


@pytest.mark.parametrize(
    ("size", "kept"), [(8192, 2056), (16000, 4008), (16000, 4007), (16001, 4007), (44100, 11033)]
)
def test_constants_stay_small(size, kept):
    """The dense matrix of 16,000 samples has 256 MB."""
    blocks = choose_blocks(size, kept)
    layer = BlockProducts(size, kept, torch.ones(kept // 2 + 1), blocks)
    found = sum(constants.nbytes for constants in layer.buffers())
    assert found < 5e6
    assert work(size, kept, blocks)[1] == pytest.approx(found, rel=0.1)


def test_where_all_are_large_the_smallest_is_chosen():
    size, kept = 480_001, 120_007
    chosen = work(size, kept, choose_blocks(size, kept))[1]
    assert LARGEST_BYTES < chosen
    assert all(chosen <= work(size, kept, blocks)[1] for blocks in range(1, 1300, 7))
