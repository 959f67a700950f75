"""Long axes are frozen as filters: never as a matrix that has hundreds of megabytes."""

import pytest
import torch
from torch import nn

from diffstride import (
    DiffStride1d,
    DiffStride2d,
    DiffStrideConv1d,
    DiffStrideConv2d,
    SpectralPool1d,
    convert,
    cost,
    freeze,
)
from diffstride.layers.converted import lengthened
from diffstride.layers.frozen import Frozen
from diffstride.layers.resizer import AxisConstants

LAYERS = [
    (DiffStride1d(4.0), (16000,)),
    (DiffStride1d(4.003, norm="backward"), (16000,)),
    (DiffStride1d(2.3, path="operator"), (997,)),
    (DiffStride1d(3.0, crop=False), (1001,)),
    (SpectralPool1d(4.1, norm="forward"), (16000,)),
    (DiffStride2d((2.2, 3.3)), (24, 1000)),
    (DiffStride2d((3.3, 2.2), norm="forward"), (400, 500)),
    (DiffStride2d((1.0, 1.7), smoothness=0.0, norm="backward"), (500, 20)),
    (DiffStrideConv1d(3, 4, 5, stride=4.0, padding=2), (2000,)),
    (DiffStrideConv2d(3, 2, (1, 3), stride=2.0), (400, 20)),
]


@pytest.mark.parametrize(("layer", "size"), LAYERS, ids=lambda value: str(value)[:60])
def test_long_axes_freeze_to_the_same_numbers_and_few(layer, size):
    layer = layer.eval()
    x = torch.randn(2, 3, *size)
    frozen = freeze(layer, (3, *size))
    with torch.no_grad():
        expected, found = layer(x), frozen(x)
    close = {"rtol": 0, "atol": 2e-6 * float(expected.abs().max())}
    torch.testing.assert_close(found, expected, **close)
    assert found.is_contiguous()
    numbers = sum(tensor.numel() for tensor in frozen.state_dict().values())
    assert numbers < 2 * sum(size) + 10_000


def test_an_axis_without_a_window_stays_out():
    """Of 500 samples, all of which are kept, as much as of 20."""
    frozen = freeze(DiffStride2d((1.0, 1.7), smoothness=0.0, norm="backward"), (3, 500, 20))
    assert set(frozen.state_dict()) == {"matrix1"}
    frozen = freeze(DiffStride2d((1.7, 1.0), smoothness=0.0, norm="backward"), (3, 500, 20))
    assert set(frozen.state_dict()) == {"weights0"}


@pytest.mark.parametrize(
    ("layer", "size"),
    [
        (DiffStride1d(4.0), (16000,)),
        (DiffStride2d((2.2, 3.3)), (24, 1000)),
        (DiffStride2d((2.2, 3.3)), (1000, 24)),
        (DiffStride2d(2.2), (60, 70)),
    ],
)
def test_frozen_axes_cost_what_they_did(layer, size):
    model = nn.Sequential(layer)
    assert cost(freeze(model, (3, *size)), (3, *size)).macs == cost(model, (3, *size)).macs


def test_what_follows_a_convolution_stays_there_if_it_is_long():
    """Before it, each tap would need a matrix of its own; a kernel of one sample needs none."""
    for kernel, comes_first in ((5, False), (1, True)):
        model = nn.Sequential(nn.Conv1d(4, 8, kernel, padding=kernel // 2), DiffStride1d(4.0))
        frozen = freeze(model, (4, 2000))
        assert hasattr(frozen[0], "downsample") == comes_first
        x = torch.rand(2, 4, 2000)
        torch.testing.assert_close(frozen(x), model.eval()(x), atol=1e-5, rtol=1e-4)


class Branches(nn.Module):
    """Twice by two on one side, once by four, or by three, on the other."""

    def __init__(self, other):
        super().__init__()
        self.first = nn.Conv1d(2, 4, 3, stride=2, padding=1)
        self.second = nn.Conv1d(4, 4, 3, stride=2, padding=1)
        self.pool = nn.MaxPool1d(other)

    def forward(self, x):
        return torch.cat([self.second(self.first(x)), self.pool(x)], 1)


def test_long_branches_that_follow_another():
    converted, _ = convert(Branches(4), torch.rand(1, 2, 2000))
    with torch.no_grad():
        converted.first.downsample.stride.fill_(1.7)
    converted.eval()
    frozen = freeze(converted, (2, 2000))
    x = torch.rand(2, 2, 2000)
    torch.testing.assert_close(frozen(x), converted(x), atol=1e-5, rtol=1e-4)
    assert isinstance(frozen.pool.downsample, Frozen)
    assert sum(b.numel() for b in frozen.buffers()) < 5000


def interpolated(x):
    return nn.functional.interpolate(x, 2 * x.shape[-1], mode="linear")


def test_what_is_no_filter_is_read_as_a_matrix_while_that_is_small():
    like = torch.zeros((), dtype=torch.float64)
    axis = lengthened(AxisConstants(400, 400), 800, like)
    x = torch.rand(1, 1, 400, dtype=torch.float64)
    torch.testing.assert_close(x @ axis.matrix.T, interpolated(x))
    with pytest.raises(ValueError, match="8000 samples is interpolated to 16000, which no filter"):
        lengthened(AxisConstants(8000, 8000), 16000, like)
