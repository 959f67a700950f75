"""A cost model is a count by hooks, to the last digit, at any strides and any size."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from diffstride import (
    CostModel,
    DiffStride1d,
    DiffStride2d,
    DiffStride3d,
    DiffStrideConv2d,
    SpectralPool2d,
    convert,
    cost,
    functional,
    models,
    soft_macs,
)
from diffstride.layers.resizer import learned_strides
from tests.analysis.counting import differences, random_strides, set_strides
from tests.layers.test_another_resizer import Larger
from tests.models.test_models import PAIRS

SIZES = [(3, 32, 32), (3, 33, 45), (3, 37, 41)]
SIGNALS = [(3, 512), (3, 331), (3, 700)]


@pytest.mark.slow
@pytest.mark.parametrize("placement", ["after", "before"])
@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_every_network_of_ours(name, kind, placement):
    convention = ["paper", "symmetric", "tight"][(len(name) + len(placement)) % 3]
    model = models.create(
        name,
        num_classes=3,
        in_channels=3,
        downsampling=kind,
        placement=placement,
        width=0.125,
        smoothness=[1.0, 2.0, 4.0][len(name) % 3],
        convention=convention,
    )
    compared, costs = differences(model, SIGNALS if name == "signal_cnn" else SIZES)
    assert compared == (15 if costs.layers else 3)
    assert len(costs._evaluations) == 1  # and was run once


class Pads(nn.Module):
    """Computes sizes in Python: a border up to an even size, a branch, a loop."""

    def __init__(self):
        super().__init__()
        self.down, self.last = DiffStride2d(2.0, smoothness=1.0), nn.Conv2d(3, 4, 3)

    def forward(self, x):
        x = self.down(x)
        x = F.pad(x, (0, x.shape[-1] % 2, 0, int(x.shape[-2]) % 2))
        if x.shape[-1] % 3 == 0:
            x = self.last(x)[:, :3]
        for _ in range(x.shape[-2] // 8):
            x = self.last(x)[:, :3]
        return self.last(x)


class Skips(nn.Module):
    """Goes down, and up again to the sizes that it has seen."""

    def __init__(self):
        super().__init__()
        self.down, self.deeper = DiffStride2d((1.5, 2.0)), DiffStride2d(2.0, shared=True)
        self.conv, self.last = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(9, 5, 3, stride=2)
        self.linear = nn.Linear(5, 7)

    def forward(self, x):
        skip = self.down(x)
        y = self.conv(self.deeper(skip))
        y = F.interpolate(y, size=skip.shape[2:])
        y = torch.cat([y, skip], 1)
        y = self.last(y[..., 1:, :-1])
        b, c, h, w = y.shape
        y = self.linear(y.view(b, c, h * w).transpose(1, 2))
        return y.transpose(1, 2).reshape(b, -1, h, w).mean((2, 3))


class ReadsAStride(nn.Module):
    """Does as often something as the stride is large, and asks how large a map would be."""

    def __init__(self):
        super().__init__()
        self.down, self.conv = DiffStride2d(2.0), nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x):
        for _ in range(int(self.down.strides[0])):
            x = self.conv(x)
        if self.down.output_size(x.shape[2:])[1] > 20:
            x = self.conv(x)
        return x


class LooksAtValues(nn.Module):
    """Can't be run without numbers."""

    def __init__(self):
        super().__init__()
        self.down, self.conv = DiffStride2d(2.0), nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x):
        x = self.down(x) + 1
        return self.conv(x) if x.sum().item() > 800 else x


class Columns(nn.Module):
    """Makes a map into a sequence by a function that no rule is known of."""

    def __init__(self):
        super().__init__()
        self.down, self.conv = DiffStride2d(2.0, smoothness=1.0), nn.Conv1d(9, 4, 3)

    def forward(self, x):
        return self.conv(F.unfold(self.down(x)[:, :1], 3))


