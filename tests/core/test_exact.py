"""Both paths equal the definition: values, input gradients and stride gradients."""

import gc
import math
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from diffstride import functional
from tests import oracle

pytestmark = pytest.mark.slow

SMOOTHNESS = (0.0, 0.5, 1.0, 2.5, 4.0, 8.0)
PATHS = ("operator", "fft")
BASES = ("fourier", "fourier", "dct")  # two in three are the paper's
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}


@st.composite
def cases(draw, axes):
    """Sizes with strides that both float32 and float64 hold exactly, and every switch."""
    size = tuple(draw(st.integers(1, 70)) for _ in range(axes))
    strides = tuple(
        draw(
            st.one_of(
                st.floats(1, 2 * n, width=32),
                st.sampled_from([1.0, 1.5, 2.0, 3.0, float(n), 2.0 * n]).map(
                    lambda s, n=n: min(s, 2.0 * n)
                ),
            )
        )
        for n in size
    )
    switches = {
        "smoothness": draw(st.sampled_from(SMOOTHNESS)),
        "crop": draw(st.booleans()),
        "norm": draw(st.sampled_from(["ortho", "forward", "backward"])),
        "convention": draw(st.sampled_from(["paper", "symmetric", "tight"])),
        "basis": draw(st.sampled_from(BASES)),
    }
    return size, strides, switches


@st.composite
def tight_cases(draw, axes):
    """Tight windows with every way to say a size."""
    size, strides, switches = draw(cases(axes))
    switches["convention"] = "tight"
    rule = draw(st.sampled_from(["crop", "output_size", "size_multiple"]))
    if rule == "output_size":
        switches |= {"crop": True, rule: tuple(draw(st.integers(1, n)) for n in size)}
    elif rule == "size_multiple":
        switches |= {"crop": True, rule: draw(st.integers(2, 9))}
    return size, strides, switches


def definition(size, strides, convention, output_size=None, size_multiple=1, **switches):
    last = 1.0 if convention == "paper" else 0.0
    switches |= {"tight": convention == "tight", "multiple": size_multiple}
    offsets = [0.0] * (len(size) - 1) + [last]
    lengths = [None] * len(size) if output_size is None else output_size
    return [
        oracle.axis(n, s, offset=offset, output=m, **switches)
        for n, s, offset, m in zip(size, strides, offsets, lengths, strict=True)
    ]


def assert_close(actual, expected, typical, dtype):
    """Relative to the expected value, or to its root mean square over white noise.

    A sum of random numbers may cancel to nearly nothing, which no float32 sum can follow.
    """
    error = np.linalg.norm(np.asarray(actual, np.float64) - expected)
    assert error <= TOLERANCE[dtype] * max(np.linalg.norm(expected), typical)


def check(size, strides, switches):
    rng = np.random.default_rng(0)
    lead = (2, 2)
    axes = definition(size, strides, **switches)
    x = rng.standard_normal((*lead, *size)).astype(np.float32).astype(np.float64)
    y = oracle.forward(axes, x)
    g = rng.standard_normal(y.shape).astype(np.float32).astype(np.float64)
    dx = oracle.input_gradient(axes, g)
    ds = [oracle.stride_gradients(axes, i, x, g) for i in range(len(axes))]
    norms = [np.linalg.norm(a.matrix) for a in axes]
    typical = math.sqrt(math.prod(lead)) * math.prod(norms)
    for dtype in (torch.float64, torch.float32):
        for path in ("operator", "fft"):
            x_t = torch.tensor(x, dtype=dtype, requires_grad=True)
            s_t = torch.tensor(strides, dtype=dtype, requires_grad=True)
            y_t = functional.diff_stride(x_t, s_t, path=path, **switches)
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


@settings(max_examples=400)
@given(cases(axes=1))
def test_one_axis(case):
    check(*case)


@settings(max_examples=300)
@given(cases(axes=2))
def test_two_axes(case):
    check(*case)


@settings(max_examples=100)
@given(cases(axes=3))
def test_three_axes(case):
    check(*case)


@settings(max_examples=300)
@given(tight_cases(axes=1))
def test_tight_windows_on_one_axis(case):
    check(*case)


