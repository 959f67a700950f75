"""All points of a space cost the same, however they are chosen."""

import math
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from diffstride import Budget, DiffStride1d, DiffStride2d, DiffStride3d, cost, soft_macs
from diffstride.layers.resizer import learned_strides
from diffstride.strides.space import StrideSpace

LAYERS = {1: DiffStride1d, 2: DiffStride2d, 3: DiffStride3d}
CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


def network(axes, layers=2, **options):
    """Downsampling before each of some convolutions, with as many channels as keep the cost."""
    options = {"smoothness": 0.0, "convention": "tight"} | options
    parts = []
    for i in range(layers):
        parts.append(LAYERS[axes](2.0, **options))
        parts.append(CONVOLUTIONS[axes](2 * 2**i, 2 * 2 ** (i + 1), 3, padding=1))
    return nn.Sequential(*parts)


NETWORKS = {
    "signals": (lambda: network(1, 3), (2, 2000)),
    "images": (lambda: network(2), (2, 96, 96)),
    "not square": (lambda: network(2), (2, 64, 160)),
    "volumes": (lambda: network(3, 1), (2, 48, 48, 48)),
    "shared": (lambda: network(2, shared=True), (2, 256, 256)),
    "bounds": (lambda: network(2, min_stride=1.2, max_stride=3.0), (2, 96, 96)),
    "with ramps": (lambda: network(2, smoothness=2.0, convention="paper"), (2, 96, 96)),
    "half": (lambda: network(2).to(torch.float16), (2, 96, 96)),
}


def space_of(name, part=0.6):
    """The space of a network between its least cost (part 0) and its most (part 1)."""
    make, size = NETWORKS[name]
    model = make()
    free = Budget(model, size, macs=math.inf, spend=False)
    least = max(free.least, free.most / 50)  # more would leave maps of a few samples
    return StrideSpace(Budget(model, size, macs=least * (free.most / least) ** part))


def check(space, point):
    """A point costs what it should, is within all bounds, and so is the network there."""
    limit = space.budget.limit
    assert space.budget.cost_at(point) == pytest.approx(limit, rel=0.02)
    for x, (low, high) in zip(point, space.budget.variables.bounds, strict=True):
        assert low <= x <= high
    space.write(point)
    network, size = space.budget.model.model, space.budget.model.input_size
    assert cost(network, size).macs == space.budget.cost == space.budget.cost_at(point)
    for layer in learned_strides(network).values():
        highest = layer.max_stride or math.inf
        assert all(layer.min_stride - 1e-3 <= s <= highest + 1e-3 for s in layer.stride.tolist())


@pytest.mark.parametrize("name", NETWORKS)
@given(seed=st.integers(0, 10_000), part=st.floats(0.5, 0.9))
@settings(max_examples=10)
def test_every_point_costs_what_the_budget_says(name, seed, part):
    space, numbers = space_of(name, part), Random(seed)
    one, other = space.random(numbers), space.random(numbers)
    between = space.between(one, other, 0.2, numbers)
    anywhere = [numbers.uniform(-1, 3) for _ in range(len(space))]
    for point in (one, other, between, space.fitted(anywhere)):
        check(space, point)


@given(direction=st.lists(st.floats(0.1, 1.0), min_size=3, max_size=3))
@settings(max_examples=20)
def test_logarithms_are_in_the_ratios_of_a_direction(direction):
    space = space_of("signals")
    point = space.towards(direction)
    check(space, point)
    scale = sum(point) / sum(direction)
    assert point == pytest.approx([scale * part for part in direction], abs=0.02)


def test_a_stride_without_a_part_stays_at_1():
    space = space_of("images", 0.7)
    first, *others = space.towards([0.0, 1.0, 0.5, 1.0])
    assert first == 0
    assert min(others) > 0.1
    point = space_of("bounds", 0.9).towards([0.0, 1.0, 0.0, 1.0])
    assert point[0] == pytest.approx(math.log(1.2))  # as far as its range allows


@pytest.mark.parametrize("name", NETWORKS)
def test_the_same_numbers_make_the_same_points(name):
    """Also in another process, which has another network of its own."""
    points = []
    for _ in range(2):
        space, numbers = space_of(name), Random(7)
        points.append([space.random(numbers), space.random(numbers)])
        points[-1].append(space.between(*points[-1], 0.3, numbers))
        space.write(space.random(Random(1)))  # where the network is makes no difference
        assert space.random(Random(7)) == points[-1][0]
    assert points[0] == points[1]
    assert points[0][0] != points[0][1]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_on_a_jump_a_network_has_the_size_that_was_counted(dtype):
    """A stride of N/M is rounded as its parameter is, to one side of the jump or the other."""
    model = nn.Sequential(
        DiffStride1d(2.0, smoothness=0.0, convention="tight"), nn.Conv1d(1, 4, 3, padding=1)
    ).to(dtype)
    space = StrideSpace(Budget(model, (1, 96), macs=500))
    for kept in range(1, 97):
        for point in ((math.log(96 / kept),), (math.nextafter(math.log(96 / kept), 0),)):
            counted = space.budget.cost_at(point)
            space.write(point)
            assert space.budget.cost == counted == cost(model, (1, 96)).macs
            assert space.budget.cost_at(space.read()) == counted
            assert space.budget.cost_at(point) == counted


