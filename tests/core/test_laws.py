"""What the layer promises, stated as laws rather than numbers."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from diffstride import functional

NORMS = ("ortho", "forward", "backward")
PATHS = ("operator", "fft")


def gain(size, kept, norm):
    ratio = size / kept
    return {"ortho": math.sqrt(ratio), "forward": 1.0, "backward": ratio}[norm]


def wave(size, dim, frequency, phase=0.3):
    """cos along one axis, constant along the others, as a batch of one with one channel."""
    n = size[dim]
    angle = 2 * math.pi * frequency * torch.arange(n, dtype=torch.float64) / n + phase
    shape = [1] * len(size)
    shape[dim] = n
    return angle.cos().reshape(shape).expand(size)[None, None].contiguous()


sizes = st.lists(st.integers(1, 24), min_size=1, max_size=3).map(tuple)
smoothnesses = st.sampled_from([0.0, 0.5, 1.0, 2.5, 4.0, 8.0])


@settings(max_examples=100)
@given(sizes, st.floats(1, 30), smoothnesses, st.sampled_from(NORMS), st.sampled_from(PATHS))
def test_a_constant_keeps_its_value_times_the_gain(size, stride, smoothness, norm, path):
    x = torch.full((2, 3, *size), -1.7, dtype=torch.float64)
    y = functional.diff_stride(x, stride, smoothness=smoothness, norm=norm, path=path)
    expected = -1.7 * math.prod(gain(n, m, norm) for n, m in zip(size, y.shape[2:], strict=True))
    torch.testing.assert_close(y, torch.full_like(y, expected), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("size", [(32,), (31,), (30, 27), (27, 30), (13, 16, 15), (16, 15, 13)])
@pytest.mark.parametrize("stride", [1.7, 2.0, 3.1])
@pytest.mark.parametrize("smoothness", [0.0, 1.0, 2.5])
def test_waves_below_the_cut_off_survive_and_above_the_kept_band_vanish(
    size, stride, smoothness, path
):
    kept = functional.output_size(size, stride, smoothness=smoothness)
    for dim, (n, m) in enumerate(zip(size, kept, strict=True)):
        for frequency in range(n // 2 + 1):
            x = wave(size, dim, frequency)
            y = functional.diff_stride(
                x, stride, smoothness=smoothness, norm="forward", convention="symmetric", path=path
            )
            # Within the flat part of the window, and below the Nyquist frequency of the output,
            # where a wave and its mirror image would share one bin.
            if frequency <= n / (2 * stride) and 2 * frequency < m:
                expected = wave(kept, dim, frequency)
            elif 2 * frequency > m:
                expected = torch.zeros_like(y)
            else:
                continue
            torch.testing.assert_close(y, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("size", [(12, 12), (12, 9), (11, 7), (3, 8)])
def test_the_symmetric_convention_commutes_with_swapping_axes(size, path):
    x = torch.randn(2, 3, *size, dtype=torch.float64)

    def layer(x, strides, convention):
        return functional.diff_stride(x, strides, smoothness=2.5, convention=convention, path=path)

    swapped = layer(x.mT, (1.4, 2.2), "symmetric").mT
    torch.testing.assert_close(swapped, layer(x, (2.2, 1.4), "symmetric"), rtol=0, atol=1e-12)
    if size == (12, 12):  # the paper's convention has one frequency more on the last axis
        paper = layer(x, (2.2, 1.4), "paper")
        assert (layer(x.mT, (1.4, 2.2), "paper").mT - paper).norm() > 0.01 * paper.norm()


def circular_flip(x, dim):
    """x[−n]: the flip under which sample 0 stays in its place, as waves of phase 0 do."""
    return x.flip(dim).roll(1, dim)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("convention", ["paper", "symmetric"])
@pytest.mark.parametrize("size", [(12, 9), (9, 12), (8, 8), (1, 7)])
def test_flips_commute(size, convention, path):
    x = torch.randn(2, 3, *size, dtype=torch.float64)
    for dim in (-2, -1):

        def layer(x):
            return functional.diff_stride(
                x, (1.6, 2.3), smoothness=1.0, convention=convention, path=path
            )

        torch.testing.assert_close(
            layer(circular_flip(x, dim)), circular_flip(layer(x), dim), rtol=0, atol=1e-12
        )


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("crop", [True, False])
def test_without_cropping_it_commutes_with_circular_shifts(path, crop):
    """A filter does; resampling to M points does only for shifts that are whole there too."""
    x = torch.randn(1, 2, 24, 18, dtype=torch.float64)

    def layer(x):
        return functional.diff_stride(x, 3.0, smoothness=0.0 if crop else 2.5, crop=crop, path=path)

    shift = (3, 6)
    moved = tuple(s // 3 for s in shift) if crop else shift
    torch.testing.assert_close(
        layer(x.roll(shift, (-2, -1))), layer(x).roll(moved, (-2, -1)), rtol=0, atol=1e-12
    )


@settings(max_examples=60)
@given(
    sizes,
    st.floats(1, 20),
    smoothnesses,
    st.booleans(),
    st.sampled_from(NORMS),
    st.sampled_from(["paper", "symmetric"]),
    st.sampled_from(PATHS),
)
def test_the_backward_pass_is_the_adjoint(size, stride, smoothness, crop, norm, convention, path):
    """⟨A x, g⟩ = ⟨x, Aᵀ g⟩, and Aᵀ g does not depend on x: the operator is linear."""

    def layer(x):
        return functional.diff_stride(
            x,
            stride,
            smoothness=smoothness,
            crop=crop,
            norm=norm,
            convention=convention,
            path=path,
        )

    a = torch.randn(2, 2, *size, dtype=torch.float64, requires_grad=True)
    b = torch.randn_like(a).requires_grad_()
    y = layer(a)
    g = torch.randn_like(y)
    (grad_a,) = torch.autograd.grad(y, a, g)
    (grad_b,) = torch.autograd.grad(layer(b), b, g)
    torch.testing.assert_close(grad_a, grad_b, rtol=0, atol=0)
    torch.testing.assert_close((y * g).sum(), (a * grad_a).sum(), rtol=1e-9, atol=1e-9)


@settings(max_examples=60)
@given(sizes, st.sampled_from(NORMS), st.sampled_from(PATHS))
def test_spectral_pooling_by_one_is_the_identity(size, norm, path):
    x = torch.randn(2, 3, *size, dtype=torch.float64)
    torch.testing.assert_close(
        functional.spectral_pool(x, 1, norm=norm, path=path), x, rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
def test_channels_and_batch_items_never_mix(path, layout):
    x = torch.randn(3, 4, 9, 8, dtype=torch.float64)
    if layout == "channels_last":
        x = x.to(memory_format=torch.channels_last)
    whole = functional.diff_stride(x, (2.1, 1.3), smoothness=1.0, path=path)
    for i in range(3):
        for c in range(4):
            one = functional.diff_stride(x[i, c : c + 1], (2.1, 1.3), smoothness=1.0, path=path)
            torch.testing.assert_close(whole[i, c : c + 1], one, rtol=0, atol=1e-13)
    # And nothing of one reaches another, not even as rounding: a NaN stays where it is.
    x[1, 2, 0, 0] = math.nan
    y = functional.diff_stride(x, (2.1, 1.3), smoothness=1.0, path=path)
    touched = y.isnan().flatten(2).any(-1)
    assert touched[1, 2]
    assert touched.sum() == 1


def test_a_smaller_cut_is_the_beginning_of_a_larger_one():
    """Cutting in two steps equals cutting at once, where no Nyquist frequency is halved twice."""
    x = torch.randn(1, 1, 30, dtype=torch.float64)
    once = functional.spectral_pool(x, output_size=9)
    twice = functional.spectral_pool(functional.spectral_pool(x, output_size=17), output_size=9)
    torch.testing.assert_close(twice, once, rtol=0, atol=1e-12)
