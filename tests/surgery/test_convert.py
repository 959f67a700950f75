"""Any network gets learnable strides, keeps its weights, and never falls apart."""

import copy
import json
import pickle
import warnings

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from diffstride import DiffStride2d, convert, parameter_groups, stride_table
from diffstride.layers import apply_conversion
from diffstride.layers.converted import CONVERTED, Converted, Following
from diffstride.layers.diffstride import DiffStrideNd
from tests.surgery.third_party_networks import (
    MODELS,
    TwoBranches,
    example,
    plain,
    tensor,
)

pytestmark = pytest.mark.third_party


def sites(model):
    return {name: m for name, m in model.named_modules() if isinstance(m, Converted)}


@pytest.mark.parametrize("name", MODELS)
def test_with_tight_windows_every_map_keeps_its_size(name):
    make, dims = MODELS[name]
    model = make().eval()
    converted, report = convert(model, example(dims), smoothness=1.0, convention="tight")
    assert report.sites
    assert [site.size_after for site in report.sites] == [s.size_before for s in report.sites]
    x = example(dims)
    assert tensor(converted(x)).shape == tensor(model(x)).shape


@pytest.mark.parametrize("name", MODELS)
def test_convolutions_run_in_any_order_when_nobody_looks_on(name):
    """Someone who looks on has the plain order: the numbers and gradients are the same."""
    make, dims = MODELS[name]
    torch.manual_seed(0)
    model = make().double().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
    x = example(dims).double()
    converted, _ = convert(model, x, smoothness=1.0, convention="tight")
    parameters = [p for p in converted.parameters() if p.requires_grad]

    def run():
        y = tensor(converted(x))
        grads = torch.autograd.grad(y.square().mean(), parameters, allow_unused=True)
        return [y, *(g for g in grads if g is not None)]

    reordered = run()
    for module in sites(converted).values():
        module.downsample.register_forward_hook(lambda *_: None)
    for a, b in zip(reordered, run(), strict=True):
        assert (a - b).norm() <= 1e-10 * max(b.norm(), 1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_networks_of_others_are_converted_and_train(name, tmp_path):
    make, dims = MODELS[name]
    torch.manual_seed(0)
    model = make()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):  # EfficientNet begins with next to nothing
            nn.init.ones_(module.weight)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    converted, report = convert(model, example(dims), smoothness=2.0, convention="paper")
    assert report.sites
    # The original is as it was, and its state loads under the same names.
    assert not sites(model)
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[key])
    converted.load_state_dict(before)
    new = set(converted.state_dict()) - set(before)
    assert new
    assert all(key.endswith("downsample.stride") for key in new)
    assert len(new) == len({site.group for site in report.sites})  # one stride, one owner
    strided = [
        n
        for n, m in model.named_modules()
        if isinstance(m, tuple(CONVERTED))
        and n != "pooler"  # of EfficientNet, over everything
        and max(m.stride if isinstance(m.stride, tuple) else (m.stride,)) > 1
    ]
    assert sorted(site.name for site in report.sites) == sorted(strided)

    optimiser = torch.optim.SGD(
        parameter_groups(converted, lr=0.1, weight_decay=1e-4), momentum=0.9
    )
    converted.train()
    strides = [layer.strides for layer in converted.modules() if isinstance(layer, DiffStrideNd)]
    for extra in (0, 3, 7):  # of whatever size, branches agree
        loss = tensor(converted(example(dims, extra))).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        assert loss.isfinite()
    layers = [layer for layer in converted.modules() if isinstance(layer, DiffStrideNd)]
    assert [layer.strides for layer in layers] != strides
    # Strides that nobody would have chosen.
    with torch.no_grad():
        for i, layer in enumerate(layers):
            layer.stride.copy_(1.3 + 0.37 * (i % 4) + 0.21 * torch.arange(len(layer.stride)))
    for mode in (True, False):
        converted.train(mode)
        assert tensor(converted(example(dims, 5))).isfinite().all()
    # No tensor has two names, and the record alone makes the same network again.
    save_file(converted.state_dict(), tmp_path / "weights.safetensors")
    again = apply_conversion(make(), json.loads(json.dumps(report.record))).eval()
    again.load_state_dict(load_file(tmp_path / "weights.safetensors"))
    x = example(dims)
    assert torch.equal(tensor(again(x)), tensor(converted(x)))


