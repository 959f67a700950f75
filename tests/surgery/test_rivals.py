"""A network of torch gets the method of others in the place of its strides."""

import copy
import json

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from diffstride import convert, cost, freeze, functional
from diffstride.layers import apply_conversion
from diffstride.layers.factory import KINDS
from diffstride.surgery.rivals import LEARNING, TARGETS

RIVALS = KINDS[KINDS.index("blur") :]
EVERY = pytest.mark.parametrize("to", RIVALS)
DIMS = pytest.mark.parametrize("dims", [1, 2, 3])
SIZE = (21, 26, 18)


class Branches(nn.Module):
    """A block with a strided shortcut, and a pooling behind it that one of another size meets."""

    def __init__(self, dims, meets=False):
        super().__init__()
        layer = {kind: getattr(nn, f"{kind}{dims}d") for kind in ("Conv", "MaxPool", "AvgPool")}
        self.conv = layer["Conv"](2, 4, 3, stride=2, padding=1)
        self.shortcut = layer["Conv"](2, 4, 1, stride=2)
        self.pool = layer["MaxPool"](3, stride=2, padding=1)
        self.other = layer["AvgPool"](4, stride=4) if meets else None
        self.last = layer["Conv"](4, 3, 1)

    def forward(self, x):
        y = torch.tanh(self.conv(x) + self.shortcut(x))
        y = self.pool(y)
        if self.other is not None:
            y = y + self.other(x).repeat_interleave(2, 1)
        return self.last(y)


def network(dims=2, **options):
    torch.manual_seed(0)
    return Branches(dims, **options).double().eval()


def by_hand(model, to, x):
    """The same with stride-1 layers of torch and the pure functions."""
    dims = x.ndim - 2
    conv, pool = getattr(F, f"conv{dims}d"), getattr(F, f"max_pool{dims}d")
    a = conv(x, model.conv.weight, model.conv.bias, padding=1)
    b = conv(x, model.shortcut.weight, model.shortcut.bias)

    def down(y, grids=None):
        if to == "polyphase":
            return functional.polyphase_sample(y, (2,) * dims, grids=grids)
        made = {
            "blur": lambda: functional.blur_pool(y, 2),
            "flc": lambda: functional.frequency_low_cut(y, 2),
            "shape_adaptor": lambda: functional.shape_adaptor(y, 0.25, largest=3),
            "bilinear": lambda: functional.learned_resize(y, 2.0),
        }[to]()
        return made, None

    a, grids = down(a)
    y = torch.tanh(a + down(b, grids)[0])
    y, _ = down(pool(y, 3, 1, padding=1))
    return conv(y, model.last.weight, model.last.bias)


@EVERY
@DIMS
def test_each_layer_loses_its_stride_and_is_followed_by_the_method(to, dims):
    model, size = network(dims), SIZE[:dims]
    x = torch.randn(2, 2, *size, dtype=torch.float64)
    converted, report = convert(model, x, to=to)
    assert [site.name for site in report.sites] == ["conv", "shortcut", "pool"]
    assert [site.size_after for site in report.sites] == [s.size_before for s in report.sites]
    together = report.sites[0].group == report.sites[1].group
    assert together == (to not in ("blur", "flc"))  # each by itself is as good
    assert converted(x).shape == model(x).shape
    torch.testing.assert_close(converted(x), by_hand(model, to, x), rtol=1e-6, atol=1e-6)
    # Weights keep their names, and those of before load.
    assert not converted.load_state_dict(model.state_dict(), strict=False).unexpected_keys
    again = apply_conversion(network(dims), json.loads(json.dumps(report.record)))
    again.load_state_dict(converted.state_dict())
    assert torch.equal(again(x), converted(x))
    assert torch.equal(copy.deepcopy(converted)(x), converted(x))
    frozen = freeze(converted, (2, *size))
    assert not [name for name, _ in frozen.named_parameters() if "downsample" in name]
    torch.testing.assert_close(frozen(x), converted(x), rtol=1e-6, atol=1e-6)
    assert cost(converted, (2, *size)).macs > cost(model, (2, *size)).macs
    whole = freeze(converted, (2, *size), integer_strides=True)
    torch.testing.assert_close(whole(x), model(x))


