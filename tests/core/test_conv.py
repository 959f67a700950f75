"""Every order of convolution and downsampling gives the same numbers and gradients."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from diffstride import functional
from diffstride.core.conv import work_of
from diffstride.core.rule import Rule

CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}


def by_definition(x, weight, bias, stride, *, padding, dilation, groups, padding_mode, **options):
    """Pad, convolve without a stride, downsample: nothing clever."""
    axes = weight.ndim - 2
    mode = {"zeros": "constant"}.get(padding_mode, padding_mode)
    flat = [p for p in reversed(padding) for _ in range(2)]
    if any(flat):
        x = F.pad(x, flat, mode=mode)
    y = CONVOLUTIONS[axes](x, weight, bias, 1, 0, dilation, groups)
    return functional.diff_stride(y, stride, **options)


def gradients(function, inputs, g, dtype):
    leaves = [None if t is None else t.to(dtype).clone().requires_grad_() for t in inputs]
    y = function(*leaves)
    (y * g.to(dtype)).sum().backward()
    return [y.detach(), *(leaf.grad for leaf in leaves if leaf is not None)]


def check(inputs, orders, conv, options):
    with torch.no_grad():
        g = torch.randn_like(by_definition(*inputs, **conv, **options))
    expected = gradients(
        lambda *leaves: by_definition(*leaves, **conv, **options), inputs, g, torch.float64
    )
    for order in orders:
        for dtype in (torch.float64, torch.float32):
            actual = gradients(
                lambda *leaves, order=order: functional.diff_stride_conv(
                    *leaves, order=order, **conv, **options
                ),
                inputs,
                g,
                dtype,
            )
            for a, e in zip(actual, expected, strict=True):
                assert a.dtype == dtype
                assert a.shape == e.shape
                # A gradient of a few numbers is a sum over everything else, and may cancel.
                typical = g.norm() * inputs[0].norm() / math.sqrt(g.numel())
                scale = max(e.norm(), typical) if e.numel() < 8 else e.norm()
                assert (a.double() - e).norm() <= TOLERANCE[dtype] * scale


def tensors(axes, kernel, size, channels, groups, stride, with_bias):
    inputs, outputs = channels
    return (
        torch.randn(2, inputs, *size, dtype=torch.float64),
        torch.randn(outputs, inputs // groups, *kernel, dtype=torch.float64),
        torch.randn(outputs, dtype=torch.float64) if with_bias else None,
        torch.tensor(stride, dtype=torch.float32).double(),
    )


@st.composite
def cases(draw, circular):
    axes = draw(st.integers(1, 3))
    kernel = [draw(st.sampled_from([1, 3] if circular else [1, 2, 3])) for _ in range(axes)]
    dilation = [draw(st.integers(1, 2)) for _ in range(axes)]
    groups = draw(st.sampled_from([1, 2]))
    channels = [groups * draw(st.integers(1, 3)) for _ in range(2)]
    size = [draw(st.integers(5, [0, 24, 14, 8][axes])) for _ in range(axes)]
    stride = [draw(st.floats(1, 4, width=32)) for _ in range(axes)]
    if circular:
        padding = [d * (k - 1) // 2 for k, d in zip(kernel, dilation, strict=True)]
        mode = "circular"
    else:
        padding = [draw(st.integers(0, 2)) for _ in range(axes)]
        mode = draw(st.sampled_from(["zeros", "reflect", "replicate", "circular"]))
    conv = {"padding": padding, "dilation": dilation, "groups": groups, "padding_mode": mode}
    options = {
        "smoothness": draw(st.sampled_from([0.5, 2.0, 4.0])),
        "crop": draw(st.booleans()),
        "norm": draw(st.sampled_from(["ortho", "forward", "backward"])),
        "convention": draw(st.sampled_from(["paper", "symmetric", "tight"])),
    }
    torch.manual_seed(draw(st.integers(0, 99)))
    inputs = tensors(axes, kernel, size, channels, groups, stride, draw(st.booleans()))
    return inputs, conv, options


@settings(max_examples=60)
@given(cases(circular=False))
def test_commuting_changes_nothing(case):
    inputs, conv, options = case
    orders = ["auto", "after", "before", "taps"]
    reach = [d * (k - 1) for d, k in zip(conv["dilation"], inputs[1].shape[2:], strict=True)]
    sizes = zip(inputs[0].shape[2:], conv["padding"], reach, strict=True)
    if all(n + 2 * p - t >= t for n, p, t in sizes):
        orders.append("spectral")
    check(inputs, orders, conv, options)


@settings(max_examples=80)
@given(cases(circular=True))
@pytest.mark.slow
def test_on_kept_frequencies_it_is_the_same(case):
    inputs, conv, options = case
    check(inputs, ["auto", "after", "before", "taps", "spectral"], conv, options)


@pytest.mark.parametrize("padding", ["same", "valid", 1, (0, 2)])
def test_padding_means_what_it_means_in_torch(padding):
    x = torch.randn(2, 3, 9, 11, dtype=torch.float64)
    layer = torch.nn.Conv2d(3, 4, (3, 5), padding=padding, dilation=(2, 1)).double()
    y = functional.diff_stride_conv(
        x, layer.weight, layer.bias, 1.7, padding=padding, dilation=(2, 1), smoothness=1.0
    )
    expected = functional.diff_stride(layer(x), 1.7, smoothness=1.0, convention="tight")
    torch.testing.assert_close(y, expected)


def spy(monkeypatch):
    """The sizes that convolutions are run at."""
    from diffstride.core import conv, taps

    seen = []

    def seeing(original):
        def convolve(x, *rest):
            seen.append(tuple(x.shape[2:]))
            return original(x, *rest)

        return convolve

    for module, name in ((conv, "_convolve"), (taps, "_convolve_taps")):
        monkeypatch.setattr(module, name, seeing(getattr(module, name)))
    return seen


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [((1, 1), (16, 16)), ((1, 3), (16, 32)), ((3, 1), (32, 16)), ((3, 3), (32, 32))],
)
def test_the_cheapest_order_is_taken(kernel, expected, monkeypatch):
    seen = spy(monkeypatch)
    x, weight = torch.randn(1, 16, 32, 32), torch.randn(16, 16, *kernel)
    padding = tuple(k // 2 for k in kernel)
    functional.diff_stride_conv(x, weight, None, 2.0, padding=padding, smoothness=1.0)
    assert seen == [expected]


@pytest.mark.parametrize("mode", ["zeros", "circular"])
def test_large_kernels_on_few_channels_are_done_on_frequencies(mode, monkeypatch):
    seen = spy(monkeypatch)
    x, weight = torch.randn(2, 3, 128, 128), torch.randn(64, 3, 7, 7)
    options = {"padding": 3, "padding_mode": mode}
    functional.diff_stride_conv(x, weight, None, 2.0, **options)
    assert seen == []
    # Not with few taps, nor with many channels, whose kernel has a large spectrum.
    functional.diff_stride_conv(x, weight[..., :1, :1], None, 1.0, padding_mode=mode)
    assert seen == [(128, 128)]
    many = torch.randn(2, 64, 32, 32), torch.randn(64, 64, 3, 3)
    functional.diff_stride_conv(*many, None, 2.0, padding=1, padding_mode=mode)
    assert len(seen) == 2


@pytest.mark.parametrize("mode", ["zeros", "circular", "replicate"])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_kernel_may_reach_as_far_as_its_axis_is_long(axes, mode):
    """Each border then has every sample that comes out."""
    x, weight = torch.randn(2, 2, *[4] * axes), torch.randn(4, 1, *[5] * axes)
    inputs = (x.double(), weight.double(), None, torch.full((axes,), 1.7, dtype=torch.float64))
    conv = {"padding": [2] * axes, "dilation": [1] * axes, "groups": 2, "padding_mode": mode}
    check(inputs, ["after", "spectral"], conv, {"smoothness": 1.0, "convention": "tight"})


def test_many_channels_to_few_are_not_downsampled_first(monkeypatch):
    seen = spy(monkeypatch)
    x, weight = torch.randn(1, 256, 32, 32), torch.randn(2, 256, 1, 1)
    functional.diff_stride_conv(x, weight, None, 1.2)
    assert seen == [(32, 32)]


def test_unbatched_input_and_errors():
    x, weight = torch.randn(3, 9, 8), torch.randn(4, 3, 1, 3)
    one = functional.diff_stride_conv(x, weight, None, 2.0)
    torch.testing.assert_close(one, functional.diff_stride_conv(x[None], weight, None, 2.0)[0])
    with pytest.raises(ValueError, match="2 spatial axes, got 2 dimensions"):
        functional.diff_stride_conv(x[0], weight, None, 2.0)
    with pytest.raises(ValueError, match="order must be one of auto"):
        functional.diff_stride_conv(x, weight, None, 2.0, order="fast")
    with pytest.raises(ValueError, match=r"reaches no further than these.*got axes of \(9, 3\)"):
        functional.diff_stride_conv(x, torch.randn(4, 3, 1, 6), None, 2.0, order="spectral")
    with pytest.raises(ValueError, match="padding must be one of same, valid"):
        functional.diff_stride_conv(x, weight, None, 2.0, padding="full")
    with pytest.raises(ValueError, match="at least 1 on every axis"):
        functional.diff_stride_conv(torch.randn(1, 3, 2, 2), torch.randn(4, 3, 1, 3), None, 2.0)


@pytest.mark.parametrize(
    ("kernel_bytes", "chunk"), [(1, 2**30), (2**30, 1), (2**30, 2**30)], ids=str
)
@pytest.mark.parametrize("mode", ["zeros", "circular"])
@pytest.mark.slow
def test_on_frequencies_gradients_are_exact_and_differentiable(
    mode, kernel_bytes, chunk, monkeypatch
):
    """However many frequencies or examples are done at a time."""
    from diffstride.core import spectral, spectral_filter

    monkeypatch.setattr(spectral_filter, "KERNEL_BYTES", kernel_bytes)
    monkeypatch.setattr(spectral_filter, "CHUNK_BYTES", chunk)
    monkeypatch.setattr(spectral, "CHUNK_BYTES", chunk)
    x = torch.randn(2, 2, 7, 8, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(4, 1, 3, 3, dtype=torch.float64, requires_grad=True)
    stride = torch.tensor([1.6, 2.1], dtype=torch.float64, requires_grad=True)

    def convolve(x, weight, stride):
        return functional.diff_stride_conv(
            x,
            weight,
            None,
            stride,
            padding=1,
            groups=2,
            padding_mode=mode,
            smoothness=1.0,
            order="spectral",
        )

    assert torch.autograd.gradcheck(convolve, (x, weight, stride))
    assert torch.autograd.gradgradcheck(convolve, (x, weight, stride))
    mapped = torch.vmap(lambda one, w: convolve(one[None], w, 2.0)[0], (0, None))(x, weight)
    torch.testing.assert_close(mapped, convolve(x, weight, 2.0))
    kernels = torch.stack([weight, 2 * weight])
    many = torch.vmap(lambda w: convolve(x, w, 2.0))(kernels)
    torch.testing.assert_close(many[1], 2 * many[0])


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2])
def test_many_channels_are_convolved_in_pairs_of_parts(axes, groups, monkeypatch):
    from diffstride.core import spectra

    monkeypatch.setattr(spectra, "FEWEST_PAIRED_CHANNELS", 2)
    inputs = tensors(axes, [3] * axes, [7, 6, 5][:axes], (4, 6), groups, [1.7] * axes, True)
    conv = {"padding": [1] * axes, "dilation": [1] * axes, "groups": groups}
    options = {"smoothness": 1.0, "convention": "tight"}
    check(inputs, ["spectral"], {**conv, "padding_mode": "zeros"}, options)


@pytest.mark.parametrize("mode", ["zeros", "circular"])
@pytest.mark.parametrize("channels", [(1, 3), (20, 18)], ids=str)
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_the_work_on_frequencies_is_what_torch_counts(axes, channels, mode):
    """What one more example takes: matrices and the kernel's spectrum are made once for all."""
    size, inputs, outputs = (9, 8, 7)[:axes], *channels
    layer = torch.nn.Conv2d(1, 1, 1)
    layer.weight = torch.nn.Parameter(torch.randn(outputs, inputs, *[3] * axes))
    layer.padding, layer.dilation, layer.padding_mode = (1,) * axes, (1,) * axes, mode
    kept = functional.output_size(size, 2.0, smoothness=1.0, convention="tight")
    expected = sum(work_of(layer, Rule(smoothness=1.0), inputs, size, size, kept, "spectral"))

    def flops(batch):
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            x = torch.randn(batch, inputs, *size)
            options = {"padding": 1, "padding_mode": mode, "order": "spectral"}
            functional.diff_stride_conv(x, layer.weight, None, 2.0, **options)
        return counter.get_total_flops()

    assert (flops(3) - flops(2)) // 2 == expected


