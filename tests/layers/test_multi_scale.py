"""Branches of several strides: exact, at any size, and known to all that asks of networks."""

import copy
import io
import math
import pickle

import onnxruntime
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from diffstride import (
    Budget,
    CostModel,
    DiffStride2d,
    MultiScale1d,
    MultiScale2d,
    MultiScale3d,
    StridePlan,
    cost,
    export_onnx,
    freeze,
    parameter_groups,
    soft_macs,
    stride_penalty,
    stride_table,
)
from diffstride.layers.resizer import resizers
from tests import oracle

KINDS = {1: MultiScale1d, 2: MultiScale2d, 3: MultiScale3d}
CONVOLVE = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
SIZES = {1: [(31,), (8,), (3,), (1,)], 2: [(13, 10), (3, 2), (1, 1)], 3: [(7, 6, 9), (1, 2, 3)]}
CASES = [(axes, size) for axes, sizes in SIZES.items() for size in sizes]
TIGHT = {"smoothness": 1.0, "offset": 0.0, "tight": True, "norm": "forward"}


def layer_of(axes=2, branches=3, stride=1.7, **options):
    torch.manual_seed(0)
    layer = KINDS[axes](2, 3, 3, branches, stride, padding=1, **options).double()
    with torch.no_grad():
        layer.mix.normal_()
    return layer


def resized(y, size, norm="forward"):
    """What zeros for the frequencies that are not there make, or a cut, axis by axis."""
    for dim, made in enumerate(size, y.ndim - len(size)):
        few = min(y.shape[dim], made)
        matrix = torch.zeros(made, y.shape[dim], dtype=y.dtype)
        for f, wave in oracle.fourier_waves(y.shape[dim], made):
            if f <= few // 2:
                matrix += torch.from_numpy(wave)
        gain = {"forward": made / y.shape[dim], "ortho": math.sqrt(made / y.shape[dim])}[norm]
        y = (y.movedim(dim, -1) @ (matrix * gain).T).movedim(-1, dim)
    return y


def slowly(layer, x, norm="forward"):
    """The layer by its definition: a sum over all frequencies for each branch.

    Strides are given to it as numbers; their gradients come from the oracle, apart.
    """
    size, maps, axes_of = x.shape[2:], [], []
    for branch in layer.branches:
        y = CONVOLVE[len(size)](x, branch.weight, branch.bias, padding=1)
        options = TIGHT | {"norm": norm}
        made = [oracle.axis(n, s, **options) for n, s in zip(size, branch.strides, strict=True)]
        for dim, axis in enumerate(made, 2):
            y = (y.movedim(dim, -1) @ torch.from_numpy(axis.matrix).T).movedim(-1, dim)
        maps.append(y)
        axes_of.append(made)
    weights = layer.mix.exp() / layer.mix.exp().sum()
    grid = maps[0].shape[2:]
    return sum(w * resized(y, grid, norm) for w, y in zip(weights, maps, strict=True)), axes_of


@pytest.mark.parametrize(("axes", "size"), CASES)
@pytest.mark.parametrize("norm", ["forward", "ortho"])
def test_it_is_its_definition_with_all_gradients(axes, size, norm):
    layer = layer_of(axes, norm=norm)
    x = torch.randn(2, 2, *size, dtype=torch.float64, requires_grad=True)
    y, (expected, axes_of) = layer(x), slowly(layer, x, norm)
    assert tuple(y.shape[2:]) == layer.output_size(size) == tuple(expected.shape[2:])
    torch.testing.assert_close(y, expected, rtol=1e-10, atol=1e-10)
    strides = [branch.stride for branch in layer.branches]
    others = [p for p in layer.parameters() if not any(p is s for s in strides)]
    g = torch.randn_like(y)
    found = torch.autograd.grad(y, [x, *others, *strides], g)
    exact = torch.autograd.grad(expected, [x, *others], g, retain_graph=True)
    for a, b in zip(found, exact, strict=False):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)
    # What reaches each branch goes back through its resize and weight, and into the stride.
    weights = layer.mix.softmax(0).detach()
    for i, (branch, made) in enumerate(zip(layer.branches, axes_of, strict=True)):
        kept = torch.zeros(2, 3, *(len(axis.matrix) for axis in made), dtype=torch.float64)
        kept.requires_grad_()
        (back,) = torch.autograd.grad(resized(kept, y.shape[2:], norm) * weights[i], kept, g)
        z = CONVOLVE[axes](x, branch.weight, branch.bias, padding=1).detach().numpy()
        gradient = found[1 + len(others) + i]
        for which in range(axes):
            choices = oracle.stride_gradients(made, which, z, back.numpy())
            off = min(abs(choice - gradient[which].item()) for choice in choices)
            assert off <= 1e-10 * max(1.0, *map(abs, choices))


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_numerical_gradients(axes):
    layer = layer_of(axes, branches=2)
    x = torch.randn(1, 2, *(5, 4, 3)[:axes], dtype=torch.float64, requires_grad=True)
    names = [name for name, _ in layer.named_parameters() if not name.endswith("stride")]
    values = [layer.get_parameter(name) for name in names]

    def run(x, *values):
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), x)

    assert torch.autograd.gradcheck(run, (x, *values))


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_the_weight_of_one_branch_leaves_that_branch_alone(axes):
    x = torch.randn(2, 2, *(13, 12, 9)[:axes], dtype=torch.float64)
    for i in range(3):
        layer = layer_of(axes)
        with torch.no_grad():
            layer.mix.fill_(-math.inf)[i] = 0.0
        alone = layer.branches[i](x)
        torch.testing.assert_close(layer(x), resized(alone, layer(x).shape[2:]))
        if i == 0:
            assert torch.equal(layer(x), alone)


