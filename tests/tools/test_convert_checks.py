"""What conversion would get wrong is seen before: patched layers, missed sizes, no batch."""

import functools
import types

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from diffstride import convert, freeze
from diffstride.layers import apply_conversion

X = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def conv(channels=4, stride=1):
    return nn.Conv2d(channels, 4, 3, stride=stride, padding=1)


class Does(nn.Module):
    """Some parts, and a function that calls them."""

    def __init__(self, forward, **parts):
        super().__init__()
        self.function = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.function(self, x)


# Layers that do something else than their class


def strided(x, weight, bias):
    return F.conv2d(x, weight, bias, stride=2, padding=1)


def bound(self, x, weight, bias):
    return strided(x, weight, bias)


@pytest.mark.parametrize(
    "replace",
    [
        lambda layer: strided,
        lambda layer: functools.partial(bound, layer),
        lambda layer: types.MethodType(bound, layer),
    ],
)
def test_a_layer_with_a_method_of_its_own_is_refused(replace):
    model = nn.Sequential(conv(3, 2), nn.ReLU())
    _, report = convert(model, X)
    model[0]._conv_forward = replace(model[0])
    message = r"0 \(Conv2d\) had its method _conv_forward replaced by another function, which"
    for ask in (
        lambda: convert(model, X),
        lambda: apply_conversion(model, report.record),
        lambda: freeze(model, X.shape[1:]),
    ):
        with pytest.raises(ValueError, match=message):
            ask()
    assert model(X).shape[2:] == (16, 16)


def test_functions_that_a_class_has_for_others_may_be_others():
    class Chooses(nn.Module):
        activation = staticmethod(F.relu)
        norm = nn.BatchNorm2d
        scale = torch.sigmoid

        def __init__(self):
            super().__init__()
            self.activation, self.norm, self.scale = F.gelu, nn.InstanceNorm2d, torch.tanh
            self.down = conv(3, 2)

        def forward(self, x):
            return self.scale(self.activation(self.down(x)))

    assert len(convert(Chooses(), X)[1].sites) == 1


class OwnStride(nn.Conv2d):
    """Remembers the stride that it was made with, and never has another."""

    @property
    def stride(self):
        return self.__dict__["made_with"]

    @stride.setter
    def stride(self, value):
        self.__dict__.setdefault("made_with", value)


class OwnPadding(nn.MaxPool2d):
    padding = property(lambda self: 1 if self.stride == 2 else 0, lambda self, value: None)


@pytest.mark.parametrize(
    ("layer", "name"),
    [(OwnStride(3, 4, 3, 2, 1), "stride"), (OwnPadding(3, 2), "padding")],
)
def test_a_class_with_an_attribute_that_layers_have_is_refused(layer, name):
    message = rf"0 is a {type(layer).__name__}, .* it has a {name} of its own.*exclude=\['0'\]"
    with pytest.raises(ValueError, match=message):
        convert(nn.Sequential(layer), X)
    _, report = convert(nn.Sequential(layer, nn.AvgPool2d(2)), X, exclude=["0"])
    assert [site.name for site in report.sites] == ["1"]
