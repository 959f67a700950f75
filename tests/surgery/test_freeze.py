"""A frozen network computes the same with constants."""

import copy
import warnings
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import nn

from diffstride import (
    DiffStride1d,
    DiffStride2d,
    DiffStride3d,
    DiffStrideConv2d,
    SpectralPool2d,
    convert,
    cost,
    freeze,
    models,
)
from diffstride.analysis.observing import tensors_in
from diffstride.layers.converted import CONVERTED, recast
from diffstride.layers.frozen import Frozen, Subsample
from tests.surgery.third_party_networks import MODELS, TwoBranches, example, tensor

pytestmark = pytest.mark.third_party


def unsettled(model):
    """With strides that nobody would have chosen, and statistics that have been moved."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("stride"):
                parameter.copy_(1.2 + 1.5 * torch.rand(parameter.shape, generator=generator))
    return model.eval()


def has_learnable_strides(model):
    return any("stride" in name for name, _ in model.named_parameters())


@pytest.mark.parametrize("name", MODELS)
def test_converted_networks_freeze_to_the_same_outputs(name):
    make, dims = MODELS[name]
    torch.manual_seed(0)
    x = example(dims)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = unsettled(convert(make(), x, smoothness=2.0)[0])
    expected = tensor(model(x))
    frozen = freeze(model, tuple(x.shape[1:]))
    torch.testing.assert_close(tensor(frozen(x)), expected, atol=1e-4, rtol=1e-3)
    assert not has_learnable_strides(frozen)
    assert has_learnable_strides(model)  # the original is as it was
    torch.testing.assert_close(tensor(model(x)), expected)


@pytest.mark.parametrize("name", ["resnet18", "densenet121", "efficientnet_b0", "audio_cnn"])
@pytest.mark.parametrize("kind", ["diffstride", "spectral"])
def test_own_networks_freeze_to_the_same_outputs(name, kind):
    torch.manual_seed(0)
    size = (1, 50, 40) if name == "audio_cnn" else (3, 64, 64)
    model = models.create(
        name, num_classes=5, in_channels=size[0], downsampling=kind, width=0.125, smoothness=2.0
    )
    model = unsettled(model)
    x = torch.rand(2, *size)
    frozen = freeze(model, size)
    torch.testing.assert_close(frozen(x), model(x), atol=1e-4, rtol=1e-3)
    assert not has_learnable_strides(frozen)
    assert any(isinstance(module, Frozen) for module in frozen.modules())


@pytest.mark.parametrize(
    ("layer", "size"),
    [
        (DiffStride1d(2.3), (37,)),
        (DiffStride2d((1.7, 3.1), norm="forward"), (20, 31)),
        (DiffStride2d((1.0, 3.1), norm="backward", convention="symmetric"), (17, 31)),
        (DiffStride2d(1.0), (9, 8)),
        (DiffStride3d((1.3, 2.2, 1.9), smoothness=2.0), (7, 12, 9)),
        (DiffStride2d(2.0, crop=False), (16, 16)),
        (SpectralPool2d((1.5, 2.5)), (20, 21)),
        (DiffStrideConv2d(3, 4, 3, stride=1.8, padding=1), (18, 25)),
        (DiffStrideConv2d(3, 4, 1, stride=(2.2, 1.4), norm="forward"), (18, 25)),
        (DiffStrideConv2d(3, 6, 1, stride=2.2, groups=3), (18, 25)),
        (DiffStrideConv2d(3, 4, (5, 3), stride=1.8, padding_mode="circular", padding=2), (18, 25)),
    ],
)
def test_layers_freeze_to_the_same_numbers(layer, size):
    x = torch.randn(2, 3, *size, dtype=torch.float64)
    layer = layer.double().eval()
    frozen = freeze(layer, (3, *size))
    if isinstance(layer, SpectralPool2d):  # it has no parameter that would say how precise
        x = x.float()
    close = {"atol": 1e-5, "rtol": 1e-4} if x.dtype == torch.float32 else {}
    torch.testing.assert_close(frozen(x), layer(x), **(close or {"atol": 1e-6, "rtol": 1e-6}))


def test_convolutions_of_single_samples_come_after():
    converted, _ = convert(nn.Sequential(nn.Conv2d(3, 4, 1, stride=2)), example(2))
    frozen = freeze(unsettled(converted), (3, 64, 64))
    assert frozen[0].downsample_first
    x = example(2)
    torch.testing.assert_close(frozen(x), converted(x), atol=1e-5, rtol=1e-4)
    assert freeze(DiffStrideConv2d(3, 4, 1), (3, 32, 32)).downsample.size == (32, 32)


@pytest.mark.parametrize(
    ("convolution", "stride", "size"),
    [
        (nn.Conv1d(32, 64, 5, padding=2), 4.3, (61,)),
        (nn.Conv1d(32, 64, 5), 4.3, (60,)),
        (nn.Conv2d(32, 64, 3, padding=1), (3.2, 2.7), (32, 31)),
        (nn.Conv2d(32, 64, 3, padding=1), (1.0, 3.7), (16, 31)),
        (nn.Conv2d(32, 64, 3, padding=(0, 1), bias=False), 3.2, (23, 24)),
        (nn.Conv2d(32, 64, (3, 1), padding=(1, 0)), 2.5, (23, 24)),
        (nn.Conv2d(32, 128, 3, padding=2, dilation=2), 4.0, (32, 32)),
        (nn.Conv2d(32, 128, 3, padding=1, groups=2), 4.0, (32, 32)),
        (nn.Conv2d(32, 64, (4, 2), padding="same"), 3.0, (32, 30)),
        (nn.Conv2d(32, 64, 3, padding="valid"), 3.0, (32, 30)),
        (nn.Conv2d(32, 64, 3, padding=1, padding_mode="circular"), 3.0, (24, 32)),
        (nn.Conv2d(32, 64, 3, padding=1, padding_mode="reflect"), 3.0, (24, 32)),
        (nn.Conv2d(32, 64, 3, padding=2, padding_mode="replicate"), (1.0, 9.0), (12, 80)),
        (nn.Conv3d(16, 64, 3, padding=1), 2.6, (16, 13, 15)),
    ],
)
@pytest.mark.parametrize("form", ["apart", "converted"])
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
def test_convolutions_read_what_is_downsampled_already(convolution, stride, size, form):
    """Whatever they pad and however far they reach: fewer outputs, the same numbers."""
    kind = (DiffStride1d, DiffStride2d, DiffStride3d)[len(size) - 1]
    layer = kind(stride, smoothness=0.25, norm="forward", convention="symmetric")
    plain = copy.deepcopy(convolution)
    if form == "apart":
        model = nn.Sequential(plain, layer)
    else:
        plain = recast(plain, CONVERTED[type(plain)][2])
        plain.downsample = layer
        model = nn.Sequential(plain)
    model = model.double().eval()
    x = torch.randn(2, plain.in_channels, *size, dtype=torch.float64)
    expected = model(x)
    frozen = freeze(model, x.shape[1:])
    torch.testing.assert_close(frozen(x), expected, atol=1e-10, rtol=1e-10)
    read = frozen[0].downsample
    assert isinstance(read, Frozen)
    assert read.size == size
    assert isinstance(frozen[0], type(convolution))  # whose weight may be asked for
    # A convolution that was converted runs in the cheaper order before it is frozen.
    macs = cost(frozen, x.shape[1:]).macs, cost(model, x.shape[1:]).macs
    assert macs[0] < macs[1] if form == "apart" else macs[0] == macs[1]
    assert torch.equal(model(x), expected)


@dataclass
class Held:
    down: torch.Tensor
    whole: torch.Tensor


class Used(nn.Module):
    """A convolution and a downsampling; what is between them is used in one of these ways."""

    WAYS: ClassVar = {
        "once": lambda self, x, y: self.downsample(y),
        "weight": lambda self, x, y: self.downsample(y.to(self.convolution.weight.dtype)),
        "in place": lambda self, x, y: self.downsample(y.relu_()),
        "its data": lambda self, x, y: (y.data.relu_(), self.downsample(y))[1],
        "transposed": lambda self, x, y: self.downsample(y) + y.mT.mean(),
        "function": lambda self, x, y: self.downsample(y) + y.mean(),
        "size": lambda self, x, y: nn.functional.interpolate(self.downsample(y), y.shape[2:]),
        "output": lambda self, x, y: (self.downsample(y), y),
        "held": lambda self, x, y: Held(self.downsample(y), y),
        "twice": lambda self, x, y: self.downsample(y) + self.downsample(y),
        "again": lambda self, x, y: self.downsample(y) + self.downsample(self.convolution(-x)),
    }
    MERGED = ("once", "by name")

    def __init__(self, how):
        super().__init__()
        self.convolution = nn.Conv2d(32, 32, 3, padding=1)
        self.downsample = DiffStride2d(4.0, smoothness=0.25)
        self.how = how

    def forward(self, x):
        return self.WAYS[self.how](self, x, self.convolution(x))


@pytest.mark.parametrize("how", Used.WAYS)
def test_what_is_used_elsewhere_is_computed_whole(how):
    model = Used(how).eval()
    x = torch.randn(2, 32, 32, 32)
    frozen = freeze(model, x.shape[1:])
    found, expected = (tensors_in(network(x)) for network in (frozen, model))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)
    assert hasattr(frozen.convolution, "downsample") == (how in Used.MERGED)


@pytest.mark.parametrize("where", ["convolution", "downsample"])
@pytest.mark.parametrize("before", [True, False])
def test_what_hooks_do_is_done_still(where, before):
    model = Used("once").eval()
    module = getattr(model, where)
    if before:
        module.register_forward_pre_hook(lambda module, args: (args[0].abs(),))
    else:
        module.register_forward_hook(lambda module, args, output: output.abs())
    x = torch.randn(2, 32, 32, 32)
    expected = model(x)
    torch.testing.assert_close(freeze(model, x.shape[1:])(x), expected, atol=1e-5, rtol=1e-4)


def test_one_layer_for_two_branches():
    """It passes what a convolution has downsampled already, and downsamples the shortcut."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(16, 64, 3, padding=1)
            self.shortcut = nn.Conv2d(16, 64, 1)
            self.downsample = DiffStride2d(2.0, smoothness=0.25)

        def forward(self, x):
            return self.downsample(self.conv(x)) + self.shortcut(self.downsample(x))

    model, x = Block().eval(), torch.rand(2, 16, 32, 32)
    frozen = freeze(model, x.shape[1:])
    assert isinstance(frozen.conv.downsample, Frozen)
    assert frozen.downsample.done_before
    torch.testing.assert_close(frozen(x), model(x), atol=1e-5, rtol=1e-4)
    assert cost(frozen, x.shape[1:]).macs < cost(model, x.shape[1:]).macs


