"""Strides follow their gradient by per cent, at any scale, and never leave their budget."""

import copy
import io
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from diffstride import Budget, DiffStride1d, DiffStride2d, StrideOptimizer, cost, parameter_groups
from diffstride.layers.resizer import learned_strides

SIZE = (4, 128, 128)
MACS = 8_000_000
NEVER = (0.0, 0.0)
"""For ``rest``: strides move from the first step to the last."""


def network(**options):
    options = {"smoothness": 2.0, "convention": "tight"} | options
    return nn.Sequential(
        DiffStride2d(2.0, **options),
        nn.Conv2d(4, 8, 3, padding=1),
        DiffStride2d(2.0, **options),
        nn.Conv2d(8, 16, 3, padding=1),
    )


def strides(model):
    return [layer.stride for layer in learned_strides(model).values()]


def values(model):
    return torch.cat([stride.detach().double() for stride in strides(model)])


def gradients(number, shapes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [[torch.randn(shape, generator=generator) for shape in shapes] for _ in range(number)]


def stepped(model, optimiser, wanted):
    """Take a step with given gradients; return by how much the logarithms of strides changed."""
    before = values(model)
    for stride, gradient in zip(strides(model), wanted, strict=True):
        stride.grad = None if gradient is None else gradient.to(stride)
    optimiser.step()
    return (values(model) / before).log()


@given(seed=st.integers(0, 1000), scale=st.floats(-12, 12), lr=st.floats(0.001, 0.5))
@settings(max_examples=15)
def test_no_step_is_larger_than_the_rate(seed, scale, lr):
    model = network()
    with torch.no_grad():
        for stride in strides(model):
            stride.fill_(1e3)  # far from where they must stop
    optimiser = StrideOptimizer(model, lr, steps=10, rest=NEVER)
    for wanted in gradients(10, [2, 2], seed):
        moved = stepped(model, optimiser, [10**scale * g for g in wanted])
        assert moved.abs().max() <= lr + 1e-6
        assert moved.abs().max() > 0.01 * lr


def test_a_loss_of_another_scale_moves_strides_the_same():
    ends = []
    for scale in (1.0, 1000.0, 1e-9):
        model = network()
        optimiser = StrideOptimizer(model, steps=30, budget=Budget(model, SIZE, macs=MACS))
        for wanted in gradients(30, [2, 2]):
            stepped(model, optimiser, [scale * g for g in wanted])
        ends.append(values(model))
    assert not torch.allclose(ends[0], torch.full_like(ends[0], 2.0), rtol=0.02)
    for end in ends[1:]:
        assert torch.allclose(end, ends[0], rtol=1e-5)


def test_a_stride_follows_its_gradient_whatever_its_size():
    """A stride of 100 moves by as many per cent as one of 2, down the loss."""
    model = nn.Sequential(DiffStride1d(2.0), DiffStride1d(100.0))
    optimiser = StrideOptimizer(model, 0.02, steps=10, rest=NEVER)
    for _ in range(10):
        moved = stepped(model, optimiser, [torch.tensor([-5.0]), torch.tensor([1e-3])])
        assert moved.tolist() == pytest.approx([0.02, -0.02], rel=0.1)


def test_strides_rest_at_first_and_in_the_end():
    model = network()
    optimiser = StrideOptimizer(model, steps=20, rest=(0.1, 0.2))
    moves = [stepped(model, optimiser, wanted).abs().max() for wanted in gradients(25, [2, 2])]
    assert [number for number, move in enumerate(moves) if move > 0] == list(range(2, 16))


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
@pytest.mark.parametrize("with_budget", [False, True])
def test_gradients_that_are_no_numbers_change_nothing(wrong, with_budget):
    model = network()
    budget = Budget(model, SIZE, macs=MACS) if with_budget else None
    optimiser = StrideOptimizer(model, steps=100, budget=budget, rest=NEVER)
    first, *_, last = gradients(5, [2, 2])
    stepped(model, optimiser, first)
    for _ in range(5):
        state = copy.deepcopy(optimiser.state_dict()["state"])
        moved = stepped(
            model, optimiser, [torch.tensor([wrong, 1.0]), torch.tensor([wrong, wrong])]
        )
        assert moved.tolist() == [0.0] * 4
        assert repr(optimiser.state_dict()["state"]) == repr(state)
    assert stepped(model, optimiser, last).abs().max() > 0


def test_strides_that_a_budget_fixes_stay():
    model = network()
    first, *others = (x for x in model.modules() if isinstance(x, DiffStride2d))
    budget = Budget(model, SIZE, macs=cost(model, SIZE).macs, fixed=[first])
    optimiser = StrideOptimizer(model, 0.1, steps=5, budget=budget, rest=NEVER)
    before = first.stride.tolist(), [x.stride.tolist() for x in others]
    for wanted in gradients(5, [2, 2]):
        stepped(model, optimiser, wanted)
    assert first.stride.tolist() == before[0]
    assert [x.stride.tolist() for x in others] != before[1]


def test_without_a_gradient_nothing_happens():
    model = network()
    optimiser = StrideOptimizer(model, steps=10, rest=NEVER)
    assert stepped(model, optimiser, [None, None]).tolist() == [0.0] * 4
    moved = stepped(model, optimiser, [None, torch.ones(2)])
    assert moved[:2].tolist() == [0.0, 0.0]
    assert moved[2:].abs().min() > 0
    within = network()
    budget = Budget(within, SIZE, macs=MACS)
    budget.hold()
    optimiser = StrideOptimizer(within, steps=10, budget=budget, rest=NEVER)
    assert stepped(within, optimiser, [None, None]).tolist() == [0.0] * 4


NETWORKS = {
    "plain": lambda: network(),
    "shared": lambda: network(shared=True),
    "bounds": lambda: network(min_stride=1.5, max_stride=2.5),
    "double": lambda: network().double(),
    "in eval mode": lambda: network(min_stride=1.5, max_stride=2.5).eval(),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("kind", ["random", "larger", "smaller", "one against all"])
def test_the_cost_stays_at_a_spent_budget(name, kind):
    """Whatever the gradient wants, for ever, strides do not run away."""
    model = NETWORKS[name]()
    shapes = [stride.shape for stride in strides(model)]
    optimiser = StrideOptimizer(
        model, 0.05, steps=60, budget=Budget(model, SIZE, macs=MACS), rest=NEVER
    )
    for wanted in gradients(60, shapes):
        if kind != "random":
            wanted = [torch.full(shape, 1.0 if kind == "smaller" else -1.0) for shape in shapes]
        if kind == "one against all":
            wanted[0] = -wanted[0]
        stepped(model, optimiser, wanted)
        assert cost(model, SIZE).macs == pytest.approx(MACS, rel=0.02)
        for layer in learned_strides(model).values():
            highest = layer.max_stride or math.inf
            assert layer.min_stride - 1e-6 <= layer.stride.min() <= layer.stride.max()
            assert layer.stride.max() <= highest


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_cost_stays_below_a_budget_that_need_not_be_spent(sign):
    model = network()
    budget = Budget(model, SIZE, macs=MACS, spend=False)
    optimiser = StrideOptimizer(model, 0.05, steps=60, budget=budget, rest=NEVER)
    for _ in range(60):
        stepped(model, optimiser, [torch.full((2,), sign)] * 2)
        assert budget.cost <= MACS
    assert (budget.cost < 0.1 * MACS) == (sign < 0)  # what is not wanted is saved


def test_without_a_budget_bounds_are_kept():
    model = network(min_stride=1.5, max_stride=2.5)
    optimiser = StrideOptimizer(model, 0.1, steps=40, rest=NEVER)
    for _ in range(40):
        stepped(model, optimiser, [torch.tensor([1.0, -1.0])] * 2)
    assert values(model).tolist() == [1.5, 2.5] * 2


def test_a_gradient_along_the_cost_moves_nothing():
    """All strides want the same of the cost: there is nothing to move from one to another."""
    for model, size in (
        (network(), SIZE),
        (network(shared=True), SIZE),
        (nn.Sequential(DiffStride1d(2.0), nn.Conv1d(4, 8, 3)), (4, 5000)),
    ):
        used = cost(model, size).macs
        budget = Budget(model, size, macs=used)
        optimiser = StrideOptimizer(model, steps=20, budget=budget, per_mac=True, rest=NEVER)
        before = values(model)
        for factor in gradients(20, [1]):
            slopes = budget.slopes(strides(model))
            both = zip(slopes, strides(model), strict=True)
            stepped(model, optimiser, [factor[0] * s / stride.double() for s, stride in both])
        assert torch.equal(values(model), before)


def test_what_is_left_of_a_gradient_keeps_the_cost():
    """Without the budget's help: by what slopes say, a small step changes no cost."""
    model = network()
    budget = Budget(model, SIZE, macs=cost(model, SIZE).macs)
    optimiser = StrideOptimizer(model, 1e-4, steps=10, budget=budget, per_mac=True, rest=NEVER)
    for wanted in gradients(10, [2, 2]):
        stepped(model, optimiser, wanted)
    slopes = torch.cat(budget.slopes(strides(model)))
    means = torch.cat([optimiser.state[stride]["mean"] for stride in strides(model)])
    assert abs(torch.dot(means, slopes)) < 0.01 * means.norm() * slopes.norm()
    assert means.norm() > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_what_was_stopped_goes_on_as_if_it_had_not_been(dtype):
    wanted = gradients(30, [2, 2])

    def begun():
        model = network().to(dtype)
        budget = Budget(model, SIZE, macs=MACS)
        return model, StrideOptimizer(model, 0.02, steps=30, budget=budget)

    model, optimiser = begun()
    ends = []
    for each in wanted:
        stepped(model, optimiser, each)
        ends.append(values(model))
    other, again = begun()
    for number, each in enumerate(wanted):
        stepped(other, again, each)
        assert torch.equal(values(other), ends[number])
        if number % 5 == 2:
            file = io.BytesIO()
            torch.save((other.state_dict(), again.state_dict()), file)
            file.seek(0)
            weights, state = torch.load(file, weights_only=True)
            other, again = begun()
            other.load_state_dict(weights)
            again.load_state_dict(state)
    assert again.param_groups[0]["number"] == 30
    loaded = again.state[strides(other)[0]]["mean"]
    assert loaded.dtype == torch.float64
    assert loaded is not state["state"][0]["mean"]


def test_every_parameter_has_one_of_two_optimisers():
    model = network()
    groups = parameter_groups(model, 0.1, 0.0, with_strides=False)
    assert [group["name"] for group in groups] == ["weights", "vectors"]
    chosen = {id(p) for group in groups for p in group["params"]}
    assert chosen == {id(p) for p in model.parameters()} - {id(p) for p in strides(model)}
    optimiser = StrideOptimizer(model, steps=10)
    assert [id(p) for p in optimiser.param_groups[0]["params"]] == [id(p) for p in strides(model)]


def test_a_closure_is_called():
    model = network()
    optimiser = StrideOptimizer(model, steps=10, rest=NEVER)
    x = torch.rand(2, 4, 32, 32)

    def closure():
        optimiser.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    before = values(model)
    assert optimiser.step(closure) > 0
    assert not torch.equal(values(model), before)


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match="the model has no learnable stride"):
        StrideOptimizer(nn.Sequential(DiffStride1d(2.0, learnable=False)), steps=10)
    for lr in (-0.1, 1.0, math.nan):
        with pytest.raises(ValueError, match=f"lr must be a part of a stride, .* got {lr}"):
            StrideOptimizer(network(), lr, steps=10)
    with pytest.raises(ValueError, match="steps must be the steps of the whole training, got 0"):
        StrideOptimizer(network(), steps=0)
    for rest in ((-0.1, 0.2), (0.6, 0.6)):
        with pytest.raises(ValueError, match="rest must be two parts of a training"):
            StrideOptimizer(network(), steps=10, rest=rest)
