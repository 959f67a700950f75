"""Layers of the methods of others: what every layer here can, and what is theirs."""

import copy
import io
import math
import pickle

import onnxruntime
import pytest
import torch
from torch import nn

from diffstride import (
    Budget,
    CostModel,
    LearnedResize2d,
    PolyphaseSample2d,
    ShapeAdaptor2d,
    cost,
    export_onnx,
    fit_budget,
    freeze,
    functional,
    models,
    parameter_groups,
    soft_macs,
    stride_table,
)
from diffstride.layers.factory import KINDS, downsample
from diffstride.layers.resizer import learned_strides

RIVALS = KINDS[KINDS.index("blur") :]
EVERY = pytest.mark.parametrize("kind", RIVALS)
DIMS = pytest.mark.parametrize("dims", [1, 2, 3])
SIZE = (13, 16, 9)


def layer_of(kind, stride=2, dims=2, **options):
    return downsample(kind, stride, dims, **options).layer


def by_function(kind, layer, x):
    """The pure function of a kind, with what a layer of it has."""
    if kind == "shape_adaptor":
        share = layer.alpha.sigmoid()
        share = share[0] if layer.shared else share
        return functional.shape_adaptor(x, share, largest=layer.largest)
    return {
        "blur": lambda: functional.blur_pool(x, layer.stride, taps=layer.taps),
        "flc": lambda: functional.frequency_low_cut(x, layer.stride),
        "polyphase": lambda: functional.polyphase_sample(x, layer.stride).samples,
        "bilinear": lambda: functional.learned_resize(x, layer.differentiable_strides()),
    }[kind]()


