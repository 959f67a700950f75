"""Strides that were found, as numbers, as fixed layers and as code."""

import itertools
import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from diffstride import (
    CostModel,
    DiffStride1d,
    DiffStride2d,
    DiffStride3d,
    DiffStrideConv2d,
    SpectralPool1d,
    SpectralPool2d,
    StridePlan,
    convert,
    cost,
    freeze,
    models,
)
from diffstride.core.bases import BASES
from diffstride.core.windows import kept_length
from diffstride.layers.resizer import learned_strides
from diffstride.strides.rounding import MOST, nearest_whole
from diffstride.strides.sites import StrideSite
from tests.small_networks import Does

TIGHT = {"smoothness": 1.0, "convention": "tight"}
PAPER = {"smoothness": 4.0, "convention": "paper"}


def registered(name, **options):
    return models.create(name, num_classes=4, width=0.0625, **{**TIGHT, **options})


def volumes():
    return nn.Sequential(
        nn.Conv3d(2, 4, 3, padding=1),
        DiffStride3d((1.5, 2.0, 1.2), path="operator", norm="forward", smoothness=1.0),
        nn.Conv3d(4, 4, 3, padding=1),
        DiffStride3d(1.7, **TIGHT),
        nn.AdaptiveAvgPool3d(1),
        nn.Flatten(),
        nn.Linear(4, 3),
    )


def convolutions():
    return nn.Sequential(
        DiffStrideConv2d(3, 6, 3, stride=(2.0, 1.5), padding=1),
        nn.ReLU(),
        DiffStrideConv2d(6, 6, (1, 5), stride=1.8, norm="backward"),
    )