class Attends(nn.Module):
    """Attention with a table of places, cut to the size of the map and added."""

    def __init__(self):
        super().__init__()
        self.down, self.values = DiffStride2d(2.0, smoothness=1.0), nn.Linear(4, 4)
        self.stem, self.places = nn.Conv2d(3, 4, 1), nn.Parameter(torch.zeros(4, 50, 50))
        self.last = nn.Conv2d(4, 2, 3)

    def forward(self, x):
        x = self.down(self.stem(x))
        height, width = x.shape[-2:]
        x = x + self.places[:, :height, :width]
        tokens = x.flatten(2).transpose(1, 2)
        weights = torch.einsum("bnc,bmc->bnm", tokens, tokens).softmax(-1)
        y = (weights @ self.values(tokens)).mT
        return self.last(y.reshape(x.shape) + x.new_ones(x.size()))


class Turns(nn.Module):
    """Swaps axes: rows of the map are channels to one layer, and in the batch of another."""

    def __init__(self):
        super().__init__()
        self.down, self.other = DiffStride2d(2.0, smoothness=1.0), DiffStride2d(1.5)
        self.rows, self.last = DiffStride1d(1.7, smoothness=1.0), nn.Conv1d(3, 2, 3)
        self.linear = nn.Linear(3, 2)

    def forward(self, x):
        x = self.other(self.down(x).permute(0, 2, 1, 3)).transpose(1, 2)
        self.linear(x.movedim(1, -1))
        rows = self.rows(x.transpose(1, 2).flatten(0, 1))
        return self.last(rows)


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * torch.sigmoid(x)


class Twice(torch.autograd.Function):
    """Returns something of another size, computed out of sight."""

    @staticmethod
    def forward(ctx, x):
        with torch._C.DisableTorchFunction():
            return x.repeat(1, 1, 2, 1)


class Hides(nn.Module):
    """Computes where nobody sees it, and with strides that are no layer's."""

    def __init__(self):
        super().__init__()
        self.down, self.last = DiffStride2d(2.0, smoothness=1.0), nn.Conv2d(3, 4, 3)

    def forward(self, x):
        x = Twice.apply(Swish.apply(self.down(x)))
        return self.last(functional.diff_stride(x, 1.5, smoothness=1.0))


class Asks(nn.Module):
    """Asks for sizes in all the ways there are."""

    def __init__(self):
        super().__init__()
        self.down, self.conv = DiffStride2d(2.0, smoothness=1.0), nn.Conv2d(3, 3, 1)

    def forward(self, x):
        x = self.down(x)
        repeats = {x.size(2): 1, x.size()[3]: 2}.get(19, 0) + len(x[0, 0]) // 15
        repeats += x.numel() % 2 + torch.numel(x) // 2000 + (x.shape == (1, 3, 18, 18))
        repeats += math.ceil(x.shape[2] / 16) + isinstance(x.shape[3], int) + x.shape[3:].count(20)
        repeats += len("x" * x.shape[2]) // 20 + int(f"{x.shape[3]}") % 2 + x.stride(1) // 400
        repeats += int(torch.tensor(x.shape).sum() > 40)
        for _ in range(repeats):
            x = self.conv(x)
        return x


def one(*layers):
    return nn.Sequential(*layers)


