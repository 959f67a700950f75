"""The regulariser is the paper's formula, and its gradient drives strides up."""

import pytest
import torch
from torch import nn

from diffstride import DiffStride1d, DiffStride2d, models, stride_penalty


class Twice(nn.Module):
    """One layer in two branches."""

    def __init__(self, layer):
        super().__init__()
        self.left = nn.Sequential(nn.Conv2d(1, 1, 1), layer)
        self.right = layer

    def forward(self, x):
        return self.left(x) + self.right(x)


def test_it_is_the_formula():
    strides = [(2.0, 1.5), (1.25, 3.0), (4.0, 1.0)]
    layers = [DiffStride2d(pair) for pair in strides]
    model = nn.Sequential(layers[0], nn.ReLU(), Twice(layers[1]), layers[2])
    a, b, c = (1 / (h * w) for h, w in strides)
    penalty = stride_penalty(model)
    assert penalty.item() == pytest.approx(a + a * b + a * b * c)
    penalty.backward()
    for i, ((h, w), layer) in enumerate(zip(strides, layers, strict=True)):
        terms = [a, a * b, a * b * c][i:]  # those with the layer's own factor in them
        expected = [-sum(terms) / h, -sum(terms) / w]
        torch.testing.assert_close(layer.stride.grad, torch.tensor(expected))


def test_an_order_may_be_given_and_other_axes_count_too():
    first, second = DiffStride2d(2.0), DiffStride2d((2.0, 3.0))
    registered = nn.Sequential(first, second)
    assert stride_penalty(registered).item() == pytest.approx(1 / 4 + 1 / 24)
    assert stride_penalty([second, first, second]).item() == pytest.approx(1 / 6 + 1 / 24)
    assert stride_penalty(DiffStride1d(4.0)).item() == pytest.approx(1 / 4)
    assert stride_penalty(DiffStride2d(2.0, shared=True)).item() == pytest.approx(1 / 4)


def test_without_learnable_strides_there_is_none():
    assert stride_penalty(nn.Conv2d(1, 1, 1)).item() == 0


def test_a_stride_out_of_range_counts_as_its_limit_and_still_gets_a_gradient():
    layer = DiffStride2d(2.0, max_stride=3.0).eval()
    with torch.no_grad():
        layer.stride.fill_(0.5)
    penalty = stride_penalty(layer)
    assert penalty.item() == 1
    penalty.backward()
    assert (layer.stride.grad < 0).all()


def test_alone_it_drives_strides_to_their_limit():
    torch.manual_seed(0)
    model = models.create("resnet18", num_classes=2, width=0.0625, strides=(1, 1.5, 2))
    layers = [m for m in model.modules() if isinstance(m, DiffStride2d)]
    for layer in layers:
        layer.max_stride = 3.0
    optimiser = torch.optim.SGD([layer.stride for layer in layers], lr=0.5, momentum=0.9)
    x = torch.randn(1, 3, 16, 16)
    for _ in range(300):
        model(x)  # projects strides to their range
        optimiser.zero_grad()
        stride_penalty(model).backward()
        optimiser.step()
    model(x)
    assert [layer.strides for layer in layers] == [(3.0, 3.0)] * 3