def test_long_axes_are_not_convolved_by_matrices():
    x, weight = torch.randn(1, 1, 400), torch.randn(1, 1, 3)
    options = {"padding": 1, "padding_mode": "circular"}
    functional.diff_stride_conv(x, weight, None, 2.0, **options)
    with pytest.raises(ValueError, match="order='spectral' needs axes of at most 320 samples"):
        functional.diff_stride_conv(x, weight, None, 2.0, order="spectral", **options)


def spectral(x, weight):
    return functional.diff_stride_conv(
        x, weight, None, 2.0, padding=1, padding_mode="circular", order="spectral"
    )


def test_on_frequencies_autocast_leaves_precision_alone():
    x, weight = torch.randn(2, 4, 16, 16), torch.randn(4, 4, 3, 3, requires_grad=True)
    expected = spectral(x, weight)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = spectral(x, weight)
    assert torch.equal(y, expected)


def test_on_frequencies_channels_are_checked_and_may_come_last():
    x, weight = torch.randn(2, 4, 16, 16), torch.randn(6, 4, 3, 3)
    last = x.to(memory_format=torch.channels_last)
    y = spectral(last, weight)
    assert y.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(y, spectral(x, weight))
    with pytest.raises(ValueError, match=r"is for 4 channels, got an input of \(2, 3, 16, 16\)"):
        spectral(x[:, :3], weight)


def test_on_frequencies_a_batch_may_be_empty():
    x, weight = torch.randn(0, 4, 16, 16, requires_grad=True), torch.randn(6, 4, 3, 3)
    y = spectral(x, weight)
    assert y.shape == (0, 6, 8, 8)
    y.sum().backward()
    assert x.grad.shape == x.shape