DOWN = DiffStride2d(2.0, smoothness=1.0)
SMALL = {
    "pads": Pads,
    "skips": Skips,
    "reads a stride": ReadsAStride,
    "looks at values": LooksAtValues,
    "columns": Columns,
    "attends": Attends,
    "hides": Hides,
    "turns": Turns,
    "asks": Asks,
    "shared, twice": lambda: one(nn.Conv2d(3, 3, 3), down := DiffStride2d(1.7), nn.ReLU(), down),
    "one stride for all axes": lambda: one(DiffStride2d(1.7, shared=True), nn.Conv2d(3, 3, 3)),
    "no crop": lambda: one(DiffStride2d(2.0, crop=False), nn.Conv2d(3, 4, 3)),
    "fixed size": lambda: one(DiffStride2d(2.0, output_size=9), nn.Conv2d(3, 4, 3)),
    "multiple": lambda: one(DiffStride2d(2.0, size_multiple=4), nn.Conv2d(3, 4, 3)),
    "smoothness by axis": lambda: one(DiffStride2d(2.0, smoothness=(1.0, 3.0)), Larger()),
    "spectral": lambda: one(DiffStride2d(1.5), SpectralPool2d(1.5), SpectralPool2d(output_size=5)),
    "convolution": lambda: one(DiffStrideConv2d(3, 8, 3, 2.0), DiffStrideConv2d(8, 4, (1, 3), 1.5)),
    "circular": lambda: DiffStrideConv2d(3, 4, 3, 2.0, padding=1, padding_mode="circular"),
    "forced order": lambda: DiffStrideConv2d(3, 4, 3, 2.0, padding=1, order="taps"),
    "by FFT": lambda: one(DiffStride2d(1.5, path="fft"), nn.Conv2d(3, 4, 3)),
    "raised cosine": lambda: one(DiffStride2d(1.5, window="raised_cosine"), nn.Conv2d(3, 4, 3)),
    "poolings": lambda: one(
        DiffStride2d(1.5),
        nn.MaxPool2d(3, 2, padding=1, ceil_mode=True),
        nn.AvgPool2d(2, ceil_mode=True),
        nn.Conv2d(3, 4, 3, padding=2, dilation=2, stride=2),
        nn.ConvTranspose2d(4, 5, 3, stride=2, padding=1, output_padding=1),
        nn.Upsample(scale_factor=1.5),
        nn.Conv2d(5, 2, 1),
        nn.AdaptiveAvgPool2d((3, None)),
        nn.Conv2d(2, 2, 1),
    ),
    "flattened": lambda: one(DiffStride2d(2.0, output_size=8), nn.Flatten(), nn.Linear(192, 4)),
    "flattened too early": lambda: one(DiffStride2d(2.0), nn.Flatten(), nn.Linear(1728, 4)),
}


NOT_FOLLOWED = ("pads", "reads a stride", "looks at values", "columns", "hides", "asks")


@pytest.mark.parametrize("name", SMALL)
def test_small_networks_that_are_hard_to_follow(name):
    model = SMALL[name]()
    compared, costs = differences(model, SIZES)
    assert compared == 15 or "too early" in name
    followed = len(costs._evaluations) == 1
    assert followed == (name not in NOT_FOLLOWED)


class Takes(nn.Module):
    """Takes rows by number, as a method and as a function do."""

    def __init__(self):
        super().__init__()
        self.down, self.conv = DiffStride2d(2.0, smoothness=1.0), nn.Conv2d(3, 4, 3)

    def forward(self, x):
        x = self.down(x)
        return self.conv(x.narrow(2, 10, 5)), x.select(3, 15), x[:, :, 12]


FAILING = {
    "normalised": lambda: one(DOWN, nn.LayerNorm((3, 18, 18)), nn.Conv2d(3, 4, 3)),
    "wide border": lambda: one(DOWN, nn.Conv2d(3, 4, 3, padding=13, padding_mode="reflect")),
    "wide kernel": lambda: one(DOWN, nn.Conv2d(3, 4, 14)),
    "wide pooling": lambda: one(DOWN, nn.MaxPool2d(19, 2, ceil_mode=True), nn.Conv2d(3, 4, 1)),
    "linear": lambda: one(DOWN, nn.Linear(18, 4)),
    "takes": Takes,
}


@pytest.mark.parametrize("name", FAILING)
def test_where_a_network_fails_its_model_fails(name):
    """Some strides and sizes leave too little; where the network runs, the count is right."""
    model = copy.deepcopy(FAILING[name]())
    compared, _ = differences(model, SIZES, settings=8)
    assert compared < 24


@pytest.mark.parametrize(
    ("layer", "convolution", "sizes"),
    [
        (DiffStride1d, nn.Conv1d, [(2, 300), (2, 331), (2, 21)]),
        (DiffStride3d, nn.Conv3d, [(2, 8, 9, 10), (2, 7, 11, 13), (2, 12, 5, 5)]),
    ],
)
def test_signals_and_volumes(layer, convolution, sizes):
    model = one(layer(1.5, smoothness=1.0), convolution(2, 3, 3, padding=1), layer(2.0))
    assert differences(model, sizes)[0] == 15


