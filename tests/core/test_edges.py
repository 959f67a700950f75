"""Tiny axes, huge strides, empty batches, every precision: finite, and the right shape."""

import math

import pytest
import torch

from diffstride import DiffStride1d, DiffStride2d, functional

SMOOTHNESS = (0.0, 0.5, 1.0, 2.5, 4.0, 8.0)
PATHS = ("operator", "fft")


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("smoothness", SMOOTHNESS)
@pytest.mark.parametrize("size", range(1, 13))
def test_values_and_gradients_stay_finite(size, smoothness, path, training):
    for stride in (1.0, max(1.0, size - 0.5), float(size), 1e6):
        for crop in (True, False):
            for convention in ("paper", "symmetric"):
                layer = DiffStride2d(
                    stride, smoothness=smoothness, crop=crop, convention=convention, path=path
                ).train(training)
                x = torch.randn(2, 3, size, 13 - size, requires_grad=True)
                y = layer(x)
                y.square().sum().backward()
                assert y.shape[2:] == layer.output_size(x.shape[2:])
                for values in (y, x.grad, layer.stride.grad, layer.stride):
                    assert values.isfinite().all()
                assert layer.strides == (stride, stride)


WITH_ROOM_FOR_A_RAMP = [
    (size, convention, smoothness)
    for size in (4, 5, 8, 9, 12, 16, 17, 32, 33, 64)
    for convention, least, offset in (("symmetric", 1.0, 0.0), ("paper", 2.0, 1.0))
    for smoothness in (1.0, 2.0, 2.5, 4.0, 8.0)
    if smoothness >= least and size // 2 >= (smoothness + 1) / 2 + offset
]


@pytest.mark.parametrize(("size", "convention", "smoothness"), WITH_ROOM_FOR_A_RAMP)
@pytest.mark.parametrize("crop", [True, False])
def test_a_stride_at_either_end_can_come_back(size, convention, smoothness, crop):
    """A loss on what passes through makes a stride grow from 1, or shrink from N."""
    x = torch.randn(8, 4, size)
    for start, sign in ((1.0, 1.0), (float(size), -1.0)):
        layer = DiffStride1d(start, smoothness=smoothness, convention=convention, crop=crop)
        optimiser = torch.optim.SGD(layer.parameters(), lr=0.05)
        for _ in range(30):
            optimiser.zero_grad()
            (sign * layer(x).square().sum()).backward()
            gradient = layer.stride.grad.item()
            assert -sign * gradient > 0
            layer.stride.grad /= abs(gradient)
            optimiser.step()
        assert sign * (layer.strides[0] - start) == pytest.approx(30 * 0.05, rel=1e-3)


def test_the_papers_offset_leaves_a_cropped_last_axis_no_ramp_below_smoothness_2():
    """A documented limit of ``convention="paper"``, not of the layer: its band ends too early."""
    x = torch.randn(8, 4, 64)
    for convention, learns in (("paper", False), ("symmetric", True)):
        layer = DiffStride1d(2.3, smoothness=1.0, convention=convention)
        layer(x).square().sum().backward()
        assert bool(layer.stride.grad.item()) is learns