@EVERY
@DIMS
def test_a_layer_is_its_function(kind, dims):
    layer, x = layer_of(kind, dims=dims), torch.randn(2, 3, *SIZE[:dims])
    y = layer(x)
    torch.testing.assert_close(y, by_function(kind, layer, x))
    assert y.shape[2:] == layer.output_size(SIZE[:dims]) == tuple(-(-n // 2) for n in SIZE[:dims])
    torch.testing.assert_close(layer(x[0]), y[0])  # without a batch
    torch.testing.assert_close(copy.deepcopy(layer).eval()(x), y)
    buffer = io.BytesIO()
    torch.save(layer, buffer)
    buffer.seek(0)
    assert torch.equal(torch.load(buffer, weights_only=False)(x), y)
    with pytest.raises(ValueError, match="input must be"):
        layer(x[0, 0])


@EVERY
@DIMS
def test_it_is_counted_tabled_and_frozen(kind, dims):
    model, size = nn.Sequential(nn.ReLU(), layer_of(kind, dims=dims)), (3, *SIZE[:dims])
    n, m = SIZE[:dims], tuple(-(-n // 2) for n in SIZE[:dims])
    macs = {
        "blur": 3 * sum(math.prod([*m[: i + 1], *n[i + 1 :]]) for i in range(dims)),
        "polyphase": math.prod(2 * k for k in m),
        # Two interpolations of 2^d samples each, and the mixture.
        "shape_adaptor": (2 * 2**dims + 2) * math.prod(m),
    }
    counted = cost(model, size).macs
    assert counted > 0
    if kind in macs:
        assert counted == 3 * macs[kind]
    assert CostModel(model, size).at(input_size=(3, *m)).macs < counted
    (row,) = stride_table(model, size).rows
    assert (row.input_size, row.output_size) == (n, m)
    assert row.strides == pytest.approx((2.0,) * dims)
    assert bool(learned_strides(model)) == (kind in ("shape_adaptor", "bilinear"))
    frozen, x = freeze(model, size), torch.randn(4, *size)
    assert not [*frozen.parameters()]
    torch.testing.assert_close(frozen(x), model(x).detach())
    torch.testing.assert_close(freeze(model, size, integer_strides=True)(x), stepped(x.relu()))


def stepped(x):
    return x[(..., *(slice(None, None, 2),) * (x.ndim - 2))]


@DIMS
def test_files_compute_the_same(dims, tmp_path):
    """One network with all of them, along one axis of each length; batches of any size."""
    torch.manual_seed(0)
    conv = getattr(nn, f"Conv{dims}d")
    layers = [conv(1, 4, 3, padding=1)]
    for kind in RIVALS:
        options = {"per_axis": dims > 1, "taps": 4}
        stride = 1.4 if kind in ("shape_adaptor", "bilinear") else 2
        layers += [layer_of(kind, stride, dims, **options), nn.Tanh(), conv(4, 4, 3, padding=1)]
    model, size = nn.Sequential(*layers).eval(), (1, *(41, 30, 24)[:dims])
    frozen = freeze(model, size)
    path = export_onnx(frozen, tmp_path / "model.onnx", size)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for batch in (1, 3):
        x = torch.randn(batch, *size)
        expected = model(x).detach()
        torch.testing.assert_close(frozen(x), expected, rtol=1e-4, atol=1e-5)
        (y,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        torch.testing.assert_close(torch.from_numpy(y), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_compiled_they_are_one_graph():
    torch._dynamo.reset()
    model = nn.Sequential(*(layer_of(kind) for kind in RIVALS)).eval()
    whole = torch.compile(model, backend="eager", fullgraph=True)
    with torch.no_grad():
        x = torch.randn(2, 3, 64, 45)
        torch.testing.assert_close(whole(x), model(x))


def test_both_branches_of_a_block_are_sampled_on_one_grid():
    layer = PolyphaseSample2d(2)
    first, second = torch.randn(8, 3, 6, 6), torch.randn(8, 5, 6, 6)
    _, grids = functional.polyphase_sample(first, 2)
    _, others = functional.polyphase_sample(second, 2)
    assert (grids != others).any()  # by itself, the second would be on other ones
    layer(first)
    alike = functional.polyphase_sample(second, 2, grids=grids).samples
    assert torch.equal(layer.again(second), alike)
    assert not torch.equal(layer(second), alike)


def test_polyphase_layers_can_be_copied_after_a_functional_transform():
    layer, x = PolyphaseSample2d(2), torch.randn(2, 3, 6, 6)
    expected = layer(x)
    torch.func.grad(lambda x: layer(x).sum())(x)
    assert torch.equal(copy.deepcopy(layer)(x), expected)
    torch.func.vmap(layer)(x[None])
    assert torch.equal(pickle.loads(pickle.dumps(layer))(x), expected)


@pytest.mark.parametrize("placement", ["after", "before"])
@pytest.mark.parametrize("name", ["resnet18", "preact_resnet18"])
def test_scores_do_not_change_with_moves_around_the_edges(name, placement):
    """What polyphase sampling was made for; the strided network's do."""
    changed = {}
    for kind in ("polyphase", "strided"):
        torch.manual_seed(0)
        options = {"num_classes": 4, "width": 0.0625, "placement": placement}
        model = models.create(name, downsampling=kind, **options).double().eval()
        for module in model.modules():
            if isinstance(module, nn.Conv2d):
                module.padding_mode = "circular"
        x = torch.randn(3, 3, 32, 32, dtype=torch.float64)
        scores = model(x)
        moved = [model(x.roll(moves, (2, 3))) for moves in ((1, 0), (0, 1), (3, 6), (5, 2))]
        changed[kind] = max((scores - other).abs().max().item() for other in moved)
    assert changed["polyphase"] < 1e-10 < 1e-4 < changed["strided"]


def test_a_resize_is_learned_bounded_and_held_to_a_cost():
    layer = LearnedResize2d((2.0, 1.5), max_stride=3.0)
    with torch.no_grad():
        layer.stride.copy_(torch.tensor([0.5, 7.0]))
    layer(torch.rand(1, 2, 12, 12))
    assert layer.stride.tolist() == [1.0, 3.0]  # projected in training mode
    model = nn.Sequential(LearnedResize2d(1.2), nn.Conv2d(3, 8, 3, padding=1))
    macs = cost(model, (3, 32, 32)).macs
    fit_budget(model, (3, 32, 32), 0.6 * macs)
    assert 0.5 * macs < cost(model, (3, 32, 32)).macs <= 0.6 * macs
    assert min(model[0].strides) > 1.2


def test_a_factor_is_learned_within_its_range():
    layer = ShapeAdaptor2d(2.0, max_stride=4)
    assert layer.strides == pytest.approx((2.0, 2.0))
    for alpha, stride in ((-50.0, 4.0), (50.0, 1.0), (0.0, 1.6)):
        with torch.no_grad():
            layer.alpha.fill_(alpha)
        assert layer.strides == pytest.approx((stride, stride))
        assert layer(torch.rand(1, 2, 12, 13)).shape[2:] == layer.output_size((12, 13))
    layer.reset_parameters()
    assert layer.strides == pytest.approx((2.0, 2.0))
    # At the ends of its range nothing could be learned, and so it begins beside them.
    assert 1 < ShapeAdaptor2d(1.0).strides[0] < 1.03
    names = [name for name, _ in layer.named_parameters()]
    assert names == ["alpha"]
    groups = {group["name"]: group["params"] for group in parameter_groups(layer, 0.1, 0.1)}
    assert groups == {"strides": [layer.alpha]}
    fixed = ShapeAdaptor2d(2.0, learnable=False)
    assert not fixed.alpha.requires_grad


def test_a_factor_learns_a_cost_in_the_loss_and_a_budget_says_that():
    layer = ShapeAdaptor2d((1.5, 2.0), per_axis=True)
    model = nn.Sequential(layer, nn.Conv2d(3, 8, 3, padding=1))
    soft_macs(model, (3, 32, 32)).backward()
    assert (layer.alpha.grad > 0).all()  # the larger map costs more
    with pytest.raises(ValueError, match=r"stride that is computed .* have soft_macs in the loss"):
        Budget(model, (3, 32, 32), macs=10_000)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: layer_of("blur", 1.5), r"whole for downsampling='blur', got \(1.5, 1.5\): round"),
        (lambda: layer_of("blur", 1.5), "'diffstride' or 'shape_adaptor' or 'bilinear', which"),
        (lambda: layer_of("blur", taps=0), "taps must be a whole number of at least 1, got 0"),
        (lambda: PolyphaseSample2d(2.5), r"whole for polyphase sampling, .*; got \(2.5, 2.5\)"),
        (lambda: ShapeAdaptor2d((2.0, 3.0)), "the same on all axes, .* with per_axis=True"),
        (lambda: ShapeAdaptor2d(3.0, max_stride=2), "stride must be at most max_stride=2, got"),
        (lambda: ShapeAdaptor2d(2.0, max_stride=2.5), "a whole number above 1, got 2.5"),
        (lambda: layer_of("blur").scale_stride(0.75), "stride must be whole for blur pooling"),
        (lambda: LearnedResize2d(2.0, max_stride=1.5), "from min_stride to max_stride"),
    ],
)
def test_what_can_not_be_made_is_said(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_whole_strides_are_scaled_to_whole_ones():
    layer = layer_of("blur", 2)
    layer.scale_stride(1.5)
    assert layer.stride == (3, 3)
