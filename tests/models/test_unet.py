"""The network that goes down and up again: scores of every place, whatever size and strides."""

import copy

import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from diffstride import (
    Budget,
    CostModel,
    StridePlan,
    convert,
    cost,
    export_onnx,
    fit_budget,
    freeze,
    functional,
    models,
    soft_macs,
    stride_penalty,
    stride_table,
)
from diffstride.layers.factory import KINDS
from diffstride.layers.resizer import Resizer, learned_strides, resizers

OURS = KINDS[: KINDS.index("blur")]
TIGHT = {"smoothness": 1.0, "convention": "tight"}
WHOLE = ("strided", "average", "max", "blur", "flc", "polyphase")
IN_A_BASIS = ("spectral", "diffstride", "flc")
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)
PLACED = pytest.mark.parametrize("placement", ["after", "before"])


def network(kind="diffstride", **options):
    torch.manual_seed(0)
    options = {"num_classes": 4, "width": 0.0625, **TIGHT, **options}
    return models.create("unet", downsampling=kind, **options)


def trained(kind="diffstride", **options):
    """One in eval mode, whose statistics are not those that it began with."""
    model = network(kind, **options)
    made_with = model.created_with
    model(torch.randn(4, made_with["in_channels"], *[21] * made_with["dims"]))
    return model.eval()


@settings(deadline=None, max_examples=60)
@given(
    kind=st.sampled_from(KINDS),
    placement=st.sampled_from(["after", "before"]),
    rule=st.sampled_from([TIGHT, {"smoothness": 2.0, "convention": "paper"}]),
    sizes=st.lists(st.integers(8, 37), min_size=1, max_size=2),
    data=st.data(),
)
def test_scores_have_the_size_of_the_input(kind, placement, rule, sizes, data):
    # Poolings of 2 three times need 8 samples; others take a single one.
    numbers = st.just(2.0) if kind in WHOLE else st.floats(1, 4)
    strides = data.draw(st.lists(numbers, min_size=3, max_size=3))
    options = {"dims": len(sizes), "strides": strides, "placement": placement, **rule}
    model = network(kind, in_channels=2, **options).eval()
    assert model(torch.randn(1, 2, *sizes)).shape == (1, 4, *sizes)
    if kind not in ("average", "max"):
        assert model(torch.randn(1, 2, *[1] * len(sizes))).shape == (1, 4, *[1] * len(sizes))


@EVERY_KIND
@PLACED
def test_volumes(kind, placement):
    model = network(kind, dims=3, placement=placement, in_channels=1)
    assert model(torch.randn(2, 1, 17, 8, 13)).shape == (2, 4, 17, 8, 13)


def by_hand(model, x):
    """The same, level by level, from functions of tensors alone."""
    made_with = model.created_with
    before, kind = made_with["placement"] == "before", made_with["downsampling"]

    def normalised(y, norm):
        return F.batch_norm(
            y, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps
        ).relu()

    def resized(y, layer):
        if kind == "diffstride":
            return functional.diff_stride(y, layer.stride, norm="forward", **TIGHT)
        if kind == "spectral":
            return functional.spectral_pool(y, layer.stride, norm="forward")
        if kind == "bilinear":
            return functional.learned_resize(y, layer.stride)
        if kind == "shape_adaptor":
            return functional.shape_adaptor(y, layer.alpha[0].sigmoid(), largest=layer.largest)
        if kind == "polyphase":
            return functional.polyphase_sample(y, 2).samples
        pools = {
            "max": F.max_pool2d,
            "average": F.avg_pool2d,
            "blur": functional.blur_pool,
            "flc": functional.frequency_low_cut,
        }
        return pools[kind](y, 2) if kind in pools else y

    skips = []
    for number, level in enumerate(model.levels):
        parts = dict(level.named_children())
        if number == 0:
            conv1, norm1, _, conv2, norm2, _ = parts.values()
        else:
            conv1, layer, norm1, _, conv2, norm2, _ = (parts[str(i)] for i in range(7))
        stride = 2 if number and kind == "strided" else 1
        x = resized(x, layer) if number and before else x
        x = F.conv2d(x, conv1.weight, stride=stride, padding=1)
        x = resized(x, layer) if number and not before else x
        x = normalised(x, norm1)
        x = normalised(F.conv2d(x, conv2.weight, padding=1), norm2)
        skips.append(x)
    for up, skip in zip(model.ups, skips[-2::-1], strict=True):
        size = skip.shape[2:]
        if kind not in IN_A_BASIS:
            x = F.interpolate(x, size=size, mode="bilinear")
        else:
            x = functional.spectral_resize(x, size, norm="forward")
        x = torch.cat([skip, F.conv2d(x, up.narrow.weight)], 1)
        conv1, norm1, _, conv2, norm2, _ = up.layers
        x = normalised(F.conv2d(x, conv1.weight, padding=1), norm1)
        x = normalised(F.conv2d(x, conv2.weight, padding=1), norm2)
    return F.conv2d(x, model.head.weight, model.head.bias)


