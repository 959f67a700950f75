"""Windows are values: each is a low-pass with a cut-off and an end, and layers take it by name."""

import math

import numpy as np
import pytest
import torch

from diffstride import DiffStride2d, functional, models
from diffstride.core.windows import WINDOWS

NAMES = sorted(WINDOWS)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("smoothness", [0.3, 1.0, 2.5, 4.0])
@pytest.mark.parametrize("cutoff", [0.0, 1.7, 8.0])
def test_a_window_is_one_up_to_its_cut_off_and_falls_to_zero_at_its_end(name, smoothness, cutoff):
    window = WINDOWS[name]
    end = window.end(cutoff, smoothness)

    def weigh(frequency, library):
        return window.weight((end - frequency) / (end - cutoff), library)

    frequency = torch.linspace(0, end + 2, 2001, dtype=torch.float64)
    weight = weigh(frequency, torch)
    assert (weight[frequency <= cutoff] == 1).all()
    assert (weight[frequency >= end].abs() < 1e-12).all()
    assert (weight.diff() <= 1e-12).all()
    middle = torch.tensor([(cutoff + end) / 2], dtype=torch.float64)
    assert weigh(middle, torch).item() == pytest.approx(0.5)
    in_numpy = weigh(frequency.numpy(), np)
    np.testing.assert_allclose(in_numpy, weight.numpy(), atol=1e-15)


def test_the_raised_cosine_is_the_one_of_the_textbook():
    n, stride, smoothness = 40, 2.3, 3.0
    cutoff = n / (2 * stride)
    window = functional.window(n, stride, smoothness=smoothness, crop=False, window="raised_cosine")
    for f, weight in enumerate(window.tolist()):
        part = min(max((f - cutoff) / smoothness, 0), 1)
        assert weight == pytest.approx((1 + math.cos(math.pi * part)) / 2, abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("path", ["operator", "fft"])
def test_gradients_are_exact(name, path):
    x = torch.randn(2, 1, 15, 12, dtype=torch.float64, requires_grad=True)
    stride = torch.tensor([1.93, 2.61], dtype=torch.float64, requires_grad=True)

    def function(x, stride):
        return functional.diff_stride(x, stride, smoothness=2.0, window=name, path=path)

    assert torch.autograd.gradcheck(function, (x, stride))


@pytest.mark.parametrize("name", NAMES)
def test_layers_and_networks_take_a_window_by_name(name):
    layer = DiffStride2d(2.3, smoothness=2.0, window=name)
    x = torch.randn(2, 3, 24, 24)
    expected = functional.diff_stride(x, layer.stride, smoothness=2.0, window=name)
    assert torch.equal(layer(x), expected)
    layer(x).square().sum().backward()
    assert (layer.stride.grad != 0).all()
    model = models.create("resnet18", num_classes=2, width=0.0625, smoothness=1.0, window=name)
    assert model.stages[1][0].downsample.window == name


def test_a_window_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match="window must be one of ramp, raised_cosine; got 'hann'"):
        DiffStride2d(window="hann")
