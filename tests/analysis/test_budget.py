"""Strides grow until a network costs what it may, and no further than they must."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from diffstride import DiffStride2d, convert, cost, fit_budget, models
from diffstride.analysis.budget import least_macs
from diffstride.analysis.cost import soft_macs

pytestmark = pytest.mark.slow

SIZE = (3, 32, 32)


def network(**options):
    options = {"smoothness": 1.0, "convention": "symmetric", "width": 0.125} | options
    return models.create("resnet18", num_classes=10, **options)


def strides(model):
    return torch.stack([m.stride.detach() for m in model.modules() if isinstance(m, DiffStride2d)])


@pytest.mark.parametrize("part", [0.9, 0.6, 0.4])
@pytest.mark.parametrize("initial", [(1, 1, 1), (2, 2, 2), (1, 3, 1)])
def test_the_budget_is_kept_and_not_wasted(part, initial):
    model = network(strides=initial)
    before, full = strides(model), cost(model, SIZE).macs
    budget = part * full
    fit_budget(model, SIZE, budget)
    assert (strides(model) >= before).all()
    # As close as sizes, which are whole, allow: the largest map alone may be a sixth of all.
    assert 0.7 * budget <= cost(model, SIZE).macs <= budget
    once = strides(model)
    fit_budget(model, SIZE, budget)
    assert torch.equal(strides(model), once)


@pytest.mark.parametrize("less", [1, 700, 100_000])
def test_a_little_less_is_met_by_a_little_more_stride(less):
    """Sizes are whole, so that strides have some way to go before anything changes."""
    model = network(strides=(2, 2, 3))
    full = cost(model, SIZE).macs
    before = strides(model)
    fit_budget(model, SIZE, full - less)
    assert 0.9 * full < cost(model, SIZE).macs <= full - less
    assert (strides(model) - before).max() < 0.3
    layer = nn.Sequential(DiffStride2d(2.0, smoothness=1.0), nn.Conv2d(64, 64, 3, padding=1))
    full = cost(layer, (64, 32, 32)).macs
    fit_budget(layer, (64, 32, 32), full - less)
    assert cost(layer, (64, 32, 32)).macs < full


def test_strides_at_their_end_leave_the_growth_to_others():
    model = network(strides=(2, 2, 2), max_stride=2.5)
    least = least_macs(model, SIZE)
    fit_budget(model, SIZE, 1.0005 * least)
    assert cost(model, SIZE).macs <= 1.0005 * least


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_counts_are_exact_whatever_the_precision_of_strides(dtype):
    model = network(width=1.0).to(dtype)
    assert soft_macs(model, SIZE).item() == cost(model, SIZE).macs
    budget = 0.9 * cost(model, SIZE).macs
    fit_budget(model, SIZE, budget)
    assert cost(model, SIZE).macs <= budget


def test_strides_that_a_step_left_out_of_range_come_back():
    model = network(strides=(2, 2, 2))
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, DiffStride2d):
                module.stride.copy_(torch.tensor([-7.0, 2.5]))
    fit_budget(model, SIZE, 15e6)
    assert 0.7 * 15e6 <= cost(model, SIZE).macs <= 15e6
    assert (strides(model) > 1).all()


def test_strides_that_save_more_grow_more():
    model = network(strides=(2, 2, 2))
    soft_macs(model, SIZE).backward()
    slopes = torch.stack([m.stride.grad for m in model.modules() if isinstance(m, DiffStride2d)])
    before, budget = strides(model), 0.97 * cost(model, SIZE).macs
    fit_budget(model, SIZE, budget)
    growth = strides(model) - before
    torch.testing.assert_close(growth / growth.sum(), slopes / slopes.sum(), atol=0.02, rtol=0.05)


def test_a_budget_that_can_not_be_met_changes_nothing():
    model = network()
    before, least = strides(model), least_macs(model, SIZE)
    with pytest.raises(ValueError, match=rf"costs {least / 1e6:.4g} M; a smaller smoothness"):
        fit_budget(model, SIZE, 0.99 * least)
    assert torch.equal(strides(model), before)
    assert least < cost(model, SIZE).macs
    with torch.device("meta"):
        assert least_macs(network(), SIZE) == least
    with pytest.raises(ValueError, match="no learnable stride that could grow"):
        fit_budget(nn.Conv2d(3, 4, 3), SIZE, 1.0)


def test_fixed_strides_stay():
    model = nn.Sequential(
        DiffStride2d(2.0, learnable=False), nn.Conv2d(3, 8, 3, padding=1), DiffStride2d(2.0)
    )
    budget = 0.95 * cost(model, SIZE).macs
    fit_budget(model, SIZE, budget)
    assert model[0].strides == (2, 2)
    assert cost(model, SIZE).macs <= budget


def test_converted_networks_have_budgets_too():
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Conv2d(3, 8, 3, stride=2, padding=1)
            self.second = nn.Conv2d(8, 8, 3, stride=2, padding=1)
            self.beside = nn.Conv2d(3, 8, 4, stride=4)

        def forward(self, x):
            return self.second(self.first(x).relu()) * self.beside(x)

    model, report = convert(Branches(), torch.rand(1, *SIZE), convention="paper")
    # Convolutions make whole maps, which downsampling then makes smaller: by hand.
    first, last = 18, 11
    whole = 3 * 8 * 9 * 32**2 + 8 * 8 * 9 * first**2 + 3 * 8 * 16 * 29**2
    resampled = 8 * sum(n * n * m + n * m * m for n, m in ((32, first), (first, last), (29, last)))
    assert report.macs_after == whole + resampled
    assert soft_macs(model, SIZE).item() == report.macs_after
    before = copy.deepcopy(model)
    fit_budget(model, SIZE, 0.97 * report.macs_after)
    assert cost(model, SIZE).macs <= 0.97 * report.macs_after
    assert (strides(model) > strides(before)).all()


def test_a_branch_that_follows_a_pooling_has_its_size():
    class Beside(nn.Module):
        def __init__(self):
            super().__init__()
            self.pool = nn.MaxPool2d(2)
            self.convolution = nn.Conv2d(3, 8, 3, stride=2, padding=1)

        def forward(self, x):
            return torch.cat([self.pool(x), self.convolution(x)], 1)

    model, report = convert(Beside(), torch.rand(1, *SIZE), smoothness=1.0)
    assert soft_macs(model, SIZE).item() == report.macs_after
    fit_budget(model, SIZE, 0.99 * report.macs_after)
    assert cost(model, SIZE).macs <= 0.99 * report.macs_after


def beside_an_unused_one():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())
    model[1].unused = DiffStride2d(2.0)
    return model


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Sequential(DiffStride2d(2.0, crop=False), nn.Conv2d(3, 8, 3)),
        lambda: nn.Sequential(DiffStride2d(2.0, output_size=12), nn.Conv2d(3, 8, 3)),
        lambda: nn.Sequential(DiffStride2d(2.0, max_stride=2.0), nn.Conv2d(3, 8, 3)),
        beside_an_unused_one,
    ],
)
def test_strides_that_make_no_difference_are_no_reason_for_another_error(make):
    model = make()
    before, used = strides(model), cost(model, SIZE).macs
    fit_budget(model, SIZE, used)
    message = rf"of {(used - 1) / 1e6:.4g} M MACs can't be met: .* costs {used / 1e6:.4g} M; no lea"
    with pytest.raises(ValueError, match=message):
        fit_budget(model, SIZE, used - 1)
    assert torch.equal(strides(model), before)


class Positive(nn.Module):
    """More than one, whatever the parameter."""

    def forward(self, x):
        return 1 + x.exp()

    def right_inverse(self, y):
        return (y - 1).log()


@pytest.mark.parametrize("ask", [least_macs, lambda *args: fit_budget(*args, 1e12)])
def test_a_stride_that_is_computed_is_refused_with_what_to_do(ask):
    model = nn.Sequential(nn.ReLU(), DiffStride2d(2.0), nn.Conv2d(3, 8, 3))
    parametrize.register_parametrization(model[1], "stride", Positive())
    message = r"1 \(.*DiffStride2d\) has a stride that is computed .*remove_parametrizations"
    with pytest.raises(ValueError, match=message):
        ask(model, SIZE)
    with pytest.raises(ValueError, match=message), torch.no_grad():
        ask(model, SIZE)
    # What the error says can be done.
    soft_macs(model, SIZE).backward()
    assert (model[1].parametrizations.stride.original.grad != 0).all()
    parametrize.remove_parametrizations(model[1], "stride")
    ask(model, SIZE)