@pytest.mark.third_party
@pytest.mark.parametrize("placement", ["after", "before"])
@pytest.mark.parametrize("index", range(15))
def test_every_network_that_is_converted(index, placement):
    from tests.surgery.third_party_networks import MODELS, example

    assert len(MODELS) == 15
    make, dims = list(MODELS.values())[index]
    convention = ["paper", "symmetric", "tight"][index % 3]
    options = {"smoothness": 1.0, "convention": convention, "placement": placement}
    model, _ = convert(make().eval(), example(dims), **options)
    sizes = {1: [128, 121, 127], 2: [64, 57, 59], 3: [32, 27, 29]}[dims]
    compared, costs = differences(model, [(3, *[n] * dims) for n in sizes], largest=2.5)
    assert compared == 15
    if "MobileNet" not in list(MODELS)[index]:  # which computes borders in Python
        assert len(costs._evaluations) == 1


@pytest.mark.parametrize("unit", ["macs", "activations", "bytes"])
def test_slopes_are_those_of_sizes_that_are_not_rounded(unit):
    """On an axis of millions, a step of the stride changes the size by many whole numbers."""
    n = 3_000_000
    model = one(
        DiffStride1d(2.0),
        nn.Conv1d(2, 4, 5, stride=3),
        nn.ReLU(),
        DiffStride1d(1.5, convention="tight"),
        nn.MaxPool1d(3),
        nn.Conv1d(4, 2, 7),
    )
    costs, step = CostModel(model, (2, n)), 1e-3
    strides = {"0": (2.3,), "3": (1.7,)}
    value, slopes = costs.gradient(unit, strides)
    assert value == costs.value(unit, strides)
    for name, (s,) in strides.items():
        above, below = (costs.value(unit, strides | {name: (s + d,)}) for d in (step, -step))
        assert slopes[name][0] == pytest.approx((above - below) / (2 * step), rel=1e-3)


@pytest.mark.parametrize("name", ["resnet18", "efficientnet_b0", "audio_cnn"])
def test_slopes_go_through_whole_networks(name):
    """Each as the difference that one stride makes, on maps as large as a computer never sees."""
    model = models.create(name, num_classes=3, in_channels=3, width=0.125, placement="before")
    costs = CostModel(model, (3, 64, 64))
    size = (3, 30_000_000_000, 28_000_000_000)
    strides = random_strides(model, 1, largest=2.0)
    _, slopes = costs.gradient("macs", strides, size)
    step = 1e-3
    for layer, numbers in strides.items():
        for axis in range(2):
            moved = [
                costs.value("macs", strides | {layer: _with(numbers, axis, d)}, size)
                for d in (step, -step)
            ]
            slope = (moved[0] - moved[1]) / (2 * step)
            assert slopes[layer][axis] == pytest.approx(slope, rel=5e-3)


def _with(numbers, axis, change):
    return tuple(s + change * (i == axis) for i, s in enumerate(numbers))


def kept_for_backward(model, x):
    """What autograd keeps of a forward pass, each piece of memory once; without vectors."""
    kept = {}
    own = {p.data_ptr() for p in model.parameters()} | {x.data_ptr()}

    def pack(t):
        if t.data_ptr() not in own and t.numel() > 1000:
            kept[t.untyped_storage()._cdata] = t.numel() * t.itemsize
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = model.train()(x)
    y.sum().backward()
    return sum(kept.values())


@pytest.mark.parametrize(
    "layers",
    [
        lambda: [
            nn.Conv2d(3, 16, 3),
            nn.BatchNorm2d(16),
            nn.ReLU(inplace=True),
            nn.Conv2d(16, 8, 3),
        ],
        lambda: [nn.Conv2d(3, 16, 3), nn.GELU(), nn.MaxPool2d(2), nn.Sigmoid(), nn.AvgPool2d(2)],
        lambda: [nn.Conv2d(3, 16, 3), nn.GroupNorm(2, 16), nn.SiLU(), nn.Conv2d(16, 16, 3)],
        lambda: [nn.Conv2d(3, 16, 3), DiffStride2d(1.5), nn.ReLU(), nn.Conv2d(16, 16, 1)],
        lambda: [nn.Conv2d(3, 16, 3), nn.Flatten(), nn.Linear(16 * 900, 2)],
    ],
)
def test_bytes_are_what_autograd_keeps(layers):
    model = one(*layers())
    expected = kept_for_backward(model, torch.rand(1, 3, 32, 32))
    assert expected > 0
    assert CostModel(model, (3, 32, 32)).value("bytes") == expected


