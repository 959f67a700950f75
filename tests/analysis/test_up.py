"""Costs, budgets, penalties and tables of networks that come up again."""

import math

import pytest
import torch
from torch import nn

from diffstride import (
    Budget,
    CostModel,
    DiffStride2d,
    DiffStrideConv2d,
    DiffUpsample1d,
    DiffUpsample2d,
    SpectralPool2d,
    SpectralUpsample2d,
    StrideOptimizer,
    cost,
    fit_budget,
    parameter_groups,
    soft_macs,
    stride_penalty,
    stride_table,
)
from diffstride.analysis.budget import least_macs
from tests.small_networks import UNet, conv

SIZE = (4, 16, 13)
PAPER = {"convention": "paper", "smoothness": 2.0}


def decoder():
    return nn.Sequential(
        conv(),
        DiffUpsample2d(2.0),
        nn.ReLU(),
        conv(),
        DiffStride2d(1.5, smoothness=1.0, convention="tight"),
        conv(),
        SpectralUpsample2d(1.7),
        conv(),
        DiffUpsample2d((1.3, 2.2), **PAPER),
        conv(),
    ).eval()


def by_hand(model, x):
    """Multiply-accumulates from the sizes of a run: of convolutions, and of products by axis."""
    total = 0
    for layer in model:
        size, x = x.shape[2:], layer(x)
        (n, k), (m, l) = size, x.shape[2:]  # noqa: E741
        if isinstance(layer, nn.Conv2d):
            total += layer.weight.numel() * m * l
        elif not isinstance(layer, nn.ReLU):
            total += x.shape[1] * min(m * n * k + m * k * l, n * k * l + m * n * l)
    return total


@pytest.mark.parametrize("size", [(16, 13), (7, 32), (5, 5)])
@pytest.mark.parametrize("stride", [1.0, 1.9, 2.0, 2.7])
def test_costs_are_those_of_the_sizes_that_come_out(size, stride):
    model, other = decoder(), decoder()
    with torch.no_grad():
        other[1].stride.fill_(stride)
        other[8].stride[0] = stride
    expected = by_hand(other, torch.zeros(1, 4, *size))
    assert cost(other, (4, *size)).macs == expected
    costs = CostModel(model, SIZE)
    strides = {"1": other[1].strides, "8": other[8].strides}
    assert costs.value("macs", strides, (4, *size)) == expected
    assert len(costs._evaluations) == 1  # by formulas, without another run


def test_long_axes_are_counted_as_the_fft_that_they_are():
    model = nn.Sequential(DiffUpsample1d(2.0))
    assert cost(model, (3, 1000)).macs == 3 * (1000 * 10 + 2000 * 11)
    assert cost(nn.Sequential(DiffUpsample1d(2.0, path="operator")), (3, 1000)).macs == 6_000_000


def test_slopes_are_those_of_sizes_that_are_not_rounded():
    """Where sizes are whole, of a cost whose sizes are S·N, and S·(N − 2R) if not tight."""
    model = nn.Sequential(DiffUpsample2d((2.0, 3.0)), conv(4))
    value, slopes = CostModel(model, SIZE).gradient("activations")
    assert value == 2 * 4 * 32 * 39
    assert slopes["0"] == pytest.approx((value / 2, value / 3))
    model = nn.Sequential(DiffUpsample2d((2.0, 3.0), **PAPER), conv(4))
    value, slopes = CostModel(model, SIZE).gradient("activations")
    assert value == 2 * 4 * 24 * 27
    assert slopes["0"] == pytest.approx((value / 2, value / 3))
    model[0].smoothness = 8.0  # no room: both axes stay as long as they are
    value, slopes = CostModel(model, SIZE).gradient("activations")
    assert (value, slopes["0"]) == (2 * 4 * 16 * 13, (0.0, 0.0))


def test_more_of_a_stride_costs_more_on_the_way_up_and_less_on_the_way_down():
    model = decoder()
    soft_macs(model, SIZE).backward()
    assert (model[1].stride.grad > 0).all()
    assert (model[4].stride.grad < 0).all()
    assert (model[8].stride.grad > 0).all()


@pytest.mark.parametrize("size", [(33, 37), (64, 20), (17, 17)])
@pytest.mark.parametrize("strides", [(2.0, 2.0), (3.1, 1.7), (1.0, 5.0)])
def test_what_is_undone_has_the_size_of_before_in_formulas_too(size, strides):
    network, other = UNet(2.0), UNet(2.0)
    costs = CostModel(network, (1, 33, 37))
    for layer in (other.down, other.deeper):
        with torch.no_grad():
            layer.stride.copy_(torch.tensor(strides))
    given = {"down": strides, "deeper": strides}
    found = costs.at(given, (1, *size))
    assert found.macs == cost(other, (1, *size)).macs
    ups = {use.name: use.output_size for use in found.layers if "up" in use.name}
    assert ups == {"up": size}
    assert len(costs._evaluations) == 1
    slopes = costs.gradient("macs", given, (1, *size))[1]
    assert all(slope < 0 for each in slopes.values() for slope in each)


def test_a_layer_that_undoes_keeps_nothing_for_the_backward_pass():
    down = SpectralPool2d(2)
    model = nn.Sequential(down, nn.ReLU(), down.up())
    assert cost(model, (3, 16, 16)).bytes == 4 * 3 * 8 * 8  # the ReLU's


def test_asking_leaves_a_network_as_it_was():
    network = UNet(2.0)
    before = {name: dict(vars(module)) for name, module in network.named_modules()}
    cost(network, (1, 33, 37))
    stride_table(network, (1, 33, 37))
    assert before == {name: vars(module) for name, module in network.named_modules()}
    x = torch.randn(1, 1, 20, 21)
    assert network(x).shape == x.shape