def test_branches_of_a_block_share_one_layer():
    """ConvNeXt, MobileNetV2 and EfficientNet downsample where there is no shortcut."""
    for name in (
        "transformers ResNet",
        "transformers RegNet",
        *(f"monai ResNet {d}d" for d in (1, 2, 3)),
    ):
        make, dims = MODELS[name]
        converted, report = convert(make(), example(dims))
        found = sites(converted)
        by_group = {}
        for site in report.sites:
            by_group.setdefault(site.group, []).append(found[site.name])
        assert max(map(len, by_group.values())) == 2
        for leader, *others in by_group.values():
            assert isinstance(leader.downsample, DiffStrideNd)
            for other in others:
                assert other.downsample.leader is leader
                assert other.downsample.same_size
        layers = [m for m in converted.modules() if isinstance(m, DiffStrideNd)]
        assert len(layers) == len(by_group)


def test_branches_of_other_depth_follow():
    converted, report = convert(TwoBranches(), example(2), smoothness=2.0)
    assert [site.group for site in report.sites] == [1, 2, 2]
    assert isinstance(converted.pool.downsample, Following)
    with torch.no_grad():
        converted.second.downsample.stride.copy_(torch.tensor([2.7, 1.9]))
    output = converted(torch.rand(1, 3, 61, 50))
    assert output.shape[2:] == converted.second.downsample.output_size(
        converted.first.downsample.output_size((61, 50))
    )
    # The follower's part has a gradient for the leader's stride.
    output[:, 4:].square().sum().backward()
    assert (converted.second.downsample.stride.grad != 0).all()


def test_with_the_same_stride_features_stay_close():
    """A constant image is kept by norm="forward", away from the borders."""
    torch.manual_seed(0)
    model = plain().eval()
    x = torch.rand(4, 3, 1, 1).expand(-1, -1, 64, 64)
    converted, _ = convert(model, x)
    torch.testing.assert_close(converted.eval()(x), model(x), atol=0.02, rtol=0.05)


def test_what_is_converted_can_be_chosen():
    model, x = plain(), example(2)
    assert [s.name for s in convert(model, x, kinds=["maxpool"])[1].sites] == ["1"]
    assert [s.name for s in convert(model, x, include=["[2-9]"])[1].sites] == ["3"]
    assert [s.name for s in convert(model, x, exclude=["3"])[1].sites] == ["1"]
    converted, report = convert(model, x, pooling="replace", stride=3.0, shared=True)
    assert isinstance(converted[1], nn.Identity)
    assert converted[1].downsample.strides == (3, 3)
    assert converted[1].downsample.shared
    assert report.sites[0].size_after == (21, 21)
    converted.load_state_dict(model.state_dict())
    with pytest.warns(UserWarning, match="nothing was converted"):
        same, report = convert(model, x, include=["nothing"])
    assert str(report).startswith("nothing was converted\nleft alone in")
    assert torch.equal(same.eval()(x), model.eval()(x))


def test_a_pooling_over_everything_stays_one():
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.AvgPool2d(99, ceil_mode=True), nn.Flatten()
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        converted, report = convert(model, example(2))
    assert [site.name for site in report.sites] == ["0"]
    assert type(converted[1]) is nn.AvgPool2d


