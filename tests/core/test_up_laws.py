"""What the way up promises, stated as laws rather than numbers."""

import gc
import math
import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from diffstride import functional
from diffstride.core.windows import CONVENTIONS, grown_length, kept_length

NORMS = ("ortho", "forward", "backward")
PATHS = ("operator", "fft")
ADJOINT = {"ortho": "ortho", "forward": "backward", "backward": "forward"}

norms, paths = st.sampled_from(NORMS), st.sampled_from(PATHS)
lengths = st.integers(1, 70)
conventions = st.sampled_from(["paper", "symmetric", "tight"])


@st.composite
def growing(draw, most=70, odd=False):
    """A size of one to three axes, and one that is nowhere smaller."""
    axes = draw(st.integers(1, 3))
    length = st.integers(1, max(2, most // axes**2))
    size = tuple(draw(length) // 2 * 2 + 1 if odd else draw(length) for _ in range(axes))
    return size, tuple(n + draw(length) - 1 for n in size)


@settings(max_examples=200)
@given(growing(), norms, paths)
def test_pooling_is_undone_from_the_left(sizes, norm, path):
    """Whatever the size: also where the highest frequency is a lone cosine."""
    size, larger = sizes
    x = torch.randn(2, 3, *size, dtype=torch.float64)
    y = functional.spectral_resize(x, larger, norm=norm, path=path)
    back = functional.spectral_pool(y, output_size=size, norm=norm, path=path)
    torch.testing.assert_close(back, x, rtol=0, atol=1e-10)


@settings(max_examples=100)
@given(growing(), norms, paths)
def test_what_was_pooled_comes_back_as_a_projection(sizes, norm, path):
    """Down and up again takes away what pooling takes away, all of it, and nothing else."""
    size, larger = sizes
    x = torch.randn(2, 1, *larger, dtype=torch.float64)

    def project(x):
        small = functional.spectral_pool(x, output_size=size, norm=norm, path=path)
        return functional.spectral_resize(small, larger, norm=norm, path=path)

    once = project(x)
    torch.testing.assert_close(project(once), once, rtol=0, atol=1e-10)
    # At a right angle: no other way back loses less.
    torch.testing.assert_close((once * (x - once)).sum(), x.new_zeros(()), rtol=0, atol=1e-8)


def pooling_adjoint(g, larger, norm, path):
    """The adjoint of pooling down to where g is, by its backward pass."""
    x = g.new_zeros((*g.shape[:2], *larger), requires_grad=True)
    y = functional.spectral_pool(x, output_size=g.shape[2:], norm=norm, path=path)
    return torch.autograd.grad(y, x, g)[0]


@settings(max_examples=100)
@given(growing(odd=True), norms, paths)
def test_from_odd_sizes_it_is_the_adjoint_of_pooling(sizes, norm, path):
    """Of the norm that goes with it: the unitary one is its own, the other two change places."""
    size, larger = sizes
    g = torch.randn(2, 2, *size, dtype=torch.float64)
    expected = pooling_adjoint(g, larger, ADJOINT[norm], path)
    y = functional.spectral_resize(g, larger, norm=norm, path=path)
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-10)


@settings(max_examples=100)
@given(growing(), norms, paths)
def test_of_lone_cosines_it_makes_twice_what_the_adjoint_does(sizes, norm, path):
    """Pooling lets half of these pass, and the adjoint half of that half."""
    size, larger = sizes
    g = torch.randn(2, 2, *size, dtype=torch.float64)
    twice = g
    for dim, (n, m) in enumerate(zip(size, larger, strict=True), 2):
        if n % 2 == 0 and m > n:
            signs = 1 - 2 * (torch.arange(n) % 2).double()
            signs = signs.reshape(-1, *[1] * (g.ndim - 1 - dim))
            twice = twice + signs * (signs * twice).mean(dim, keepdim=True)
    expected = pooling_adjoint(twice, larger, ADJOINT[norm], path)
    y = functional.spectral_resize(g, larger, norm=norm, path=path)
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-9)


@settings(max_examples=100)
@given(growing(24), st.floats(1, 3), st.sampled_from([0.0, 1.0, 2.5]), conventions, norms, paths)
def test_the_backward_pass_is_the_adjoint(sizes, stride, smoothness, convention, norm, path):
    """⟨A x, g⟩ = ⟨x, Aᵀ g⟩, and Aᵀ g does not depend on x: the operator is linear."""
    size, larger = sizes
    rule = {"smoothness": smoothness, "convention": convention}

    def up(x):
        return functional.diff_upsample(x, stride, norm=norm, path=path, **rule)

    def resize(x):
        return functional.spectral_resize(x, larger, norm=norm, path=path)

    for layer in (up, resize):
        a = torch.randn(2, 2, *size, dtype=torch.float64, requires_grad=True)
        b = torch.randn_like(a).requires_grad_()
        y = layer(a)
        g = torch.randn_like(y)
        (grad_a,) = torch.autograd.grad(y, a, g)
        (grad_b,) = torch.autograd.grad(layer(b), b, g)
        torch.testing.assert_close(grad_a, grad_b, rtol=0, atol=0)
        torch.testing.assert_close((y * g).sum(), (a * grad_a).sum(), rtol=1e-9, atol=1e-9)


@settings(max_examples=60)
@given(growing(24, odd=True), st.floats(1, 3), st.sampled_from([0.0, 1.0, 2.5]), conventions, paths)
def test_the_learned_way_up_is_the_learned_way_down_the_other_way_round(
    sizes, stride, smoothness, convention, path
):
    """By the same stride: the adjoint of ``diff_stride``, which leads back to the same size."""
    size, _ = sizes
    rule = {"smoothness": smoothness, "convention": convention, "path": path}
    g = torch.randn(2, 2, *size, dtype=torch.float64)
    y = functional.diff_upsample(g, stride, **rule)
    x = torch.zeros_like(y).requires_grad_()
    down = functional.diff_stride(x, stride, output_size=size, **rule)
    (expected,) = torch.autograd.grad(down, x, g)
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-10)


