"""A budget that is spent is met from both sides, step after step, with the least change."""

import copy
import itertools
import math

import pytest
import torch
from torch import nn

from diffstride import Budget, CostModel, DiffStride1d, DiffStride2d, convert, cost, models
from diffstride.analysis.budget import least_macs
from diffstride.layers.resizer import learned_strides

SIZE = (3, 32, 32)


def create(name, strides=None, **options):
    options = {"smoothness": 1.0, "convention": "symmetric", "width": 0.125} | options
    return models.create(name, num_classes=10, in_channels=3, strides=strides, **options)


def converted(**options):
    strided = create("resnet18", downsampling="strided")
    return convert(strided, torch.rand(1, *SIZE), **options)[0]


BEGINNINGS = {
    "alike": lambda: create("resnet18"),
    "all at 1": lambda: create("resnet18", (1, 1, 1)),
    "late": lambda: create("resnet18", (1, 1, 6)),
    "early": lambda: create("resnet18", (4, 1.5, 1)),
    "one axis": lambda: create("resnet18", ((3, 1), (3, 1), (1, 3))),
    "tight": lambda: create("resnet18", convention="tight"),
    "paper": lambda: create("resnet18", convention="paper", smoothness=2.0),
    "before": lambda: create("resnet18", placement="before", convention="tight"),
    "shared": lambda: create("resnet18", shared=True),
    "multiples": lambda: create("audio_cnn", size_multiple=2),
    "limited": lambda: create("resnet18", min_stride=1.2, max_stride=3.0),
    "half": lambda: create("resnet18").to(torch.float16),
    "preact": lambda: create("preact_resnet18", (2, 3, 1.5)),
    "deep": lambda: create("preact_resnet56"),
    "dense": lambda: create("densenet121"),
    "efficient": lambda: create("efficientnet_b0", stem="cifar"),
    "efficient, before": lambda: create("efficientnet_b0", stem="cifar", placement="before"),
    "sound": lambda: create("audio_cnn"),
    "converted": lambda: converted(),
    "converted, before": lambda: converted(placement="before"),
}


def step(model, generator, size=0.02):
    """Move strides at random, as a step of an optimiser does: also out of their range."""
    with torch.no_grad():
        for layer in learned_strides(model).values():
            noise = torch.randn(layer.stride.shape, generator=generator).to(layer.stride.dtype)
            layer.stride.mul_((size * noise).exp())


def strides(model):
    return [layer.strides for layer in learned_strides(model).values()]


@pytest.mark.slow
@pytest.mark.parametrize("name", BEGINNINGS)
def test_the_cost_is_at_the_budget_after_every_step(name):
    model = BEGINNINGS[name]()
    size = (3, 64, 64)
    least, most = (CostModel(model, size).value("macs", _all(model, s)) for s in (1e6, 1.0))
    used = cost(model, size).macs
    macs = min(max(used, 1.1 * least), 0.9 * most)
    budget, generator = Budget(model, size, macs=macs), torch.Generator().manual_seed(0)
    for _ in range(200):
        step(model, generator)
        budget.hold()
        assert budget.cost == pytest.approx(macs, rel=0.02)
    assert cost(model, size).macs == budget.cost
    for layer in learned_strides(model).values():
        values = layer.stride.tolist()
        assert tuple(values) == layer.strides[: len(values)]  # within their range


def _all(model, stride):
    """Return one stride for all layers, as far as each may go."""
    return {
        name: min(max(stride, layer.min_stride), layer.max_stride or math.inf)
        for name, layer in learned_strides(model).items()
    }


@pytest.mark.parametrize("name", ["alike", "late", "sound", "half", "shared"])
@pytest.mark.parametrize("spend", [True, False])
def test_what_is_held_stays(name, spend):
    model = BEGINNINGS[name]()
    budget = Budget(model, SIZE, macs=0.9 * cost(model, SIZE).macs, spend=spend)
    budget.hold()
    held = [layer.stride.clone() for layer in learned_strides(model).values()]
    again = Budget(copy.deepcopy(model), SIZE, macs=budget.limit, spend=spend)
    for _ in range(20):
        budget.hold()
    again.hold()  # nor does it depend on what was held before
    for network in (budget.model.model, again.model.model):
        now = [layer.stride for layer in learned_strides(network).values()]
        assert all(torch.equal(a, b) for a, b in zip(held, now, strict=True))


def test_strides_come_back_when_there_is_more_to_spend():
    model = create("resnet18")
    used = cost(model, SIZE).macs
    Budget(model, SIZE, macs=used / 2).hold()
    small = strides(model)
    Budget(model, SIZE, macs=used).hold()
    assert cost(model, SIZE).macs == pytest.approx(used, rel=0.02)
    pairs = zip(strides(model), small, strict=True)
    assert all(a < b for one, other in pairs for a, b in zip(one, other, strict=True))
    before = strides(model)
    Budget(model, SIZE, macs=used * 1.5, spend=False).hold()  # at most: nothing to do
    assert strides(model) == before


