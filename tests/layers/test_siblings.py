"""Converted convolutions of one map that run as one: nobody can tell, but by what it costs."""

import copy
import math
import pickle
import threading
from collections import Counter

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from diffstride import CostModel, convert, cost, freeze
from diffstride.layers import siblings
from diffstride.layers.conversion_record import apply_conversion

SIZES = {1: (41,), 2: (23, 18), 3: (9, 8, 11)}


class Block(nn.Module):
    """A residual block: two convolutions read its input, as in MONAI's U-Net."""

    def __init__(self, axes=2, channels=3, widths=(6, 5), shares=True, **options):
        super().__init__()
        convolution = getattr(nn, f"Conv{axes}d")
        options = {"padding": 1, **options}
        self.main = convolution(channels, widths[0], 3, stride=2, **options)
        self.after = convolution(widths[0], widths[1], 1)
        self.shortcut = convolution(channels, widths[1], 3, stride=2, **options)

    def forward(self, x):
        return self.after(self.main(x).relu()) + self.shortcut(x)


def block(axes=2, **options):
    """A converted block of which the strides are no whole numbers, and an input."""
    torch.manual_seed(0)
    x = torch.randn(2, options.get("channels", 3), *SIZES[axes])
    converted, _ = convert(Block(axes, **options), x)
    with torch.no_grad():
        converted.main.downsample.stride.add_(0.1)
    return converted.double(), x.double()


def alone(model):
    """The same network, whose convolutions run one by one."""
    model = copy.deepcopy(model)
    for module in model.modules():
        if hasattr(module, "siblings"):
            module.siblings = None
    return model


def everything(model, x):
    """The output, and all gradients: of the input, of weights and of strides."""
    x = x.detach().requires_grad_()
    y = model(x)
    inputs = [x, *model.parameters()]
    wave = torch.linspace(-1, 2, y.numel(), dtype=y.dtype).reshape(y.shape)
    return [y.detach(), *torch.autograd.grad((y * wave).sum(), inputs)]


def assert_same(found, expected):
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-10, rtol=1e-10)


@pytest.fixture
def runs(monkeypatch):
    """How often convolutions were run together."""
    counted = Counter()

    def count(*inputs):
        counted["joint"] += 1
        return together(*inputs)

    together = siblings._side_by_side
    monkeypatch.setattr(siblings, "_side_by_side", count)
    return counted


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("options", [{}, {"bias": False}, {"padding_mode": "reflect"}])
def test_both_are_what_each_is_alone(axes, options, runs):
    model, x = block(axes, **options)
    expected = everything(alone(model), x)
    assert not runs
    assert_same(everything(model, x), expected)
    assert runs["joint"] == 1


def test_gradients_of_gradients():
    model, x = block(axes=1, widths=(2, 2))
    x = x[:1, :, :9].requires_grad_()
    stride = model.main.downsample.stride
    assert torch.autograd.gradgradcheck(
        lambda x, stride: torch.func.functional_call(model, {"main.downsample.stride": stride}, x),
        (x, stride),
    )
    first = torch.autograd.grad(model(x).square().sum(), stride, create_graph=True)[0]
    second = torch.autograd.grad(first.sum(), x)[0]
    plain = alone(model)
    stride = plain.main.downsample.stride
    first = torch.autograd.grad(plain(x).square().sum(), stride, create_graph=True)[0]
    assert_same([second], [torch.autograd.grad(first.sum(), x)[0]])


def test_other_orders_of_memory_and_examples_without_a_batch(runs):
    model, x = block()
    for given in (x.to(memory_format=torch.channels_last), x[0], x.mT.contiguous().mT):
        assert_same(everything(model, given), everything(alone(model), given))
    last = x.to(memory_format=torch.channels_last)
    assert model.main(last).is_contiguous(memory_format=torch.channels_last)
    assert model.shortcut(last).is_contiguous(memory_format=torch.channels_last)
    assert runs["joint"] == 4


def test_an_empty_batch():
    model, x = block()
    assert model(x[:0]).shape == (0, *model(x).shape[1:])


def test_under_autocast_as_each_alone():
    model, x = block()
    model, x = model.float(), x.float()
    with torch.autocast("cpu", torch.bfloat16):
        joint, plain = model.shortcut(x), alone(model).shortcut(x)
        model.main(x)  # what waits is taken
    assert joint.dtype == plain.dtype == torch.bfloat16
    assert (joint - plain).norm() <= 0.01 * plain.norm()
    model.main(x)  # before autocast
    with torch.autocast("cpu", torch.bfloat16):
        assert model.shortcut(x).dtype == torch.bfloat16


def weight_changes(model, x):
    with torch.no_grad():
        model.shortcut.weight.add_(1)


def weight_replaced(model, x):
    model.shortcut.weight = nn.Parameter(model.shortcut.weight + 1)


