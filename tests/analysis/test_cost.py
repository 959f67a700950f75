"""Costs are counted exactly at the sizes that come out, and have a gradient that leads down."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from diffstride import (
    DiffStride1d,
    DiffStride2d,
    DiffStride3d,
    DiffStrideConv2d,
    SpectralPool2d,
    cost,
    models,
    soft_macs,
)
from diffstride.layers import DiffStrideNd


def counted_by_torch(model, size):
    """What torch counts in the products that are really done; FFTs it can't see."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.eval()(torch.randn(1, *size))
    return counter.get_total_flops() // 2


MODELS = {
    "strided": nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, groups=1), nn.Conv2d(8, 8, 5, groups=4)),
    "diffstride": nn.Sequential(nn.Conv2d(3, 6, 3), DiffStride2d((2.3, 1.2)), nn.Conv2d(6, 4, 1)),
    "no crop": DiffStride2d(2.0, crop=False),
    "fixed size": DiffStride2d(2.0, output_size=(9, 7)),
    "multiple": DiffStride2d(2.0, smoothness=1.0, size_multiple=8),
    "spectral": SpectralPool2d(2.5),
    "linear": nn.Sequential(nn.Flatten(), nn.Linear(3 * 24 * 30, 10), nn.ReLU(), nn.Linear(10, 4)),
    "transposed": nn.ConvTranspose2d(3, 5, 3, stride=2),
    "1×1": DiffStrideConv2d(3, 8, 1, 2.0),
    "1×3": DiffStrideConv2d(3, 8, (1, 3), 2.0, padding=(0, 1)),
    "3×3": DiffStrideConv2d(3, 8, 3, 2.0, padding="same"),
}


@pytest.mark.parametrize("name", MODELS)
def test_it_counts_what_torch_counts(name):
    model, size = MODELS[name], (3, 24, 30)
    # Folding the matrices of an axis into one is done once for a whole batch.
    folding = sum(
        m * m * n
        for use in cost(model, size).layers
        if not isinstance(use.layer, nn.Conv2d | nn.Linear | nn.ConvTranspose2d)
        for n, m in zip(use.input_size, use.output_size, strict=True)
    )
    assert cost(model, size).macs == counted_by_torch(model, size) - folding


def test_an_fft_counts_as_n_log_n():
    (use,) = cost(DiffStride1d(4.0), (2, 4096)).layers
    assert use.output_size == (1032,)
    assert use.macs == 2 * (4096 * 12 + 1032 * 11)


def test_volumes_and_repeated_use():
    layer = DiffStride3d(2.0, smoothness=1.0)
    model = nn.Sequential(layer, layer)
    uses = cost(model, (2, 12, 12, 12)).layers
    assert [use.output_size for use in uses] == [(8, 8, 8), (6, 6, 6)]
    assert uses[0].macs == 2 * (12 * 12 * 12 * 8 + 12 * 12 * 8 * 8 + 12 * 8 * 8 * 8)
    assert uses[0].name == "0"
    assert cost(model, (2, 12, 12, 12)).parameters == 3