@pytest.mark.parametrize("part", [0.5, 0.8, 1.3])
@pytest.mark.parametrize("spend", [True, False])
def test_a_budget_holds(part, spend):
    model = decoder()
    before = [model[i].strides for i in (1, 4, 8)]
    limit = part * cost(model, SIZE).macs
    budget = Budget(model, SIZE, macs=limit, spend=spend)
    budget.hold()
    found = cost(model, SIZE).macs
    assert found <= 1.01 * limit
    if spend:
        assert found >= 0.99 * limit
    after = [model[i].strides for i in (1, 4, 8)]
    if part < 1:  # up less far, down further; of one axis, to be exact, perhaps the other way
        first, down, last = (
            math.prod(a) / math.prod(b) for a, b in zip(after, before, strict=True)
        )
        assert first < 1
        assert down > 1
        assert last < 1
    elif not spend:
        assert after == before
    assert budget.least < limit < budget.most


def test_budgets_of_u_nets_and_their_ends():
    network = UNet(1.5)
    fit_budget(network, (1, 33, 37), 500_000)
    assert cost(network, (1, 33, 37)).macs <= 500_000
    model = decoder()
    least = least_macs(model, SIZE)
    with torch.no_grad():
        model[1].stride.fill_(1.0)
        model[4].stride.fill_(100.0)
        model[8].stride.fill_(1.0)
    assert cost(model, SIZE).macs == least
    with pytest.raises(ValueError, match=r"can't be met: whatever its strides, .* 0\.0"):
        Budget(decoder(), SIZE, macs=1000)


def test_strides_follow_their_gradient_within_a_budget():
    model = decoder().train()
    budget = Budget(model, SIZE, macs=0.8 * cost(model, SIZE).macs)
    strides = StrideOptimizer(model, lr=0.05, steps=10, budget=budget)
    before = [layer.strides for layer in strides.layers]
    for _ in range(10):
        model(torch.randn(4, *SIZE)).square().mean().backward()
        strides.step()
        strides.zero_grad()
    assert [layer.strides for layer in strides.layers] != before
    assert budget.cost == pytest.approx(budget.limit, rel=0.01)


def test_the_penalty_divides_by_strides_on_the_way_up():
    model = nn.Sequential(DiffStride2d(2.0), DiffUpsample2d((2.0, 1.5)), DiffStride2d((1.0, 4.0)))
    penalty = stride_penalty(model)
    assert penalty.item() == pytest.approx(1 / 4 + 3 / 4 + 3 / 16)
    penalty.backward()
    assert (model[1].stride.grad > 0).all()
    assert (model[2].stride.grad < 0).all()
    assert stride_penalty([model[2], model[0]]).item() == pytest.approx(1 / 4 + 1 / 16)


def test_the_penalty_of_what_is_undone_is_as_before_it():
    network = UNet(2.0)
    assert stride_penalty(network).item() == pytest.approx(1 / 4 + 1 / 16 + 1 / 4 + 1)
    stride_penalty(network).backward()
    assert (network.deeper.stride.grad < 0).all()
    wrapped = DiffStrideConv2d(1, 2, 3, stride=2.0)
    model = nn.Sequential(wrapped, wrapped.up(), SpectralPool2d(2))
    assert stride_penalty(model).item() == pytest.approx(1 / 4 + 1)
    pool = SpectralPool2d(2)
    assert stride_penalty(nn.Sequential(pool, pool.up())).item() == 0


def test_strides_of_the_way_up_never_decay():
    groups = parameter_groups(decoder(), 0.1, 0.01, stride_lr=1.0)
    assert [len(group["params"]) for group in groups if group["name"] == "strides"] == [3]


def test_the_table_has_the_way_up_as_strides_below_one():
    table = stride_table(decoder(), SIZE)
    assert [row.site for row in table.rows] == ["1", "4", "6", "8"]
    up, down, fixed, last = table.rows
    assert up.strides == (0.5, 0.5)
    assert (up.input_size, up.output_size) == ((16, 13), (32, 26))
    assert max(up.saved) < 0 < min(down.saved)
    assert fixed.saved is None
    assert last.strides == pytest.approx((1 / 1.3, 1 / 2.2))
    assert {row.cutoff for row in table.rows} == {(0.5, 0.5)}  # all that there was comes through
    assert table.global_strides == pytest.approx((1.5 / 2 / 1.7 / 1.3, 1.5 / 2 / 1.7 / 2.2))


def test_windows_on_the_way_up_have_a_cut_off_too():
    layer = DiffUpsample1d(2.0, convention="paper", smoothness=4.0)
    (row,) = stride_table(nn.Sequential(layer), (3, 24)).rows
    assert row.cutoff == (8 / 24,)  # 32 / (2 · 2) periods, from where the window falls up to 12
    (row,) = stride_table(nn.Sequential(DiffUpsample1d(1.7)), (3, 24)).rows
    assert row.cutoff == (0.5,)


def test_the_table_of_a_u_net():
    table = stride_table(UNet(2.0), (1, 33, 37))
    assert [row.site for row in table.rows] == ["down", "deeper", "from_bottom", "up"]
    assert table.global_strides == (1.0, 1.0)
    assert table.rows[-1].output_size == (33, 37)
    assert table.rows[-1].saved is None
    fixed = SpectralPool2d(output_size=(8, 10))
    rows = stride_table(nn.Sequential(fixed, nn.ReLU(), fixed.up()), (1, 32, 20)).rows
    assert rows[1].strides == (1 / 4, 1 / 2)