@pytest.mark.parametrize("path", PATHS)
def test_an_input_never_changes_what_another_gets(path):
    """Small inputs use a clamped stride for themselves alone."""
    layer = DiffStride2d(1.2, path=path)
    large, small = torch.randn(2, 3, 32, 32), torch.randn(2, 3, 8, 8)
    before = layer(large)
    layer(small)
    assert layer.strides == pytest.approx((1.2, 1.2))
    assert torch.equal(layer(large), before)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_unbatched_inputs_equal_batches_of_one(dims, path):
    x = torch.randn(3, *[9, 7, 5][:dims], dtype=torch.float64)
    stride = [1.5] * dims
    one = functional.diff_stride(x[None], stride, smoothness=1.0, path=path)[0]
    assert torch.equal(functional.diff_stride(x, stride, smoothness=1.0, path=path), one)
    assert torch.equal(
        functional.spectral_pool(x, stride, path=path),
        functional.spectral_pool(x[None], stride, path=path)[0],
    )


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "arrange",
    [
        lambda x: x.to(memory_format=torch.channels_last),
        lambda x: x.mT.contiguous().mT,
        lambda x: torch.stack([x, x], -1)[..., 0],
        lambda x: x.flip(0).flip(0),
        lambda x: x[:1].expand(4, -1, -1, -1),
    ],
    ids=["channels_last", "transposed", "strided", "flipped", "expanded"],
)
def test_any_memory_layout(arrange, path):
    x = arrange(torch.randn(4, 3, 12, 10, dtype=torch.float64))
    plain = x.contiguous().requires_grad_()
    x = x.detach().requires_grad_()
    strides = [torch.tensor([1.7, 2.1], dtype=torch.float64, requires_grad=True) for _ in range(2)]
    y = functional.diff_stride(x, strides[0], smoothness=2.0, path=path)
    expected = functional.diff_stride(plain, strides[1], smoothness=2.0, path=path)
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-12)
    y.pow(3).sum().backward()
    expected.pow(3).sum().backward()
    torch.testing.assert_close(x.grad, plain.grad, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(strides[0].grad, strides[1].grad, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("shape", "layout"),
    [((2, 5, 8, 6), torch.channels_last), ((2, 5, 8, 6, 4), torch.channels_last_3d)],
)
def test_channels_last_stays_channels_last(shape, layout, path):
    x = torch.randn(shape).to(memory_format=layout)
    y = functional.diff_stride(x, 2.0, smoothness=1.0, path=path)
    assert y.is_contiguous(memory_format=layout)
    assert functional.diff_stride(x.contiguous(), 2.0, smoothness=1.0, path=path).is_contiguous()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(dtype, path):
    x = torch.randn(2, 3, 33, 20).to(dtype)
    stride = torch.tensor([2.3, 1.7], requires_grad=True)
    wide_stride = stride.detach().clone().requires_grad_()
    y = functional.diff_stride(x, stride, path=path)
    wide = functional.diff_stride(x.float(), wide_stride, path=path)
    assert y.dtype == dtype
    assert torch.equal(y, wide.to(dtype))
    y.float().sum().backward()
    wide.sum().backward()
    torch.testing.assert_close(stride.grad, wide_stride.grad)


@pytest.mark.parametrize("path", PATHS)
def test_autocast_does_not_reach_the_spectrum(path):
    x = torch.randn(2, 3, 32, 32, requires_grad=True)
    layer = DiffStride2d(2.3, path=path)
    exact = layer(x)
    exact.square().sum().backward()
    gradients = x.grad.clone(), layer.stride.grad.clone()
    x.grad = layer.stride.grad = None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x)
        (y.square().sum()).backward()
    assert y.dtype == torch.float32
    assert torch.equal(y, exact)
    torch.testing.assert_close((x.grad, layer.stride.grad), gradients, rtol=1e-6, atol=1e-6)


def test_the_stride_of_a_half_precision_model_still_works():
    layer = DiffStride2d(2.5).to(torch.bfloat16)
    y = layer(torch.randn(2, 3, 16, 16, dtype=torch.bfloat16))
    y.sum().backward()
    assert layer.stride.grad.dtype == torch.bfloat16


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("shape", [(0, 3, 9, 8), (2, 0, 9, 8), (0, 9, 8)])
def test_empty_batches_give_empty_outputs_and_zero_gradients(shape, path):
    x = torch.randn(shape, requires_grad=True)
    stride = torch.tensor([2.0, 3.0], requires_grad=True)
    y = functional.diff_stride(x, stride, smoothness=1.0, path=path)
    assert y.shape == (*shape[:-2], 6, 4)
    y.sum().backward()
    assert x.grad.shape == x.shape
    assert torch.equal(stride.grad, torch.zeros(2))


