"""The way up equals its definition: values, input gradients and stride gradients, on both paths."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from diffstride import functional
from tests import oracle

pytestmark = pytest.mark.slow

SMOOTHNESS = (0.0, 0.5, 1.0, 2.5, 4.0, 8.0)
NORMS = ("ortho", "forward", "backward")
CONVENTIONS = ("paper", "symmetric", "tight")
PATHS = ("operator", "fft")
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}
BASES = ("fourier", "fourier", "dct")  # two in three are the paper's
SAMPLES = {1: 70, 2: 4_000, 3: 3_000}  # of one example, so that 3 axes take no longer than 1


@st.composite
def sizes(draw, axes):
    size = tuple(draw(st.integers(1, 70)) for _ in range(axes))
    assume(math.prod(size) <= SAMPLES[axes])
    return size


@st.composite
def cases(draw, axes):
    """Sizes with strides that both float32 and float64 hold exactly, and every switch."""
    size = draw(sizes(axes))
    stride = st.one_of(st.floats(1, 3, width=32), st.sampled_from([1.0, 1.5, 2.0, 2.5, 3.0]))
    strides = tuple(draw(stride) for _ in size)
    switches = {
        "smoothness": draw(st.sampled_from(SMOOTHNESS)),
        "norm": draw(st.sampled_from(NORMS)),
        "convention": draw(st.sampled_from(CONVENTIONS)),
        "basis": draw(st.sampled_from(BASES)),
    }
    rule = draw(st.sampled_from([None, None, "output_size", "size_multiple"]))
    if rule == "output_size":
        switches[rule] = tuple(n + draw(st.integers(0, n)) for n in size)
    elif rule == "size_multiple":
        switches[rule] = draw(st.integers(2, 9))
    return size, strides, switches


def definition(size, strides, convention, output_size=None, size_multiple=1, **switches):
    last = 1.0 if convention == "paper" else 0.0
    switches |= {"tight": convention == "tight", "multiple": size_multiple}
    offsets = [0.0] * (len(size) - 1) + [last]
    lengths = [None] * len(size) if output_size is None else output_size
    return [
        oracle.axis_up(n, s, offset=offset, output=m, **switches)
        for n, s, offset, m in zip(size, strides, offsets, lengths, strict=True)
    ]


def assert_close(actual, expected, typical, dtype):
    error = np.linalg.norm(np.asarray(actual, np.float64) - expected)
    assert error <= TOLERANCE[dtype] * max(np.linalg.norm(expected), typical)


def check(size, strides, switches):
    rng = np.random.default_rng(0)
    axes = definition(size, strides, **switches)
    x = rng.standard_normal((2, 2, *size)).astype(np.float32).astype(np.float64)
    y = oracle.forward(axes, x)
    g = rng.standard_normal(y.shape).astype(np.float32).astype(np.float64)
    dx = oracle.input_gradient(axes, g)
    ds = [oracle.stride_gradients(axes, i, x, g) for i in range(len(axes))]
    norms = [np.linalg.norm(a.matrix) for a in axes]
    typical = 2 * math.prod(norms)
    for dtype in (torch.float64, torch.float32):
        for path in PATHS:
            x_t = torch.tensor(x, dtype=dtype, requires_grad=True)
            s_t = torch.tensor(strides, dtype=dtype, requires_grad=True)
            y_t = functional.diff_upsample(x_t, s_t, path=path, **switches)
            assert y_t.dtype == dtype
            assert y_t.shape == y.shape
            (y_t * torch.tensor(g, dtype=dtype)).sum().backward()
            assert_close(y_t.detach(), y, typical, dtype)
            assert_close(x_t.grad, dx, typical, dtype)
            for i, possible in enumerate(ds):
                slopes = np.abs(axes[i].slope) + sum(np.abs(k) for k in axes[i].slopes_on_kinks)
                scale = typical * np.linalg.norm(slopes) / norms[i]
                actual = s_t.grad[i].item()
                nearest = min(possible, key=lambda value, actual=actual: abs(value - actual))
                assert_close(actual, nearest, scale, dtype)


@settings(max_examples=300)
@given(cases(axes=1))
def test_one_axis(case):
    check(*case)


@settings(max_examples=150)
@given(cases(axes=2))
def test_two_axes(case):
    check(*case)


@settings(max_examples=60)
@given(cases(axes=3))
def test_three_axes(case):
    check(*case)


def resizing(size, made, norm, basis):
    """The matrix of an axis that is resized, either way."""
    options = {"smoothness": 0, "offset": 0, "norm": norm, "output": made, "basis": basis}
    down = made <= size
    return oracle.axis(size, 1.0, **options) if down else oracle.axis_up(size, 1.0, **options)


@settings(max_examples=150)
@given(st.data(), st.integers(1, 3), st.sampled_from(NORMS), st.sampled_from(BASES))
def test_resizing_each_axis_either_way(data, axes, norm, basis):
    size, made = data.draw(sizes(axes)), data.draw(sizes(axes))
    matrices = [resizing(n, m, norm, basis) for n, m in zip(size, made, strict=True)]
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3, *size))
    y = oracle.forward(matrices, x)
    g = rng.standard_normal(y.shape)
    dx = oracle.input_gradient(matrices, g)
    typical = math.prod(np.linalg.norm(a.matrix) for a in matrices)
    for path in PATHS:
        x_t = torch.tensor(x, requires_grad=True)
        y_t = functional.spectral_resize(x_t, made, norm=norm, basis=basis, path=path)
        (y_t * torch.tensor(g)).sum().backward()
        assert_close(y_t.detach(), y, typical, torch.float64)
        assert_close(x_t.grad, dx, typical, torch.float64)


@pytest.mark.parametrize(
    ("norm", "basis"), [*((norm, "fourier") for norm in NORMS), ("ortho", "dct")]
)
@pytest.mark.parametrize("size", [1, 2, 3, 8, 13, 30, 31, 64, 67, 70])
def test_every_length_from_one_to_seventy(size, norm, basis):
    """Of one axis, against the pseudo-inverse of what leads back, by linear algebra alone."""
    x = torch.eye(size, dtype=torch.float64)[None]
    options = {"norm": norm, "basis": basis}
    for made in range(1, 71):
        for path in PATHS:
            resized = functional.spectral_resize(x, (made,), path=path, **options)
            matrix = resized[0].mT.numpy()
            if made < size:
                expected = oracle.axis(size, 1.0, **ROOM, **options, output=made).matrix
            else:
                back = oracle.axis(made, 1.0, **ROOM, **options, output=size).matrix
                expected = np.linalg.pinv(back)
            np.testing.assert_allclose(
                matrix, expected, atol=1e-10 * max(1, np.abs(expected).max())
            )


ROOM = {"smoothness": 0, "offset": 0}


def is_smooth(size, stride, smoothness, offset, tight, basis):
    """Whether, around here, the window is smooth, made with the stride itself, and of one size."""
    waves, highest = oracle.BASES[basis]
    around = (stride - 1e-3, stride + 1e-3)
    if len({oracle.grown_length(size, s, smoothness, tight) for s in around}) > 1:
        return False
    made = oracle.grown_length(size, stride, smoothness, tight)
    if tight and abs(made / (2 * stride) - smoothness) < 1e-3:
        return False
    window = (smoothness, offset, highest(made))
    if not tight and any(oracle.effective_stride(made, s, *window) != s for s in around):
        return False
    heights = [
        oracle.ramp(f, made, stride, smoothness, tight, offset)[0] for f, _ in waves(size, made)
    ]
    return all(min(abs(h), abs(h - 1)) > 1e-3 for h in heights[tight:])


@st.composite
def smooth_cases(draw):
    axes = draw(st.integers(1, 3))
    convention = draw(st.sampled_from(CONVENTIONS))
    smoothness, basis = draw(st.sampled_from([0.5, 1.0, 2.5])), draw(st.sampled_from(BASES))
    size, strides = [], []
    for i in range(axes):
        offset = float(convention == "paper" and i == axes - 1)
        rule = (smoothness, offset, convention == "tight", basis)
        pairs = st.tuples(st.integers(1, [0, 9, 6, 3][axes]), st.floats(1.01, 2.5))
        n, s = draw(pairs.filter(lambda pair, rule=rule: is_smooth(*pair, *rule)))
        size.append(n)
        strides.append(s)
    norm = draw(st.sampled_from(NORMS))
    return (
        tuple(size),
        tuple(strides),
        {"smoothness": smoothness, "convention": convention, "norm": norm, "basis": basis},
    )


@pytest.mark.parametrize("path", PATHS)
@settings(max_examples=40)
@given(smooth_cases())
def test_gradients_by_finite_differences(path, case):
    size, strides, switches = case
    x = torch.randn(1, 2, *size, dtype=torch.float64, requires_grad=True)
    s = torch.tensor(strides, dtype=torch.float64, requires_grad=True)

    def f(x, s):
        return functional.diff_upsample(x, s, path=path, **switches)

    torch.autograd.gradcheck(f, (x, s))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
def test_gradients_of_gradients(path, layout):
    x = torch.randn(2, 2, 5, 6, dtype=torch.float64)
    if layout == "channels_last":
        x = x.to(memory_format=torch.channels_last)
    s = torch.tensor([2.3, 1.9], dtype=torch.float64, requires_grad=True)

    def up(x, s):
        return functional.diff_upsample(x, s, smoothness=1.5, path=path)

    def resize(x):
        return functional.spectral_resize(x, (9, 4), path=path)

    x.requires_grad_()
    torch.autograd.gradgradcheck(up, (x, s))
    torch.autograd.gradcheck(resize, (x,))
    torch.autograd.gradgradcheck(resize, (x,))


def test_long_axes_take_the_fft_and_short_ones_matrices():
    """By the longer end, and as the two differ in rounding, they tell which one was taken."""
    for size, made, expected in (
        ((32,), (64,), "operator"),
        ((90,), (200,), "operator"),
        ((90,), (201,), "fft"),
        ((201,), (90,), "fft"),
        ((2001,), (4001,), "fft"),
        ((128, 8), (320, 16), "operator"),
        ((300, 300), (400, 400), "fft"),
    ):
        x = torch.randn(1, 2, *size, dtype=torch.float64)
        y = {p: functional.spectral_resize(x, made, path=p) for p in ("auto", *PATHS)}
        torch.testing.assert_close(y["operator"], y["fft"])
        assert not torch.equal(y["operator"], y["fft"])
        assert torch.equal(y["auto"], y[expected])