@EVERY
def test_it_trains_and_other_sizes_go_through(to):
    model = network()
    converted, _ = convert(model, torch.randn(1, 2, 24, 24).double(), to=to)
    converted.train()
    for size in ((24, 24), (17, 30)):
        y = converted(torch.randn(3, 2, *size).double())
        assert y.shape == model(torch.randn(3, 2, *size).double()).shape
        y.square().mean().backward()
    for name, parameter in converted.named_parameters():
        assert parameter.grad is not None and parameter.grad.any(), name


@EVERY
def test_what_meets_a_size_that_is_learned_is_made_to_fit(to):
    """The average pooling reads another map than what it meets."""
    model = network(meets=True)
    x = torch.randn(2, 2, 32, 24).double()
    converted, _ = convert(model, x, to=to)
    assert converted(x).shape == model(x).shape
    if to in LEARNING:
        assert converted.other.downsample.follows
        with torch.no_grad():
            for parameter in converted.pool.downsample.parameters():
                parameter.add_(0.3)
        assert converted(x).shape != model(x).shape
    frozen = freeze(converted, (2, 32, 24))
    torch.testing.assert_close(frozen(x), converted(x), rtol=1e-6, atol=1e-6)


def test_branches_that_meet_are_sampled_on_one_grid():
    x = torch.randn(6, 2, 12, 12).double()
    converted, _ = convert(network(), x, to="polyphase")
    grids = []

    def note(layer, inputs, output):
        grids.append(layer._grids)

    converted.conv.downsample.register_forward_hook(note)
    converted(x)
    assert len(grids) == 2  # for the convolution, and for the shortcut
    assert torch.equal(*grids)
    assert len(set(grids[0].tolist())) > 1


def test_arguments_of_the_method_and_of_conversion():
    x = torch.randn(1, 2, 24, 24).double()
    for to, options in (
        ("blur", {"taps": 5}),
        ("shape_adaptor", {"per_axis": True, "max_stride": 4}),
        ("bilinear", {"shared": True, "max_stride": 3.0}),
    ):
        converted, report = convert(network(), x, to=to, include=["pool"], stride=3, **options)
        assert [site.name for site in report.sites] == ["pool"]
        layer = converted.pool.downsample
        for name, value in options.items():
            assert not layer.shared if name == "per_axis" else getattr(layer, name) == value
        assert layer.strides == pytest.approx((3.0, 3.0))
    replaced, _ = convert(network(), x, to="blur", pooling="replace")
    y = torch.randn(1, 4, 9, 9).double()
    torch.testing.assert_close(replaced.pool(y), functional.blur_pool(y, 2))
    before, _ = convert(network(), x, to="blur", placement="before", include=["conv"])
    weights = before.conv.weight, before.conv.bias
    y = F.conv2d(functional.blur_pool(x, 2), *weights, padding=1)
    torch.testing.assert_close(before.conv(x), y)


def test_what_goes_up_again_is_left_as_it_was():
    model = nn.Sequential(nn.Conv2d(1, 4, 3, 2, 1), nn.ReLU(), nn.ConvTranspose2d(4, 1, 2, 2))
    x = torch.rand(1, 1, 16, 16)
    for to in TARGETS:
        converted, report = convert(model, x, to=to)
        assert converted(x).shape == x.shape
        assert bool(report.ways_up) == (to in LEARNING)


def test_what_it_can_not_be_converted_to_is_said():
    x = torch.randn(1, 2, 24, 24).double()
    with pytest.raises(ValueError, match=r"to must be one of diffstride, .*; got 'strided'"):
        convert(network(), x, to="strided")
    with pytest.raises(TypeError, match="to='blur' does not take learnable, window: it takes taps"):
        convert(network(), x, to="blur", window="ramp", learnable=False)
    with pytest.raises(TypeError, match=r"to='flc' .* it takes no further arguments"):
        convert(network(), x, to="flc", taps=3)
    with pytest.raises(ValueError, match="stride must be whole for blur pooling"):
        convert(network(), x, to="blur", stride=1.5)


def test_older_versions_refuse_a_record_that_they_would_carry_out_otherwise():
    x = torch.randn(1, 2, 24, 24).double()
    versions = {to: convert(network(), x, to=to)[1].record["version"] for to in TARGETS}
    assert versions.pop("diffstride") == 3
    assert set(versions.values()) == {4}
