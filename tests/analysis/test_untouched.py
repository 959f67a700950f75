"""Whoever asks what a network costs, or converts it, leaves it as it was: the same objects."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

from diffstride import DiffStride2d, convert, cost, soft_macs
from tests.small_networks import QUESTIONS as ASK
from tests.small_networks import conv

SIZE = (3, 24, 24)


class Named(nn.Module):
    """Runs some of its parts one after another; others are the same ones by other names."""

    def __init__(self, order, **parts):
        super().__init__()
        self.order = order
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        for name in self.order:
            x = self.get_submodule(name)(x)
        return x


def one_conv_by_two_names():
    one = conv()
    return Named(["a", "b", "down", "c"], a=conv(3), b=one, down=DiffStride2d(2.0), c=one)


def one_block_in_two_chains():
    block = nn.Sequential(conv(), nn.ReLU())
    first = nn.Sequential(conv(3), block, DiffStride2d(2.0))
    return nn.Sequential(first, nn.Sequential(block, conv(stride=2)))


def one_downsampling_twice():
    layer = DiffStride2d((1.5, 2.0))
    return Named(["a", "down", "b", "again"], a=conv(3), down=layer, b=conv(), again=layer)


def one_normalisation_twice():
    norm = nn.BatchNorm2d(4)
    return nn.Sequential(conv(3), norm, DiffStride2d(2.0), conv(), norm, conv(stride=2))


def one_weight_in_two_layers():
    first, second = conv(), conv(stride=2)
    second.weight = first.weight
    return nn.Sequential(conv(3), first, DiffStride2d(2.0), second)


def in_a_list_and_by_name():
    one = conv()
    model = Named(["0", "1", "2", "one"])
    model.layers = nn.ModuleList([conv(3), one, DiffStride2d(2.0)])
    model.one = one
    model.order = ["layers.0", "layers.1", "layers.2", "one"]
    return model


def shared_part_of_a_shared_part():
    one = conv()
    block = Named(["one", "norm", "two"], one=one, norm=nn.BatchNorm2d(4), two=one)
    return Named(["a", "b", "down", "c"], a=conv(3), b=block, down=DiffStride2d(2.0), c=block)


def shared_with_a_norm_on_its_weight():
    one = parametrizations.spectral_norm(conv())
    return Named(["a", "b", "down", "c"], a=conv(3), b=one, down=DiffStride2d(2.0), c=one)


class TiedLinear(nn.Module):
    """A weight that a layer has and a function uses, as embeddings do; with plain tensors."""

    def __init__(self):
        super().__init__()
        self.start = nn.Sequential(conv(3), DiffStride2d(2.0), nn.AdaptiveAvgPool2d(1))
        self.inside = nn.Linear(4, 4, bias=False)
        self.outside = nn.Module()
        self.outside.weight = self.inside.weight
        self.scale = torch.tensor(2.0)  # no parameter and no buffer
        self.scales = {"again": [self.scale]}

    def forward(self, x):
        x = self.inside(self.start(x).flatten(1)) * self.scale * self.scales["again"][0]
        return x @ self.outside.weight


class KeepsWhatItMakes(nn.Module):
    """A cache that begins empty, and the last output as an attribute."""

    def __init__(self):
        super().__init__()
        self.convolution, self.down = conv(3), DiffStride2d(2.0)
        self.same = self.convolution
        self.cache, self.last = {}, None
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        x = self.down(self.same(self.convolution(x)[:, :3]))
        self.calls += 1
        size = x.shape[-1]
        if size not in self.cache:
            self.cache[size] = torch.linspace(0, 1, size, device=x.device)
        self.last = x * self.cache[size]
        return self.last


class LooksAtValues(KeepsWhatItMakes):
    """Can't run without computing: it makes tensors on the CPU, and asks for numbers."""

    def forward(self, x):
        x = super().forward(x) + torch.ones(1, device="cpu")
        return -x if x.sum().item() > 1e9 else x


def with_old_weight_norm(kind):
    one = kind(conv())
    return Named(["a", "b", "down", "c"], a=conv(3), b=one, down=DiffStride2d(2.0), c=one)


def converted_with_a_shared_conv():
    one = conv(stride=2)
    model = Named(["a", "b", "c"], a=conv(3), b=one, c=one)
    return convert(model, torch.rand(1, *SIZE), smoothness=1.0)[0]


NETWORKS = {
    "one convolution by two names": one_conv_by_two_names,
    "one block in two chains": one_block_in_two_chains,
    "one downsampling twice": one_downsampling_twice,
    "one normalisation twice": one_normalisation_twice,
    "one weight in two layers": one_weight_in_two_layers,
    "in a list and by name": in_a_list_and_by_name,
    "a shared part of a shared part": shared_part_of_a_shared_part,
    "spectral norm, parametrised": shared_with_a_norm_on_its_weight,
    "tied weights and plain tensors": TiedLinear,
    "keeps what it makes": KeepsWhatItMakes,
    "looks at values": LooksAtValues,
    "weight norm by hooks": lambda: with_old_weight_norm(nn.utils.weight_norm),
    "spectral norm by hooks": lambda: with_old_weight_norm(nn.utils.spectral_norm),
    "converted": converted_with_a_shared_conv,
}


def objects(model):
    """Every tensor and every other attribute in a network, by where it is."""
    found = {}
    for name, module in model.named_modules(remove_duplicate=False):
        found[name] = module
        for attribute, value in vars(module).items():
            if attribute not in ("_parameters", "_buffers", "_modules"):
                found[f"{name}.{attribute}"] = value
        for kind in (module._parameters, module._buffers):
            found |= {f"{name}:{key}": value for key, value in kind.items()}
    return found


@pytest.mark.parametrize("ask", ASK)
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated", "ignore:nothing was converted")
def test_a_network_is_left_as_it_was(name, ask):
    model = NETWORKS[name]().train()
    x = torch.rand(2, *SIZE)
    model(x)  # whatever is kept after the first time
    model.eval()
    expected = model(x)
    for module in list(model.modules())[1::2]:  # some train, some do not
        module.training = True
    before = objects(model)
    values = {key: v.clone() for key, v in before.items() if isinstance(v, torch.Tensor)}
    try:
        ASK[ask](model, SIZE)
    finally:
        after = objects(model)
    assert list(after) == list(before)
    for key, value in before.items():
        assert after[key] is value, key
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, values[key]), key
    model.eval()
    assert torch.equal(model(x), expected)
    assert parametrize.is_parametrized(model.b) if name.endswith("parametrised") else True


def test_a_network_that_fails_is_left_as_it_was():
    model = one_conv_by_two_names()
    before = objects(model)
    with pytest.raises(RuntimeError, match="channels"):
        cost(model, (5, 24, 24))
    assert all(value is before[key] for key, value in objects(model).items())
    assert torch.isfinite(model(torch.rand(1, *SIZE))).all()


def test_what_can_not_run_without_values_is_counted_alike():
    assert cost(LooksAtValues(), SIZE) != cost(LooksAtValues(), (3, 25, 24))
    one, other = KeepsWhatItMakes(), LooksAtValues()
    assert cost(one, SIZE).macs == cost(other, SIZE).macs
    assert soft_macs(other, SIZE).item() == cost(one, SIZE).macs
    assert other.cache == {}
    assert other.calls == 0
