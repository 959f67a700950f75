"""The slow way to count: plain hooks on a network that really runs, with sizes as tensors have."""

import math
from contextlib import ExitStack

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd

from diffstride.analysis.cost_model import CostModel
from diffstride.core.conv import work_of
from diffstride.core.shape_adaptor import share_of
from diffstride.layers.converted import Converted
from diffstride.layers.joined import running
from diffstride.layers.resizer import Resizer, learned_strides


def hooked(model):
    """Return the layers that are counted."""
    kinds = (_ConvNd, nn.Linear, Resizer)
    return [m for m in model.modules() if isinstance(m, kinds) and getattr(m, "counts", True)]


def set_strides(model, strides):
    with torch.no_grad():
        for name, layer in learned_strides(model).items():
            numbers = torch.tensor(strides[name])
            if "stride" not in layer._parameters:  # it is computed from a share
                shares = share_of(numbers.double(), layer.largest).clamp(0, 1)
                layer.alpha.copy_(shares.logit()[: layer.alpha.numel()])
                continue
            layer.stride.copy_(numbers[: layer.stride.numel()])


def random_strides(model, seed, largest=3.5):
    """Return strides for every layer of a network, as its parameters can have them."""
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for name, layer in learned_strides(model).items():
        high = min(largest, layer.max_stride or largest)
        numbers = layer.min_stride + (high - layer.min_stride) * torch.rand(
            1 if layer.shared else layer.axes, generator=generator
        )
        found[name] = tuple(numbers.to(layer.stride.dtype).expand(layer.axes).tolist())
    return found


def count(model, size):
    """Return multiply-accumulates and activations of a network, and the sizes of its layers."""
    inside, rows = [], []

    def enter(layer, args):
        if isinstance(layer, Converted) and layer.is_reorderable:
            inside.append(layer)

    def leave(layer, args, y):
        x, macs, kept = args[0], 0, tuple(y.shape[2:])
        size, made, pair = tuple(x.shape[2:]), kept, running()
        if isinstance(layer, Converted) and not layer.downsample_first:
            made = tuple(layer.sizes[0][2:])
        if pair is not None and layer is pair.convolution:
            pass  # counted with what comes after it
        elif pair is not None and layer is pair.layer:
            whole = tuple(pair.x.shape[2:]), size, kept
            macs = sum(work_of(pair.convolution, layer.rule, pair.x.shape[1], *whole))
        elif inside and layer is inside[-1]:
            inside.pop()
            macs = sum(layer.work(x.shape[1], size, kept))
        elif inside:
            pass
        elif isinstance(layer, Resizer):
            macs = layer.macs(x.shape[1], y.shape[1], size, kept)
        elif isinstance(layer, nn.Linear):
            macs = layer.in_features * y[0].numel()
        else:
            transposed = isinstance(layer, nn.ConvTranspose1d | nn.ConvTranspose2d)
            macs = layer.weight.numel() * math.prod(size if transposed else made)
        rows.append((size, made, macs, math.prod((*y.shape[1:2], *made))))

    with ExitStack() as stack, torch.no_grad():
        for layer in hooked(model):
            stack.enter_context(layer.register_forward_pre_hook(enter))
            stack.enter_context(layer.register_forward_hook(leave))
        model(torch.zeros(1, *size))
    return {
        "macs": sum(row[2] for row in rows),
        "activations": sum(row[3] for row in rows),
        "sizes": [row[:2] for row in rows],
    }


def by_model(model, strides, size):
    """Return the same from a cost model."""
    cost = model.at(strides, size)
    assert cost.macs == model.value("macs", strides, size)
    assert cost.activations == model.value("activations", strides, size)
    return {
        "macs": cost.macs,
        "activations": cost.activations,
        "sizes": [(use.input_size, use.output_size) for use in cost.layers],
    }


def differences(model, sizes, settings=5, largest=3.5):
    """Compare a cost model with counting, at some sizes and random strides; return how often.

    Where the network fails at some strides, the model must fail as well.
    """
    model.eval()
    costs, compared = CostModel(model, sizes[0]), 0
    before = {name: layer.strides for name, layer in learned_strides(model).items()}
    for size in sizes:
        for seed in range(settings if before else 1):
            strides = random_strides(model, seed, largest)
            set_strides(model, strides)
            try:
                expected = count(model, size)
            except (RuntimeError, ValueError, IndexError):
                expected = None
            finally:
                set_strides(model, before)
            try:
                found = by_model(costs, strides, size)
            except (RuntimeError, ValueError, IndexError):
                found = None
            assert found == expected, (size, strides)
            compared += found is not None
    return compared, costs