def test_the_nearest_that_sizes_allow():
    """On a map of 8 × 8, where a sample is a tenth of the cost and more."""
    for limit, seed in itertools.product((4_000, 7_000, 9_500, 12_000), range(8)):
        model = nn.Sequential(
            DiffStride2d(2.0, smoothness=0.5, convention="symmetric"),
            nn.Conv2d(3, 16, 3, padding=1),
        )
        step(model, torch.Generator().manual_seed(seed), size=0.3)
        budget = Budget(model, (3, 8, 8), macs=limit)
        budget.hold()
        size = model[0].output_size((8, 8))
        around = itertools.product(*(range(max(1, n - 1), min(8, n + 1) + 1) for n in size))
        possible = [_macs_of(*pair) for pair in around]
        assert _macs_of(*size) == budget.cost
        nearest = min(abs(macs - limit) for macs in possible)
        assert abs(budget.cost - limit) <= max(nearest, 0.01 * limit)


def _macs_of(height, width):
    model = nn.Sequential(
        DiffStride2d(2.0, output_size=(height, width)), nn.Conv2d(3, 16, 3, padding=1)
    )
    return cost(model, (3, 8, 8)).macs


def test_the_change_is_the_least_in_logarithms():
    """Of two strides in a row on long signals, against all changes that meet the budget."""
    model = nn.Sequential(
        DiffStride1d(2.0), nn.Conv1d(4, 16, 9, padding=4), DiffStride1d(1.5), nn.Conv1d(16, 64, 9)
    )
    size = (4, 100_000)
    costs, before = CostModel(model, size), strides(model)
    macs = 0.8 * costs.value()
    Budget(model, size, macs=macs).hold()
    moved = [math.log(b / a) for (a,), (b,) in zip(before, strides(model), strict=True)]
    found = math.hypot(*moved)
    shortest = math.inf
    for first in torch.linspace(-0.2, 0.5, 141).tolist():
        low, high = -0.5, 1.0
        for _ in range(30):  # the second stride that meets the budget
            second = (low + high) / 2
            given = {"0": 2.0 * math.exp(first), "2": 1.5 * math.exp(second)}
            low, high = (second, high) if costs.value("macs", given) > macs else (low, second)
        shortest = min(shortest, math.hypot(first, second))
    assert found <= 1.03 * shortest


def test_fixed_strides_stay():
    model = create("resnet18", (1, 2, 2), max_stride=4.0)
    names = list(learned_strides(model))
    last = learned_strides(model)[names[2]]
    last.min_stride = last.max_stride = 2.0
    budget = Budget(model, SIZE, macs=0.8 * cost(model, SIZE).macs, fixed=[names[0]])
    budget.hold()
    assert strides(model)[0] == (1, 1)
    assert strides(model)[2] == (2, 2)
    assert min(strides(model)[1]) > 2
    layer = learned_strides(model)[names[1]]
    with pytest.raises(ValueError, match="can't be met"):
        Budget(model, SIZE, macs=budget.limit / 2, fixed=[names[0], layer])


def test_activations_and_other_units():
    model = create("resnet18")
    count = cost(model, SIZE).activations
    Budget(model, SIZE, activations=0.8 * count).hold()
    assert cost(model, SIZE).activations == pytest.approx(0.8 * count, rel=0.02)
    kept = cost(model, SIZE).bytes
    budget = Budget(model, SIZE, unit="bytes", limit=0.9 * kept)
    budget.hold()
    assert cost(model, SIZE).bytes == budget.cost == pytest.approx(0.9 * kept, rel=0.02)


def test_what_can_not_be_met_is_said_at_once():
    model = create("resnet18", (1, 1, 2))
    costs = CostModel(model, SIZE)
    most, least = costs.value("macs", _all(model, 1.0)), least_macs(model, SIZE)
    text = (
        rf"can't be spent: .* costs {most / 1e6:.4g} M; the least is {least / 1e6:.4g} M.*spend=F"
    )
    with pytest.raises(ValueError, match=text):
        Budget(model, SIZE, macs=1.1 * most)
    with pytest.raises(ValueError, match=rf"can't be met: .* costs {least / 1e6:.4g} M"):
        Budget(model, SIZE, macs=0.9 * least)
    Budget(model, SIZE, macs=1.1 * most, spend=False).hold()
    with pytest.raises(ValueError, match="given as one of macs, activations, ms, or a unit"):
        Budget(model, SIZE, macs=1.0, activations=1.0)
    with pytest.raises(ValueError, match="given as one of macs"):
        Budget(model, SIZE, unit="bytes")
    with pytest.raises(ValueError, match="fixed must name layers that have a stride"):
        Budget(model, SIZE, macs=most / 2, fixed=["stem"])


@pytest.mark.parametrize("spend", [True, False])
def test_what_can_not_be_met_any_more_is_said_then(spend):
    """Strides do not run away."""
    model = create("resnet18", smoothness=0.5)
    budget = Budget(model, SIZE, macs=1.05 * least_macs(model, SIZE), spend=spend)
    budget.hold()
    before = strides(model)
    for layer in learned_strides(model).values():
        layer.smoothness = 3.0
    with pytest.raises(ValueError, match="can't be met: whatever its strides"):
        budget.hold()
    assert strides(model) == before
