"""What the layers for the way up add to their functions: a parameter, its range, its life."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn

from diffstride import (
    DiffStride2d,
    DiffUpsample1d,
    DiffUpsample2d,
    DiffUpsample3d,
    SpectralPool2d,
    SpectralUpsample1d,
    SpectralUpsample2d,
    SpectralUpsample3d,
    functional,
)

LAYERS = {1: DiffUpsample1d, 2: DiffUpsample2d, 3: DiffUpsample3d}
FIXED = {1: SpectralUpsample1d, 2: SpectralUpsample2d, 3: SpectralUpsample3d}


def image(dims, **options):
    return torch.randn(2, 3, *[9, 8, 5][:dims], **options)


def put(layer, *values):
    with torch.no_grad():
        layer.stride.copy_(torch.tensor(values))


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_a_layer_is_its_function(dims):
    strides = (1.4, 2.0, 1.7)[:dims]
    options = {"smoothness": 1.5, "norm": "forward", "convention": "symmetric", "path": "fft"}
    x = image(dims)
    layer = LAYERS[dims](strides, **options)
    assert torch.equal(layer(x), functional.diff_upsample(x, layer.stride, **options))
    assert layer.output_size(x.shape[2:]) == layer(x).shape[2:]
    fixed = FIXED[dims](output_size=11, norm="backward")
    expected = functional.spectral_resize(x, [11] * dims, norm="backward")
    assert torch.equal(fixed(x), expected)
    assert fixed.output_size(x.shape[2:]) == (11,) * dims
    scaled = FIXED[dims](strides)
    assert scaled.output_size(x.shape[2:]) == scaled(x).shape[2:]
    assert torch.equal(scaled(x), functional.spectral_resize(x, scaled(x).shape[2:]))


def test_stride_two_doubles():
    layer = DiffUpsample2d()
    assert layer.strides == (2.0, 2.0)
    assert layer.smoothness == 1.0
    assert (layer.norm, layer.convention) == ("ortho", "tight")
    assert layer.output_size((16, 17)) == (32, 34)
    assert isinstance(layer.stride, nn.Parameter)


@pytest.mark.parametrize("rule", [{}, {"convention": "paper", "smoothness": 4.0}])
@pytest.mark.parametrize("stride", [1.0, 1.3, 2.0, 2.75])
@pytest.mark.parametrize("size", [(9, 10), (24, 31), (40, 17)])
def test_the_same_layer_downwards_leads_back_to_the_size(size, stride, rule):
    up, down = DiffUpsample2d(stride, **rule), DiffStride2d(stride, **{"smoothness": 1.0} | rule)
    down.convention = up.convention
    assert down.output_size(up.output_size(size)) == size


@pytest.mark.parametrize("scale", [1.0, 1.3, 2.0, 3.7])
@pytest.mark.parametrize("norm", ["ortho", "forward", "backward"])
def test_spectral_pooling_by_the_same_stride_gives_the_input_again(scale, norm):
    x = image(2)
    up, down = SpectralUpsample2d(scale, norm=norm), SpectralPool2d(scale, norm=norm)
    torch.testing.assert_close(down(up(x)), x)


def test_what_a_layer_prints():
    assert repr(DiffUpsample2d((2, 3.14159), max_stride=4)) == (
        "DiffUpsample2d(stride=(2, 3.142), learnable=True, smoothness=1, max_stride=4, "
        "convention='tight')"
    )
    assert repr(SpectralUpsample2d(2.5)) == "SpectralUpsample2d(scale=(2.5, 2.5), norm='ortho')"
    assert repr(SpectralUpsample2d(output_size=7, path="fft")) == (
        "SpectralUpsample2d(output_size=(7, 7), norm='ortho', path='fft')"
    )


def test_it_has_no_argument_that_would_mean_nothing():
    with pytest.raises(TypeError, match="DiffUpsample2d has no argument crop"):
        DiffUpsample2d(2.0, crop=False)
    with pytest.raises(TypeError, match="unexpected keyword argument 'scale'"):
        DiffUpsample2d(2.0, scale=3)


def test_a_shared_stride_is_one_parameter_for_all_axes():
    layer, apart = DiffUpsample2d(2.3, shared=True), DiffUpsample2d(2.3)
    assert layer.stride.shape == (1,)
    assert layer.strides == pytest.approx((2.3, 2.3))
    x = image(2)
    for one in (layer, apart):
        one(x).square().sum().backward()
    torch.testing.assert_close(layer.stride.grad, apart.stride.grad.sum(0, keepdim=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("value", "low", "high", "expected"),
    [(0.2, 1.0, None, 1.0), (-3.0, 1.0, None, 1.0), (1.2, 1.5, 3.0, 1.5), (7.0, 1.5, 3.3, 3.3)],
)
def test_training_projects_the_parameter_and_eval_never_does(value, low, high, expected, dtype):
    layer = DiffUpsample2d(2.0, min_stride=low, max_stride=high, dtype=dtype)
    x = image(2, dtype=dtype)
    put(layer, value, 2.0)
    before = layer.stride.detach().clone()
    limited = layer.eval()(x)
    assert torch.equal(layer.stride, before)
    assert layer.strides == pytest.approx((expected, 2.0))
    trained = layer.train()(x)
    assert layer.stride.tolist() == pytest.approx([expected, 2.0])
    assert torch.equal(trained, limited)
    trained.square().sum().backward()
    assert layer.stride.grad.isfinite().all()


def test_training_moves_the_stride_and_keeps_it_within_limits():
    layer = DiffUpsample2d((1.0, 3.0), max_stride=3.0)
    optimiser = torch.optim.SGD(layer.parameters(), lr=1.0, momentum=0.9)
    seen = set()
    for _ in range(20):
        optimiser.zero_grad()
        y = layer(image(2))
        y.square().mean().backward()
        assert layer.stride.grad.abs().max() > 0
        optimiser.step()
        layer(image(2))
        assert bool(((layer.stride >= 1) & (layer.stride <= 3)).all())
        seen.add(layer.strides)
    assert len(seen) > 1


@pytest.mark.parametrize("options", [{"output_size": (20, 18)}, {"size_multiple": 8}])
def test_sizes_that_stay_while_the_stride_learns(options):
    layer = DiffUpsample2d(2.0, **options)
    assert repr(layer).count(next(iter(options))) == 1
    x = image(2)
    for stride in (1.5, 1.6, 2.0):
        put(layer, stride, stride)
        layer.stride.grad = None
        y = layer(x)
        expected = options.get("output_size", (16, 16) if stride < 1.7 else (24, 16))
        assert y.shape[2:] == layer.output_size((9, 8)) == expected
        y.square().sum().backward()
        assert layer.stride.grad.isfinite().all()
    assert layer.stride.grad.abs().max() > 0


def by_state_dict(model):
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other = copy.deepcopy(model)
    for layer in other:
        if hasattr(layer, "reset_parameters"):
            layer.reset_parameters()
    other.load_state_dict(torch.load(file, weights_only=True))
    return other


ROUND_TRIPS = {
    "state_dict": by_state_dict,
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
}


@pytest.mark.parametrize("trip", ROUND_TRIPS)
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_round_trips(dims, trip):
    model = nn.Sequential(LAYERS[dims](2.0, norm="forward"), FIXED[dims](1.3))
    with torch.no_grad():
        model[0].stride += 0.25 + torch.arange(dims)
    back = ROUND_TRIPS[trip](model)
    assert list(model.state_dict()) == ["0.stride"]
    assert torch.equal(back[0].stride, model[0].stride)
    assert repr(back) == repr(model)
    x = image(dims)
    assert torch.equal(back(x), model(x))


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("path", ["operator", "fft"])
@pytest.mark.parametrize("layout", ["contiguous", "channels_last", "unbatched"])
@pytest.mark.parametrize("make", [LAYERS, FIXED])
def test_memory_formats_and_changes_in_place(dims, path, layout, make):
    layer = make[dims](1.7, path=path)
    x = image(dims)
    plain = layer(x)
    if layout == "channels_last":
        x = x.movedim(1, -1).contiguous().movedim(-1, 1)
    if layout == "unbatched":
        x, plain = x[0], plain[0]
    y = layer(x.requires_grad_())
    torch.testing.assert_close(y, plain)
    if layout == "channels_last":
        assert y.movedim(1, -1).is_contiguous()
    (grad,) = torch.autograd.grad((layer(x).clone() + 0.1).relu().square().sum(), x)
    y += 0.1
    y.relu_()
    torch.testing.assert_close(torch.autograd.grad(y.square().sum(), x)[0], grad)


def test_layers_on_the_meta_device_tell_their_size():
    layer = DiffUpsample2d((4.0, 3.0)).eval().to("meta")
    assert layer(torch.empty(1, 1, 16, 16, device="meta")).shape[2:] == (64, 48)
    with pytest.raises(ValueError, match="on the meta device and has no value"):
        layer(torch.zeros(1, 1, 16, 16))


def test_strides_scale_with_the_input():
    layer, fixed = DiffUpsample1d(2.0, max_stride=3.0), SpectralUpsample1d(2.0)
    for one in (layer, fixed):
        one.scale_stride(1.5)
        assert one.strides == pytest.approx((3.0,))
        assert one.output_size(20) == (60,)
    assert layer.max_stride == 4.5
    with pytest.raises(ValueError, match="has no stride of its own to scale"):
        SpectralUpsample1d(output_size=7).scale_stride(2.0)


@pytest.mark.parametrize("training", [True, False])
def test_copies_that_data_parallel_makes_compute_and_learn_the_same(training):
    layer = DiffUpsample2d(1.7).train(training)
    replica = layer._replicate_for_data_parallel()
    replica.stride = layer.stride * 1
    x = image(2)
    y, expected = replica(x), layer(x)
    assert torch.equal(y, expected)
    y.square().sum().backward()
    found, layer.stride.grad = layer.stride.grad, None
    expected.square().sum().backward()
    torch.testing.assert_close(found, layer.stride.grad)