def test_layers_of_several_precisions():
    model = nn.Sequential(nn.Conv2d(1, 2, 1), *network(2))
    model[1].to(torch.float16)
    model[3].to(torch.float64)
    space = StrideSpace(Budget(model, (1, 96, 96), macs=400_000))
    for seed in range(20):
        point = space.random(Random(seed))
        space.write(point)
        assert space.budget.cost == space.budget.cost_at(point) == pytest.approx(4e5, rel=0.02)


def test_what_is_fixed_is_no_part_of_a_point():
    model = network(2)
    budget = Budget(model, (2, 96, 96), macs=1_800_000, fixed=["0"])
    space = StrideSpace(budget)
    assert len(space) == len(space.read()) == 2
    check(space, space.random(Random(0)))
    assert model[0].strides == (2.0, 2.0)


def test_a_budget_that_need_not_be_spent_is_refused():
    with pytest.raises(ValueError, match="a budget that is spent, got one with spend=False"):
        StrideSpace(Budget(network(2), (2, 96, 96), macs=500_000, spend=False))


def uneven(model):
    """The layers of a network, each stride of which is another."""
    layers = list(learned_strides(model).values())
    with torch.no_grad():
        for i, layer in enumerate(layers):
            layer.stride.copy_(1.3 + 0.37 * i + 0.21 * torch.arange(layer.stride.numel()))
    return layers


@pytest.mark.parametrize("name", ["signals", "images", "volumes", "shared", "with ramps"])
def test_slopes_are_those_of_the_soft_cost(name):
    make, size = NETWORKS[name]
    model = make()
    strides = [layer.stride for layer in uneven(model)]
    budget = Budget(model, size, macs=math.inf, spend=False)
    *found, none = budget.slopes([*strides, nn.Parameter(torch.ones(2))])
    assert none.tolist() == [0.0, 0.0]
    soft_macs(model, size).backward()
    for stride, slopes in zip(strides, found, strict=True):
        assert slopes.dtype == torch.float64
        wanted = (stride * stride.grad).tolist()
        assert slopes.tolist() == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize(
    ("make", "size"),
    [
        (lambda: network(1, 3), (2, 100_000)),
        (lambda: network(2, 1), (2, 3000, 2000)),
        (lambda: network(2, 2, shared=True), (2, 2000, 2000)),
    ],
)
def test_slopes_tell_what_the_cost_does_where_sizes_are_large(make, size):
    model = make()
    strides = [layer.stride for layer in uneven(model)]
    budget = Budget(model, size, macs=math.inf, spend=False)
    slopes = torch.cat(budget.slopes(strides)).tolist()
    point = budget.variables.read()
    for i, slope in enumerate(slopes):
        ends = [
            budget.cost_at([x + step * (i == j) for j, x in enumerate(point)])
            for step in (0.02, -0.02)
        ]
        assert slope == pytest.approx((ends[0] - ends[1]) / 0.04, rel=0.03)


def test_strides_at_random_avoid_jumps_of_the_cost():
    """Maps here have two samples or three: one more is a third of what the second layer costs."""
    model = nn.Sequential(*network(1, 2, max_stride=8.0), nn.Conv1d(8, 64, 3, padding=1))
    space = StrideSpace(Budget(model, (2, 24), macs=5_000))
    drawn = [space.anywhere(Random(i)) for i in range(40)]
    found = [space.random(Random(i)) for i in range(40)]
    assert not all(map(space.keeps, drawn))
    for i, point in enumerate(found):
        assert (point == drawn[i]) == space.keeps(drawn[i])
        check(space, point)


def test_where_no_strides_keep_a_budget_any_are_taken():
    """A sample more or less is 38 multiply-accumulates, and the budget is in between."""
    space = StrideSpace(Budget(network(1, 1), (2, 7), macs=60))
    costs = {space.budget.cost_at((math.log(7 / m),)) for m in range(1, 8)}
    assert all(abs(cost / 60 - 1) > 0.02 for cost in costs)
    assert space.random(Random(0)) == space.anywhere(Random(0))