@pytest.mark.parametrize("norm", ["forward", "ortho", "backward"])
def test_branches_change_constants_by_one_factor(norm):
    layer = layer_of(norm=norm, bias=False, padding_mode="circular")
    with torch.no_grad():
        for branch in layer.branches:
            branch.weight.fill_(1 / branch.weight[0].numel())
    x = torch.ones(1, 2, 15, 18, dtype=torch.float64)
    y = layer(x)
    fewer = 15 * 18 / y[0, 0].numel()
    factor = {"forward": 1.0, "ortho": math.sqrt(fewer), "backward": fewer}[norm]
    torch.testing.assert_close(y, torch.full_like(y, factor))


def test_it_begins_with_strides_that_differ_and_equal_weights():
    layer = MultiScale2d(2, 3, 3, branches=3, stride=(1.5, 2.0), spread=2.0)
    assert layer.strides == ((1.5, 2.0), (3.0, 4.0), (6.0, 8.0))
    torch.testing.assert_close(layer.weights, torch.full((3,), 1 / 3))
    assert MultiScale1d(2, 3, 3, spread=1).strides == ((2.0,), (2.0,))
    assert MultiScale1d(1, 1, 1, branches=2).mix.shape == (2,)
    names = {name for name, _ in layer.named_parameters()}
    kinds = ("weight", "bias", "downsample.stride")
    assert names == {"mix", *(f"branches.{i}.{kind}" for i in range(3) for kind in kinds)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_copies_states_and_inputs_without_a_batch(axes, dtype):
    layer = layer_of(axes).to(dtype)
    x = torch.randn(2, 2, *(13, 12, 9)[:axes], dtype=dtype)
    y = layer(x)
    assert y.dtype == dtype
    torch.testing.assert_close(layer(x[0]), y[0])
    copied, pickled = copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))
    buffer = io.BytesIO()
    torch.save(layer, buffer)
    buffer.seek(0)
    saved = torch.load(buffer, weights_only=False)
    loaded = KINDS[axes](2, 3, 3, 3, padding=1, dtype=dtype)
    loaded.load_state_dict(layer.state_dict())
    small = layer(x[..., :5])  # the others must not go by what this one has made
    for other in (copied, pickled, saved, loaded):
        assert torch.equal(other(x), y)
    assert torch.equal(copied(x[..., :5]), small)


def test_it_is_the_same_compiled():
    layer = layer_of().eval()
    compiled = torch.compile(layer, backend="eager", fullgraph=True, dynamic=False)
    for size in ((13, 10), (16, 11)):
        x = torch.randn(2, 2, *size, dtype=torch.float64)
        torch.testing.assert_close(compiled(x), layer(x))


@pytest.mark.filterwarnings("ignore:.torch.jit")
def test_it_is_the_same_traced():
    layer = layer_of().eval()
    traced = torch.jit.trace(layer, torch.randn(2, 2, 13, 10, dtype=torch.float64))
    layer(torch.randn(2, 2, 9, 8, dtype=torch.float64))  # the trace must not go by its size
    x = torch.randn(3, 2, 13, 10, dtype=torch.float64)
    torch.testing.assert_close(traced(x), layer(x))


def test_it_trains_from_three_beginnings():
    x = torch.randn(64, 2, 24)
    target = F.conv1d(x, torch.randn(3, 2, 3), padding=1)
    for stride, spread in ((1.5, 1.0), (2.0, 1.5), (3.0, 1.2)):
        torch.manual_seed(0)
        layer = MultiScale1d(2, 3, 3, 2, stride, spread=spread, padding=1, output_size=24)
        before, losses = layer.strides, []
        optimiser = torch.optim.Adam(parameter_groups(layer, 0.02, 0.0, stride_lr=0.05))
        for _ in range(60):
            loss = F.mse_loss(layer(x), target)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        assert losses[-1] < 0.7 * losses[0]
        for (old,), (new,) in zip(before, layer.strides, strict=True):
            assert abs(new - old) > 0.05
        assert layer.mix.detach().abs().min() > 0


def network(axes=2):
    kind = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[axes]
    layer = layer_of(axes, stride=2.0).float()
    return nn.Sequential(layer, nn.ReLU(), kind(3, 2, 1))


def macs_of_resampling(channels, size, kept):
    """Products with one matrix for each axis, in the cheaper of both orders."""
    (h, w), (m, n) = size, kept
    return channels * min(m * h * w + n * m * w, n * h * w + m * h * n)


