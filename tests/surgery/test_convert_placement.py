"""Downsampling before the convolutions of a network that is converted, instead of after them."""

import json
import warnings

import pytest
import torch
from torch import nn

from diffstride import convert, cost, freeze, soft_macs
from diffstride.layers import apply_conversion
from diffstride.layers.converted import Converted
from tests.surgery.third_party_networks import MODELS, TwoBranches, example, tensor


class Block(nn.Module):
    def __init__(self, inputs=3, outputs=8):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=2, padding=1)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride=2)

    def forward(self, x):
        return self.conv2(self.conv1(x).relu()) + self.shortcut(x)


def in_both_ways(model, x, **options):
    return [convert(model, x, placement=where, **options)[0] for where in ("after", "before")]


def test_both_branches_read_one_small_map():
    torch.manual_seed(0)
    model, x = Block().double().eval(), torch.rand(2, 3, 31, 32).double()
    after, before = in_both_ways(model, x)
    assert set(before.state_dict()) == set(after.state_dict())
    small = before.conv1.downsample(x)
    plain = [
        nn.functional.conv2d(small, c.weight, c.bias, padding=c.padding)
        for c in (model.conv1, model.shortcut)
    ]
    expected = model.conv2(plain[0].relu()) + plain[1]
    torch.testing.assert_close(before(x), expected, atol=1e-12, rtol=1e-12)
    assert small.shape[2:] == model.conv1(x).shape[2:] == (16, 16)
    assert not torch.allclose(before(x), after(x))


def test_a_convolution_without_extent_gives_the_same():
    model, x = nn.Conv2d(3, 4, 1, stride=2).double(), torch.rand(2, 3, 20, 18).double()
    after, before = in_both_ways(model, x)
    torch.testing.assert_close(before(x), after(x), atol=1e-12, rtol=1e-12)


def test_what_changes_the_size_itself_stays_where_it_was():
    """A patch of 2×2 has no padding, and a pooling no weights: both are downsampled after."""
    layers = [
        nn.Conv2d(3, 4, 3, stride=2, padding=1),
        nn.Conv2d(4, 4, 2, stride=2),
        nn.MaxPool2d(2),
    ]
    converted, report = convert(
        nn.Sequential(*layers), torch.rand(1, 3, 32, 32), placement="before"
    )
    assert [layer.downsample_first for layer in converted] == [True, False, False]
    assert [site.after.endswith("before it") for site in report.sites] == [True, False, False]
    assert [site.size_after for site in report.sites] == [(16, 16), (8, 8), (4, 4)]


@pytest.mark.third_party
@pytest.mark.parametrize("name", MODELS)
def test_networks_of_others_keep_their_sizes_and_cost_less(name):
    make, dims = MODELS[name]
    torch.manual_seed(0)
    model, x = make().double().eval(), example(dims).double()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        after, before = in_both_ways(model, x)
    assert tensor(before(x)).shape == tensor(model(x)).shape
    size = x.shape[1:]
    assert cost(before, size).macs <= cost(after, size).macs
    assert soft_macs(before, size).item() == cost(before, size).macs
    frozen = freeze(before, size)
    torch.testing.assert_close(tensor(frozen(x)), tensor(before(x)), atol=1e-7, rtol=1e-6)
    y = tensor(before.train()(x))
    (y * torch.randn_like(y)).sum().backward()
    strides = [p for n, p in before.named_parameters() if n.endswith("stride")]
    assert any(stride.grad.abs().sum() > 0 for stride in strides)


def test_branches_of_other_depth_follow():
    model, x = TwoBranches().eval(), torch.rand(2, 3, 32, 32)
    _, before = in_both_ways(model, x)
    assert before(x).shape == model(x).shape
    with torch.no_grad():
        before.second.downsample.stride.fill_(3.0)
    assert before(x).shape[2:] == (5, 5)  # ⌊16 / 3⌋, and the pooling as the convolution


def test_the_cost_changes_with_strides_as_that_of_the_small_map():
    """Convolving c·(N/S)² has the slope −c·N²/S³ for each axis; resampling adds to it."""
    x, convolution = torch.rand(1, 8, 32, 32), nn.Conv2d(8, 64, 3, stride=2, padding=1)
    converted, _ = convert(convolution, x, placement="before")
    soft_macs(converted, (8, 32, 32)).backward()
    convolving = 8 * 64 * 9 * 32 * 32 / 2**3
    # Resampling a map of 32 × 32, c·(N·N·M + N·M·M): about as much again for each axis.
    resampling = 8 * (32 * 32 * 16 + 32 * 16 * 16)
    for slope in (-converted.downsample.stride.grad).tolist():
        assert convolving < slope < convolving + resampling


def test_a_record_says_it_and_whole_strides_keep_it():
    model, x = Block().eval(), torch.rand(2, 3, 32, 32)
    converted, report = convert(model, x, placement="before")
    record = json.loads(json.dumps(report.record))
    again = apply_conversion(Block().eval(), record)
    again.load_state_dict(converted.state_dict())
    assert torch.equal(again(x), converted(x))
    whole = freeze(converted, (3, 32, 32), integer_strides=True)
    small = x[:, :, ::2, ::2]
    expected = model.conv2(
        nn.functional.conv2d(small, model.conv1.weight, model.conv1.bias, padding=1).relu()
    )
    expected = expected + nn.functional.conv2d(small, model.shortcut.weight, model.shortcut.bias)
    torch.testing.assert_close(whole(x), expected)


def test_it_is_one_of_two():
    with pytest.raises(ValueError, match="placement must be one of after, before; got 'first'"):
        convert(Block(), torch.rand(1, 3, 32, 32), placement="first")


def test_what_replaces_a_strided_layer_keeps_its_size():
    """The defaults of conversion: tight windows, and the smallest R that always learns."""
    converted, _ = convert(Block(), torch.rand(1, 3, 32, 32))
    layer = next(m for m in converted.modules() if isinstance(m, Converted)).downsample
    assert (layer.convention, layer.smoothness, layer.norm) == ("tight", 1.0, "forward")


def test_one_stride_for_all_axes_fits_them_all():
    """Odd sizes ask for 2 along one axis and 31/16 along the other."""
    model, x = nn.Conv2d(3, 4, 3, stride=2, padding=1), torch.rand(1, 3, 32, 31)
    converted, report = convert(model, x, shared=True)
    assert converted.downsample.stride.numel() == 1
    assert report.sites[0].size_after == (16, 16)
    held, _ = convert(model, x, min_stride=2.0)
    assert held.downsample.strides == (2.0, 2.0)


def test_records_of_before_are_carried_out_and_others_refused():
    _, report = convert(Block(), torch.rand(1, 3, 32, 32))
    assert apply_conversion(Block(), {**report.record, "version": 1}) is not None
    for changed, message in (
        ({**report.record, "version": 5}, "must have version 1 to 4"),
        (
            {**report.record, "sites": [{**report.record["sites"][0], "placement": "Before"}]},
            "placement must be one of after, before; got 'Before'",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            apply_conversion(Block(), changed)


def test_a_layer_that_follows_says_the_strides_and_sizes_of_its_leader():
    converted, _ = convert(Block(), torch.rand(1, 3, 32, 32))
    with torch.no_grad():
        converted.conv1.downsample.stride.copy_(torch.tensor([2.4, 3.0]))
    follower = converted.shortcut.downsample
    assert follower.strides == converted.conv1.downsample.strides
    assert follower.output_size((32, 32)) == (13, 10)
    assert converted.shortcut(torch.rand(1, 3, 32, 32)).shape[2:] == (13, 10)
