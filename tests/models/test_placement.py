"""Downsampling before the first convolution of a block: the same weights, for the strided price."""

import pytest
import torch

from diffstride import cost, models
from diffstride.layers.resizer import Resizer
from diffstride.models.registry import list_models

SIZES = {"audio_cnn": (1, 40, 32), "signal_cnn": (1, 320), "efficientnet_b0": (3, 64, 64)}


def network(name, downsampling, placement, **options):
    torch.manual_seed(0)
    options = {"convention": "tight", "smoothness": 1.0, "width": 0.125, **options}
    return models.create(
        name, num_classes=3, downsampling=downsampling, placement=placement, **options
    ).eval()


@pytest.mark.parametrize("name", list_models())
def test_weights_have_the_same_names_and_the_network_costs_less(name):
    size = SIZES.get(name, (3, 32, 32))
    after, before = (network(name, "diffstride", where) for where in ("after", "before"))
    before.load_state_dict(after.state_dict())
    strided = cost(network(name, "strided", "after"), size)
    assert cost(before, size).macs <= cost(after, size).macs
    # What is left above the strided price is the resampling itself, on narrow networks dear.
    uses = cost(before, size).layers
    convolutions = [use.macs for use in uses if not isinstance(use.layer, Resizer)]
    assert sum(convolutions) <= strided.macs * 1.02
    x = torch.randn(2, *size)
    y = before(x)
    assert y.shape == (2, 3, *(size[1:] if before.is_dense else ()))
    before.train()(x).square().sum().backward()
    strides = [p for n, p in before.named_parameters() if n.endswith("stride")]
    assert strides
    assert any(stride.grad.abs().sum() > 0 for stride in strides)


@pytest.mark.parametrize("downsampling", ["average", "max", "spectral", "diffstride"])
@pytest.mark.parametrize("name", ["resnet18", "preact_resnet18", "audio_cnn", "unet"])
def test_every_kind_may_come_first(name, downsampling):
    size = SIZES.get(name, (3, 32, 32))
    model = network(name, downsampling, "before")
    assert model(torch.randn(2, *size)).shape[:2] == (2, 3)


def test_a_block_downsamples_once_before_everything():
    model = network("resnet18", "spectral", "before")
    block, x = model.stages[1][0], torch.randn(2, 8, 16, 16)
    small = block.downsample(x)
    y = block.norm2(block.conv2(block.norm1(block.conv1(small)).relu()))
    torch.testing.assert_close(block(x), (y + block.shortcut(small)).relu())


def test_transitions_of_densenet_give_the_same_either_way():
    """A 1×1 convolution and a downsampling commute."""
    after, before = (network("densenet121", "diffstride", where) for where in ("after", "before"))
    before.load_state_dict(after.state_dict())
    x = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(before(x), after(x), atol=1e-4, rtol=1e-4)


def test_another_placement_is_refused():
    with pytest.raises(ValueError, match="placement must be one of after, before; got 'behind'"):
        network("resnet18", "diffstride", "behind")
