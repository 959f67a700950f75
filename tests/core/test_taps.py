"""Taps first: whatever else is done with a convolution can be done in this order too."""

import pytest
import torch
from torch.nn import functional as F

from diffstride import DiffStrideConv2d, functional
from diffstride.core.taps import spread
from diffstride.core.windows import WINDOWS

OPTIONS = {"padding": 1, "smoothness": 1.0, "convention": "tight"}


def by_taps(x, weight, stride, **options):
    return functional.diff_stride_conv(x, weight, None, stride, order="taps", **OPTIONS, **options)


def plainly(x, weight, stride):
    return functional.diff_stride_conv(x, weight, None, stride, order="after", **OPTIONS)


def tensors(dtype=torch.float64, size=(9, 8)):
    x = torch.randn(2, 3, *size, dtype=dtype)
    return x, torch.randn(4, 3, 3, 3, dtype=dtype), torch.tensor([2.3, 1.7], dtype=dtype)


@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("padding", [(0, 0), (1, 1), (0, 2), (2, 1)])
@pytest.mark.parametrize("dilation", [1, 2])
def test_each_tap_reads_what_is_downsampled_after_it(mode, padding, dilation):
    """By its definition: the convolution of the padded input, then the matrix."""
    size, kernel = 7, 3
    length = size + sum(padding) - dilation * (kernel - 1)
    matrix = torch.randn(4, length, dtype=torch.float64)
    x, weight = torch.randn(5, 1, size, dtype=torch.float64), torch.randn(kernel).double()
    padded = F.pad(x, padding, mode="constant" if mode == "zeros" else mode)
    expected = F.conv1d(padded, weight[None, None], dilation=dilation) @ matrix.mT
    taps = x @ spread(matrix, size, kernel, dilation, padding, mode).mT
    actual = (taps.reshape(5, 1, kernel, 4) * weight[:, None]).sum(2)
    torch.testing.assert_close(actual, expected)


@pytest.mark.slow
def test_gradients_and_gradients_of_gradients():
    inputs = [t.requires_grad_() for t in tensors(size=(6, 5))]
    assert torch.autograd.gradcheck(by_taps, inputs)
    assert torch.autograd.gradgradcheck(by_taps, inputs)


def test_transforms_go_through_it():
    x, weight, stride = tensors()

    def loss(function):
        return lambda stride: function(x, weight, stride).square().sum()

    expected = torch.func.grad(loss(plainly))(stride)
    torch.testing.assert_close(torch.func.grad(loss(by_taps))(stride), expected)
    mapped = torch.func.vmap(lambda x: by_taps(x[None], weight, stride)[0])(x)
    torch.testing.assert_close(mapped, plainly(x, weight, stride))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_has_spectra_in_single(dtype):
    x, weight, stride = tensors(torch.float32)
    half = by_taps(x.to(dtype), weight.to(dtype), stride)
    assert half.dtype == dtype
    expected = plainly(x, weight, stride)
    assert (half - expected).norm() <= 0.02 * expected.norm()


def test_autocast_lowers_the_convolution_alone():
    x, weight, stride = tensors(torch.float32)
    weight.requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        y = by_taps(x, weight, stride)
        biased = functional.diff_stride_conv(
            x, weight, torch.ones(4), stride, order="taps", **OPTIONS
        )
    assert y.dtype == biased.dtype == torch.bfloat16
    y.sum().backward()
    assert weight.grad.isfinite().all()


def test_the_memory_format_stays_and_batches_may_be_empty_or_missing():
    x, weight, stride = tensors()
    last = by_taps(x.to(memory_format=torch.channels_last), weight, stride)
    assert last.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(last, plainly(x, weight, stride))
    torch.testing.assert_close(by_taps(x[0], weight, stride), plainly(x, weight, stride)[0])
    assert by_taps(x[:0], weight, stride).shape[0] == 0


def test_nothing_but_the_input_is_kept():
    """What the taps read is larger than the input, and computed again."""
    x, weight = torch.randn(4, 3, 32, 32, requires_grad=True), torch.randn(8, 3, 3, 3)
    weight.requires_grad_()
    stride = torch.tensor([2.0, 2.0], requires_grad=True)
    kept = {}

    def pack(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = by_taps(x, weight, stride)
    matrices = 64 * 32 * 32 * 8  # of a few axes, whatever the batch
    assert sum(kept.values()) <= x.nbytes + weight.nbytes + matrices
    y.sum().backward()
    assert stride.grad.isfinite().all()


def test_a_layer_may_be_told_to():
    layer = DiffStrideConv2d(3, 4, 3, 2.3, order="taps", **OPTIONS)
    other = DiffStrideConv2d(3, 4, 3, 2.3, order="after", **OPTIONS)
    other.load_state_dict(layer.state_dict())
    x = torch.randn(2, 3, 20, 20)
    torch.testing.assert_close(layer(x), other(x))


@pytest.mark.parametrize("window", sorted(WINDOWS))
@pytest.mark.parametrize("convention", ["paper", "symmetric", "tight"])
@pytest.mark.parametrize("smoothness", [0.0, 0.3, 1.0, 2.5, 6.0])
def test_strides_learn_from_all_frequencies_in_the_fall(window, convention, smoothness):
    """The gradient is taken from these alone; the plain order takes it from all."""
    rule = {"smoothness": smoothness, "convention": convention, "window": window, "padding": 1}
    x, weight, _ = tensors(size=(13, 12))
    for values in ((2.0, 2.0), (1.0, 3.1), (2.17, 6.5), (20.0, 1.3)):
        found = []
        for order in ("taps", "after"):
            stride = torch.tensor(values, dtype=torch.float64, requires_grad=True)
            y = functional.diff_stride_conv(x, weight, None, stride, order=order, **rule)
            wave = torch.linspace(-1, 2, y.numel(), dtype=y.dtype).reshape(y.shape)
            found.append(torch.autograd.grad((y * wave).sum(), stride)[0])
        torch.testing.assert_close(*found, atol=1e-10, rtol=1e-8)