@settings(max_examples=200)
@given(tight_cases(axes=2))
def test_tight_windows_on_two_axes(case):
    check(*case)


@settings(max_examples=60)
@given(tight_cases(axes=3))
def test_tight_windows_on_three_axes(case):
    check(*case)


@settings(max_examples=100)
@given(
    st.data(),
    st.integers(1, 3),
    st.sampled_from(["ortho", "forward", "backward"]),
    st.sampled_from(BASES),
)
def test_spectral_pooling_is_the_definition_without_a_window(data, axes, norm, basis):
    size = tuple(data.draw(st.integers(1, 40)) for _ in range(axes))
    strides = tuple(data.draw(st.floats(1, 2 * n)) for n in size)
    matrices = [
        oracle.axis(n, s, smoothness=0, offset=0, norm=norm, basis=basis)
        for n, s in zip(size, strides, strict=True)
    ]
    x = np.random.default_rng(0).standard_normal((2, 3, *size))
    expected = oracle.forward(matrices, x)
    for path in ("operator", "fft"):
        options = {"norm": norm, "basis": basis, "path": path}
        y = functional.spectral_pool(torch.tensor(x), strides, **options)
        assert np.linalg.norm(y.numpy() - expected) <= 1e-10 * np.linalg.norm(x)
        same = functional.spectral_pool(torch.tensor(x), output_size=y.shape[2:], **options)
        assert torch.equal(same, y)


def test_the_gradient_at_a_kink_is_that_of_clamp():
    """At S = 2 both ends of the ramp are on frequencies, and both count, as in torch.clamp."""
    size, smoothness = 32, 4.0
    a = oracle.axis(size, 2.0, smoothness=smoothness, offset=0, crop=False)
    assert len(a.slopes_on_kinks) == 2
    rng = np.random.default_rng(0)
    x, g = rng.standard_normal((2, 1, 1, size))
    slope = a.slope + sum(a.slopes_on_kinks)
    both = float((g * oracle.apply([slope], x)).sum())
    stride = torch.tensor([2.0], dtype=torch.float64, requires_grad=True)
    y = functional.diff_stride(torch.tensor(x), stride, crop=False, convention="symmetric")
    (y * torch.tensor(g)).sum().backward()
    assert stride.grad.item() == pytest.approx(both, rel=1e-12)


def away_from_kinks(size, stride, smoothness, offset, tight, basis):
    """Whether, around here, the window is smooth, made with the stride itself, and of one size."""
    waves, highest = oracle.BASES[basis]
    frequencies, top = [f for f, _ in waves(size, size)], highest(size)
    around = (stride - 1e-3, stride + 1e-3)
    if tight:
        smooth = len({oracle.tight_length(size, s) for s in around}) == 1 and stride < size - 1e-3
        heights = [oracle.ramp(f, size, stride, smoothness, True, 0)[0] for f in frequencies[1:]]
        smooth &= abs(size / (2 * stride) - smoothness) > 1e-3
        return smooth and all(min(abs(h), abs(h - 1)) > 1e-3 for h in heights)
    if any(oracle.effective_stride(size, s, smoothness, offset, top) != s for s in around):
        return False
    if len({oracle.kept_length(size, s, smoothness) for s in around}) > 1:
        return False
    heights = [(smoothness + size / (2 * stride) + offset - f) / smoothness for f in frequencies]
    return all(min(abs(h), abs(h - 1)) > 1e-3 for h in heights)


@st.composite
def smooth_cases(draw):
    axes = draw(st.integers(1, 3))
    convention = draw(st.sampled_from(["paper", "symmetric", "tight"]))
    basis = draw(st.sampled_from(BASES))
    rule = {"tight": convention == "tight", "basis": basis}
    smoothness = draw(st.sampled_from([0.5, 1.0, 2.5, 4.0]))
    size, strides = [], []
    for i in range(axes):
        offset = float(convention == "paper" and i == axes - 1)
        n, s = draw(
            st.tuples(st.integers(1, [0, 11, 9, 6][axes]), st.floats(1.01, 6)).filter(
                lambda pair, offset=offset: away_from_kinks(*pair, smoothness, offset, **rule)
            )
        )
        size.append(n)
        strides.append(s)
    switches = {"smoothness": smoothness, "convention": convention, "basis": basis}
    switches["crop"] = draw(st.booleans())
    switches["norm"] = draw(st.sampled_from(["ortho", "forward", "backward"]))
    return tuple(size), tuple(strides), switches