@given(lengths, st.floats(1, 6), st.sampled_from([0.0, 0.5, 1.0, 4.0]), conventions)
def test_the_way_down_leads_back_to_the_size(size, stride, smoothness, convention):
    rule = (stride, smoothness, CONVENTIONS[convention])
    made = grown_length(size, *rule)
    assert made >= size
    assert kept_length(made, *rule) == size
    if size > 1 and made > size:
        assert kept_length(made - 1, *rule) < size


@given(lengths, st.integers(1, 5), st.sampled_from([0.0, 1.0, 4.0]))
def test_whole_strides_multiply(size, factor, smoothness):
    assert grown_length(size, factor, smoothness, CONVENTIONS["tight"]) == factor * size
    assert grown_length(size, factor, 0.0) == factor * size


@given(lengths, st.data())
def test_a_stride_that_float32_stores_makes_the_size_that_was_meant(size, data):
    made = data.draw(st.integers(size, 5 * size))
    stored = torch.tensor(made / size).item()
    assert grown_length(size, stored, 1.0, CONVENTIONS["tight"]) == made


@settings(max_examples=100)
@given(growing(), st.floats(1, 3), conventions, norms, paths)
def test_a_constant_keeps_its_value_times_the_gain(sizes, stride, convention, norm, path):
    size, larger = sizes
    x = torch.full((2, 3, *size), -1.7, dtype=torch.float64)
    for y in (
        functional.spectral_resize(x, larger, norm=norm, path=path),
        functional.diff_upsample(x, stride, convention=convention, norm=norm, path=path),
    ):
        ratio = math.prod(x.shape) / math.prod(y.shape)
        gain = {"ortho": math.sqrt(ratio), "forward": 1.0, "backward": ratio}[norm]
        torch.testing.assert_close(y, torch.full_like(y, -1.7 * gain), rtol=1e-12, atol=1e-12)