def test_a_layer_used_twice_has_one_stride():
    class Reused(nn.Module):
        def __init__(self):
            super().__init__()
            self.pool = nn.MaxPool2d(2)

        def forward(self, x):
            return self.pool(self.pool(x))

    converted, report = convert(Reused(), example(2), smoothness=1.0)
    assert len(report.sites) == 1
    once = converted.pool.downsample.output_size((63, 63))
    twice = converted.pool.downsample.output_size([n - 1 for n in once])
    assert converted(example(2)).shape[2:] == twice


def test_copies_and_pickles():
    converted, _ = convert(TwoBranches(), example(2))
    x = example(2)
    expected = converted.eval()(x)
    for other in (copy.deepcopy(converted), pickle.loads(pickle.dumps(converted))):
        with torch.no_grad():
            converted.second.downsample.stride.fill_(2.0)
            torch.testing.assert_close(other.eval()(x), expected)
            other.second.downsample.stride.fill_(3.0)  # its own leader, not that of the original
            assert other(x).shape != expected.shape
        assert (
            other(x).shape[2]
            == other.second.downsample.output_size(other.first.downsample.output_size((64, 64)))[0]
        )


def test_the_table_reads_a_converted_network():
    converted, _ = convert(plain(), example(2), smoothness=1.0)
    text = str(stride_table(converted, (3, 64, 64)))
    assert "1.downsample" in text
    assert "3.downsample" in text
    assert isinstance(converted[1].downsample, DiffStride2d)


class Skips(nn.Module):
    """Down by two, and up again to what it was."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.down = nn.Conv2d(4, 4, 3, stride=2, padding=1)

    def forward(self, x):
        x = self.first(x)
        return x + nn.functional.interpolate(self.down(x), scale_factor=2)


class BesideTheInput(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(3, 3, 3, stride=2, padding=1)

    def forward(self, x):
        return self.down(x) + x[..., ::2, ::2]


class Custom(nn.Conv2d):
    def forward(self, x):
        return super().forward(x).relu()


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (lambda: Custom(3, 4, 3, stride=2), {}, "is a Custom, which does more than a Conv2d"),
        (Skips, {}, "the output of first meets that of interpolate"),
        (BesideTheInput, {}, "the output of down meets that of __getitem__"),
        (
            lambda: nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.Flatten(), nn.Linear(4096, 3)),
            {"convention": "paper"},
            r"2 \(Linear\) can't take what comes to it now.*AdaptiveAvgPool2d",
        ),
        (lambda: nn.MaxPool2d(2, return_indices=True), {}, "returns indices"),
        (TwoBranches, {"groups": [["second"], ["pool"]]}, "second and pool meet"),
        (TwoBranches, {"groups": [["first", "second"]]}, "second and pool meet"),
        (TwoBranches, {"groups": [["frist"]]}, "groups has 'frist', which is no layer"),
        (plain, {"kinds": ["cnov"]}, "kinds must be one of conv, maxpool, avgpool"),
        (plain, {"pooling": "no"}, "pooling must be one of"),
        (plain, {"stride": 0.5}, "stride must"),
    ],
)
def test_what_can_not_be_done_is_refused_with_a_reason(make, options, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        convert(make(), example(2), **options)


def test_an_example_that_shrinks_to_nothing_is_refused():
    model = MODELS["monai ResNet 2d"][0]()
    with pytest.raises(ValueError, match=r"example_input is too small: layer\d.* makes 1×1 of 2×2"):
        convert(model, torch.rand(2, 3, 16, 16))
    with pytest.raises(ValueError, match=r"too small: 0 makes 1×8 of 2×8, .* exclude=\['0'\]"):
        convert(nn.Sequential(nn.MaxPool2d((2, 1))), torch.rand(1, 3, 2, 8))


def test_groups_may_be_larger_than_they_must():
    converted, report = convert(plain(), example(2), groups=[["1", "3"]])
    assert {site.group for site in report.sites} == {1}
    assert isinstance(converted[3].downsample, Following)
    assert converted(example(2)).shape == (2, 3)
