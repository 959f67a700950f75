"""A search finds the axis whose detail tells the classes apart, and trains from one beginning."""

import copy
import math
from random import Random

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from diffstride import Budget, DiffStride2d, cost, search
from diffstride.strides.space import StrideSpace
from diffstride.strides.trials import StrideTrials, best

SIZE, CLASSES = (1, 32, 32), 6
MACS = 35_000
"""With one stride for both axes, that would be above 2."""


def images(number, axis, seed):
    """Waves along one axis, whose frequency is the class; along the other, noise alone.

    The larger the stride along that axis, the more classes look alike.
    """
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(number) % CLASSES
    frequencies = (5.0 + 2 * labels).reshape(-1, 1, 1)
    phases = 2 * math.pi * torch.rand(number, 1, 1, generator=generator)
    waves = torch.sin(2 * math.pi * frequencies * torch.arange(32) / 32 + phases)
    waves = waves.expand(number, 32, 32)
    noise = 0.5 * torch.randn(number, 32, 32, generator=generator)
    return ((waves.mT if axis == 0 else waves) + noise).unsqueeze(1), labels


def network():
    return nn.Sequential(
        DiffStride2d(2.0, smoothness=0.0, convention="tight"),
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, CLASSES),
    )


def searched(axis, seed, steps=30, **options):
    torch.manual_seed(seed)
    model = network()
    (x, y), held_out = images(512, axis, seed), images(128, axis, seed + 100)

    def train():
        generator = torch.Generator().manual_seed(seed)
        weights = [p for p in model.parameters() if p is not model[0].stride]
        optimiser = torch.optim.Adam(weights, 0.02)
        for _ in range(steps):
            chosen = torch.randint(len(x), (32,), generator=generator)
            optimiser.zero_grad()
            F.cross_entropy(model(x[chosen]), y[chosen]).backward()
            optimiser.step()
        model.eval()
        with torch.no_grad():
            return F.cross_entropy(model(held_out[0]), held_out[1])

    plan = search(model, train, Budget(model, SIZE, macs=MACS), seed=seed, **options)
    return model, plan


@pytest.mark.slow
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("seed", range(3))
def test_the_axis_with_detail_is_kept_fine(axis, seed):
    model, plan = searched(axis, seed)
    strides = model[0].strides
    assert strides[axis] < 1.9  # both alike would be above 2
    assert strides[1 - axis] > 1.25 * strides[axis]
    assert cost(model, SIZE).macs == plan.macs == pytest.approx(MACS, rel=0.02)


def test_the_same_seed_finds_the_same_and_another_one_tries_others():
    ends = [searched(0, seed=1, steps=2, trials=6)[0] for _ in range(2)]
    assert ends[0][0].strides == ends[1][0].strides
    assert all(torch.equal(a, b) for a, b in zip(*(m.parameters() for m in ends), strict=True))
    assert searched(0, seed=2, steps=2, trials=6)[0][0].strides != ends[0][0].strides


def state(model):
    modes = [module.training for module in model.modules()]
    values = copy.deepcopy(model.state_dict())
    return modes, {name: value for name, value in values.items() if name != "0.stride"}


def check_same(model, before):
    modes, values = state(model)
    assert modes == before[0]
    assert all(torch.equal(value, before[1][name]) for name, value in values.items())


@pytest.mark.parametrize("as_tensor", [False, True])
def test_each_training_begins_with_the_same_weights_and_modes_at_the_strides_of_the_plan(as_tensor):
    """Whatever the one before did to them; and so does what follows the search."""
    model = network()
    model(torch.randn(8, 1, 32, 32)).sum().backward()
    model[2].eval()  # in another mode than the rest
    model[4].train()
    before, tried, losses = state(model), [], []

    def train():
        check_same(model, before)
        assert all(not p.grad.any() for p in model.parameters() if p.grad is not None)
        tried.append(space.read())
        with torch.no_grad():
            for name, value in model.state_dict().items():
                value.add_(name != "0.stride")
        model(torch.randn(4, 1, 32, 32)).sum().backward()
        model.train(len(tried) % 2 == 0)
        losses.append(tried[-1][0])
        return torch.tensor(losses[-1], dtype=torch.float64) if as_tensor else losses[-1]

    budget = Budget(model, SIZE, macs=MACS)
    space = StrideSpace(budget)
    plan = search(model, train, budget, trials=8, seed=5)
    check_same(model, before)
    assert all(not p.grad.any() for p in model.parameters() if p.grad is not None)
    assert len(tried) == 8
    assert space.read() == tried[best(tried, losses)]
    assert plan.strides == {"0": model[0].strides}
    assert cost(model, SIZE).macs == plan.macs == pytest.approx(MACS, rel=0.02)
    # The trials are those of the class, which knows nothing of the beginning.
    chooser = StrideTrials(StrideSpace(Budget(network(), SIZE, macs=MACS)), 8, seed=5)
    for point, wanted in zip(tried, chooser.next([], []), strict=False):
        assert point == pytest.approx(wanted, abs=1e-6)  # as a parameter rounds it


