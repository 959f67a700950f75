"""The methods of others: exact against their definitions, and what must hold of each."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from diffstride import functional
from diffstride.core.shape_adaptor import share_of, stride_of
from diffstride.core.whole_strides import strided_length, strided_size
from tests.core import rival_references as reference

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}
DTYPES = pytest.mark.parametrize("dtype", TOLERANCE)
# Even, odd, prime and tiny ones on each axis.
CASES = pytest.mark.parametrize(
    ("size", "strides"),
    [
        ((16,), (2,)),
        ((13,), (3,)),
        ((1,), (2,)),
        ((2,), (5,)),
        ((8, 9), (2, 2)),
        ((7, 2), (3, 1)),
        ((1, 11), (4, 4)),
        ((4, 5, 6), (2, 2, 2)),
        ((3, 1, 7), (1, 2, 3)),
    ],
)
WHOLE = ("blur_pool", "frequency_low_cut", "polyphase_sample")


def example(size, dtype=torch.float64, seed=0, batch=2):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, 3, *size, generator=generator, dtype=torch.float64).to(dtype)


def check(found, x, one_example, dtype):
    expected = np.stack([one_example(each.double().numpy()) for each in x])
    assert found.dtype == dtype
    scale = max(1.0, float(np.abs(expected).max()))
    torch.testing.assert_close(
        found.double(), torch.from_numpy(expected), rtol=0, atol=TOLERANCE[dtype] * scale
    )


@DTYPES
@CASES
@pytest.mark.parametrize("taps", [1, 2, 3, 4, 5, 7])
def test_blur_pooling(size, strides, taps, dtype):
    x = example(size, dtype)
    found = functional.blur_pool(x, strides, taps=taps)
    check(found, x, lambda each: reference.blur(each, strides, taps), dtype)


@DTYPES
@CASES
def test_low_cut_pooling(size, strides, dtype):
    x = example(size, dtype)
    check(
        functional.frequency_low_cut(x, strides),
        x,
        lambda each: reference.low_cut(each, strides),
        dtype,
    )


@DTYPES
@CASES
def test_polyphase_sampling(size, strides, dtype):
    x = example(size, dtype, batch=5)
    found, grids = functional.polyphase_sample(x, strides)
    assert grids.shape == (5,)
    check(found, x, lambda each: reference.polyphase(each, strides), dtype)


@DTYPES
@pytest.mark.parametrize(
    ("size", "strides"),
    [
        *(((16,), (2.0,)), ((13,), (1.0,)), ((1,), (3.5,)), ((2,), (1.3,)), ((40,), (2.7,))),
        *(((8, 9), (1.6, 2.3)), ((7, 2), (9.0, 1.9)), ((4, 5, 6), (1.1, 2.0, 3.7))),
    ],
)
def test_learned_resize(size, strides, dtype):
    x, made = example(size, dtype), strided_size(size, strides)
    for stride in (strides, torch.tensor(strides, dtype=torch.float64)):
        found = functional.learned_resize(x, stride)
        assert found.shape[2:] == made
        check(found, x, lambda each: reference.resize(each, strides, made), dtype)


@DTYPES
@pytest.mark.parametrize("per_axis", [False, True])
@pytest.mark.parametrize("largest", [2, 3, 5])
@pytest.mark.parametrize("size", [(16,), (1,), (8, 9), (2, 7), (4, 5, 6)])
def test_shape_adaptor(size, largest, per_axis, dtype):
    x = example(size, dtype)
    shares = [0.3, 0.8, 0.1][: len(size)] if per_axis else [0.3] * len(size)
    made = strided_size(size, [stride_of(share, largest) for share in shares])
    share = torch.tensor(shares if per_axis else 0.3, dtype=torch.float64)
    found = functional.shape_adaptor(x, share, largest=largest)
    assert found.shape[2:] == made
    check(found, x, lambda each: reference.adaptor(each, shares, largest, made, per_axis), dtype)


@settings(deadline=None, max_examples=60)
@given(
    size=st.lists(st.integers(1, 17), min_size=1, max_size=3),
    stride=st.integers(1, 6),
    seed=st.integers(0, 99),
)
def test_sizes_are_those_of_a_strided_convolution(size, stride, seed):
    x = example(size, torch.float32, seed)
    strided = getattr(torch.nn.functional, f"conv{len(size)}d")(
        x, torch.ones(1, 3, *[1] * len(size)), stride=stride
    )
    for name in WHOLE:
        found = getattr(functional, name)(x, stride)
        found = found[0] if isinstance(found, tuple) else found
        assert found.shape[2:] == strided.shape[2:]
    assert functional.learned_resize(x, float(stride)).shape[2:] == strided.shape[2:]
    share = share_of(float(stride), 6)
    assert functional.shape_adaptor(x, share, largest=6).shape[2:] == strided.shape[2:]


def test_strides_in_single_precision_make_the_size_that_was_meant():
    for n in range(1, 200):
        for m in range(1, n + 1):
            assert strided_length(n, float(torch.tensor(n / m, dtype=torch.float32))) == m
    assert strided_length(100, 100 / 30.5) == 31


EVERY = {
    "blur": lambda x: functional.blur_pool(x, 2, taps=4),
    "low cut": lambda x: functional.frequency_low_cut(x, 2),
    "polyphase": lambda x: functional.polyphase_sample(x, 2).samples,
    "resize": lambda x: functional.learned_resize(x, 1.7),
    "adaptor": lambda x: functional.shape_adaptor(x, 0.4),
}
METHODS = pytest.mark.parametrize("method", EVERY.values(), ids=EVERY)


@METHODS
@pytest.mark.parametrize("size", [(9,), (6, 7), (4, 5, 3)])
def test_constants_are_kept(method, size):
    x = torch.full((2, 3, *size), 1.75, dtype=torch.float64)
    y = method(x)
    torch.testing.assert_close(y, torch.full_like(y, 1.75), rtol=1e-12, atol=1e-12)


@METHODS
@pytest.mark.parametrize("size", [(9,), (5, 6), (3, 4, 2)])
def test_gradients_of_the_input(method, size):
    x = example(size, batch=2).requires_grad_()
    assert torch.autograd.gradcheck(method, x)


@METHODS
def test_memory_formats_and_empty_batches(method):
    x = example((9, 8), torch.float32, batch=3)
    expected = method(x)
    torch.testing.assert_close(method(x.to(memory_format=torch.channels_last)), expected)
    torch.testing.assert_close(method(x.transpose(2, 3).contiguous().transpose(2, 3)), expected)
    assert method(x[:0]).shape == (0, *expected.shape[1:])


@METHODS
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(method, dtype):
    x = 300 * example((9, 8), dtype)  # whose squares are beyond what half precision has
    y = method(x)
    assert y.dtype == dtype
    expected = method(x.float())
    assert (y.float() - expected).abs().max() <= 0.02 * expected.abs().max()


def test_blur_keeps_what_the_filter_of_the_paper_keeps():
    """A wave of two samples is gone before every second one is taken."""
    wave = torch.tensor([1.0, -1.0] * 8, dtype=torch.float64)[None, None]
    torch.testing.assert_close(functional.blur_pool(wave, 2), torch.zeros(1, 1, 8).double())
    assert functional.blur_pool(wave, 2, taps=1).eq(1).all()


def test_the_low_cut_is_a_spectral_crop():
    x = example((12, 10))
    cropped = functional.spectral_pool(x, 2, norm="forward")
    torch.testing.assert_close(functional.frequency_low_cut(x, 2), cropped)
    low = torch.cos(2 * torch.pi * 2 * torch.arange(12, dtype=torch.float64) / 12)
    torch.testing.assert_close(
        functional.frequency_low_cut(low[None, None], 2)[0, 0], low[::2], atol=1e-12, rtol=0
    )


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("stride", [2, 3])
def test_polyphase_samples_of_a_moved_input_are_the_same_moved(axes, stride):
    size = [12, 6, 6][:axes]
    x = example(size, batch=4)
    y = functional.polyphase_sample(x, stride).samples
    for axis in range(2, 2 + axes):
        for places in (1, 2, 5):
            moved = functional.polyphase_sample(x.roll(places, axis), stride).samples
            # Each example by as many samples as the grid that it is on has wrapped around.
            for one, other in zip(y, moved, strict=True):
                shifts = [one.roll(k, axis - 1) for k in range(one.shape[axis - 1])]
                assert sum(torch.equal(other, shifted) for shifted in shifts) == 1


def test_polyphase_chooses_for_each_example():
    x = torch.zeros(4, 1, 4, 4)
    for i, (row, column) in enumerate([(0, 0), (0, 1), (1, 0), (1, 1)]):
        x[i, 0, row::2, column::2] = i + 1
    y, grids = functional.polyphase_sample(x, 2)
    assert grids.tolist() == [0, 1, 2, 3]
    assert [each.unique().tolist() for each in y] == [[1.0], [2.0], [3.0], [4.0]]
    alike, _ = functional.polyphase_sample(x, 2, grids=torch.tensor([3, 3, 3, 3]))
    assert [each.unique().tolist() for each in alike] == [[0.0], [0.0], [0.0], [4.0]]
    with pytest.raises(ValueError, match="one number for each of 4 examples, got the shape"):
        functional.polyphase_sample(x, 2, grids=torch.tensor([3]))


@pytest.mark.parametrize("size", [(20,), (9, 14), (6, 5, 7)])
def test_the_stride_of_a_resize_has_the_slope_of_its_places(size):
    x = example(size, batch=1)
    strides = torch.tensor([1.65, 2.2, 1.3][: len(size)], dtype=torch.float64)
    made = strided_size(size, strides.tolist())
    assert torch.autograd.gradcheck(
        lambda x, s: functional.learned_resize(x, s, output_size=made),
        (x.requires_grad_(), strides.requires_grad_()),
        eps=1e-7,
        atol=1e-6,
    )


def test_a_stride_is_never_stuck_on_whole_places():
    x = torch.tensor([[[0.0, 1.0, 4.0, 9.0, 16.0]]], dtype=torch.float64)
    for start in (1.0, 2.0):
        stride = torch.tensor([start], dtype=torch.float64, requires_grad=True)
        y = functional.learned_resize(x, stride)
        torch.testing.assert_close(y.detach(), x[..., :: int(start)])
        (y * torch.arange(1.0, y.shape[-1] + 1)).sum().backward()
        assert stride.grad.item() != 0


@pytest.mark.parametrize("per_axis", [False, True])
def test_the_share_of_an_adaptor_has_the_slope_of_the_mixture(per_axis):
    x = example((9, 8))
    share = torch.tensor([0.3, 0.6] if per_axis else 0.3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda x, share: functional.shape_adaptor(x, share, output_size=(6, 7)),
        (x.requires_grad_(), share),
    )


def test_the_ends_of_an_adaptor_are_its_branches():
    x = example((8, 6))
    smaller = torch.nn.functional.max_pool2d(x, 2)
    torch.testing.assert_close(functional.shape_adaptor(x, 0.0, largest=2), smaller)
    torch.testing.assert_close(functional.shape_adaptor(x, 1.0, largest=2), x)


@pytest.mark.parametrize("name", WHOLE)
def test_strides_that_are_not_whole_are_refused(name):
    method, x = getattr(functional, name), torch.rand(1, 2, 8, 8)
    with pytest.raises(ValueError, match=r"stride must be whole for .*; got \(1.5, 2.0\): round"):
        method(x, (1.5, 2))
    with pytest.raises(ValueError, match=r"stride must be at least 1, got 0\.0"):
        method(x, 0)
    with pytest.raises(ValueError, match=r"one per spatial axis\), got 3|with 3 spatial axes"):
        method(x[0], (2, 2, 2))
    with pytest.raises(TypeError, match="input must be floating point"):
        method(x.int(), 2)


def test_other_arguments_that_are_refused():
    x = torch.rand(1, 2, 8, 8)
    for taps in (0, 2.5):
        with pytest.raises(ValueError, match=f"taps must be a whole number .* got {taps}"):
            functional.blur_pool(x, 2, taps=taps)
    with pytest.raises(ValueError, match=r"stride must be at least 1, got 0\.5"):
        functional.learned_resize(x, 0.5)
    with pytest.raises(ValueError, match=r"share must be from 0 to 1, got \(1.5, 1.5\)"):
        functional.shape_adaptor(x, 1.5)
    for largest in (1, 2.5):
        with pytest.raises(ValueError, match=f"must be a whole number above 1, got {largest}"):
            functional.shape_adaptor(x, 0.5, largest=largest)
    with pytest.raises(TypeError, match="input must be floating point"):
        functional.learned_resize(x.int(), 2.0)
    with pytest.raises(TypeError, match="input must be floating point"):
        functional.shape_adaptor(x.int(), 0.5)


def test_a_size_that_is_known_already_does_not_excuse_other_arguments():
    x = torch.rand(1, 2, 8, 8)
    for stride in (0.5, math.nan):
        with pytest.raises(ValueError, match="stride must be"):
            functional.learned_resize(x, stride, output_size=(4, 4))
    for size in ((20, 4), (0, 4), (4,)):
        with pytest.raises(ValueError, match="output_size must"):
            functional.learned_resize(x, 2.0, output_size=size)
    for share in (1.5, math.nan, (0.5, 0.5, 0.5), torch.rand(3), torch.rand(1)):
        with pytest.raises(ValueError, match="share must"):
            functional.shape_adaptor(x, share, output_size=(4, 4))
    with pytest.raises(ValueError, match="1 to 3 spatial axes, got 4"):
        functional.shape_adaptor(torch.rand(1, 1, 4, 4, 4, 4), 0.5)
    assert functional.shape_adaptor(x, 0.5, largest=2.0).shape == (1, 2, 6, 6)