def test_whole_strides_give_the_plain_strided_network():
    """Started at its own strides, a converted network rounds back to the one it was."""
    for name in ("transformers ResNet", "monai DenseNet 3d", "sequential", "two branches"):
        make, dims = MODELS[name]
        model = make().eval()
        x = example(dims)
        converted, _ = convert(model, x)
        plain = freeze(converted, tuple(x.shape[1:]), integer_strides=True)
        torch.testing.assert_close(tensor(plain(x)), tensor(model(x)))
    layer = nn.Sequential(DiffStride2d((1.6, 2.4)), SpectralPool2d(3.2))
    plain = freeze(layer, (3, 32, 32), integer_strides=True)
    assert [type(module) for module in plain] == [Subsample, Subsample]
    x = torch.rand(1, 3, 32, 32)
    assert torch.equal(plain[0](x), x[..., ::2, ::2])


def test_frozen_networks_compile_whole():
    model = unsettled(models.create("resnet18", num_classes=3, width=0.0625, smoothness=1.0))
    frozen = freeze(model, (3, 32, 32))
    x = torch.rand(2, 3, 32, 32)
    exported = torch.export.export(frozen, (torch.rand(2, 3, 32, 32),))
    compiled = torch.compile(frozen, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        for found in (exported.module()(x), compiled(x)):
            torch.testing.assert_close(found, model(x), atol=1e-4, rtol=1e-3)


def test_what_was_frozen_before_stays_so():
    x = example(2)
    frozen = freeze(convert(TwoBranches(), x)[0].eval(), tuple(x.shape[1:]))
    with pytest.raises(ValueError, match="nothing to freeze, unless it was frozen before"):
        freeze(frozen, tuple(x.shape[1:]))
    longer = nn.Sequential(frozen, DiffStride2d(2.0)).eval()
    again = freeze(longer, tuple(x.shape[1:]))
    torch.testing.assert_close(again(x), longer(x))
    assert not has_learnable_strides(again)


def test_what_can_not_be_frozen_is_said():
    with pytest.raises(ValueError, match=r"no DiffStride or other layer .* nothing to freeze"):
        freeze(nn.Conv2d(3, 4, 3), (3, 32, 32))
    layer = DiffStride2d(2.0)
    with pytest.raises(ValueError, match=r"0 is used at several sizes, \(32, 32\) and \(24, 24\)"):
        freeze(nn.Sequential(layer, layer), (3, 32, 32))
    converted, _ = convert(TwoBranches(), example(2))
    with torch.no_grad():
        converted.first.downsample.stride.fill_(2.6)
    with pytest.raises(ValueError, match="with whole strides the network does not fit"):
        freeze(converted, (3, 64, 64), integer_strides=True)