def test_where_a_network_begins_makes_no_difference_to_what_is_tried():
    found = []
    for stride in (2.0, 1.2):
        model, tried = network(), []
        budget = Budget(model, SIZE, macs=MACS)
        space = StrideSpace(budget)
        space.write([math.log(stride), math.log(1.7)])

        def train(space=space, tried=tried):
            tried.append(space.read())
            return tried[-1][1] + 0.1 * Random(str(len(tried))).random()

        search(model, train, budget, trials=6)
        found.append((tried, model[0].strides))
    assert found[0] == found[1]
    assert found[0][1][1] < 1.6  # the score was the second stride


def test_what_can_not_be_searched_is_said_before_anything_is_trained():
    def never():
        pytest.fail("something was trained")

    model = network()
    budget = Budget(model, SIZE, macs=MACS)
    before = model[0].strides
    with pytest.raises(ValueError, match="needs 6 trials or more, got 3"):
        search(model, never, budget, trials=3)
    with pytest.raises(ValueError, match="budget must be made for the model that is searched"):
        search(network(), never, budget)
    spare = Budget(model, SIZE, macs=MACS, spend=False)
    with pytest.raises(ValueError, match="a budget that is spent, got one with spend=False"):
        search(model, never, spare)
    assert model[0].strides == before


def test_a_network_that_diverges_is_said():
    model = network()
    budget = Budget(model, SIZE, macs=MACS)
    message = "none of 6 trials has a loss that is a finite number: training diverged"
    with pytest.raises(FloatingPointError, match=message):
        search(model, lambda: torch.tensor(math.nan), budget, trials=12)


def test_strides_at_which_a_network_diverges_are_never_found():
    model, count = network(), []
    budget = Budget(model, SIZE, macs=MACS)
    space = StrideSpace(budget)

    def train():
        count.append(space.read())
        return math.nan if count[-1][0] < count[-1][1] else 1.0 + count[-1][0]

    search(model, train, budget, trials=8)
    assert any(one < other for one, other in count)
    assert model[0].strides[0] > model[0].strides[1]


class Counts(nn.Module):
    """Notes how often it has run where no state has it, and where one has."""

    def __init__(self):
        super().__init__()
        self.register_buffer("unsaved", torch.zeros(()), persistent=False)
        self.register_buffer("saved", torch.zeros(()))

    def forward(self, x):
        self.unsaved, self.saved = self.unsaved + 1, self.saved + 1
        return x


def fails(model):
    raise ZeroDivisionError("of the user")


def moves(model):
    with torch.no_grad():
        model[0].stride.mul_(1.01)
    return 1.0


@pytest.mark.parametrize(
    ("end", "error", "message"),
    [
        (fails, ZeroDivisionError, "of the user"),
        (moves, ValueError, "train has moved strides.*with_strides=False"),
        (lambda model: None, TypeError, "train must return its loss.*got a NoneType"),
        (lambda model: torch.ones(3), TypeError, r"one number .*got a Tensor of shape \(3,\)"),
        (lambda model: math.nan, FloatingPointError, "none of 3 trials has a loss"),
    ],
)
def test_a_search_that_fails_leaves_the_network_as_it_was(end, error, message):
    model = network().append(Counts())
    budget, before = Budget(model, SIZE, macs=MACS), state(model)
    strides = model[0].strides

    def train():
        model.eval()
        with torch.no_grad():
            model[1].weight.add_(model(torch.randn(4, *SIZE)).mean())
        return end(model)

    with pytest.raises(error, match=message):
        search(model, train, budget, trials=6)
    check_same(model, before)
    assert model[0].strides == strides
    assert (model[-1].unsaved, model[-1].saved) == (0, 0)


def test_a_wrapped_network_is_searched_as_it_is():
    model, tried = network(), []
    wrapped = nn.DataParallel(model)
    budget = Budget(wrapped, SIZE, macs=MACS)

    def train():
        tried.append(model[0].strides)
        return model[0].strides[0]

    plan = search(wrapped, train, budget, trials=6)
    assert model[0].strides in tried
    assert plan.macs == pytest.approx(MACS, rel=0.02)