@EVERY_KIND
@PLACED
@pytest.mark.parametrize("size", [(16, 24), (19, 23)])
def test_what_is_computed(kind, placement, size):
    # A shape adaptor has one factor for all axes.
    second = 2.3 if kind == "shape_adaptor" else (2.3, 1.2)
    strides = (2, 2, 2) if kind in WHOLE else (1.6, second, 1.4)
    model = trained(kind, strides=strides, placement=placement).double()
    x = torch.randn(2, 3, *size).double()
    torch.testing.assert_close(model(x), by_hand(model, x), rtol=1e-9, atol=1e-9)


def test_what_comes_from_below_keeps_its_amplitude_unless_told_otherwise():
    assert {layer.norm for _, layer in resizers(network())} == {"forward"}
    assert {layer.norm for _, layer in resizers(network(norm="ortho"))} == {"ortho"}


@PLACED
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_every_stride_has_the_slope_of_the_loss(placement, dims):
    model = trained(dims=dims, strides=(1.3, 1.45, 1.35), placement=placement).double()
    for module in [*model.modules()]:  # a kink would have no slope
        for name, layer in module.named_children():
            if isinstance(layer, nn.ReLU):
                setattr(module, name, nn.Softplus())
    x = torch.randn(2, 3, *(17, 14, 15)[:dims]).double()
    loss = model(x).square().mean()
    layers = learned_strides(model)
    assert len(layers) == 3
    grads = torch.autograd.grad(loss, [layer.stride for layer in layers.values()])
    step = 1e-6
    for layer, grad in zip(layers.values(), grads, strict=True):
        for axis in range(dims):
            found = []
            for sign in (1, -1):
                with torch.no_grad():
                    layer.stride[axis] += sign * step
                    found.append(model(x).square().mean().item())
                    layer.stride[axis] -= sign * step
            slope = (found[0] - found[1]) / (2 * step)
            assert slope != 0
            assert grad[axis].item() == pytest.approx(slope, rel=1e-4)


def test_kinds_have_the_same_convolutions():
    """At maps of the same sizes they cost the same but for resampling, which interpolation is."""
    macs = {}
    for kind in KINDS:
        layers = cost(network(kind, placement="before"), (3, 32, 32)).layers
        macs[kind] = sum(use.macs for use in layers if not isinstance(use.layer, Resizer))
        resampling = [use.macs for use in layers if isinstance(use.layer, Resizer)]
        ways = {"strided": 0, "average": 0, "max": 0}.get(kind, 6 if kind in IN_A_BASIS else 3)
        assert len(resampling) == ways  # three ways down, and up where that is no interpolation
    # A strided convolution reads the larger map, and costs the same.
    assert len(set(macs.values())) == 1


@EVERY_KIND
@pytest.mark.parametrize("size", [(32, 32), (29, 37)])
def test_costs_are_those_of_one_run(kind, size):
    third = 1.3 if kind == "shape_adaptor" else (1.3, 2.6)
    model = network(kind, strides=(2, 2, 2) if kind in WHOLE else (1.7, 2.2, third))
    assert (
        CostModel(model, (3, 32, 32)).at(input_size=(3, *size)).macs == cost(model, (3, *size)).macs
    )
    if learned_strides(model):
        soft = soft_macs(model, (3, *size))
        assert soft.item() == pytest.approx(cost(model, (3, *size)).macs, rel=1e-9)
        soft.backward()
        for name, parameter in model.named_parameters():
            if name.endswith("stride"):
                assert (parameter.grad < 0).all()
            elif name.endswith("alpha"):  # more of which is more of the larger map
                assert (parameter.grad > 0).all()


def test_budgets_tables_and_penalties():
    model, size = network(), (3, 32, 32)
    macs = cost(model, size).macs
    penalty = stride_penalty(model)
    penalty.backward()
    assert all((layer.stride.grad < 0).all() for layer in learned_strides(model).values())
    names = [row.site for row in stride_table(model, size).rows]
    down, up = ["levels.1.1", "levels.2.1", "levels.3.1"], ["ups.0.up", "ups.1.up", "ups.2.up"]
    assert names == [*down, *up]
    budget = Budget(model, size, macs=0.8 * macs)
    budget.hold()
    assert cost(model, size).macs == pytest.approx(0.8 * macs, rel=0.03)
    fit_budget(model, size, 0.6 * macs)
    assert cost(model, size).macs <= 0.6 * macs
    assert model(torch.randn(1, *size)).shape == (1, 4, 32, 32)


