"""What conversion would get wrong is seen before: patched layers, missed sizes, no batch."""

import functools
import types

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from diffstride import convert, freeze
from diffstride.layers import apply_conversion
from tests.small_networks import Does, X, conv

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


# Outputs that are no maps, of maps that became larger again


def decoder(last):
    return Does(
        lambda m, x: last(m.last(F.interpolate(m.down(x), scale_factor=4))),
        down=nn.Sequential(conv(3, 2), nn.ReLU(), conv(4, 2)),
        last=conv(),
    )


class Places(nn.Module):
    """Flattened, changed, and put back as a map."""

    def forward(self, x):
        places = x.flatten(2).transpose(1, 2)
        return places.relu().transpose(1, 2).unflatten(2, x.shape[2:])


OTHERS = {
    "classes": (lambda x: x.argmax(1), "2 × 32 × 32"),
    "one channel": (lambda x: x[:, 0], "2 × 32 × 32"),
    "a sum": (lambda x: {"out": [x.sum(1)]}, "2 × 32 × 32"),
    "flattened": (lambda x: x.flatten(2), "2 × 4 × 1024"),
    "flattened to places": (lambda x: x.flatten(2).transpose(1, 2).softmax(2), "2 × 1024 × 4"),
    "all in a row": (lambda x: x.flatten(), "8192"),
    "channels last": (lambda x: x.permute(0, 2, 3, 1), "32 × 4"),
    "unflattened": (lambda x: Places()(x).argmax(1), "2 × 32 × 32"),
    "its rows": (lambda x: x.unbind(2), "2 × 4 × 32"),
    "the rows of a wide one": (lambda x: x[..., :1].unbind(2), "2 × 4 × 1"),
}


@pytest.mark.parametrize("smoothness", [0.0, 1.0])
@pytest.mark.parametrize("name", OTHERS)
def test_outputs_without_channels_or_flattened_are_not_of_another_size(name, smoothness):
    last, size = OTHERS[name]
    message = rf"interpolate in the model \(.*larger after down\.0, .* and not {size}\. .* exclude="
    with pytest.raises(ValueError, match=message + r"\['down.0', 'down.2'\]"):
        convert(decoder(last), X, smoothness=smoothness)


class Attention(nn.Module):
    """Every place looks at every other, with two heads; the output is one of places."""

    def forward(self, x):
        places = x.flatten(2).transpose(1, 2)
        heads = places.unflatten(2, (2, -1)).transpose(1, 2)
        weights = (heads @ heads.transpose(2, 3)).softmax(3)
        return (weights @ heads).transpose(1, 2).flatten(2)


def upsampled(m, x):
    return F.interpolate(m.down(x), x.shape[2:])


FOLLOWING = {
    "flattened, never larger": lambda: nn.Sequential(conv(3, 2), nn.Flatten(2)),
    "one channel, never larger": lambda: nn.Sequential(conv(3, 2), Does(lambda _, x: x[:, 0])),
    "the rows, never larger": lambda: nn.Sequential(conv(3, 2), Does(lambda _, x: x.unbind(2))),
    "attention": lambda: nn.Sequential(conv(3, 2), Attention()),
    "larger, and smaller again": lambda: nn.Sequential(
        conv(3, 2), nn.Upsample(scale_factor=2), nn.MaxPool2d(4), nn.Flatten(2)
    ),
    "the mean of a larger one": lambda: decoder(lambda x: x.mean((2, 3))),
    "to the size of the input": lambda: Does(
        lambda m, x: upsampled(m, x).argmax(1), down=conv(3, 2)
    ),
    "as many as there are": lambda: Does(
        lambda m, x: (upsampled(m, x) > 0.1).nonzero(), down=conv(3, 2)
    ),
}


@pytest.mark.parametrize("name", FOLLOWING)
def test_outputs_whose_size_follows_are_converted(name):
    model = FOLLOWING[name]()
    converted, report = convert(model, X)
    assert report.sites
    converted(X)


# Layers that are given no batch


@pytest.mark.parametrize(
    ("layer", "kind"), [(conv(3, 2), "Conv2d"), (nn.MaxPool2d(2), "MaxPool2d")]
)
def test_layers_that_are_given_a_single_example_are_refused(layer, kind):
    model = Does(lambda m, x: m.b(m.a(x[0])), a=layer, b=nn.ReLU())
    message = rf"a \({kind}\) takes a batch of 4 axes: .* given the shape \(3, 32, 32\)\. a layer"
    with pytest.raises(ValueError, match=message):
        convert(model, X)