@pytest.mark.parametrize("path", PATHS)
def test_meta_tensors_give_shapes(path):
    x = torch.empty(2, 3, 32, 32, device="meta")
    y = functional.diff_stride(x, torch.tensor([2.0, 3.0]), path=path)
    assert (y.shape, y.device.type) == ((2, 3, 24, 18), "meta")
    layer = DiffStride2d((2.0, 3.0), path=path)
    assert layer.to("meta")(x).shape == y.shape
    with torch.device("meta"):
        assert DiffStride2d((2.0, 3.0), path=path)(x).shape == y.shape
        real = functional.diff_stride(torch.ones(1, 1, 8, 8, device="cpu"), 2.0, path=path)
    assert real.device.type == "cpu"


def test_what_a_mode_leaves_behind_does_not_harm_the_next_caller():
    """The basis is cached; whoever makes it first must not leave a wrapped tensor in the cache."""

    def step(n):
        x = torch.randn(1, 1, n, requires_grad=True)
        functional.diff_stride(x, 2.0, path="operator").sum().backward()

    with torch.inference_mode():
        functional.diff_stride(torch.randn(1, 1, 97), 2.0, path="operator")
    step(97)
    torch.func.grad(lambda x: functional.diff_stride(x, 2.0, path="operator").sum())(
        torch.randn(1, 1, 101)
    )
    step(101)
    torch.func.vmap(lambda x: functional.diff_stride(x, 2.0, path="operator"))(
        torch.randn(2, 1, 1, 103)
    )
    step(103)


@pytest.mark.parametrize("path", PATHS)
def test_vmap_over_inputs_equals_a_loop(path):
    x = torch.randn(5, 2, 3, 12, 9, dtype=torch.float64)
    stride = torch.tensor([1.9, 2.3], dtype=torch.float64)

    def loss(stride, x):
        return functional.diff_stride(x, stride, smoothness=2.0, path=path).square().sum()

    y = torch.func.vmap(lambda x: functional.diff_stride(x, stride, path=path))(x)
    torch.testing.assert_close(
        y, torch.stack([functional.diff_stride(one, stride, path=path) for one in x])
    )
    per_example = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1)), (None, 0))(stride, x)
    one_by_one = [torch.func.grad(loss, argnums=(0, 1))(stride, one) for one in x]
    for actual, expected in zip(per_example, zip(*one_by_one, strict=True), strict=True):
        torch.testing.assert_close(actual, torch.stack(expected))


def test_vmap_over_strides_says_why_not():
    x = torch.randn(2, 3, 12, 12)
    with pytest.raises(TypeError, match=r"stride must have values.*output size depends.*vmap"):
        torch.func.vmap(lambda s: functional.diff_stride(x, s))(torch.full((4, 2), 2.0))


def test_only_the_truncated_spectrum_is_kept_for_the_backward_pass():
    x = torch.randn(4, 8, 64, 64, requires_grad=True)
    stride = torch.tensor([4.0, 4.0], requires_grad=True)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: kept.append(tensor.nbytes) or tensor, lambda tensor: tensor
    ):
        y = functional.diff_stride(x, stride, path="operator")
    assert sum(kept) <= 1.05 * y.nbytes + 64 * 1024


def test_a_nan_in_the_stride_is_told():
    layer = DiffStride2d()
    with torch.no_grad():
        layer.stride[0] = math.nan
    with pytest.raises(ValueError, match="stride must be finite, got nan"):
        layer(torch.randn(1, 1, 8, 8))


def clamp_without_a_gradient_at_its_bounds(x, low=None, high=None):
    """What ``torch.clamp`` is from torch 2.15 on."""
    low, high = (-math.inf if low is None else low), (math.inf if high is None else high)
    inside = (x > low) & (x < high)
    return torch.where(inside, x, x.detach().maximum(torch.tensor(low).to(x))).where(
        x < high, torch.tensor(high).to(x)
    )