def data_replaced(model, x):
    model.shortcut.weight.data = model.shortcut.weight.data + 1


def bias_changes(model, x):
    with torch.no_grad():
        model.shortcut.bias.mul_(2)


def stride_changes(model, x):
    with torch.no_grad():
        model.main.downsample.stride.add_(0.4)


def input_changes(model, x):
    x.add_(1)


def weights_load(model, x):
    other = {name: value + 0.1 for name, value in model.state_dict().items()}
    model.load_state_dict(other)


def becomes_frozen(model, x):
    model.eval()


def padding_changes(model, x):
    model.shortcut.padding = (2, 2)


def dilation_changes(model, x):
    model.shortcut.dilation = (2, 2)


def range_changes(model, x):
    model.main.downsample.max_stride = 1.5


CHANGES = [
    padding_changes,
    dilation_changes,
    range_changes,
    weight_changes,
    weight_replaced,
    data_replaced,
    bias_changes,
    stride_changes,
    input_changes,
    weights_load,
    becomes_frozen,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("with_grad", [True, False])
def test_what_was_computed_before_a_change_is_not_returned_after_it(change, with_grad):
    model, x = block()
    with torch.set_grad_enabled(with_grad):
        model.main(x)  # the shortcut is computed too, and waits
        change(model, x)
        found = model.shortcut(x)
        torch.testing.assert_close(found, alone(model).shortcut(x))


def test_what_needs_a_gradient_since_gets_one():
    model, x = block()
    model.main(x)
    model.shortcut(x.requires_grad_()).sum().backward()
    assert x.grad is not None
    model, x = block()
    model.requires_grad_(False).main(x)
    model.shortcut.weight.requires_grad_()
    model.shortcut(x).sum().backward()
    assert model.shortcut.weight.grad is not None


def test_what_waits_is_not_asked_for_by_functional_transforms():
    model, x = block()
    expected = alone(model).shortcut(x)
    model.main(x)
    weight = {"weight": model.shortcut.weight}

    def shortcut(weight):
        y = torch.func.functional_call(model.shortcut, weight, (x,))
        return y.sum(), y

    _, y = torch.func.grad(shortcut, has_aux=True)(weight)
    torch.testing.assert_close(y, expected)


def test_without_gradients_first_and_with_them_then():
    model, x = block()
    with torch.no_grad():
        model.main(x)
    y = model.shortcut(x)
    assert y.requires_grad
    y.sum().backward()
    assert model.shortcut.weight.grad is not None


def test_another_tensor_with_the_same_values_is_another_one(runs):
    model, x = block()
    model.main(x)
    torch.testing.assert_close(model.shortcut(x.clone()), alone(model).shortcut(x))
    assert runs["joint"] == 2


def test_a_backward_pass_between_both():
    """Its graph is gone then, and what waits was of it."""
    model, x = block()
    model.main(x).sum().backward()
    model.shortcut(x).sum().backward()
    plain = alone(model)
    plain.zero_grad()
    plain.main(x).sum().backward()
    plain.shortcut(x).sum().backward()
    assert_same([p.grad for p in found(model)], [p.grad for p in found(plain)])


def found(model):
    return [model.main.weight, model.shortcut.weight, model.main.downsample.stride]


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("parts", ["block", "main", "shortcut", "each"])
def test_parts_that_are_computed_again(parts, reentrant):
    """Checkpoints demand that a part keeps as much the second time as the first."""
    model, x = block()
    expected = everything(alone(model), x)

    class Again(nn.Module):
        def forward(self, x):
            def part(name, function):
                if parts not in (name, "each"):
                    return function(x)
                return checkpoint(function, x, use_reentrant=reentrant)

            shortcut = part("shortcut", model.shortcut)
            return part("main", lambda x: model.after(model.main(x).relu())) + shortcut

    whole = Again()
    if parts == "block":
        whole = lambda x: checkpoint(model, x, use_reentrant=reentrant)  # noqa: E731
    for _ in range(5):  # longer than anybody's patience
        model.zero_grad()
        x = x.detach().requires_grad_()
        y = whole(x)
        wave = torch.linspace(-1, 2, y.numel(), dtype=y.dtype).reshape(y.shape)
        (y * wave).sum().backward()
        assert_same([y.detach(), x.grad, *(p.grad for p in model.parameters())], expected)


def test_hooks_are_called_with_what_they_would_see(runs):
    model, x = block()
    expected = everything(alone(model), x)
    seen = []
    model.shortcut.register_forward_hook(lambda module, inputs, output: seen.append(output))
    assert_same(everything(model, x), expected)
    torch.testing.assert_close(seen[0], alone(model).shortcut(x))
    assert not runs
    model.shortcut.register_forward_pre_hook(lambda module, inputs: (inputs[0] * 2,))
    torch.testing.assert_close(model.shortcut(x), alone(model).shortcut(x))


def test_a_weight_that_is_computed_is_left_to_be_computed(runs):
    model, x = block()
    nn.utils.parametrizations.weight_norm(model.shortcut)
    with torch.no_grad():
        model.shortcut.parametrizations.weight.original0.mul_(3)
    assert_same(everything(model, x), everything(alone(model), x))
    assert not runs


def test_who_never_comes_is_not_waited_for(runs):
    model, x = block()
    for _ in range(10):
        model.main(x)
    assert runs["joint"] == siblings.PATIENCE


def test_inference_mode_and_functional_transforms_run_each_alone(runs):
    model, x = block()
    expected = alone(model)(x)
    with torch.inference_mode():
        torch.testing.assert_close(model(x), expected)
    parameters = dict(model.named_parameters())
    mapped = torch.func.vmap(lambda x: torch.func.functional_call(model, parameters, (x[None],)))(x)
    torch.testing.assert_close(mapped[:, 0], expected)
    assert not runs


def test_copies_and_pickles_have_siblings_of_their_own(runs):
    model, x = block()
    model.main(x)  # what waits stays behind
    for made in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert made.main.siblings is made.shortcut.siblings is not model.main.siblings
        assert made.main.siblings.members == [made.main, made.shortcut]
        runs.clear()
        assert_same(everything(made, x), everything(alone(model), x))
        assert runs["joint"] == 1


def test_threads_do_not_take_what_another_one_waits_for():
    model, x = block()
    inputs = [x + i for i in range(4)]
    expected = [alone(model)(each) for each in inputs]
    found = {}

    def work(i):
        for _ in range(5):
            found[i] = model(inputs[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_same([found[i] for i in range(4)], expected)


def test_a_copy_of_another_kind_is_no_sibling():
    """Whatever is done to one of both afterwards: another stride, a fixed layer, a frozen one."""
    model, x = block()
    frozen = freeze(model, x.shape[1:])
    torch.testing.assert_close(frozen(x), alone(model).eval()(x), atol=1e-7, rtol=1e-6)
    model.shortcut.downsample = nn.Identity()
    y = model.shortcut(x)
    assert y.shape[2:] == x.shape[2:]
    torch.testing.assert_close(model.main(x), alone(model).main(x))


def test_who_differs_in_more_than_weights_runs_alone(runs):
    model, x = block()
    expected = everything(alone(model), x)
    model.shortcut.dilation = (2, 2)
    model.shortcut.padding = (2, 2)
    model.main(x)
    assert not runs
    model.shortcut.dilation = model.shortcut.padding = (1, 1)
    assert_same(everything(model, x), expected)
    assert runs["joint"] == 1


def test_the_record_says_who_stand_beside_whom(runs):
    torch.manual_seed(0)
    x = torch.randn(2, 3, 20, 20)
    converted, report = convert(Block(), x)
    again = apply_conversion(Block(), report.record)
    again.load_state_dict(converted.state_dict())
    torch.testing.assert_close(again(x), converted(x))
    assert runs["joint"] == 2
    report.record["sites"][1]["beside"] = "after"
    with pytest.raises(ValueError, match="it has been changed"):
        apply_conversion(Block(), report.record)


def test_layers_of_other_maps_or_other_kernels_are_none():
    class Other(Block):
        def forward(self, x):
            return self.after(self.main(x).relu()) + self.shortcut(x.sin())

    def siblings_of(model):
        return convert(model, torch.randn(1, 3, 16, 16))[0].main.siblings

    pointwise = Block()
    pointwise.shortcut = nn.Conv2d(3, 5, 1, stride=2)
    assert siblings_of(Block()) is not None
    assert siblings_of(Other()) is siblings_of(pointwise) is None


def test_a_map_that_is_changed_in_between_is_another_map():
    class Between(Block):
        def forward(self, x):
            x = x + 0
            y = self.main(x)
            return self.after(y.relu()) + self.shortcut(x.mul_(2))

    converted, _ = convert(Between(), torch.randn(1, 3, 16, 16))
    assert converted.main.siblings is None


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_the_cost_is_that_of_one_downsampling(axes):
    """By hand: that of one convolution with as many channels as both make."""
    model, x = block(axes)
    both = Block(axes, widths=(11, 5))
    whole, _ = convert(both, x.float())
    with torch.no_grad():
        whole.main.downsample.stride.add_(0.1)
    shape, size = x.shape[1:], x.shape[2:]
    kept = model.main.downsample.output_size(size)
    expected = alone(whole).main.work(3, size, kept)  # resampling, and convolving
    each = [model.main.work(3, size, kept), model.shortcut.work(3, size, kept)]
    assert tuple(map(sum, zip(*each, strict=True))) == expected
    after = 6 * 5 * math.prod(kept)
    found = cost(model, shape).macs
    assert found == sum(expected) + after
    assert CostModel(model, shape).at().macs == found
    assert found < cost(alone(model), shape).macs
