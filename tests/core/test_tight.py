"""Tight windows end where the kept band ends: stride 2 halves, and what goes with that."""

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from diffstride import DiffStride1d, DiffStride2d, functional

AXES = st.integers(1, 70)
WINDOWS = st.sampled_from(["ramp", "raised_cosine"])


@given(AXES, st.integers(1, 70), st.sampled_from([0.0, 0.5, 1.0, 4.0, 9.0]))
def test_the_size_is_what_a_strided_layer_would_make(size, divisor, smoothness):
    """⌊N/S⌋, whatever the smoothness; at a whole number of samples, exactly those."""
    kept = functional.output_size(size, divisor, smoothness=smoothness, convention="tight")
    assert kept == (max(1, size // divisor),)


@given(st.integers(1, 400), st.data())
def test_a_stride_that_float32_stores_makes_the_size_that_was_meant(size, data):
    kept = data.draw(st.integers(1, size))
    stored = torch.tensor(size / kept)
    assert functional.output_size(size, stored, convention="tight") == (kept,)
    layer = DiffStride1d(size / kept, smoothness=1.0, convention="tight")
    assert layer.output_size(size) == (kept,) == layer(torch.randn(1, 1, size)).shape[2:]


def test_48_at_2_4_become_20():
    assert functional.output_size(48, torch.tensor(2.4), convention="tight") == (20,)
    assert functional.output_size(48, torch.tensor(2.4), smoothness=0) == (19,)


@given(st.integers(1, 40), st.floats(1, 40), st.sampled_from([0.5, 1.0, 2.5, 4.0]), WINDOWS)
def test_between_jumps_of_the_size_the_layer_is_continuous(size, stride, smoothness, window):
    """Lipschitz in the stride: no frequency enters or leaves the window with a weight."""
    near = stride * (1 + 1e-6)
    rule = {"smoothness": smoothness, "convention": "tight", "window": window}
    sizes = {functional.output_size(size, s, **rule) for s in (stride, near)}
    assume(len(sizes) == 1)
    x = torch.eye(size, dtype=torch.float64)[None]
    one, two = (functional.diff_stride(x, (s,), **rule) for s in (stride, near))
    # How fast a weight may move: d/dS of N/(2S) over the width of the fall, which is at least ½.
    steepest = size / 2 / min(smoothness, 0.5) * math.pi / 2
    assert torch.linalg.matrix_norm(one - two).item() <= steepest * 1e-6 * 4 * size


@given(AXES, st.floats(1, 140), st.sampled_from([0.5, 1.0, 4.0, 40.0]), WINDOWS)
def test_constants_pass_however_short_the_axis(size, stride, smoothness, window):
    """A fall that is wider than the band begins at frequency 0, whose weight stays 1."""
    rule = {"smoothness": smoothness, "convention": "tight", "window": window, "norm": "forward"}
    y = functional.diff_stride(torch.ones(1, 1, size, dtype=torch.float64), stride, **rule)
    torch.testing.assert_close(y, torch.ones_like(y))


@pytest.mark.parametrize("smoothness", [1.0, 1.7, 2.0, 4.0])
@given(st.integers(3, 70), st.data())
def test_the_gradient_is_alive_as_long_as_two_samples_are_left(smoothness, size, data):
    """From S = 1 on, without a clamp. One sample is the mean, which no stride changes."""
    exact = st.integers(2, size).map(lambda kept: size / kept)
    stride = data.draw(st.one_of(st.floats(1, size / 2), exact))
    stride = torch.tensor([stride], dtype=torch.float64, requires_grad=True)
    x = torch.randn(4, 8, size, dtype=torch.float64)
    y = functional.diff_stride(x, stride, smoothness=smoothness, convention="tight")
    (y * torch.randn_like(y)).sum().backward()
    assert stride.grad.item() != 0


def test_at_stride_one_only_the_highest_frequencies_are_damped():
    window = functional.window(8, 1.0, smoothness=1.0, convention="tight")
    assert window.tolist() == [1, 1, 1, 1, 0]
    window = functional.window(9, 1.0, smoothness=2.0, convention="tight")
    assert window.tolist() == [1, 1, 1, 0.75, 0.25]


def test_without_a_fall_it_is_spectral_pooling():
    x = torch.randn(2, 3, 20, 31)
    tight = functional.diff_stride(x, 2.3, smoothness=0.0, convention="tight")
    torch.testing.assert_close(tight, functional.spectral_pool(x, 2.3))


@pytest.mark.parametrize("convention", ["paper", "symmetric", "tight"])
def test_smoothness_may_differ_between_axes_and_change(convention):
    layer = DiffStride2d((2.3, 1.7), smoothness=(1.0, 3.0), convention=convention)
    x = torch.randn(2, 3, 24, 24)
    rule = {"convention": convention}
    expected = functional.diff_stride(x, layer.stride, smoothness=(1.0, 3.0), **rule)
    assert torch.equal(layer(x), expected)
    layer.smoothness = 0.5
    assert torch.equal(layer(x), functional.diff_stride(x, layer.stride, smoothness=0.5, **rule))
    with pytest.raises(ValueError, match="smoothness must be one number or 2"):
        layer.smoothness = (1.0, 2.0, 3.0)
        layer(x)
