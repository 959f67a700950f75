"""Networks that hold parts and tensors in places of their own are left as they were, too."""

import copy
from collections import OrderedDict, defaultdict, deque, namedtuple
from typing import ClassVar

import pytest
import torch
from torch import nn

from diffstride import DiffStride2d, convert
from diffstride.analysis.restoring import held
from tests.small_networks import QUESTIONS as ASK
from tests.small_networks import conv

SIZE = (3, 24, 24)


class Unusual(nn.Module):
    """Down by two; what comes next is in the classes below."""

    def __init__(self):
        super().__init__()
        self.start = nn.Sequential(conv(3, 2), DiffStride2d(2.0))

    def forward(self, x):
        return self.next(self.start(x))


class MakesAPart(Unusual):
    """Knows its channels when it first runs."""

    def next(self, x):
        if not hasattr(self, "part"):
            self.part = nn.Sequential(nn.Conv2d(x.shape[1], 4, 1), nn.BatchNorm2d(4)).to(x.device)
            self.register_buffer("scale", torch.ones(1, device=x.device), persistent=False)
            self.part.register_forward_hook(lambda *_: None)
            self.start.register_forward_hook(lambda *_: None)
        return self.part(x) * self.scale


class Bounded(dict):
    """Refuses to be changed in the ways that are not its own."""

    def update(self, *_, **__):
        raise TypeError("not like this")

    clear = update


class KeepsInAQueue(Unusual):
    """What it has made is in a queue, a set, and in dictionaries and lists of its own kinds."""

    everywhere: ClassVar = OrderedDict()  # of the class, not of the instance
    Pair = namedtuple("Pair", "one two")

    def __init__(self):
        super().__init__()
        self.last = deque([torch.ones(())], maxlen=2)
        self.all = {torch.ones(1)}
        self.lists = {"a": defaultdict(list, old=[torch.ones(1)])}
        self.bounded = Bounded(old=(torch.ones(1), self.Pair(torch.ones(1), [])))
        self.itself = [self.lists]
        self.itself.append(self.itself)

    def next(self, x):
        for (one,) in (self.all, self.lists["a"]["old"], self.bounded["old"][1:][0][:1]):
            x = x * one.to(x.device)
        self.last.append(x)
        self.all |= {x}
        self.all.remove(x)
        self.everywhere.setdefault("x", x)
        self.lists["a"]["new"].append(x)
        self.bounded["old"][1].two.append(x)
        return x + self.everywhere["x"].mean() * 0


class HidesParts(Unusual):
    """Some parts are no registered ones, and train."""

    def __init__(self):
        super().__init__()
        self.hidden = [nn.BatchNorm2d(4), {"inside": (conv(), nn.BatchNorm2d(4))}]
        self.hidden[0].owner = [self]
        object.__setattr__(self, "beside", nn.BatchNorm2d(4))

    def next(self, x):
        norm, more = self.hidden
        one, two = more["inside"]
        return self.beside(two(one(norm(x))))


class HidesPartsAndLooksAtValues(HidesParts):
    def next(self, x):
        x = super().next(x)
        return -x if x.sum().item() > 1e9 else x


NETWORKS = [MakesAPart, KeepsInAQueue, HidesParts, HidesPartsAndLooksAtValues]


def held_modules(model):
    return [value for _, value in held(model) if isinstance(value, nn.Module)]


def state(model):
    """Everything in a network, what it holds and in which mode it is, as it is now."""
    things = [value for _, value in held(model)]
    tensors = {i: x.clone() for i, x in enumerate(things) if isinstance(x, torch.Tensor)}
    modes = [module.training for module in held_modules(model)]
    return things, tensors, modes


@pytest.mark.parametrize("ask", ASK)
@pytest.mark.parametrize("kind", NETWORKS)
def test_a_network_that_has_not_run_is_left_as_it_was(kind, ask):
    kind.everywhere = OrderedDict()
    model = kind()
    things, tensors, modes = state(model)
    ASK[ask](model, SIZE)
    found, values, after = state(model)
    assert [id(x) for x in found] == [id(x) for x in things]
    assert after == modes
    for i, x in tensors.items():
        assert torch.equal(values[i], x)
    x = torch.rand(2, *SIZE)
    assert model(x).isfinite().all()
    assert all(x.device.type == "cpu" for _, x in held(model) if isinstance(x, torch.Tensor))


@pytest.mark.parametrize("ask", ASK)
@pytest.mark.parametrize("kind", NETWORKS)
def test_a_network_that_has_run_computes_what_it_did(kind, ask):
    model = kind()
    x = torch.rand(2, *SIZE)
    for _ in range(3):
        model(x)
    expected = copy.deepcopy([m.state_dict() for m in held_modules(model)])
    kept = [x.clone() for _, x in held(model) if isinstance(x, torch.Tensor)]
    ASK[ask](model, SIZE)
    for m, before in zip(held_modules(model), expected, strict=True):
        assert all(torch.equal(value, before[name]) for name, value in m.state_dict().items())
    after = [x for _, x in held(model) if isinstance(x, torch.Tensor)]
    assert all(torch.equal(a, b) for a, b in zip(after, kept, strict=True))


def test_what_is_hidden_does_not_train_while_a_network_is_converted():
    converted, _ = convert(HidesParts(), torch.rand(2, *SIZE))
    for norm in (converted.beside, converted.hidden[0], converted.hidden[1]["inside"][1]):
        assert norm.training
        assert norm.num_batches_tracked == 0
        assert torch.equal(norm.running_mean, torch.zeros(4))


@pytest.mark.parametrize("kind", NETWORKS)
def test_a_converted_copy_holds_what_the_network_did(kind):
    model = kind()
    converted, _ = convert(model, torch.rand(2, *SIZE))
    assert set(converted.state_dict()) == {*model.state_dict(), "start.0.downsample.stride"}
    kept = [[type(x) for _, x in held(m)] for m in (model, converted)]
    assert kept[0].count(torch.Tensor) == kept[1].count(torch.Tensor)


def test_everything_is_found_once():
    model = KeepsInAQueue()
    model.again = [model.start, model.lists]
    things = [value for _, value in held(model)]
    assert len({id(x) for x in things}) == len(things)
    assert {id(m) for m in held_modules(model)} == {id(m) for m in model.modules()}