@pytest.mark.parametrize("path", ["operator", "fft"])
@settings(max_examples=50)
@given(smooth_cases())
def test_gradients_by_finite_differences(path, case):
    size, strides, switches = case
    x = torch.randn(1, 2, *size, dtype=torch.float64, requires_grad=True)
    s = torch.tensor(strides, dtype=torch.float64, requires_grad=True)

    def f(x, s):
        return functional.diff_stride(x, s, path=path, **switches)

    torch.autograd.gradcheck(f, (x, s))


@pytest.mark.parametrize("path", ["operator", "fft"])
@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
def test_gradients_of_gradients(path, layout):
    x = torch.randn(2, 2, 9, 12, dtype=torch.float64)
    if layout == "channels_last":
        x = x.to(memory_format=torch.channels_last)
    s = torch.tensor([2.3, 1.9], dtype=torch.float64, requires_grad=True)

    def f(x, s):
        return functional.diff_stride(x, s, smoothness=2.5, path=path)

    torch.autograd.gradgradcheck(f, (x.requires_grad_(), s))


def test_long_axes_take_the_fft_and_short_ones_matrices():
    """The two differ in rounding, and so tell which one was taken."""
    for size, expected in (
        ((32,), "operator"),
        ((192,), "operator"),
        ((256,), "fft"),
        ((4001,), "fft"),
        ((256, 8), "operator"),
        ((8, 256), "operator"),
        ((400, 400), "fft"),
    ):
        x = torch.randn(1, 2, *size, dtype=torch.float64)
        y = {path: functional.diff_stride(x, 5.3, path=path) for path in ("auto", *PATHS)}
        torch.testing.assert_close(y["operator"], y["fft"])
        assert not torch.equal(y["operator"], y["fft"])
        assert torch.equal(y["auto"], y[expected])


@pytest.mark.parametrize("path", PATHS)
def test_a_loss_of_both_the_output_and_its_gradient(path):
    """As in gradient penalties: both ways back through the operator meet."""
    s = torch.tensor([2.3, 1.9], dtype=torch.float64, requires_grad=True)
    x = torch.randn(1, 2, 9, 12, dtype=torch.float64, requires_grad=True)

    def loss(x, s):
        y = functional.diff_stride(x, s, smoothness=2.5, path=path)
        grad_x, grad_s = torch.autograd.grad(y.pow(3).sum(), (x, s), create_graph=True)
        return y.square().sum() + grad_x.square().sum() + grad_s.sum() * y.sum()

    torch.autograd.gradcheck(loss, (x, s))


def test_the_window_by_its_definition():
    for offset in (0.0, 1.0):
        for crop in (True, False):
            values = functional.window(20, 3.0, smoothness=2.5, offset=offset, crop=crop)
            expected = [oracle.window(f, 20, 3.0, 2.5, offset) for f in range(len(values))]
            assert (
                len(values)
                == (functional.output_size(20, 3.0, smoothness=2.5)[0] if crop else 20) // 2 + 1
            )
            np.testing.assert_allclose(values, expected, rtol=1e-6)
    stride = torch.tensor(3)
    assert functional.window(20, stride).dtype == torch.float32
    assert functional.window(20, stride.double()).dtype == torch.float64
    long = functional.window(16_000, 2.1).double()
    np.testing.assert_allclose(
        long, [oracle.window(f, 16_000, 2.1, 4.0, 0.0) for f in range(len(long))], rtol=1e-6
    )


def test_the_input_itself_is_not_kept():
    """Not as a saved tensor, nor in any other way."""
    for path in PATHS:
        leaf = torch.randn(2, 3, 40, 40, requires_grad=True)
        stride = torch.tensor([2.3, 3.1], requires_grad=True)
        x = leaf + 0
        freed = weakref.ref(x)
        y = functional.diff_stride(x, stride, path=path)
        del x
        gc.collect()
        assert freed() is None
        y.sum().backward()
