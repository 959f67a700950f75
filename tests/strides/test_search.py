"""A search finds the axis whose detail tells the classes apart; scoring leaves no trace."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from diffstride import Budget, DiffStride2d, cost, search
from diffstride.strides.search import scoring

SIZE = (1, 32, 32)
MACS = 35_000
"""With one stride for both axes, that would be above 2."""


def images(number, axis, seed):
    """Waves along one axis, of the 10th frequency or the 14th; along the other, noise alone.

    A stride above 1.6 along that axis drops both.
    """
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(number) % 2
    frequencies = torch.tensor([10.0, 14.0])[labels].reshape(-1, 1, 1)
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
        nn.Linear(8, 2),
    )


def searched(axis, seed, steps=60):
    torch.manual_seed(seed)
    model = network()
    (x, y), held_out = images(512, axis, seed), images(128, axis, seed + 100)
    optimiser = torch.optim.Adam([p for p in model.parameters() if p is not model[0].stride], 0.02)
    generator, modes = torch.Generator().manual_seed(seed), []

    def train_step():
        chosen = torch.randint(len(x), (32,), generator=generator)
        optimiser.zero_grad()
        F.cross_entropy(model(x[chosen]), y[chosen]).backward()
        optimiser.step()

    def score():
        modes.append(model.training)
        return F.cross_entropy(model(held_out[0]), held_out[1])

    budget = Budget(model, SIZE, macs=MACS)
    plan = search(model, train_step, budget, score=score, steps=steps, seed=seed)
    return model, plan, modes


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("seed", range(3))
def test_the_axis_with_detail_is_kept_fine(axis, seed):
    model, plan, modes = searched(axis, seed)
    strides = model[0].strides
    assert strides[axis] < 1.6
    assert strides[1 - axis] > 1.5 * strides[axis]
    assert cost(model, SIZE).macs == plan.macs == pytest.approx(MACS, rel=0.02)
    assert model.training
    assert not any(modes)  # no score was asked for in training mode


def test_the_same_seed_finds_the_same():
    ends = [searched(0, seed=1, steps=8)[0] for _ in range(2)]
    assert ends[0][0].strides == ends[1][0].strides
    assert all(torch.equal(a, b) for a, b in zip(*(m.parameters() for m in ends), strict=True))


def test_what_can_not_be_searched_is_said_before_anything_is_trained():
    def never():
        pytest.fail("something was trained")

    model = network()
    budget = Budget(model, SIZE, macs=MACS)
    before = model[0].strides
    with pytest.raises(ValueError, match="needs 6 steps of training or more, got 3"):
        search(model, never, budget, score=never, steps=3)
    with pytest.raises(ValueError, match="budget must be of the model that is searched"):
        search(network(), never, budget, score=never, steps=10)
    spare = Budget(model, SIZE, macs=MACS, spend=False)
    with pytest.raises(ValueError, match="a budget that is spent, got one with spend=False"):
        search(model, never, spare, score=never, steps=10)
    assert model[0].strides == before


def test_a_network_that_diverges_is_said():
    model = network()
    budget = Budget(model, SIZE, macs=MACS)
    with pytest.raises(FloatingPointError, match="no strides have a score that is a finite number"):
        search(model, lambda: None, budget, score=lambda: torch.tensor(math.nan), steps=6)


@pytest.fixture(params=[0.1, None])
def normalised(request):
    """A network with a part that is in another mode than the rest."""
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4, momentum=request.param),
        nn.Dropout(0.5),
        nn.Sequential(nn.BatchNorm2d(4, track_running_stats=False), nn.Dropout(0.5)),
    )
    model(torch.randn(8, 1, 8, 8))  # running statistics that are no longer those of the beginning
    model[3].eval()
    return model


def state(model):
    modes = [module.training for module in model.modules()]
    return modes, copy.deepcopy(model.state_dict())


def check_same(model, before):
    now = state(model)
    assert now[0] == before[0]
    assert all(torch.equal(value, before[1][name]) for name, value in now[1].items())


def test_scoring_leaves_a_network_as_it_was(normalised):
    before, x = state(normalised), torch.randn(16, 1, 8, 8) * 5 + 3
    with scoring(normalised):
        found = [normalised(x) for _ in range(2)]
    check_same(normalised, before)
    assert torch.equal(*found)  # dropout is off
    assert not found[0].requires_grad
    assert torch.is_grad_enabled()
    hidden = F.batch_norm(
        normalised[0](x), None, None, normalised[1].weight, normalised[1].bias, training=True
    )
    wanted = F.batch_norm(
        hidden, None, None, normalised[3][0].weight, normalised[3][0].bias, training=True
    )
    assert torch.allclose(found[0], wanted, atol=1e-5)  # statistics of the batch, not running ones


def test_scoring_leaves_a_network_as_it_was_if_the_score_fails(normalised):
    before = state(normalised)
    with pytest.raises(KeyError), scoring(normalised):
        normalised(torch.randn(16, 1, 8, 8) + 9)
        normalised[2].train()
        raise KeyError
    check_same(normalised, before)
    assert torch.is_grad_enabled()
