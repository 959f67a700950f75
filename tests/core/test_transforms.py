"""Forward-mode derivatives, Hessians and traces: what torch can do to any function."""

import pytest
import torch
from torch import nn
from torch.func import hessian, jacfwd, jacrev, jvp

from diffstride import (
    DiffStride1d,
    DiffStride2d,
    DiffStride3d,
    DiffStrideConv2d,
    DiffUpsample2d,
    SpectralPool2d,
    SpectralUpsample2d,
    functional,
)

# torch uses scripts for some derivatives in forward mode, and warns whoever traces by itself.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit")

X = torch.randn(2, 3, 9, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
STRIDE = torch.tensor([2.1, 1.7], dtype=torch.float64)
WEIGHT = torch.randn(4, 3, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
AROUND = {"padding": 1, "padding_mode": "circular"}

FUNCTIONS = {
    "operator": lambda x, s: functional.diff_stride(x, s, smoothness=1.5, path="operator"),
    "fft": lambda x, s: functional.diff_stride(x, s, smoothness=1.5, path="fft"),
    "up": lambda x, s: functional.diff_upsample(x, s, smoothness=1.5, path="operator"),
    "up fft": lambda x, s: functional.diff_upsample(x, s, smoothness=1.5, path="fft"),
    "no crop": lambda x, s: functional.diff_stride(x, s, smoothness=1.5, crop=False),
    "conv after": lambda x, s: functional.diff_stride_conv(
        x, WEIGHT, None, s, smoothness=1.5, order="after", **AROUND
    ),
    "conv spectral": lambda x, s: functional.diff_stride_conv(
        x, WEIGHT, None, s, smoothness=1.5, order="spectral", **AROUND
    ),
}


@pytest.fixture(params=FUNCTIONS)
def function(request):
    return FUNCTIONS[request.param]


def test_forward_mode_is_backward_mode(function):
    dx, ds = torch.randn_like(X), torch.randn_like(STRIDE)
    y, change = jvp(function, (X, STRIDE), (dx, ds))
    torch.testing.assert_close(y, function(X, STRIDE))
    expected = jacrev(function, argnums=(0, 1))(X, STRIDE)
    by_x = (expected[0] * dx).flatten(-4).sum(-1)
    torch.testing.assert_close(change, by_x + expected[1] @ ds)
    # Each alone, as somebody would who asks only for one of them.
    torch.testing.assert_close(jvp(lambda x: function(x, STRIDE), (X,), (dx,))[1], by_x)
    torch.testing.assert_close(jacfwd(function, argnums=1)(X, STRIDE), expected[1])


def test_hessians_agree_in_every_mode(function):
    def loss(stride):
        return function(X, stride).pow(3).sum()

    expected = jacrev(jacrev(loss))(STRIDE)
    assert expected.abs().max() > 0
    for found in (hessian(loss), jacfwd(jacfwd(loss)), jacrev(jacfwd(loss))):
        torch.testing.assert_close(found(STRIDE), expected)


def test_forward_mode_through_the_kernel_of_a_circular_convolution():
    def loss(weight, bias):
        return functional.diff_stride_conv(
            X, weight, bias, STRIDE, smoothness=1.0, order="spectral", **AROUND
        )

    bias = torch.randn(4, dtype=torch.float64)
    changes = torch.randn_like(WEIGHT), torch.randn_like(bias)
    jacobians = jacrev(loss, argnums=(0, 1))(WEIGHT, bias)
    expected = (jacobians[0] * changes[0]).flatten(-4).sum(-1) + jacobians[1] @ changes[1]
    torch.testing.assert_close(jvp(loss, (WEIGHT, bias), changes)[1], expected)


def test_the_input_is_not_kept_for_the_sake_of_forward_mode():
    import weakref

    x = torch.randn(1, 1, 64, 64)
    seen = weakref.ref(x)
    y = DiffStride2d(2.0)(x)
    del x
    assert y.requires_grad
    assert seen() is None


LAYERS = {
    "1d": (lambda: DiffStride1d(2.5), (2, 3, 40)),
    "1d long": (lambda: DiffStride1d(2.5), (2, 3, 400)),
    "2d": (lambda: DiffStride2d((2.0, 1.5), smoothness=1.0), (2, 3, 16, 15)),
    "2d fft": (lambda: DiffStride2d(2.0, path="fft"), (2, 3, 16, 15)),
    "2d unbatched": (lambda: DiffStride2d(2.0), (3, 32, 15)),
    "2d fixed": (lambda: DiffStride2d(2.0, output_size=7), (2, 3, 16, 15)),
    "3d": (lambda: DiffStride3d(2.0, smoothness=1.0), (2, 3, 7, 8, 9)),
    "conv": (lambda: DiffStrideConv2d(3, 4, 3, 2.0, padding=1, smoothness=1.0), (2, 3, 16, 15)),
    "circular": (
        lambda: DiffStrideConv2d(3, 4, 3, 2.0, order="spectral", smoothness=1.0, **AROUND),
        (2, 3, 16, 15),
    ),
    "spectral": (lambda: SpectralPool2d(1.7), (2, 3, 16, 15)),
    "up": (lambda: DiffUpsample2d((2.0, 1.5)), (2, 3, 16, 15)),
    "up fft": (lambda: DiffUpsample2d(1.7, path="fft"), (2, 3, 16, 15)),
    "up spectral": (lambda: SpectralUpsample2d(1.7), (2, 3, 16, 15)),
}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_a_trace_computes_the_same(name, training):
    make, shape = LAYERS[name]
    model = nn.Sequential(make(), nn.ReLU()).train(training)
    traced = torch.jit.trace(model, torch.randn(shape))
    x = torch.randn(shape)
    torch.testing.assert_close(traced(x), model(x))
    if training and list(model.parameters()):
        traced(x).square().sum().backward()
        found = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        model(x).square().sum().backward()
        for a, b in zip(found, model.parameters(), strict=True):
            torch.testing.assert_close(a, b.grad, rtol=1e-4, atol=1e-5)


def test_a_trace_can_be_saved_and_loaded(tmp_path):
    model = DiffStride2d(2.0).eval()
    x = torch.randn(2, 3, 32, 32)
    torch.jit.trace(model, x).save(tmp_path / "trace.pt")
    loaded = torch.jit.load(tmp_path / "trace.pt")
    torch.testing.assert_close(loaded(x), model(x))
