"""What the modules add to the functions: a parameter, its range, and its life in a model."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn

from diffstride import (
    DiffStride1d,
    DiffStride2d,
    DiffStride3d,
    SpectralPool1d,
    SpectralPool2d,
    SpectralPool3d,
    functional,
)

LAYERS = {1: DiffStride1d, 2: DiffStride2d, 3: DiffStride3d}
POOLS = {1: SpectralPool1d, 2: SpectralPool2d, 3: SpectralPool3d}


def image(dims, **options):
    return torch.randn(2, 3, *[12, 11, 10][:dims], **options)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_a_layer_is_its_function(dims):
    strides = (1.4, 2.0, 2.7)[:dims]
    options = {
        "smoothness": 2.0,
        "crop": False,
        "norm": "forward",
        "convention": "symmetric",
        "path": "fft",
    }
    x = image(dims)
    layer = LAYERS[dims](strides, **options)
    assert torch.equal(layer(x), functional.diff_stride(x, layer.stride, **options))
    assert layer.strides == pytest.approx(strides)
    pool = POOLS[dims](strides, norm="backward")
    assert torch.equal(pool(x), functional.spectral_pool(x, strides, norm="backward"))
    assert pool.output_size(x.shape[2:]) == pool(x).shape[2:]
    fixed = POOLS[dims](output_size=4)
    assert torch.equal(fixed(x), functional.spectral_pool(x, output_size=[4] * dims))
    assert fixed.output_size(x.shape[2:]) == (4,) * dims


def test_the_defaults_are_the_papers():
    layer = DiffStride2d()
    assert layer.strides == (2.0, 2.0)
    assert layer.smoothness == 4.0
    assert (layer.norm, layer.convention) == ("ortho", "paper")
    assert layer.output_size((32, 32)) == (24, 24)
    assert isinstance(layer.stride, nn.Parameter)
    assert layer.stride.requires_grad


def test_a_shared_stride_is_one_parameter_for_all_axes():
    layer = DiffStride2d(2.5, shared=True)
    assert layer.stride.shape == (1,)
    assert layer.strides == (2.5, 2.5)
    apart = DiffStride2d(2.5)
    x = image(2)
    for one in (layer, apart):
        one(x).square().sum().backward()
    torch.testing.assert_close(layer.stride.grad, apart.stride.grad.sum(0, keepdim=True))


def test_a_stride_that_is_not_learnable_has_no_gradient_but_the_same_output():
    layer = DiffStride2d(2.5, learnable=False)
    x = image(2, requires_grad=True)
    y = layer(x)
    with torch.no_grad():
        assert torch.equal(y, DiffStride2d(2.5)(x))
    y.sum().backward()
    assert layer.stride.grad is None
    assert x.grad is not None
    assert list(layer.state_dict()) == ["stride"]


def test_what_a_layer_prints():
    assert repr(DiffStride2d((2, 3.14159))) == (
        "DiffStride2d(stride=(2, 3.142), learnable=True, smoothness=4)"
    )
    assert repr(
        DiffStride1d(
            2,
            smoothness=0.5,
            shared=True,
            learnable=False,
            crop=False,
            min_stride=1.5,
            max_stride=3,
            norm="forward",
            convention="symmetric",
            path="fft",
        )
    ) == (
        "DiffStride1d(stride=(2), learnable=False, smoothness=0.5, shared=True, crop=False, "
        "min_stride=1.5, max_stride=3, norm='forward', convention='symmetric', path='fft')"
    )
    assert repr(SpectralPool2d(2.5)) == "SpectralPool2d(stride=(2.5, 2.5), norm='ortho')"
    assert repr(SpectralPool2d(output_size=7, path="fft")) == (
        "SpectralPool2d(output_size=(7, 7), norm='ortho', path='fft')"
    )


def put(layer, *values):
    with torch.no_grad():
        layer.stride.copy_(torch.tensor(values))


@pytest.mark.parametrize(
    ("value", "low", "high", "expected"),
    [(0.2, 1.0, None, 1.0), (-3.0, 1.0, None, 1.0), (1.2, 1.5, 3.0, 1.5), (7.0, 1.5, 3.3, 3.3)],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_training_projects_the_parameter_and_eval_never_does(value, low, high, expected, dtype):
    layer = DiffStride2d(2.0, min_stride=low, max_stride=high, dtype=dtype)
    x = image(2, dtype=dtype)
    at_limit = functional.diff_stride(x, layer.stride.new_full((2,), expected))
    put(layer, value, 2.0)
    before = layer.stride.detach().clone()
    limited = layer.eval()(x)
    assert torch.equal(layer.stride, before)
    assert layer.strides == pytest.approx((expected, 2.0))
    assert limited.shape[2] == at_limit.shape[2]
    trained = layer.train()(x)
    assert layer.stride.tolist() == pytest.approx([expected, 2.0])
    assert torch.equal(trained, limited)


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_a_stride_beyond_its_limit_still_gets_its_gradient(mode):
    """Also in eval mode, where people train with frozen normalisation layers."""
    at_limit, beyond = DiffStride2d(1.0), DiffStride2d(1.0)
    put(beyond, 0.9, 1.0)
    x = image(2)
    for layer in (at_limit, beyond):
        getattr(layer, mode)()(x).square().sum().backward()
    assert at_limit.stride.grad.abs().min() > 0
    assert torch.equal(beyond.stride.grad, at_limit.stride.grad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bound", [1.1, 1.3, 2.7, 3.3])
def test_a_layer_shared_by_two_branches_is_written_once(dtype, bound):
    """A write between the branches would invalidate the graph of the first; also when the bound
    is not a float32 number."""
    layer = DiffStride2d(1.05, max_stride=bound, dtype=dtype)
    put(layer, 9.0, 9.0)
    x = image(2, dtype=dtype, requires_grad=True)
    first = layer(x)
    version = layer.stride._version
    second = layer(2 * x)
    assert layer.stride._version == version
    (first * second).sum().backward()
    assert layer.stride.grad.isfinite().all()


def test_eval_never_writes_even_when_it_runs_on_many_sizes():
    layer = DiffStride2d((1.0, 9.0)).eval()
    before = layer.stride.detach().clone()
    version = layer.stride._version
    for n in (1, 2, 5, 8, 32):
        layer(torch.randn(1, 1, n, n))
    assert torch.equal(layer.stride, before)
    assert layer.stride._version == version


def test_training_with_sgd_keeps_strides_within_limits():
    torch.manual_seed(0)
    layer = DiffStride2d((1.0, 3.0), max_stride=3.0)
    optimiser = torch.optim.SGD(layer.parameters(), lr=10.0, momentum=0.9)
    went_outside = False
    for _ in range(20):
        optimiser.zero_grad()
        layer(image(2)).square().mean().backward()
        optimiser.step()
        went_outside |= not bool(((layer.stride >= 1) & (layer.stride <= 3)).all())
        layer(image(2))
        assert bool(((layer.stride >= 1) & (layer.stride <= 3)).all())
    assert went_outside


def test_reset_parameters_sets_the_initial_stride():
    layer = DiffStride2d((2.0, 3.0))
    put(layer, 5.0, 5.0)
    layer.reset_parameters()
    assert layer.strides == (2.0, 3.0)
    meta = DiffStride2d((2.0, 3.0), device="meta")
    meta.to_empty(device="cpu").reset_parameters()
    assert meta.strides == (2.0, 3.0)


def by_state_dict(model):
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other = copy.deepcopy(model)
    for layer in other:
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
@pytest.mark.parametrize("shared", [True, False])
def test_round_trips(dims, shared, trip):
    model = nn.Sequential(LAYERS[dims](2.0, shared=shared, smoothness=1.0, norm="forward"))
    with torch.no_grad():
        model[0].stride += 0.25 + torch.arange(len(model[0].stride))
    back = ROUND_TRIPS[trip](model)
    assert back[0].stride is not model[0].stride
    assert torch.equal(back[0].stride, model[0].stride)
    assert repr(back) == repr(model)
    x = image(dims)
    assert torch.equal(back(x), model(x))
    back(x).sum().backward()
    assert model[0].stride.grad is None


def test_a_copy_keeps_the_sharing_between_branches():
    layer = DiffStride2d()
    both = nn.ModuleDict({"main": layer, "shortcut": layer})
    for trip in (copy.deepcopy, ROUND_TRIPS["pickle"]):
        back = trip(both)
        assert back["main"] is back["shortcut"]
    assert len(list(both.parameters())) == 1


def test_moving_a_layer_moves_its_stride_only():
    layer = DiffStride2d(2.5).double()
    assert layer.stride.dtype == torch.float64
    assert layer(image(2, dtype=torch.float64)).dtype == torch.float64
    assert layer(image(2)).dtype == torch.float32
    assert list(layer.buffers()) == []


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("path", ["operator", "fft"])
@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
@pytest.mark.parametrize("make", [LAYERS, POOLS])
def test_what_comes_out_may_be_changed_in_place(dims, path, layout, make):
    """As nn.ReLU(inplace=True) and residual additions do."""
    layer = make[dims](1.7, path=path)
    x = image(dims, requires_grad=True)
    if layout == "channels_last":
        x = x.movedim(1, -1).contiguous().movedim(-1, 1)
    expected = (layer(x).clone() + 0.1).relu()
    (grad,) = torch.autograd.grad(expected.square().sum(), x)
    y = layer(x)
    y += 0.1
    y.relu_()
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(torch.autograd.grad(y.square().sum(), x)[0], grad)


def test_a_float64_stride_is_the_number_that_was_given():
    assert DiffStride2d(2.1, dtype=torch.float64).strides == (2.1, 2.1)


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_a_stride_that_is_computed_from_another_parameter(mode):
    class Exp(nn.Module):
        def forward(self, x):
            return x.exp()

        def right_inverse(self, x):
            return x.log()

    layer = DiffStride2d(2.0, smoothness=2.0)
    nn.utils.parametrize.register_parametrization(layer, "stride", Exp())
    getattr(layer, mode)()
    source = layer.parametrizations.stride.original
    for value in (0.7, -0.5):  # the second is out of range
        with torch.no_grad():
            source.fill_(value)
        source.grad = None
        layer(image(2)).square().sum().backward()
        assert source.grad.abs().min() > 0
        assert torch.equal(source, torch.full((2,), value))
    for copied in (copy.deepcopy(layer.eval()), copy.deepcopy(layer.train())):
        assert copied.strides == layer.strides


def test_a_layer_on_the_meta_device_remembers_its_strides_and_refuses_real_inputs():
    layer = DiffStride2d(2.0)
    put(layer, 4.0, 3.0)
    layer.eval().to("meta")
    assert layer(torch.empty(1, 1, 32, 32, device="meta")).shape[2:] == (16, 18)
    with pytest.raises(ValueError, match="on the meta device and has no value"):
        layer(torch.zeros(1, 1, 32, 32))


def test_layers_pass_their_path_on():
    """The two paths differ in rounding, and so tell which one was taken."""
    x = torch.randn(2, 3, 33, 31)
    for make in (DiffStride2d, SpectralPool2d):
        by_matrix, by_fft = (make(1.7, path=path)(x) for path in ("operator", "fft"))
        assert not torch.equal(by_matrix, by_fft)
        assert torch.equal(make(1.7)(x), by_matrix)


def test_where_reading_is_not_free_the_stride_is_read_once_an_update(monkeypatch):
    from diffstride.layers import diffstride as module

    reads = []
    read = module.arguments.per_axis

    def counted(value, axes, name):
        if isinstance(value, torch.Tensor):
            reads.append(value.detach().clone())
        return read(value, axes, name)

    layer = DiffStride2d(2.0)
    monkeypatch.setattr(module, "_reads_are_free", lambda device: False)
    monkeypatch.setattr(module.arguments, "per_axis", counted)
    x = torch.randn(1, 1, 32, 32)
    for _ in range(3):
        assert layer(x).shape[-2:] == (24, 24)
    assert len(reads) == 1
    with torch.no_grad():
        layer.stride.add_(1.0)
    assert layer(x).shape[-2:] == (18, 18)
    assert copy.deepcopy(layer)(x).shape[-2:] == (18, 18)
    layer.load_state_dict({"stride": torch.tensor([4.0, 2.0])})
    assert layer(x).shape[-2:] == (16, 24)
    with torch.no_grad():
        layer.stride.fill_(0.5)  # out of range: projected, so it is read again
    assert layer(x).shape[-2:] == (32, 32)
    assert layer.strides == (1.0, 1.0)
    swapped = {"stride": torch.tensor([2.0, 2.0])}
    assert torch.func.functional_call(layer.eval(), swapped, (x,)).shape[-2:] == (24, 24)
    assert layer(x).shape[-2:] == (32, 32)