class Residual(nn.Module):
    """Branches that meet: on one side twice by two, on the other by two and by four, and by two."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.short = nn.Conv2d(3, 4, 1, stride=2)
        self.conv2 = nn.Conv2d(4, 4, 3, stride=2, padding=1)
        self.pool = nn.MaxPool2d(4)
        self.head = nn.Linear(7, 3)

    def forward(self, x):
        y = self.conv1(x).relu() + self.short(x)
        return self.head(torch.cat([self.conv2(y), self.pool(x)], 1).mean((-2, -1)))


def converted(**options):
    return convert(Residual(), torch.rand(1, 3, 32, 32), **options)[0]


def one_layer_twice():
    """A layer that is registered in both branches that it is used in."""
    down = DiffStride2d((2.2, 1.6), **TIGHT)
    return Does(
        lambda self, x: self.first(x) + self.second(x),
        first=nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), down),
        second=nn.Sequential(down, nn.Conv2d(3, 4, 1)),
    )


NETWORKS = {
    "audio_cnn": (lambda: registered("audio_cnn"), (1, 80, 48)),
    "audio_cnn, paper": (lambda: registered("audio_cnn", **PAPER), (1, 80, 48)),
    "signal_cnn": (lambda: registered("signal_cnn"), (1, 700)),
    "resnet18": (lambda: registered("resnet18"), (3, 40, 36)),
    "resnet18, before": (lambda: registered("resnet18", placement="before"), (3, 40, 36)),
    "unet": (lambda: registered("unet"), (3, 33, 36)),
    "3-D": (volumes, (2, 12, 16, 10)),
    "convolutions": (convolutions, (3, 30, 29)),
    "converted": (converted, (3, 36, 44)),
    "converted, before": (lambda: converted(placement="before"), (3, 36, 44)),
    "converted, paper": (lambda: converted(smoothness=2.0, convention="paper"), (3, 36, 44)),
    "one layer twice": (one_layer_twice, (3, 31, 24)),
}


@pytest.fixture(params=NETWORKS)
def network(request):
    make, size = NETWORKS[request.param]
    return make, size


def set_strides(model, numbers):
    """Give every stride one of these numbers, one after the other."""
    numbers = itertools.cycle(numbers)
    with torch.no_grad():
        for layer in learned_strides(model).values():
            layer.stride.copy_(torch.tensor([next(numbers) for _ in layer.stride]))
    return model.eval()


def output(model, size):
    x = torch.rand(2, *size, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return model(x)


def sizes(plan):
    return {site.name: (site.input_size, site.output_size) for site in plan.sites}


def made_sizes(model, plan, size):
    """The sizes that really come to the layers of a plan and out of them."""
    found = {}

    def hook(name):
        def note(layer, inputs, made):
            axes = layer.axes
            both = tuple(inputs[0].shape[-axes:]), tuple(made.shape[-axes:])
            assert found.setdefault(name, both) == both

        return note

    handles = [model.get_submodule(name).register_forward_hook(hook(name)) for name in plan.strides]
    output(model, size)
    for handle in handles:
        handle.remove()
    return found


def test_a_plan_has_the_strides_sizes_and_cost_of_its_network(network):
    make, size = network
    model = set_strides(make(), (1.3, 2.1, 1.7))
    plan = StridePlan.of(model, size)
    assert plan.input_size == size
    assert plan.macs == cost(model, size).macs
    learned = learned_strides(model)
    assert plan.strides == {name: learned[name].strides for name in plan.strides}
    assert set(plan.strides) == set(learned)
    assert 0 < sum(site.macs for site in plan.sites) <= plan.macs
    if not any(isinstance(m, DiffStrideConv2d) for m in model.modules()):
        assert made_sizes(model, plan, size) == sizes(plan)


def test_a_plan_goes_through_json(network):
    make, size = network
    plan = StridePlan.of(set_strides(make(), (1.1, 1.9)), size)
    assert StridePlan.from_dict(json.loads(json.dumps(plan.as_dict()))) == plan
    assert StridePlan.from_dict(plan.as_dict()) == plan


@pytest.mark.parametrize("name", NETWORKS)
@settings(max_examples=8)
@given(numbers=st.lists(st.floats(1, 3.5, width=32), min_size=1, max_size=5))
def test_what_it_is_applied_to_has_its_sizes_and_cost(name, numbers):
    make, size = NETWORKS[name]
    model = set_strides(make(), numbers)
    plan = StridePlan.of(model, size)
    fixed = plan.apply(model)
    assert not learned_strides(fixed)
    again = StridePlan.of(fixed, size)
    assert sizes(again) == sizes(plan)
    assert again.macs == plan.macs == cost(fixed, size).macs
    assert [site.macs for site in again.sites] == [site.macs for site in plan.sites]
    assert output(fixed, size).shape == output(model, size).shape
    assert again.apply(fixed).state_dict().keys() == fixed.state_dict().keys()


@given(st.integers(1, 100_000), st.data())
def test_a_fixed_stride_makes_the_size(size, data):
    kept = data.draw(st.integers(1, size))
    stride = data.draw(st.floats(1, 2 * size))
    (found,) = StrideSite("0", (stride,), (size,), (kept,), 0).fixed_strides
    assert kept_length(size, found, 0.0) == kept
    assert SpectralPool1d(found).output_size(size) == (kept,)


def test_the_network_keeps_its_weights_and_its_original_everything(network):
    make, size = network
    model = set_strides(make(), (1.4, 2.3)).train()
    before = {name: x.clone() for name, x in model.state_dict().items()}
    fixed = StridePlan.of(model, size).apply(model)
    assert all(module.training for module in fixed.modules())
    assert learned_strides(model)
    assert all(x.equal(before[name]) for name, x in model.state_dict().items())
    kept = {name: x for name, x in before.items() if not name.endswith("stride")}
    assert fixed.state_dict().keys() == kept.keys()
    assert all(x.equal(kept[name]) for name, x in fixed.state_dict().items())
    output(fixed, size).sum()
    fixed(torch.rand(2, *size)).sum().backward()
    assert all(p.grad is not None for p in fixed.parameters())
    assert all(p.grad is None for p in model.parameters())


def test_a_fixed_copy_does_not_say_that_it_was_made_or_converted_otherwise():
    model = registered("resnet18")
    fixed = StridePlan.of(model, (3, 32, 32)).apply(model)
    assert "created_with" in vars(model)
    assert "created_with" not in vars(fixed)

    class Config:
        def to_dict(self):
            return vars(self)

    plain = Residual()
    plain.config = Config()
    model = convert(plain, torch.rand(1, 3, 32, 32))[0]
    fixed = StridePlan.of(model, (3, 32, 32)).apply(model)
    assert model.config.diffstride["sites"]
    assert not hasattr(fixed.config, "diffstride")


def test_layers_keep_their_norm_basis_and_path(monkeypatch):
    monkeypatch.setitem(BASES, "another", BASES["fourier"])
    made = DiffStride1d(2.0, norm="forward", basis="another", path="operator", **TIGHT)
    model = nn.Sequential(made, nn.Identity())
    plan = StridePlan.of(model, (1, 30))
    for fixed in (plan.apply(model), executed(plan.code(), model)):
        assert isinstance(fixed[0], SpectralPool1d)
        assert (fixed[0].norm, fixed[0].basis, fixed[0].path) == ("forward", "another", "operator")


def test_a_fixed_network_takes_inputs_of_other_sizes():
    model = set_strides(registered("signal_cnn"), (2.3, 1.6, 1.0))
    fixed = StridePlan.of(model, (1, 700)).apply(model)
    for length in (300, 701, 999):
        assert output(fixed, (1, length)).shape == (2, 4)
        assert fixed.sampling.output_size(length) == model.sampling.output_size(length)
    assert fixed.at_rate(2.0).sampling.strides == pytest.approx((4.6,))


@pytest.mark.parametrize("name", ["converted", "converted, before", "converted, paper"])
def test_layers_that_follow_others_go_on_following_at_any_size(name):
    model = set_strides(NETWORKS[name][0](), (1.7, 2.3, 1.2))
    fixed = StridePlan.of(model, (3, 36, 44)).apply(model)
    for size in ((3, 36, 44), (3, 37, 31), (3, 64, 64)):
        assert output(fixed, size).isfinite().all()
        frozen = freeze(fixed, size)
        torch.testing.assert_close(output(frozen, size), output(fixed, size), atol=1e-4, rtol=1e-3)
        hooked = StridePlan.of(model, (3, 36, 44)).apply(model)
        for module in hooked.modules():  # who looks on sees the plain order, of the same numbers
            module.register_forward_hook(lambda *_: None)
        torch.testing.assert_close(output(hooked, size), output(fixed, size), atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("name", ["converted", "converted, before", "converted, paper"])
def test_what_follows_a_fixed_layer_is_a_formula_of_the_input_size(name):
    model = set_strides(NETWORKS[name][0](), (1.7, 2.3, 1.2))
    fixed = StridePlan.of(model, (3, 36, 44)).apply(model)
    costs = CostModel(fixed, (3, 36, 44))
    uses, _ = costs.uses_at(costs.given(input_size=(3, 47, 61)))
    assert uses is costs.uses()
    assert costs.at(input_size=(3, 47, 61)) == cost(fixed, (3, 47, 61))


def test_a_convolution_with_a_fixed_stride_is_one_and_a_spectral_pooling():
    model = set_strides(convolutions(), (1.7, 2.3)).double()
    plan = StridePlan.of(model, (3, 30, 29))
    assert [site.name for site in plan.sites] == ["0.downsample", "2.downsample"]
    fixed = plan.apply(model)
    layer = fixed[2]
    x = torch.rand(2, 6, 20, 20, dtype=torch.float64)
    plain = nn.functional.conv2d(x, layer.weight, layer.bias)
    torch.testing.assert_close(layer(x), layer.downsample(plain))
    assert layer.output_size((20, 20)) == tuple(layer(x).shape[2:])
    fixed.load_state_dict(fixed.state_dict())


def executed(code, model):
    names = {"model": model}
    exec(code, names)
    return names["model"]


@pytest.mark.parametrize("whole", [False, True])
def test_code_does_what_apply_does(network, whole):
    make, size = network
    model = set_strides(make(), (1.3, 2.4, 1.8))
    plan = StridePlan.of(model, size)
    if whole:
        plan = plan.rounded(model)
    fresh = set_strides(make(), (1.0,))  # whatever it has learned
    fresh.load_state_dict(model.state_dict())
    applied, copied = plan.apply(model), executed(plan.code(), fresh)
    assert not learned_strides(copied)
    again = StridePlan.of(copied, size)
    assert again.sites == StridePlan.of(applied, size).sites
    assert sizes(again) == sizes(plan)
    assert again.macs == plan.macs
    assert output(copied.eval(), size).equal(output(applied, size))


def test_code_says_what_a_plain_network_has():
    model = nn.Sequential(nn.Conv1d(1, 4, 3, padding=1), DiffStride1d(2.2, **TIGHT))
    plan = StridePlan.of(model, (1, 64))
    assert "nn.Conv" not in plan.code()
    whole = plan.rounded(model)
    assert '#   "1": nn.Conv1d(..., stride=2)\n' in whole.code()
    assert 'model.set_submodule("1", SpectralPool1d(stride=2))  # 64 → 32' in whole.code()
    # What the comment names exists, and makes the same sizes where strides divide them.
    plain = freeze(whole.apply(model), (1, 64), integer_strides=True)
    assert output(plain, (1, 64)).shape == (2, 4, 32)


def test_a_network_that_is_one_layer():
    model = DiffStride2d(2.2, **TIGHT)
    plan = StridePlan.of(model, (3, 20, 30))
    assert isinstance(plan.apply(model), SpectralPool2d)
    assert isinstance(executed(plan.code(), model), SpectralPool2d)
    assert "(the model)" in str(plan)


def test_names_can_not_break_out_of_the_code():
    site = StrideSite('a"), print("b', (2.0,), (8,), (4,), 0, other_names=('c"\n',))
    code = StridePlan((1, 8), 0, (site,)).code()
    lines = [line for line in code.splitlines() if line.startswith("model")]
    assert len(lines) == 2
    assert 'model.set_submodule("a\\"), print(\\"b", ' in lines[0]
    compile(code, "code", "exec")


# Whole strides


def test_whole_strides_are_next_to_the_real_ones_and_cost_what_they_say(network):
    make, size = network
    model = set_strides(make(), (1.3, 2.4, 1.8))
    plan = StridePlan.of(model, size)
    whole = plan.rounded(model)
    assert whole.is_whole
    assert whole.strides.keys() == plan.strides.keys()
    for site in plan.sites:
        for new, old, n, m in zip(
            whole.strides[site.name], site.strides, site.input_size, site.output_size, strict=True
        ):
            assert math.floor(min(old, n / m)) <= new <= math.ceil(old)
    assert whole == StridePlan.of(whole.apply(model), size)
    assert whole.macs == cost(whole.apply(model), size).macs
    assert whole.rounded(model) == whole


@settings(max_examples=20)
@given(numbers=st.lists(st.floats(1, 4, width=32), min_size=4, max_size=4))
def test_no_other_whole_strides_are_nearer(numbers):
    def make(numbers=(2.0, 2.0, 2.0, 2.0), smoothness=1.0):
        options = {**TIGHT, "smoothness": smoothness}
        return nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1),
            DiffStride2d(numbers[:2], **options),
            nn.Conv2d(4, 8, 3, padding=1),
            DiffStride2d(numbers[2:], **options),
            nn.Conv2d(8, 8, 3, padding=1),
        )

    plan = StridePlan.of(make(numbers), (2, 40, 30))
    whole = plan.rounded(make())
    sharp = CostModel(make(smoothness=0.0), (2, 40, 30))
    others = itertools.product(*((math.floor(s), math.ceil(s)) for s in numbers))
    nearest = min(
        abs(math.log(sharp.value("macs", {"1": s[:2], "3": s[2:]}) / plan.macs)) for s in others
    )
    assert abs(math.log(whole.macs / plan.macs)) <= nearest + 0.01


def test_equal_costs_are_told_apart_by_the_smallest_change():
    def value(numbers):
        return 1000 / math.prod(numbers)

    assert nearest_whole((2.4, 2.6), [(2, 3), (2, 3)], value, 1000 / 6.24) == (2, 3)
    assert nearest_whole((2.6, 2.4), [(2, 3), (2, 3)], value, 1000 / 6.24) == (3, 2)
    assert nearest_whole((2.4,), [(2, 3)], lambda numbers: None, 1.0) is None


def test_many_numbers_are_found_a_few_at_a_time():
    generator = torch.Generator().manual_seed(0)
    real = (1 + 2 * torch.rand(14, generator=generator)).tolist()
    choices = [(math.floor(s), math.ceil(s)) for s in real]
    assert math.prod(map(len, choices)) > MOST
    asked = []

    def value(numbers):
        asked.append(numbers)
        return sum(1e9 * 1.5**i / math.prod(numbers[:i]) for i in range(len(numbers)))

    found = nearest_whole(real, choices, value, value(real))
    assert len(asked) < 2000
    best = nearest_whole(real, choices, value, value(real), most=2**14)
    pairs = zip(real, choices, strict=True)
    alone = [min(some, key=lambda n, s=s: abs(math.log(n / s))) for s, some in pairs]
    off, least, off_alone = (abs(math.log(value(n) / value(real))) for n in (found, best, alone))
    assert off < min(off_alone, least + 0.01)


def test_a_network_that_looks_at_sizes_is_not_run_for_every_combination():
    runs = []

    def forward(self, x):
        x = self.layers(x)
        runs.append(x.shape)
        return x if x.shape[-1] % 2 else x[..., 1:]  # which is no formula

    def make():
        pairs = [[DiffStride2d(1.5, **TIGHT), nn.Conv2d(3, 3, 3, padding=1)] for _ in range(5)]
        layers = nn.Sequential(*itertools.chain.from_iterable(pairs))
        return Does(forward, layers=layers)

    plan = StridePlan.of(make(), (3, 90, 70))
    runs.clear()
    whole = plan.rounded(make())
    assert whole.macs == pytest.approx(plan.macs, rel=0.02)
    assert len(runs) < 600  # of 1024 combinations


def test_axes_that_share_a_stride_go_on_sharing_it():
    model = nn.Sequential(DiffStride2d(2.5, shared=True, **TIGHT), nn.Conv2d(3, 3, 3, padding=1))
    plan = StridePlan.of(model, (3, 60, 60))
    strides = plan.rounded(model).strides["0"]
    assert strides in ((2.0, 2.0), (3.0, 3.0))
    apart = nn.Sequential(DiffStride2d(2.5, **TIGHT), nn.Conv2d(3, 3, 3, padding=1))
    assert sorted(plan.rounded(apart).strides["0"]) == [2.0, 3.0]


def test_windows_that_need_room_may_become_smaller_strides():
    model = nn.Sequential(DiffStride2d(2.0, smoothness=4.0), nn.Conv2d(3, 3, 3, padding=1))
    plan = StridePlan.of(model, (3, 16, 16))
    assert plan.sites[0].output_size == (16, 16)
    assert "maps are larger" in str(plan)
    whole = plan.rounded(model)
    assert whole.strides == {"0": (1.0, 1.0)}
    assert whole.macs == plan.macs
    assert "maps are larger" not in str(whole)
    assert not plan.is_whole


def test_whole_strides_that_a_network_can_not_take_are_an_error():
    model = nn.Sequential(
        DiffStride1d(2.5, output_size=16, **TIGHT), nn.Flatten(), nn.Linear(16, 2)
    )
    plan = StridePlan.of(model, (1, 40))
    assert StridePlan.of(plan.apply(model), (1, 40)).macs == plan.macs
    with pytest.raises(ValueError, match=r"can't be run with whole strides next to \{'0': \(2\.5,"):
        plan.rounded(model)


# What is no plan, or of another network


def test_the_table_of_a_network():
    model = nn.Sequential(
        nn.Conv1d(1, 4, 3, padding=1),
        DiffStride1d(4.0, **TIGHT),
        nn.Conv1d(4, 4, 3, padding=1),
        SpectralPool1d(stride=2.0),
        nn.Conv1d(4, 4, 3, padding=1),
        SpectralPool1d(output_size=3),  # has no stride
    )
    lines = str(StridePlan.of(model, (1, 64))).splitlines()
    assert [line.split()[0] for line in lines[:5]] == ["layer", "(before", "1", "3", "total"]
    shares = [int(line.split()[-1].removesuffix("%")) for line in lines[1:4]]
    assert sum(shares) == pytest.approx(100, abs=2)
    assert "64 → 16" in lines[2]
    assert "for an input of 1 × 64 (channels × size)" in lines[5]


def test_a_network_without_strides_is_an_error():
    with pytest.raises(ValueError, match=r"must have a layer with a stride.* diffstride\.convert"):
        StridePlan.of(nn.Sequential(nn.Conv2d(3, 4, 3, stride=2)), (3, 8, 8))


def test_one_layer_at_several_sizes_is_an_error():
    down = DiffStride1d(2.0, **TIGHT)
    message = r"0 is used at several sizes, \(40,\) and \(20,\), and a plan has one"
    with pytest.raises(ValueError, match=message):
        StridePlan.of(nn.Sequential(down, nn.ReLU(), down), (1, 40))


class Doubling(DiffStride2d):
    def forward(self, x):
        return 2 * super().forward(x)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ([nn.ReLU()], r"has a layer '1'.* its layers with a stride are none\. Apply the plan to"),
        ([DiffStride2d()], r"has a layer '1'.* its layers with a stride are '0'\. Apply"),
        ([nn.ReLU(), nn.MaxPool2d(2)], r"1 is a MaxPool2d, and the plan has a DiffStride or"),
        ([nn.ReLU(), DiffStrideConv2d(3, 3, 1)], r"1 is a DiffStrideConv2d.* 1\.downsample"),
        ([nn.ReLU(), DiffStride1d()], r"1 is a DiffStride1d, of 1 axes, and the plan has 2 stri"),
        ([nn.ReLU(), Doubling()], r"1 is a Doubling with a forward of its own"),
        ([DiffStride2d(), DiffStride2d()], r"learnable strides that the plan has not: 0\. Make"),
    ],
)
def test_a_plan_of_another_network_is_an_error(other, message):
    plan = StridePlan.of(nn.Sequential(nn.ReLU(), DiffStride2d(2.0)), (3, 32, 32))
    model = nn.Sequential(*other)
    before = str(model)
    for ask in (plan.apply, plan.rounded):
        with pytest.raises(ValueError, match=message):
            ask(model)
    assert str(model) == before


def test_what_is_not_learned_may_stay():
    plan = StridePlan.of(nn.Sequential(nn.ReLU(), DiffStride2d(2.0)), (3, 32, 32))
    model = nn.Sequential(DiffStride2d(learnable=False), DiffStride2d())
    fixed = plan.apply(model)
    assert isinstance(fixed[0], DiffStride2d)
    assert isinstance(fixed[1], SpectralPool2d)


def good():
    return StridePlan.of(nn.Sequential(DiffStride2d(2.0, **TIGHT)), (3, 32, 16)).as_dict()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.update(version=9), "version 1.*got 9: was it made by a later"),
        (lambda r: r.pop("macs"), "must have input_size, macs and sites.*'macs'"),
        (lambda r: r.update(macs=1), "at least the sum of those of all sites.*got 1"),
        (lambda r: r.update(sites=[]), "one site at least"),
        (lambda r: r.update(sites=7), "of another kind"),
        (lambda r: r.update(sites=r["sites"] * 2), "got '0' twice"),
        (lambda r: r.update(input_size=[3]), r"must be \(channels, \*spatial\)"),
        (lambda r: r["sites"][0].update(strides=[2.0]), r"input_size of layer '0' must be one who"),
        (lambda r: r["sites"][0].update(strides=[0.5, 2]), "stride of layer '0' must be at least"),
        (lambda r: r["sites"][0].update(strides=["a", 2]), "strides of layer '0' must be a number"),
        (lambda r: r["sites"][0].update(strides=[]), "must be 1 to 3, one for each axis, got 0"),
        (lambda r: r["sites"][0].update(output_size=[99, 9]), "at most its input_size"),
        (lambda r: r["sites"][0].update(output_size=[1.5, 9]), "output_size of layer '0' must be"),
        (lambda r: r["sites"][0].update(macs=-1), "from 0 on, got -1"),
        (lambda r: r["sites"][0].update(norm="a"), "norm of layer '0' must be one of ortho"),
        (lambda r: r["sites"][0].update(name=3), "names must be text, got 3"),
        (lambda r: r["sites"][0].update(colour="red"), "got 'colour'"),
        (lambda r: r["sites"][0].pop("strides"), "missing.*strides"),
    ],
)
def test_a_record_that_is_no_plan_is_an_error(change, message):
    record = good()
    StridePlan.from_dict(record)
    change(record)
    with pytest.raises(ValueError, match=message):
        StridePlan.from_dict(record)


def test_a_list_is_no_plan():
    with pytest.raises(ValueError, match=r"must be a mapping with version 1.*got \[\]"):
        StridePlan.from_dict([])


def test_whole_numbers_in_a_file_are_strides():
    record = good()
    record["sites"][0]["strides"] = [2, 2]
    assert StridePlan.from_dict(record) == StridePlan.from_dict(good())


def test_what_can_not_be_copied_is_an_error():
    model = nn.Sequential(DiffStride2d(2.0, **TIGHT))
    plan = StridePlan.of(nn.DataParallel(model), (3, 32, 32))
    assert plan == StridePlan.of(model, (3, 32, 32))
    with pytest.raises(ValueError, match=r"is wrapped in DataParallel: apply the plan to model\."):
        plan.apply(nn.DataParallel(model))
