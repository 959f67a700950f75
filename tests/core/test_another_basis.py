"""A basis needs no more than what ``Basis`` asks for, to work in every layer and all that uses it.

The one here is that of the DCT-II, by matrices alone: its frequencies are halves, each has one
function, the highest of N samples is not ⌊N/2⌋, it does not wrap round, and there is no FFT.
"""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

from diffstride import (
    DiffStride1d,
    DiffStride2d,
    DiffStrideConv2d,
    DiffUpsample1d,
    SpectralPool2d,
    functional,
)
from diffstride.analysis.cost import cost
from diffstride.core import bases
from diffstride.layers.frozen import Frozen
from diffstride.layers.resizer import AxisConstants
from diffstride.surgery.freeze import freeze


class Mirrored:
    wraps = False
    transform = None

    def matrices(self, size, kept):
        functions = min(size, kept)
        counted = torch.full((functions,), 2 / kept, dtype=torch.float64)
        counted[0] /= 2
        n, m = (torch.arange(samples, dtype=torch.float64) for samples in (size, kept))
        k = n[:functions, None]
        analysis = (k * (n + 0.5) * (math.pi / size)).cos()
        return analysis, ((k * (m + 0.5) * (math.pi / kept)).cos().mT * counted)

    def frequencies(self, kept):
        return torch.arange(kept, dtype=torch.float64) / 2

    def highest(self, size):
        return (size - 1) / 2

    def per_function(self, values, kept):
        return values

    def is_kept(self, frequencies, kept):
        return 2 * frequencies < kept


@pytest.fixture(autouse=True)
def mirrored(monkeypatch):
    monkeypatch.setitem(bases.BASES, "mirrored", Mirrored())


def definition(size, stride, smoothness, offset):
    """The matrix of one axis as a sum over functions, in numpy alone; norm="backward"."""
    kept = max(1, min(size, math.floor(size / min(stride, size) + 2 * smoothness)))
    half = (size - 1) / 2 - smoothness / 2 - offset
    lowest = size / (2 * half) if half > 0 and size / (2 * half) <= size else 1.0
    cutoff = size / (2 * min(max(stride, lowest), size)) + offset
    matrix = np.zeros((kept, size))
    for k, j, n in itertools.product(range(kept), range(kept), range(size)):
        wave = math.cos(math.pi * k * (j + 0.5) / kept) * math.cos(math.pi * k * (n + 0.5) / size)
        height = (smoothness + cutoff - k / 2) / smoothness if smoothness else 1.0
        matrix[j, n] += min(1.0, max(0.0, height)) * (1 if k == 0 else 2) / kept * wave
    return matrix


@pytest.mark.parametrize("smoothness", [0.0, 0.5, 2.0])
def test_it_is_the_sum_over_its_functions(smoothness):
    for size, stride in itertools.product([1, 2, 7, 12], [1.0, 1.7, 3.0, 20.0]):
        x = np.random.default_rng(0).standard_normal((2, 3, size))
        expected = x @ definition(size, stride, smoothness, 1.0).T
        y = functional.diff_stride(
            torch.tensor(x), stride, smoothness=smoothness, norm="backward", basis="mirrored"
        )
        np.testing.assert_allclose(y.numpy(), expected, atol=1e-10)


@pytest.mark.parametrize("size", [1, 2, 7, 12])
@pytest.mark.parametrize("norm", ["ortho", "forward", "backward"])
def test_the_way_up_is_the_inverse_of_the_way_down_in_it_too(size, norm):
    x = torch.randn(2, 3, size, dtype=torch.float64)
    options = {"norm": norm, "basis": "mirrored"}
    for made in (size, size + 1, 2 * size, 3 * size + 1):
        y = functional.spectral_resize(x, made, **options)
        torch.testing.assert_close(functional.spectral_pool(y, output_size=size, **options), x)
    layer = DiffUpsample1d(1.7, smoothness=1.0, **options)
    frozen = freeze(nn.Sequential(layer), (3, size))
    torch.testing.assert_close(frozen(x.float()), layer(x.float()))
    layer(x).square().sum().backward()
    assert layer.stride.grad.isfinite().all()


@pytest.mark.parametrize("size", [11, 12])
def test_a_stride_of_one_is_told_to_grow(size):
    """The window falls at the highest frequency that there is in this basis, not in another."""
    layer = DiffStride1d(1.0, smoothness=0.5, convention="symmetric", basis="mirrored")
    layer(torch.randn(4, 1, size)).square().sum().backward()
    assert layer.stride.grad.item() != 0


@pytest.mark.parametrize("path", ["auto", "fft"])
@pytest.mark.parametrize("size", [(3, 40), (3, 500), (3, 40, 400)])
def test_without_an_fft_none_is_counted_nor_written(size, path):
    make = {2: DiffStride1d, 3: DiffStride2d}[len(size)]
    model = nn.Sequential(nn.ReLU(), make(4.0, basis="mirrored", path=path))
    frozen = freeze(model, size)
    assert cost(model, size).macs == cost(frozen, size).macs
    x = torch.randn(2, *size)
    expected = model(x)
    torch.testing.assert_close(frozen(x), expected, atol=1e-4, rtol=1e-4)
    if len(size) == 3:
        paper = {"smoothness": 4.0, "convention": "paper"}
        conv = DiffStrideConv2d(3, 3, 1, 4.0, basis="mirrored", path=path, **paper)
        products = 9 * math.prod(conv.output_size(size[1:]))
        assert cost(conv, size).macs == cost(frozen, size).macs + products


def test_files_get_no_products_of_another_basis():
    """Of a basis with an FFT, weights are kept: where there is none, a plain matrix is made."""
    layer = DiffStride1d(4.0, basis="mirrored").double().eval()
    (plan,) = layer.plans((1500,), torch.device("cpu"))
    kept = AxisConstants(1500, plan.kept, weights=plan.weights.detach(), basis=plan.basis)
    like = torch.zeros((), dtype=torch.float64)
    frozen = Frozen([kept], like)
    frozen.replace_fft()
    x = torch.randn(2, 1500, dtype=torch.float64)
    torch.testing.assert_close(frozen(x), x @ kept.dense(like).mT)


def test_a_convolution_on_frequencies_says_that_it_needs_one_that_wraps_round():
    options = {"padding": 1, "padding_mode": "circular", "smoothness": 1.0, "basis": "mirrored"}
    layer = DiffStrideConv2d(3, 4, 3, 2.0, **options)
    x = torch.randn(1, 3, 12, 12)
    after = DiffStrideConv2d(3, 4, 3, 2.0, order="after", **options)
    after.load_state_dict(layer.state_dict())
    torch.testing.assert_close(layer(x), after(x))
    layer.order = "spectral"
    with pytest.raises(ValueError, match=r"a basis that wraps round, .* basis='mirrored'"):
        layer(x)


def test_layers_say_which_one_they_have():
    assert "basis='mirrored'" in str(SpectralPool2d(2.0, basis="mirrored"))
    assert "basis='mirrored'" in str(DiffStride2d(2.0, basis="mirrored"))