def test_nothing_is_changed_and_strides_are_those_in_use():
    model = one(DiffStride2d(2.0), Pads())
    state = copy.deepcopy(model.state_dict())
    keys = [sorted(vars(m)) for m in model.modules()]
    costs = CostModel(model, (3, 32, 32))
    strides = {"0": (1.3, 3.0), "1.down": 1.9}
    other = costs.at(strides, (3, 40, 31))
    assert all(torch.equal(x, state[name]) for name, x in model.state_dict().items())
    assert [sorted(vars(m)) for m in model.modules()] == keys
    assert costs.at() == cost(model, (3, 32, 32))
    set_strides(model, {"0": (1.3, 3.0), "1.down": (1.9, 1.9)})
    assert costs.at(input_size=(3, 40, 31)) == other
    assert costs.at() == cost(model, (3, 32, 32)) != other


def test_rules_may_change_while_a_network_trains():
    model = models.create("resnet18", num_classes=3, width=0.125)
    costs, before = CostModel(model, (3, 32, 32)), cost(model, (3, 32, 32))
    for options in ({"smoothness": 0.5}, {"convention": "tight"}, {"path": "fft"}):
        for layer in learned_strides(model).values():
            for name, value in options.items():
                setattr(layer, name, value)
        assert costs.at() == cost(model, (3, 32, 32)) != before
        slopes = CostModel(model, (3, 32, 32)).gradient()
        assert costs.gradient() == slopes
        before = costs.at()


def test_soft_costs_of_a_model_that_is_there_already():
    model = models.create("resnet18", num_classes=3, width=0.125)
    costs = CostModel(model, (3, 32, 32))
    gradients = []
    for macs in (soft_macs(costs), soft_macs(model, (3, 32, 32))):
        assert macs.item() == costs.value()
        strides = [layer.stride for layer in learned_strides(model).values()]
        gradients.append(torch.cat(torch.autograd.grad(macs, strides)))
    assert torch.equal(*gradients)
    assert soft_macs(costs, (3, 40, 32)).item() == cost(model, (3, 40, 32)).macs
    with pytest.raises(ValueError, match="input_size must be given with a network"):
        soft_macs(model)


def test_a_unit_of_ones_own():
    from diffstride.analysis.uses import FunctionAmount

    def rows(use):
        """As many as come out of whatever works on maps, operations included."""
        return [FunctionAmount(lambda size: 2 * size[0], (use.output_sizes[2:],))]

    model = one(DiffStride2d(2.0, smoothness=1.0), nn.ReLU(), nn.Conv2d(3, 4, 3))
    costs = CostModel(model, (3, 32, 32))
    assert [use.name for use in costs.uses()] == ["0", "relu", "2"]
    assert costs.value(rows) == 2 * (18 + 18 + 16)
    assert costs.gradient(rows, {"0": (4.0, 1.0)}) == (2 * (10 + 10 + 8), {"0": (-12.0, 0.0)})


def test_errors_say_what_to_give():
    costs = CostModel(one(nn.ReLU(), DiffStride2d(2.0)), (3, 8, 8))
    with pytest.raises(ValueError, match=r"names of layers that have some, '1'; got '0'"):
        costs.at({"0": 2.0})
    with pytest.raises(ValueError, match=r"stride of 1 must be at least 1, got 0.5"):
        costs.at({"1": 0.5})
    with pytest.raises(ValueError, match=r"input_size must be \(channels"):
        costs.at(input_size=(3,))
    with pytest.raises(
        ValueError, match="unit must be one of macs, activations, bytes; got 'time'"
    ):
        costs.value("time")