def test_it_leaves_the_model_as_it_was():
    model = models.create("resnet18", num_classes=3, width=0.0625)
    model.stages[0].eval()
    model.stages[1][0].downsample.stride.data.fill_(0.5)  # out of range
    state = {key: value.clone() for key, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    hooks = [len(module._forward_hooks) for module in model.modules()]
    cost(model, (3, 32, 32))
    soft_macs(model, (3, 32, 32))
    assert modes == [module.training for module in model.modules()]
    assert hooks == [len(module._forward_hooks) for module in model.modules()]
    for key, value in model.state_dict().items():
        assert torch.equal(value, state[key]), key
    with pytest.raises(RuntimeError):
        cost(model, (4, 32, 32))  # it has three channels
    assert modes == [module.training for module in model.modules()]


@pytest.mark.parametrize("size", [(3,), (3, 0, 8), (3, 2.5, 8)])
def test_a_size_is_of_one_example(size):
    with pytest.raises(ValueError, match=r"input_size must be \(channels, \*spatial\)"):
        cost(DiffStride2d(2.0), size)


def test_it_prints_three_numbers():
    model = models.create("resnet18", num_classes=10, downsampling="strided")
    assert str(cost(model, (3, 32, 32))) == "555 M MACs, 614 k activations, 11.2 M parameters"


def random_model(seed):
    generator = torch.Generator().manual_seed(seed)
    names = [name for name in models.list() if name != "preact_resnet56"]
    name = names[seed % len(names)]
    sites = {"efficientnet_b0": 7, "audio_cnn": 6, "densenet121": 2, "signal_cnn": 5}.get(name, 3)
    size = (2, 480 + seed) if name == "signal_cnn" else (2, 32 + seed, 40)
    strides = (1 + 2 * torch.rand(sites, len(size) - 1, generator=generator)).tolist()
    smoothness = [1.0, 2.0, 4.0][seed % 3]
    model = models.create(
        name, num_classes=4, width=0.25, strides=strides, smoothness=smoothness, in_channels=2
    )
    return model, size


@pytest.mark.parametrize("seed", range(10))
def test_soft_costs_are_the_exact_ones_and_fall_with_every_stride(seed):
    model, size = random_model(seed)
    soft = soft_macs(model, size)
    assert soft.item() == pytest.approx(cost(model, size).macs, rel=1e-9)
    soft.backward()
    strides = [m.stride for m in model.modules() if isinstance(m, DiffStrideNd)]
    assert strides
    assert all((stride.grad < 0).all() for stride in strides)


def test_the_gradient_is_the_slope_of_the_count():
    """Over steps of the stride that are large against the steps of the size."""
    size, width = (4, 4096), 0.2

    def model(stride):
        return nn.Sequential(DiffStride1d(stride), nn.Conv1d(4, 64, 9, padding=4), nn.ReLU())

    middle = model(3.0)
    soft_macs(middle, size).backward()
    above, below = (cost(model(3.0 + d), size).macs for d in (width, -width))
    slope = (above - below) / (2 * width)
    assert middle[0].stride.grad.item() == pytest.approx(slope, rel=0.02)


def test_sizes_that_are_fixed_have_no_slope_and_those_before_do():
    fixed = nn.Sequential(DiffStride2d(2.0, output_size=8), nn.Conv2d(2, 2, 3))
    # Its own matrices are as large as its input, whatever the stride.
    macs = soft_macs(fixed, (2, 32, 32))
    assert not macs.requires_grad
    first = nn.Sequential(DiffStride2d(2.0), DiffStride2d(2.0, output_size=8), nn.Conv2d(2, 2, 3))
    soft_macs(first, (2, 32, 32)).backward()
    assert (first[0].stride.grad < 0).all()
    assert first[1].stride.grad is None


def test_sizes_are_followed_through_functions_and_branches():
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.down = DiffStride2d(2.0)
            self.last = nn.Conv2d(6, 4, 3, padding=1)

        def forward(self, x):
            x = self.down(x)
            y = torch.cat([nn.functional.avg_pool2d(x, 2), x[..., ::2, ::2].exp()], dim=1)
            return self.last(y + 1)

    model = Branches()
    soft = soft_macs(model, (3, 32, 32))
    (gradient,) = torch.autograd.grad(soft, model.down.stride)
    # A size of 24 has the slope −32/2². It is a factor of the layer's own products, done in the
    # order 32·32·M + M·32·M, and halved one of the convolution's 216·(M/2)·(M/2).
    own = torch.tensor([3 * (32 * 32 + 32 * 24), 3 * 32 * 24])
    expected = -8.0 * (own + 216 * 24 / 4)
    torch.testing.assert_close(gradient, expected)
    assert soft.item() == cost(model, (3, 32, 32)).macs


@pytest.mark.slow
def test_a_budget_brings_the_cost_down_to_it():
    model = models.create("resnet18", num_classes=2, width=0.0625, smoothness=1.0)
    size = (3, 32, 32)
    budget = cost(model, size).macs / 2
    strides = [m.stride for m in model.modules() if isinstance(m, DiffStride2d)]
    optimiser = torch.optim.SGD(strides, lr=0.3)
    for _ in range(30):
        optimiser.zero_grad()
        (soft_macs(model, size) / budget - 1).relu().backward()
        optimiser.step()
    assert 0.8 * budget <= cost(model, size).macs <= budget