@pytest.mark.parametrize("version", ["as it is", "2.15"])
@pytest.mark.parametrize("convention", ["paper", "symmetric"])
@pytest.mark.parametrize("smoothness", [1.0, 4.0])
@pytest.mark.parametrize("path", PATHS)
def test_a_stride_that_begins_at_a_whole_cut_off_moves(
    path, smoothness, convention, version, monkeypatch
):
    """Stride 2 on 32 samples: with R = 1 only the very ends of the ramp hold a frequency."""
    if version == "2.15":
        monkeypatch.setattr(torch.Tensor, "clamp", clamp_without_a_gradient_at_its_bounds)
    layer = DiffStride2d(2.0, smoothness=smoothness, convention=convention, path=path)
    optimiser = torch.optim.SGD(layer.parameters(), lr=1e-3)
    layer(torch.randn(4, 3, 32, 32)).square().mean().backward()
    assert (layer.stride.grad < 0).all()  # less energy passes when the stride grows
    optimiser.step()
    assert all(stride > 2 for stride in layer.strides)


def test_both_ends_of_the_ramp_belong_to_it():
    """The subgradient that docs/maths.md gives, whatever ``torch.clamp`` does at its bounds."""
    stride = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    window = functional.window(32, stride, smoothness=2.0, crop=False)
    assert window.tolist() == [1.0] * 9 + [0.5] + [0.0] * 7
    slopes = torch.stack(
        [torch.autograd.grad(value, stride, retain_graph=True)[0] for value in window]
    )
    # d/dS of N/(2S)/R is −N/(2S²R) = −2, at 8, 9 and 10.
    assert slopes.tolist() == [0.0] * 8 + [-2.0] * 3 + [0.0] * 6


@pytest.mark.parametrize("smoothness", [0.1, 0.3, 0.6, 0.7, 0.9, 1.1, 2.3])
@pytest.mark.parametrize("size", [32, 64, 100, 4096])
def test_the_upper_end_of_the_ramp_belongs_to_it_however_its_width_is_rounded(size, smoothness):
    stride = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    window = functional.window(size, stride, smoothness=smoothness, crop=False)
    assert window[size // 4] == 1
    (slope,) = torch.autograd.grad(window[size // 4], stride)
    assert slope < 0


INFINITE = {  # the value, the range it is held in, what the layer does
    "above a bound": (math.inf, (1.0, 5.0), 5.0),
    "below a bound": (-math.inf, (1.5, 5.0), 1.5),
    "above no bound": (math.inf, (1.0, None), None),
    "nan": (math.nan, (1.0, 5.0), None),
}
SIZES = {"stride": {}, "output_size": {"output_size": 9}, "crop": {"crop": False}}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("rule", SIZES)
@pytest.mark.parametrize("case", INFINITE)
def test_a_stride_without_end_is_held_or_told(case, rule, training):
    value, (low, high), expected = INFINITE[case]
    x = torch.randn(2, 3, 32, 32)
    options = {"smoothness": 2.0, "min_stride": low, "max_stride": high, **SIZES[rule]}
    layer = DiffStride2d(2.0, **options).train(training)
    with torch.no_grad():
        layer.stride[0] = value
    if expected is None:
        with pytest.raises(ValueError, match=f"stride must be finite, got {value}"):
            layer(x)
        return
    assert layer.strides == (expected, 2.0)
    y = layer(x)
    assert torch.equal(y, DiffStride2d((expected, 2.0), **options)(x))
    y.square().sum().backward()
    assert layer.stride.grad.isfinite().all()


@pytest.mark.parametrize("options", SIZES.values(), ids=SIZES)
def test_the_function_tells_of_strides_that_are_none_whatever_says_the_size(options):
    for stride in (math.nan, math.inf, -math.inf, 0.5):
        with pytest.raises(ValueError, match="stride must be"):
            functional.diff_stride(torch.randn(1, 1, 16, 16), (2.0, stride), **options)