@pytest.mark.parametrize("kind", ["spectral", "diffstride"])
@PLACED
def test_frozen_and_with_whole_strides(kind, placement):
    model, size = trained(kind, strides=(1.8, 2.4, 1.3), placement=placement), (3, 29, 24)
    x = torch.randn(2, *size)
    frozen = freeze(model, size)
    assert not resizers(frozen)
    torch.testing.assert_close(frozen(x), model(x), rtol=1e-4, atol=1e-5)
    plain = freeze(model, size, integer_strides=True)
    assert not learned_strides(plain)
    for other in ((29, 24), (17, 40)):
        assert plain(torch.randn(1, 3, *other)).shape == (1, 4, *other)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "dims"),
    [*((kind, 2) for kind in OURS), ("diffstride", 1), ("diffstride", 3)],
)
def test_files_compute_the_same(kind, dims, tmp_path):
    size = (3, *(21, 18, 16)[:dims])
    model = trained(kind, dims=dims)
    path = export_onnx(model, tmp_path / "model.onnx", size)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for batch in (1, 3):
        x = torch.randn(batch, *size)
        (y,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        expected = model(x).detach()
        assert (torch.from_numpy(y) - expected).abs().max() <= 1e-4 * expected.abs().max()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["max", "diffstride"])
def test_compiled_it_is_one_graph(kind):
    torch._dynamo.reset()
    model = trained(kind)
    whole = torch.compile(model, backend="eager", fullgraph=True)
    with torch.no_grad():
        x = torch.randn(2, 3, 24, 21)
        torch.testing.assert_close(whole(x), model(x), rtol=1e-3, atol=1e-3)


def test_copies_undo_their_own_layers():
    model = trained()
    other = copy.deepcopy(model)
    for one in (model, other):
        ways_down = [level[1] for level in one.levels][:0:-1]
        assert all(a.up.undone is b for a, b in zip(one.ups, ways_down, strict=True))
    with torch.no_grad():
        other.levels[1][1].stride.fill_(3.1)
    for size in ((21, 20), (9, 33)):
        assert other(torch.randn(1, 3, *size)).shape == (1, 4, *size)


@EVERY_KIND
def test_half_precision_and_autocast(kind):
    model, x = trained(kind), torch.randn(2, 3, 19, 24)
    expected = model(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = model(x)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(
        y.float(), expected, rtol=0.1, atol=0.1 * expected.abs().max().item()
    )
    half = copy.deepcopy(model).bfloat16()(x.bfloat16())
    assert half.dtype == torch.bfloat16
    assert half.shape == expected.shape


@pytest.mark.parametrize("kind", ["strided", "max"])
def test_the_textbook_network_can_be_converted(kind):
    learning, _ = convert(trained(kind), torch.rand(1, 3, 32, 32))
    assert len(learned_strides(learning)) == 3
    with torch.no_grad():
        for layer in learned_strides(learning).values():
            layer.stride.mul_(1.3)
    assert learning(torch.randn(1, 3, 29, 37)).shape == (1, 4, 29, 37)


@pytest.mark.parametrize("kind", ["spectral", "diffstride"])
def test_plans_of_strides(kind):
    model, size = trained(kind, strides=(1.8, (2.4, 1.1), 1.3)), (3, 31, 40)
    plan = StridePlan.of(model, size)
    assert [*plan.strides] == ["levels.1.1", "levels.2.1", "levels.3.1"]
    fixed, x = plan.apply(model), torch.randn(1, *size)
    assert fixed(x).shape == (1, 4, 31, 40)
    assert cost(fixed, size).macs == pytest.approx(plan.macs, rel=0.01)
    assert plan.rounded(model).is_whole


def test_it_learns_where_something_is():
    """The sign of every place, of which half have noise instead: neighbours know it."""
    model = network(num_classes=2, in_channels=1, dims=1, width=0.125).train()
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(40):
        signs = (torch.randn(16, 1, 67).cumsum(-1) > 0).long()
        x = torch.where(torch.rand(16, 1, 67) < 0.5, 2.0 * signs - 1, torch.randn(16, 1, 67))
        loss = nn.functional.cross_entropy(model(x), signs[:, 0])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert sum(losses[-5:]) < 0.6 * sum(losses[:5])
