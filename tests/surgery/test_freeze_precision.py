"""Whatever precision a network has, a frozen one that is wrong is seen."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

from diffstride import DiffStride1d, DiffStride2d, DiffStrideConv2d, convert, freeze, models
from diffstride.core.bases import FOURIER
from diffstride.core.resample import resample
from diffstride.core.rule import AxisPlan
from diffstride.layers.resizer import Resizer, dense
from diffstride.surgery import constants
from tests.surgery.third_party_networks import TwoBranches

PRECISIONS = [torch.bfloat16, torch.float16, torch.float32, torch.float64]


def merged_network():
    return nn.Sequential(
        nn.Conv2d(16, 16, 3, padding=1), DiffStride2d(3.3, smoothness=0.25), nn.ReLU()
    )


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
def test_a_wrong_merge_is_not_returned(dtype, monkeypatch):
    """Its matrices are off by 5 %, which rounding in half precision would hide."""
    torch.manual_seed(0)
    model = merged_network().to(dtype)
    assert hasattr(freeze(model, (16, 30, 31))[0], "downsample")
    spread = constants.spread
    monkeypatch.setattr(constants, "spread", lambda *args: 1.05 * spread(*args))
    frozen = freeze(model, (16, 30, 31))
    assert not hasattr(frozen[0], "downsample")
    x = torch.rand(2, 16, 30, 31).to(dtype)
    expected = copy.deepcopy(model).double()(x.double())
    close = {"rtol": 0, "atol": 8 * torch.finfo(dtype).eps * float(expected.detach().abs().max())}
    torch.testing.assert_close(frozen(x).double(), expected, **close)


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
def test_wrong_constants_are_refused(dtype, monkeypatch):
    read = Resizer.constants

    def wrong(*arguments):
        return [replace(axis, matrix=1.025 * axis.matrix) for axis in read(*arguments)]

    monkeypatch.setattr(Resizer, "constants", wrong)
    with pytest.raises(ValueError, match="computes something else than the model"):
        freeze(merged_network().to(dtype), (16, 30, 31))


NETWORKS = {
    "merged": (merged_network, (16, 30, 31)),
    "layer": (lambda: DiffStride2d((1.7, 2.9)), (3, 40, 37)),
    "long": (lambda: DiffStride1d(3.7), (3, 1000)),
    "convolution": (lambda: DiffStrideConv2d(4, 6, 3, stride=2.2, padding=1), (4, 32, 32)),
    "converted": (lambda: convert(TwoBranches(), torch.rand(1, 3, 48, 48))[0], (3, 48, 48)),
    "resnet18": (
        lambda: models.create("resnet18", num_classes=4, width=0.125, smoothness=1.0),
        (3, 32, 32),
    ),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", NETWORKS)
def test_half_precision_is_as_close_to_the_truth_as_it_was(name, dtype):
    torch.manual_seed(0)
    make, size = NETWORKS[name]
    model = make().eval().to(dtype)
    frozen = freeze(model, size)
    floats = [x for x in frozen.state_dict().values() if x.is_floating_point()]
    assert {x.dtype for x in floats} == {dtype}
    x = torch.randn(8, *size).to(dtype)
    with torch.no_grad():
        truth = copy.deepcopy(model).double()(x.double())
        off, was = ((network(x) - truth).square().mean().sqrt() for network in (frozen, model))
    assert frozen(x).dtype == dtype
    assert off <= 3 * was


def test_constants_are_rounded_once():
    layer = DiffStride2d((1.7, 2.9)).eval()
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        rough = copy.deepcopy(layer)
        rough.stride.data = rough.stride.data.to(dtype)
        precise = freeze(copy.deepcopy(rough).double(), (3, 40, 37))
        frozen = freeze(rough, (3, 40, 37))
        for name, constant in precise.named_buffers():
            assert torch.equal(frozen.get_buffer(name), constant.to(dtype))


class WithFixedPrecision(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.layer = DiffStrideConv2d(3, 4, 3).to(dtype)
        self.dtype = dtype

    def forward(self, x):
        return self.layer(x.to(self.dtype))


def test_networks_of_one_precision():
    """In double precision this one can't run, so that it is checked in single precision."""
    model = WithFixedPrecision(torch.float32).eval()
    x = torch.rand(2, 3, 20, 20)
    torch.testing.assert_close(freeze(model, (3, 20, 20))(x), model(x), atol=1e-5, rtol=1e-4)
    with pytest.raises(ValueError, match="let its forward take the precision of its input"):
        freeze(WithFixedPrecision(torch.bfloat16), (3, 20, 20))


def test_the_matrix_of_an_axis_is_that_of_its_weights():
    weights = torch.rand(7, dtype=torch.float64)
    x = torch.randn(2, 31, dtype=torch.float64)
    axis = AxisPlan(31, 13, weights, 1.0, FOURIER)
    torch.testing.assert_close(x @ dense(axis).T, resample(x, [axis]))
