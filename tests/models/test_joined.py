"""A downsampling that is joined to the convolution before it: another order, the same network."""

import pytest
import torch
from torch import nn

from diffstride import DiffStride2d, SpectralPool2d, cost, freeze, models
from diffstride.layers.joined import JoiningSequential
from diffstride.layers.resizer import Resizer
from diffstride.models.registry import list_models

SIZES = {"audio_cnn": (1, 40, 32), "signal_cnn": (1, 301), "efficientnet_b0": (3, 48, 48)}


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
    model, x = network(name, downsampling), torch.randn(2, *size).double()
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


def test_a_block_runs_the_layers_that_it_has():
    """Whatever is put in their places later; nothing refers to what was there before."""
    model, x = network("resnet18", "diffstride"), torch.randn(2, 3, 32, 32).double()
    names = [name for name in model.state_dict() if name.endswith("stride")]
    assert names == [f"stages.{i}.0.downsample.stride" for i in (1, 2, 3)]
    block = model.stages[1][0]
    block.downsample = DiffStride2d(
        3.0, smoothness=1.0, convention="tight", norm="forward"
    ).double()
    block.conv1 = nn.Conv2d(16, 32, 5, padding=2, bias=True).double()
    joined = run(model, x)
    block.downsample.register_forward_hook(lambda *_: None)
    for a, b in zip(joined, run(model, x), strict=True):
        torch.testing.assert_close(a, b, atol=1e-10, rtol=1e-8)


def watch_downsample(model, seen):
    model.stages[1][0].downsample.register_forward_hook(lambda *a: seen.append(a[2].shape[2:]))


def watch_convolution(model, seen):
    model.stages[1][0].conv1.register_forward_hook(lambda *a: seen.append(a[2].shape[2:]))


def watch_everything(model, seen):
    def note(module, inputs, output):
        if module in (model.stages[1][0].conv1, model.stages[1][0].downsample):
            seen.append(output.shape[2:])

    return nn.modules.module.register_module_forward_hook(note)


@pytest.mark.parametrize(
    ("watch", "expected"),
    [(watch_downsample, [16, 16]), (watch_convolution, [32]), (watch_everything, [32, 16, 16])],
)
def test_who_looks_on_sees_one_after_the_other(watch, expected):
    model, seen = network("resnet18", "diffstride"), []
    handle = watch(model, seen)
    model(torch.randn(2, 3, 32, 32).double())
    if handle is not None:
        handle.remove()
    assert seen == [(size, size) for size in expected]


def test_a_sequence_joins_neighbours_alone():
    """A layer between the two, or a stride of the convolution, keeps them apart."""
    torch.manual_seed(0)
    rule = {"smoothness": 1.0, "convention": "tight"}
    layers = [
        nn.Conv2d(3, 8, 3, padding=1),
        DiffStride2d(2.0, **rule),
        nn.Conv2d(8, 8, 3, stride=2, padding=1),
        DiffStride2d(1.5, **rule),
        nn.Conv2d(8, 8, 1),
        nn.ReLU(),
        SpectralPool2d(1.2),
    ]
    joined, plain = JoiningSequential(*layers).double(), nn.Sequential(*layers).double()
    x = torch.randn(2, 3, 37, 32).double()
    for a, b in zip(run(joined, x), run(plain, x), strict=True):
        torch.testing.assert_close(a, b, atol=1e-10, rtol=1e-8)
    assert list(joined.state_dict()) == list(plain.state_dict())