def wave(size, dim, frequency, phase=0.3):
    n = size[dim]
    angle = 2 * math.pi * frequency * torch.arange(n, dtype=torch.float64) / n + phase
    shape = [1] * len(size)
    shape[dim] = n
    return angle.cos().reshape(shape).expand(size)[None, None].contiguous()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("size", "larger"),
    [
        ((16,), (31,)),
        ((15,), (32,)),
        ((13, 8), (14, 27)),
        ((8, 13), (27, 13)),
        ((5, 6, 7), (9, 12, 8)),
    ],
)
def test_every_wave_survives(size, larger, path):
    """Along each axis, on either end of the spectrum; the rest of the spectrum stays empty."""
    for dim, n in enumerate(size):
        for frequency in range((n + 1) // 2):
            x, expected = (wave(end, dim, frequency) for end in (size, larger))
            y = functional.spectral_resize(x, larger, norm="forward", path=path)
            torch.testing.assert_close(y, expected, rtol=0, atol=1e-12)
        if n % 2 == 0 and larger[dim] > n:  # pooling would let half of it pass
            x, expected = (wave(end, dim, n // 2, phase=0) for end in (size, larger))
            y = functional.spectral_resize(x, larger, norm="forward", path=path)
            torch.testing.assert_close(y, 2 * expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("path", PATHS)
def test_one_axis_up_and_one_down_is_each_by_itself(path):
    x = torch.randn(2, 3, 9, 20, dtype=torch.float64)
    both = functional.spectral_resize(x, (31, 8), path=path)
    down = functional.spectral_pool(x, output_size=(9, 8), path=path)
    torch.testing.assert_close(both, functional.spectral_resize(down, (31, 8), path=path))


@given(growing(), norms, paths)
def test_down_it_is_spectral_pooling_to_the_last_digit(sizes, norm, path):
    size, larger = sizes
    x = torch.randn(1, 2, *larger)
    y = functional.spectral_resize(x, size, norm=norm, path=path)
    pooled = functional.spectral_pool(x, output_size=size, norm=norm, path=path)
    if all(n > m for n, m in zip(larger, size, strict=True)):
        assert torch.equal(y, pooled)
    else:
        torch.testing.assert_close(y, pooled)


@given(growing(), norms, paths)
def test_an_axis_that_has_its_size_already_is_not_touched(sizes, norm, path):
    size, larger = sizes
    x = torch.randn(1, 2, *size)
    y = functional.spectral_resize(x, size, norm=norm, path=path)
    assert torch.equal(y, x)
    assert y.data_ptr() != x.data_ptr()  # it may be changed in place
    if len(size) > 1:  # rows, and what becomes of one of them alone
        rows = functional.spectral_resize(x, (size[0], *larger[1:]), norm=norm, path=path)
        row = functional.spectral_resize(x[:, :, :1], (1, *larger[1:]), norm=norm, path=path)
        torch.testing.assert_close(rows[:, :, :1], row)


@given(growing(), paths)
def test_without_a_fall_the_learned_way_is_the_fixed_one(sizes, path):
    size, _ = sizes
    x = torch.randn(1, 2, *size, dtype=torch.float64)
    y = functional.diff_upsample(x, 1.7, smoothness=0.0, path=path)
    torch.testing.assert_close(y, functional.spectral_resize(x, y.shape[2:], path=path))


@pytest.mark.parametrize("smoothness", [1.0, 1.7, 2.0, 4.0])
@pytest.mark.parametrize("convention", ["symmetric", "tight"])
@given(st.integers(2, 70), st.floats(1, 4))
def test_the_gradient_is_alive(smoothness, convention, size, stride):
    """At any stride: tight windows from two samples on, others where they have room to fall."""
    if convention != "tight" and size // 2 < (smoothness + 1) / 2:
        size += 8
    stride = torch.tensor([stride], dtype=torch.float64, requires_grad=True)
    x = torch.randn(4, 8, size, dtype=torch.float64)
    y = functional.diff_upsample(x, stride, smoothness=smoothness, convention=convention)
    (y * torch.randn_like(y)).sum().backward()
    assert stride.grad.item() != 0


@pytest.mark.parametrize("path", PATHS)
def test_only_the_spectrum_of_the_input_is_kept(path):
    """Of what is saved for the backward pass nothing is as large as what comes out."""
    leaf = torch.randn(2, 3, 20, 20, requires_grad=True)
    stride = torch.tensor([2.3, 3.1], requires_grad=True)
    saved = []

    def pack(x):
        saved.append(x.numel() * (2 if x.is_complex() else 1))
        return x

    x = leaf + 0
    freed = weakref.ref(x)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        y = functional.diff_upsample(x, stride, path=path)
    del x
    gc.collect()
    assert freed() is None
    if path == "operator":
        assert max(saved) == leaf.numel()
    saved.clear()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        fixed = functional.spectral_resize(leaf + 0, (41, 50), path="operator")
    assert sum(saved) < 200  # weights alone
    (y.sum() + fixed.sum()).backward()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
def test_channels_and_batch_items_never_mix(path, layout):
    x = torch.randn(3, 4, 9, 8, dtype=torch.float64)
    if layout == "channels_last":
        x = x.to(memory_format=torch.channels_last)
    whole = functional.diff_upsample(x, (2.1, 1.3), path=path)
    assert whole.is_contiguous(
        memory_format=torch.channels_last if layout == "channels_last" else torch.contiguous_format
    )
    one = functional.diff_upsample(x[1, 2:3], (2.1, 1.3), path=path)
    torch.testing.assert_close(whole[1, 2:3], one, rtol=0, atol=1e-13)
    x[1, 2, 0, 0] = math.nan
    touched = functional.diff_upsample(x, (2.1, 1.3), path=path).isnan().flatten(2).any(-1)
    assert touched[1, 2]
    assert touched.sum() == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("path", PATHS)
def test_spectra_are_computed_in_single_precision_or_better(dtype, path):
    x = torch.randn(2, 3, 9, 8).to(dtype)
    y = functional.spectral_resize(x, (13, 20), path=path)
    exact = functional.spectral_resize(x.double(), (13, 20), path=path)
    assert y.dtype == dtype
    torch.testing.assert_close(y, exact.to(dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        again = functional.diff_upsample(x, 1.5, path=path)
    assert again.dtype == dtype
    assert torch.equal(again, functional.diff_upsample(x, 1.5, path=path))
    empty = functional.diff_upsample(x[:0], 1.5, path=path)
    assert empty.shape == (0, 3, 14, 12)