def test_it_is_counted():
    """By hand: with a kernel of 1 every branch convolves what is left, which is less work."""
    layer = MultiScale2d(2, 5, 1, 3, 2.0)
    size, kept = (24, 18), [(12, 9), (8, 6), (5, 4)]
    counted = cost(layer, (2, *size))
    macs = [macs_of_resampling(2, size, k) + 2 * 5 * math.prod(k) for k in kept]
    up = [macs_of_resampling(5, k, kept[0]) for k in kept[1:]]
    assert {use.name: use.macs for use in counted.layers} == {
        **{f"branches.{i}": n for i, n in enumerate(macs)},
        **{f"to_grid.{i}": n for i, n in enumerate(up)},
    }
    assert counted.macs == sum(macs) + sum(up)
    alike = MultiScale2d(2, 5, 1, 2, 2.0, spread=1)  # nothing to resize
    assert cost(alike, (2, *size)).macs == 2 * macs[0]


def test_costs_follow_strides_and_sizes():
    model = network()
    costs = CostModel(model, (2, 33, 40))
    for size in ((2, 33, 40), (2, 50, 31)):
        assert costs.at(input_size=size).macs == cost(model, size).macs
    other = {name: (1.3 + i, 2.2) for i, name in enumerate(costs.layers)}
    assert len(other) == 3
    expected = costs.at(other).macs
    for name, layer in costs.layers.items():
        with torch.no_grad():
            layer.stride.copy_(torch.tensor(other[name]))
    assert cost(model, (2, 33, 40)).macs == expected
    soft_macs(model, (2, 33, 40)).backward()
    assert all(branch.stride.grad.max() < 0 for branch in model[0].branches)


def test_branches_do_not_add_up():
    """In front and behind are strides of 2: the branches between are not one after the other."""
    layer = MultiScale2d(2, 2, 1, 3, (2.0, 3.0), spread=1.5)
    model = nn.Sequential(DiffStride2d(2.0, smoothness=0.0), layer, DiffStride2d(2.0))
    table = stride_table(model, (2, 96, 144))
    assert table.global_strides == (8, 12)
    cutoffs = [1 / 4, 1 / 8, 1 / 12, 1 / 18, 1 / 16]
    assert [row.cutoff[0] for row in table.rows] == pytest.approx(cutoffs)
    assert [row.is_beside for row in table.rows] == [False, False, True, True, False]
    areas = 1 / 4 + sum(1 / (4 * 6 * 1.5 ** (2 * i)) for i in range(3)) + 1 / (4 * 6 * 4)
    assert stride_penalty(model).item() == pytest.approx(areas)
    stride_penalty(model).backward()
    assert all(branch.stride.grad.max() < 0 for branch in layer.branches)


def test_a_budget_holds():
    model = network()
    limit = 0.6 * cost(model, (2, 33, 40)).macs
    before = model[0].strides
    Budget(model, (2, 33, 40), macs=limit).hold()
    assert cost(model, (2, 33, 40)).macs == pytest.approx(limit, rel=0.02)
    for old, new in zip(before, model[0].strides, strict=True):
        assert all(b > a for a, b in zip(old, new, strict=True))


@pytest.mark.parametrize("axes", [1, 3])
def test_frozen_and_in_a_file_it_is_the_same(axes, tmp_path):
    model, size = network(axes).eval(), (2, *(13, 12, 9)[:axes])
    x = torch.randn(2, *size)
    expected = model(x).detach()
    frozen = freeze(model, size)
    assert not list(resizers(frozen))
    torch.testing.assert_close(frozen(x), expected, rtol=1e-4, atol=1e-5)
    path = export_onnx(model, tmp_path / "model.onnx", size)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (written,) = session.run(None, {"input": x.numpy()})
    torch.testing.assert_close(torch.from_numpy(written), expected, rtol=1e-4, atol=1e-5)


def test_with_whole_strides_branches_still_meet():
    model = network()
    plain = freeze(model, (2, 21, 24), integer_strides=True)
    assert [branch.stride for branch in plain[0].branches] == [(2, 2), (3, 3), (4, 4)]
    assert plain(torch.randn(1, 2, 21, 24)).shape == (1, 2, 11, 12)


def test_a_plan_keeps_its_strides():
    model = network().eval()
    fixed = StridePlan.of(model, (2, 20, 24)).apply(model)
    x = torch.randn(1, 2, 20, 24)
    assert fixed(x).shape == model(x).shape
    assert not [p for name, p in fixed.named_parameters() if name.endswith("stride")]


def test_what_is_wrong_is_said():
    for options, said in (
        ({"branches": 1}, "branches must be at least 2, got 1: of one, use DiffStrideConv2d"),
        ({"spread": 0.5}, "spread must be at least 1, got 0.5"),
        ({"stride": 0.5}, "stride must be at least 1"),
        ({"max_stride": 2.5}, "stride must be from min_stride to max_stride"),
    ):
        with pytest.raises(ValueError, match=said):
            MultiScale2d(1, 1, 3, **options)
    with pytest.raises(ValueError, match="input must be"):
        MultiScale2d(1, 1, 3)(torch.zeros(4, 4))
