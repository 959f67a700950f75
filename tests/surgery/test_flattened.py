"""Networks that flatten their maps: a linear layer behind them takes one size."""

import copy
import json
import pickle

import pytest
import torch
from torch import nn

from diffstride import convert, freeze
from diffstride.layers import apply_conversion


def lenet():
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(400, 10)),
    )


def tight(model, **options):
    options = {"smoothness": 1.0, "convention": "tight", **options}
    return convert(model, torch.rand(2, 1, 28, 28), **options)


def test_it_is_converted_and_trains_until_a_size_changes():
    with pytest.warns(UserWarning, match="7 reads maps of one size.*output_size='keep'"):
        converted, report = tight(lenet())
    assert [site.size_after for site in report.sites] == [(14, 14), (5, 5)]
    x = torch.rand(2, 1, 28, 28)
    converted(x).square().sum().backward()
    assert all(layer.downsample.stride.grad.abs().sum() > 0 for layer in converted[2::3][:1])
    again = apply_conversion(lenet(), json.loads(json.dumps(report.record)))
    others = [again, copy.deepcopy(converted), pickle.loads(pickle.dumps(converted))]
    for network in [converted, *others]:
        with torch.no_grad():
            network[2].downsample.stride.fill_(1.5)
        with pytest.raises(ValueError, match=r"7 \(Linear\) takes 400 features and got .*'keep'"):
            network(x)


def test_sizes_that_are_kept_stay_while_strides_learn():
    converted, report = tight(lenet(), output_size="keep")
    assert [site.size_after for site in report.sites] == [(14, 14), (5, 5)]
    x = torch.rand(2, 1, 28, 28)
    before = converted(x)
    converted(x).square().sum().backward()
    with torch.no_grad():
        converted[2].downsample.stride.fill_(2.7)
    after = converted(x)
    assert after.shape == before.shape
    assert not torch.equal(after, before)
    torch.testing.assert_close(freeze(converted.eval(), (1, 28, 28))(x), converted(x))
    again = apply_conversion(lenet(), json.loads(json.dumps(report.record)))
    again.load_state_dict(converted.state_dict())
    assert torch.equal(again(x), converted(x))
