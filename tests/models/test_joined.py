"""A downsampling that is joined to the convolution before it: another order, the same network."""

import pytest
import torch
from torch import nn

from diffstride import cost, freeze, models
from diffstride.layers.resizer import Resizer
from diffstride.models.registry import list_models

SIZES = {"audio_cnn": (1, 40, 32), "efficientnet_b0": (3, 48, 48)}


def network(name, downsampling, **options):
    torch.manual_seed(0)
    options = {"convention": "tight", "smoothness": 1.0, "width": 0.25, **options}
    return models.create(name, num_classes=3, downsampling=downsampling, **options).double().eval()


def run(model, x):
    """What comes out, and every gradient."""
    x = x.clone().requires_grad_()
    y = model(x)
    inputs = [x, *(p for p in model.parameters() if p.requires_grad)]
    return [y.detach(), *torch.autograd.grad(y.square().mean(), inputs)]


@pytest.mark.parametrize("downsampling", ["spectral", "diffstride"])
@pytest.mark.parametrize("name", list_models())
def test_the_numbers_are_those_of_the_plain_order(name, downsampling):
    size = SIZES.get(name, (3, 31, 32))
    model, x = network(name, downsampling), torch.randn(2, *SIZES.get(name, (3, 31, 32))).double()
    joined = run(model, x)
    hooks = [
        layer.register_forward_hook(lambda *_: None)  # who looks on has the plain order
        for layer in model.modules()
        if isinstance(layer, Resizer)
    ]
    assert hooks
    for a, b in zip(joined, run(model, x), strict=True):
        torch.testing.assert_close(a, b, atol=1e-10, rtol=1e-8)
    for hook in hooks:
        hook.remove()
    torch.testing.assert_close(freeze(model, size)(x), joined[0], atol=1e-7, rtol=1e-6)


def test_it_costs_what_a_strided_network_does():
    strided = cost(models.create("resnet18", num_classes=3, downsampling="strided"), (3, 32, 32))
    learned = models.create("resnet18", num_classes=3, convention="tight", smoothness=1.0)
    assert cost(learned, (3, 32, 32)).macs < 1.03 * strided.macs


@pytest.mark.parametrize("downsampling", ["strided", "average", "max"])
def test_other_kinds_stay_behind_their_convolution(downsampling):
    block = network("resnet18", downsampling).stages[1][0]
    x = torch.randn(2, 16, 8, 8).double()
    y = block.downsample(block.conv1(x))
    y = block.norm2(block.conv2(block.norm1(y).relu()))
    torch.testing.assert_close(block(x), (y + block.shortcut(block.downsample(x))).relu())


def test_the_stride_of_a_block_is_where_one_looks_for_it():
    model = network("resnet18", "diffstride")
    names = [name for name in model.state_dict() if name.endswith("stride")]
    assert names == [f"stages.{i}.0.downsample.stride" for i in (1, 2, 3)]
    x = torch.randn(2, 3, 32, 32).double()
    before = model(x)
    model.stages[1][0].downsample.smoothness = 2.0
    assert not torch.allclose(before, model(x))
    with torch.no_grad():
        model.stages[1][0].downsample.stride.fill_(4.0)
    sizes = []
    model.stages[1][0].conv1.register_forward_hook(lambda *a: sizes.append(a[2].shape[2:]))
    assert isinstance(model.stages[1][0].conv1, nn.Conv2d)
    model(x)
    assert sizes == [(8, 8)]
