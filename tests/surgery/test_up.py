"""The way up as constants, as ONNX, with whole strides, and with fixed layers in other places."""

import copy

import onnxruntime
import pytest
import torch
from torch import nn

from diffstride import (
    DiffStride2d,
    DiffStrideConv2d,
    DiffUpsample1d,
    DiffUpsample2d,
    DiffUpsample3d,
    SpectralPool2d,
    SpectralUpsample1d,
    SpectralUpsample2d,
    StridePlan,
    convert,
    cost,
    export_onnx,
    freeze,
)
from diffstride.core.fft import apply
from diffstride.layers.block_products import BlockProducts
from diffstride.layers.converted import Converted
from diffstride.layers.frozen import Frozen
from diffstride.layers.resizer import resizers
from tests.small_networks import UNet

PAPER = {"convention": "paper", "smoothness": 2.0}


def conv(channels, outputs, axes=2):
    return (nn.Conv1d, nn.Conv2d, nn.Conv3d)[axes - 1](channels, outputs, 3, padding=1)


def pool_and_back():
    down = SpectralPool2d(2.3, norm="forward")
    return nn.Sequential(conv(3, 4), down, nn.ReLU(), conv(4, 4), down.up(), conv(4, 2))


def conv_and_back():
    down = DiffStrideConv2d(3, 4, 3, stride=2.0)
    return nn.Sequential(down, nn.ReLU(), conv(4, 4), down.up(), conv(4, 2))


NETWORKS = {
    "learned": (lambda: nn.Sequential(conv(3, 4), DiffUpsample2d((2.0, 1.7)), nn.ReLU()), (16, 13)),
    "paper": (lambda: nn.Sequential(conv(3, 4), DiffUpsample2d(2.0, **PAPER)), (16, 13)),
    "channels grow": (lambda: nn.Sequential(nn.Conv2d(3, 40, 1), DiffUpsample2d(1.2)), (16, 13)),
    "fixed": (lambda: nn.Sequential(SpectralUpsample2d(2.4), conv(3, 2)), (9, 20)),
    "to a size": (lambda: nn.Sequential(SpectralUpsample2d(output_size=24), conv(3, 2)), (9, 20)),
    "1d": (lambda: nn.Sequential(conv(3, 4, 1), DiffUpsample1d(2.0), conv(4, 2, 1)), (50,)),
    "1d long": (lambda: nn.Sequential(conv(3, 4, 1), DiffUpsample1d(2.0)), (1500,)),
    "1d long odd": (lambda: nn.Sequential(SpectralUpsample1d(1.3), conv(3, 2, 1)), (1501,)),
    "3d": (lambda: nn.Sequential(conv(3, 4, 3), DiffUpsample3d((1.0, 2.0, 1.5))), (4, 5, 6)),
    "pooled": (pool_and_back, (17, 20)),
    "convolved": (conv_and_back, (17, 20)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_frozen_networks_compute_the_same(name):
    make, size = NETWORKS[name]
    model = make().eval()
    frozen = freeze(model, (3, *size))
    assert not list(resizers(frozen))
    x = torch.randn(2, 3, *size)
    torch.testing.assert_close(frozen(x), model(x), rtol=1e-4, atol=1e-5)
    # Without convolutions that change places, it costs what it did.
    if name in ("fixed", "to a size"):
        assert cost(frozen, (3, *size)).macs == cost(model, (3, *size)).macs


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_files_compute_the_same(name, tmp_path):
    make, size = NETWORKS[name]
    model = make().eval()
    path = export_onnx(model, tmp_path / "model.onnx", (3, *size))
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for batch in (1, 3):
        x = torch.randn(batch, 3, *size)
        expected = model(x).detach()
        (y,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        error = (torch.from_numpy(y) - expected).abs().max() / expected.abs().max()
        assert error <= 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("size", [(32, 32), (33, 37)])
def test_u_nets_are_frozen_and_exported(size, tmp_path):
    model = UNet(2.3).eval()
    x = torch.randn(2, 1, *size)
    expected = model(x).detach()
    frozen = freeze(model, (1, *size))
    assert [type(getattr(frozen, name)) for name in ("up", "from_bottom")] == [Frozen, Frozen]
    torch.testing.assert_close(frozen(x), expected, rtol=1e-4, atol=1e-5)
    path = export_onnx(model, tmp_path / "model.onnx", (1, *size))
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    assert (torch.from_numpy(y) - expected).abs().max() <= 1e-4 * expected.abs().max()
    assert model(torch.randn(1, 1, 20, 21)).shape[2:] == (20, 21)  # it is as it was


@pytest.mark.parametrize(
    ("size", "made", "blocks"), [(100, 331, 5), (100, 200, 10), (97, 194, 6), (64, 65, 4)]
)
def test_long_axes_by_blocks(size, made, blocks):
    weights = torch.rand(size // 2 + 1, dtype=torch.float64)
    x = torch.randn(3, size, 2, dtype=torch.float64)
    y = BlockProducts(size, made, weights, blocks)(x, dim=1)
    torch.testing.assert_close(y, apply(x, -2, made, weights), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("stride", [1.0, 1.6, 2.4])
def test_with_whole_strides_what_is_undone_is_still_undone(stride):
    model = UNet(stride).eval()
    plain = freeze(model, (1, 33, 37), integer_strides=True)
    for one in (plain, copy.deepcopy(plain)):
        for size in ((33, 37), (16, 41)):
            assert one(torch.randn(2, 1, *size)).shape[2:] == size
    assert not [x for _, x in resizers(plain) if isinstance(x, DiffStride2d)]


def test_with_whole_strides_convolutions_are_undone_too():
    plain = freeze(conv_and_back().eval(), (3, 17, 20), integer_strides=True)
    assert type(plain[0]) is nn.Conv2d
    assert plain(torch.randn(2, 3, 17, 20)).shape[2:] == (17, 20)
    network, _ = convert(nn.Sequential(nn.Conv2d(3, 4, 3, stride=2)), torch.randn(1, 3, 32, 32))
    (layer,) = (x for x in network.modules() if isinstance(x, Converted))
    both = nn.Sequential(network, layer.downsample.up())
    whole = freeze(both, (3, 32, 32), integer_strides=True)
    assert whole(torch.randn(1, 3, 32, 32)).shape == both(torch.randn(1, 3, 32, 32)).shape


def test_a_fixed_layer_in_the_place_of_one_that_is_undone():
    model = UNet(2.4)
    plan = StridePlan.of(model, (1, 33, 37))
    assert list(plan.strides) == ["down", "deeper"]
    fixed = plan.apply(model)
    assert isinstance(fixed.down, SpectralPool2d)
    assert fixed.up.undone is fixed.down
    assert model.up.undone is model.down
    for size in ((33, 37), (20, 41)):
        assert fixed(torch.randn(2, 1, *size)).shape[2:] == size
