"""Sizes that stay while the stride moves: for compilers, and for hardware that wants multiples."""

import pytest
import torch

from diffstride import DiffStride2d, functional

PATHS = ("operator", "fft")


def energy_gradient(x, strides, **options):
    """A loss that does not depend on the grid: the energy that passes the window."""
    s = torch.tensor(strides, dtype=torch.float64, requires_grad=True)
    functional.diff_stride(x, s, **options).square().sum().backward()
    return s.grad


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("size", [(32, 30), (31, 27)])
@pytest.mark.parametrize("strides", [(2.3, 3.7), (1.9, 5.1)])
def test_where_the_window_fits_output_and_gradient_are_the_same(size, strides, path):
    x = torch.randn(2, 3, *size, dtype=torch.float64)
    options = {"smoothness": 2.5, "convention": "symmetric", "path": path}
    natural = functional.output_size(size, strides, smoothness=2.5)
    # Odd sizes: the Nyquist frequency of an even one would take half of a wave.
    odd = tuple(m // 2 * 2 + 1 for m in natural)
    larger = tuple(m + 2 for m in odd)
    fixed = energy_gradient(x, strides, output_size=larger, **options)
    torch.testing.assert_close(fixed, energy_gradient(x, strides, output_size=odd, **options))
    assert functional.diff_stride(x, strides, output_size=larger, **options).shape[2:] == larger


@pytest.mark.parametrize("path", PATHS)
def test_a_smaller_fixed_size_cuts_the_same_window(path):
    x = torch.randn(1, 1, 32, 32, dtype=torch.float64)
    full = functional.diff_stride(x, 2.0, crop=False, path=path)
    fixed = functional.diff_stride(x, 2.0, output_size=(9, 11), path=path)
    cut = functional.spectral_pool(full, output_size=(9, 11), path=path)
    torch.testing.assert_close(fixed, cut)


def test_multiples():
    assert functional.output_size((32, 30), 2.1, size_multiple=8) == (24, 24)
    assert functional.output_size((32, 30), 1.1, size_multiple=8) == (32, 30)
    layer = DiffStride2d(2.1, size_multiple=8)
    x = torch.randn(2, 3, 32, 30)
    assert layer(x).shape[2:] == layer.output_size((32, 30)) == (24, 24)
    wide = functional.diff_stride(x, 2.1, output_size=(24, 24))
    assert torch.equal(layer(x), functional.diff_stride(x, layer.stride, size_multiple=8))
    torch.testing.assert_close(layer(x), wide)


def test_a_fixed_size_stays_while_the_stride_learns():
    layer = DiffStride2d(2.0, output_size=(20, 18))
    x = torch.randn(2, 3, 32, 32)
    assert repr(layer).endswith("output_size=(20, 18))")
    for stride in (1.0, 2.0, 5.0):
        with torch.no_grad():
            layer.stride.fill_(stride)
        layer.stride.grad = None
        y = layer(x)
        assert y.shape[2:] == layer.output_size((32, 32)) == (20, 18)
        y.square().sum().backward()
    assert layer.stride.grad.abs().min() > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size_multiple": 0}, "size_multiple must be a whole number of at least 1, got 0"),
        ({"size_multiple": 2.5}, "size_multiple must be a whole number"),
        ({"output_size": 0}, "output_size must be whole numbers of at least 1"),
        ({"output_size": (4, 4, 4)}, "output_size must be one number or 2"),
        ({"output_size": 4, "crop": False}, "at most one of .* crop=False and output_size"),
        ({"output_size": 4, "size_multiple": 2}, "at most one of .* output_size and size_multiple"),
        ({"crop": False, "size_multiple": 2}, "at most one of .* crop=False and size_multiple"),
    ],
)
def test_contradictions_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DiffStride2d(2.0, **options)
    with pytest.raises(ValueError, match=message):
        functional.diff_stride(torch.zeros(1, 1, 8, 8), 2.0, **options)


def test_a_fixed_size_larger_than_the_input_is_refused():
    with pytest.raises(ValueError, match="output_size must not be larger than the input"):
        DiffStride2d(2.0, output_size=9)(torch.zeros(1, 1, 8, 8))
