"""The convolution layers: parameters, names and states as in torch, a stride besides."""

import copy
import pickle

import pytest
import torch
from torch import nn

from diffstride import (
    DiffStride2d,
    DiffStrideConv1d,
    DiffStrideConv2d,
    DiffStrideConv3d,
    parameter_groups,
)

PAIRS = {
    1: (nn.Conv1d, DiffStrideConv1d),
    2: (nn.Conv2d, DiffStrideConv2d),
    3: (nn.Conv3d, DiffStrideConv3d),
}


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("mode", ["zeros", "circular"])
def test_it_is_the_convolution_then_the_downsampling(axes, mode):
    plain, learned = PAIRS[axes]
    options = {"padding": 1, "groups": 2, "padding_mode": mode}
    layer = learned(2, 4, 3, 1.7, **options, smoothness=1.0, norm="forward")
    convolution = plain(2, 4, 3, **options)
    convolution.load_state_dict({"weight": layer.weight, "bias": layer.bias})
    x = torch.randn(2, 2, *[9, 8, 7][:axes])
    torch.testing.assert_close(layer(x), layer.downsample(convolution(x)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("bias", [True, False])
def test_the_state_of_a_strided_convolution_loads(axes, bias):
    plain, learned = PAIRS[axes]
    strided = plain(2, 4, 3, stride=2, bias=bias)
    layer = learned(2, 4, 3, stride=2.5, bias=bias)
    layer.load_state_dict(strided.state_dict())
    assert torch.equal(layer.weight, strided.weight)
    assert layer.strides == (2.5,) * axes
    model = nn.Sequential(nn.Identity(), copy.deepcopy(layer))
    model.load_state_dict(nn.Sequential(nn.Identity(), strided).state_dict())
    own = learned(2, 4, 3, stride=3.0, bias=bias)
    own.load_state_dict(layer.state_dict())
    assert own.strides == layer.strides
    with pytest.raises(RuntimeError, match="Missing key"):
        layer.load_state_dict({"bias": strided.bias} if bias else {})


def test_state_dicts_given_to_load_are_not_changed():
    strided = nn.Conv2d(2, 4, 3, stride=2)
    state = dict(strided.state_dict())
    DiffStrideConv2d(2, 4, 3).load_state_dict(state)
    assert set(state) == {"weight", "bias"}


def test_initialisation_is_that_of_torch():
    torch.manual_seed(3)
    plain = nn.Conv2d(3, 8, 5)
    torch.manual_seed(3)
    layer = DiffStrideConv2d(3, 8, 5)
    assert torch.equal(layer.weight, plain.weight)
    assert torch.equal(layer.bias, plain.bias)


def test_its_stride_is_a_stride_like_any_other():
    layer = DiffStrideConv2d(3, 8, 3, stride=2.0, max_stride=2.5)
    assert layer.stride is layer.downsample.stride
    assert isinstance(layer.downsample, DiffStride2d)
    groups = {g["name"]: g["params"] for g in parameter_groups(layer, 0.1, 0.1)}
    assert groups["strides"][0] is layer.stride
    with torch.no_grad():
        layer.stride.fill_(9.0)
    layer(torch.randn(1, 3, 16, 16)).sum().backward()
    assert layer.strides == (2.5, 2.5)
    assert layer.stride.grad is not None


def test_what_it_prints_and_how_it_travels():
    layer = DiffStrideConv2d(3, 8, (1, 3), padding=(0, 1), groups=1, bias=False, order="after")
    assert repr(layer).splitlines()[1].strip() == (
        "3, 8, kernel_size=(1, 3), padding=(0, 1), bias=False"
    )
    x = torch.randn(2, 3, 9, 9)
    for back in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(back(x), layer(x))
        assert repr(back) == repr(layer)


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="order must be one of"):
        DiffStrideConv2d(3, 8, 3, order="fast")
    with pytest.raises(ValueError, match="stride must be at least 1"):
        DiffStrideConv2d(3, 8, 3, stride=0)
    with pytest.raises(ValueError, match="padding_mode"):
        DiffStrideConv2d(3, 8, 3, padding_mode="mirror")
    with pytest.raises(TypeError, match="smooth"):
        DiffStrideConv2d(3, 8, 3, smooth=1)
