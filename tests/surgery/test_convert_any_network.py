"""Networks that are written, wrapped or trained in unusual ways are converted right, or refused."""

import ast
import copy
import pickle
import re
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize

from diffstride import convert, cost, fit_budget, soft_macs, stride_table
from diffstride.layers import DiffStrideNd, apply_conversion
from diffstride.layers.converted import Converted, Following
from tests.small_networks import Does, X, conv

SIZE = (3, 32, 32)


# Modes


def test_every_module_keeps_its_own_mode():
    model = nn.Sequential(conv(3, 2), nn.BatchNorm2d(4), nn.Sequential(nn.MaxPool2d(2), nn.ReLU()))
    model[1].eval()  # as those are whose statistics are to stay
    model[2].eval()
    modes = {name: module.training for name, module in model.named_modules()}
    for pooling in ("keep", "replace"):
        converted, _ = convert(model, X, pooling=pooling)
        after = {name: module.training for name, module in converted.named_modules()}
        assert {name: after[name] for name in modes} == modes
        assert after["0.downsample"]
        assert not after["2.0.downsample"]
        before = converted[1].running_mean.clone()
        converted(X)
        assert torch.equal(converted[1].running_mean, before)


# Subclasses


class Standardised(nn.Conv2d):
    def _conv_forward(self, x, weight, bias):
        return super()._conv_forward(x, weight - weight.mean((1, 2, 3), keepdim=True), bias)


class OwnCall(nn.MaxPool2d):
    def __call__(self, x):
        return super().__call__(x) + 1


class Documented(nn.Conv2d):
    """Is made and printed in its own way, and knows something more."""

    note: str = "kept"

    def __init__(self, channels):
        super().__init__(channels, 4, 3, stride=2, padding=1)

    def reset_parameters(self):
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.bias)

    def extra_repr(self):
        return "mine"

    def total(self):
        return self.weight.sum()


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (Standardised(3, 4, 3, 2), "0 is a Standardised, .* it has a _conv_forward of its own"),
        (OwnCall(2), "0 is a OwnCall, .* it has a __call__ of its own"),
    ],
)
def test_subclasses_that_compute_something_else_are_refused(layer, message):
    model = nn.Sequential(layer, conv(layer(X).shape[1], 2))
    with pytest.raises(ValueError, match=message + r".*exclude=\['0'\]"):
        convert(model, X)
    converted, report = convert(model, X, exclude=["0"])
    assert type(converted[0]) is type(layer)
    assert [site.name for site in report.sites] == ["1"]


def test_subclasses_that_compute_the_same_stay_what_they_are():
    model = nn.Sequential(Documented(3), nn.ReLU())
    converted, report = convert(model, X)
    assert report.sites[0].before == "Documented, stride 2"
    assert isinstance(converted[0], Documented)
    assert isinstance(converted[0], Converted)
    expected = converted(X)
    for other in (copy.deepcopy(converted), pickle.loads(pickle.dumps(converted))):
        assert torch.equal(other(X), expected)
        assert other[0].total() == model[0].total()
        assert other[0].note == "kept"
        assert other[0].downsample.stride is not converted[0].downsample.stride
    again = apply_conversion(nn.Sequential(Documented(3), nn.ReLU()), report.record)
    assert type(again[0]) is type(converted[0])


NORMS = {
    "spectral norm": parametrizations.spectral_norm,
    "weight norm": parametrizations.weight_norm,
    "spectral norm by hooks": nn.utils.spectral_norm,
    "weight norm by hooks": nn.utils.weight_norm,
}


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
@pytest.mark.parametrize("kind", [nn.Conv2d, Documented])
@pytest.mark.parametrize("name", NORMS)
def test_weights_that_are_computed_go_on_to_be(name, kind):
    layer = conv(3, 2) if kind is nn.Conv2d else Documented(3)
    model = nn.Sequential(NORMS[name](layer), nn.ReLU())
    model(X)  # after which a hook keeps a weight that was computed
    model.eval()
    converted, _ = convert(model, X, smoothness=1.0)
    assert converted[0].stride == (1, 1)
    other = copy.deepcopy(converted)
    weight = converted[0].weight.detach()
    convolved = F.conv2d(X, weight, converted[0].bias, padding=1)
    torch.testing.assert_close(converted(X), converted[0].downsample(convolved).relu())
    torch.testing.assert_close(weight, model[0].weight)
    other.train()(X).square().sum().backward()
    assert other[0].downsample.stride.grad is not None
    assert all(parameter.grad is not None for parameter in other.parameters())
    assert all(parameter.grad is None for parameter in converted.parameters())
    # The state of the network before loads, and nothing is lost when the norm is taken away.
    converted.load_state_dict(model.state_dict())
    if parametrize.is_parametrized(converted[0]):
        shape = converted(X).shape
        parametrize.remove_parametrizations(converted[0], "weight")
        assert converted(X).shape == shape
        assert isinstance(converted[0], kind)
        assert parametrize.is_parametrized(model[0])


# Networks that go up again


def autoencoder(up):
    """Down in a part of its own, and up by functions that the network itself calls."""
    down = nn.Sequential(conv(3, 2), nn.ReLU(), conv(4, 2), nn.ReLU())
    up_again = nn.ConvTranspose2d(4, 4, 2, 2)
    return Does(lambda m, x: up(m, m.down(x)), down=down, other=up_again)


def transposed(m, x):
    for _ in range(2):
        x = F.conv_transpose2d(x, m.other.weight, stride=2)
    return x


UP = {
    "conv_transpose2d": transposed,
    "interpolate": lambda _, x: F.interpolate(x, scale_factor=4),
    "pixel_shuffle": lambda _, x: F.pixel_shuffle(x.repeat(1, 4, 1, 1), 4),
    "repeat_interleave": lambda _, x: x.repeat_interleave(4, 2).repeat_interleave(4, 3),
}


@pytest.mark.parametrize("smoothness", [0.0, 1.0])  # with 0, sizes are the same until it learns
@pytest.mark.parametrize("name", UP)
def test_maps_that_become_larger_again_are_refused_with_advice_that_helps(name, smoothness):
    model = autoencoder(UP[name])
    message = rf"{name} in the model \(.*makes maps larger after down\.0, .* not 32 × 32.* exclude="
    with pytest.raises(ValueError, match=message) as error:
        convert(model, X, smoothness=smoothness)
    names = ast.literal_eval(re.search(r"exclude=(\[.*\])", str(error.value))[1])
    with pytest.warns(UserWarning, match="nothing was converted"):
        convert(model, X, exclude=names)
    # What comes after can be converted still.
    more = nn.Sequential(model, nn.MaxPool2d(2), nn.ReLU())
    _, report = convert(more, X, exclude=[f"0.{name}" for name in names])
    assert [site.name for site in report.sites] == ["1"]


@pytest.mark.parametrize(
    "make",
    [
        # To the size of the input whatever comes, and to a single number.
        lambda: Does(lambda m, x: F.interpolate(m.down(x), x.shape[2:]), down=conv(3, 2)),
        lambda: nn.Sequential(
            conv(3, 2), nn.Upsample(scale_factor=2), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        ),
        # Larger first, and padded after.
        lambda: nn.Sequential(nn.Upsample(scale_factor=2), conv(3, 2), nn.ZeroPad2d(1)),
    ],
)
def test_sizes_that_follow_by_themselves_are_no_reason_to_refuse(make):
    converted, report = convert(make(), X)
    assert len(report.sites) == 1
    assert converted(X).isfinite().all()


# Strides that are no layer


FUNCTIONS = {
    "max_pool2d": lambda m, x: F.max_pool2d(x, 2),
    "avg_pool2d": lambda m, x: F.avg_pool2d(x, 3, stride=2, padding=1),
    "conv2d": lambda m, x: F.conv2d(x, m.other.weight, stride=2, padding=1),
    "__getitem__": lambda m, x: x[:, :, ::2, ::2],
    "interpolate": lambda m, x: F.interpolate(x, scale_factor=0.5),
    "pixel_unshuffle": lambda m, x: F.pixel_unshuffle(x, 2),
    "lp_pool2d": lambda m, x: F.lp_pool2d(x, 2.0, 2),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_strides_of_functions_are_reported(name):
    part = Does(FUNCTIONS[name], other=conv(4))
    model = nn.Sequential(conv(3, 2), part)
    with pytest.warns(UserWarning, match=rf"stay as they are: {name} in 1 \(16 × 16 → 8 × 8\)"):
        _, report = convert(model, X, size_multiple=2)  # which pixel_unshuffle needs
    (left,) = report.left_alone
    assert (left.name, left.operation) == ("1", name)
    assert (left.size_before, left.size_after) == ((16, 16), (8, 8))
    row = rf"\n1 +{name} +16 × 16 +8 × 8 +only layers of torch.nn are converted"
    assert re.search(row, str(report))
    with pytest.warns(UserWarning) as found:
        convert(part, torch.rand(1, 4, 16, 16))
    texts = [str(one.message) for one in found]
    assert any("nothing was converted" in text for text in texts)
    assert any(f"{name} in the model" in text for text in texts)


def test_what_takes_no_stride_is_not_reported():
    def function(m, x):
        x = F.conv2d(x, m.other.weight)[:, :, 1:-1]  # borders
        x = F.max_pool2d(x, 3, stride=1, padding=1)
        return F.adaptive_avg_pool2d(x, 4), F.avg_pool2d(x, x.shape[2:])

    _, report = convert(nn.Sequential(conv(3, 2), Does(function, other=conv(4))), X)
    assert report.left_alone == ()


def test_layers_that_were_left_out_or_did_not_run_are_listed():
    model = nn.Sequential(conv(3, 2), nn.MaxPool2d(2), nn.AvgPool2d(2))
    _, report = convert(model, X, exclude=["1"], kinds=["conv", "maxpool"])
    reason = "not among those to convert"
    assert [(left.name, left.operation, left.reason) for left in report.left_alone] == [
        ("1", "max_pool2d", reason),
        ("2", "avg_pool2d", reason),
    ]
    idle = Does(lambda m, x: m.down(x), down=conv(3, 2), unused=conv(3, 2))
    with pytest.warns(UserWarning, match="Conv2d, stride 2 in unused, did not run"):
        convert(idle, X)


# Calls


def test_layers_may_be_called_by_name():
    def by_name(m, x):
        x = m.first(input=x)
        y = m.side(input=x)
        return m.second(input=x) + y + m.pool(input=x)

    def by_place(m, x):
        x = m.first(x)
        y = m.side(x)
        return m.second(x) + y + m.pool(x)

    torch.manual_seed(0)
    parts = {"first": conv(3, 2), "side": conv(4, 2), "second": nn.Conv2d(4, 4, 1, 2)}
    parts["pool"] = nn.MaxPool2d(2)
    models = [Does(function, **copy.deepcopy(parts)) for function in (by_name, by_place)]
    (one, first), (two, second) = (convert(model, X) for model in models)
    assert str(first) == str(second)
    assert torch.equal(one(X), two(X))
    assert cost(one, SIZE) == cost(one, SIZE)
    assert cost(one, SIZE).macs == cost(two, SIZE).macs
    gradients = []
    for model in (one, two):
        soft_macs(model, SIZE).backward()
        gradients.append([m.stride.grad for m in model.modules() if isinstance(m, DiffStrideNd)])
    for a, b in zip(*gradients, strict=True):
        assert torch.equal(a, b)


# One owner


def branches():
    def function(m, x):
        return m.body(x) + m.shortcut(x)

    return Does(function, body=conv(3, 2), shortcut=nn.Conv2d(3, 4, 1, stride=2))


def test_a_stride_has_one_name():
    converted, _ = convert(branches(), X)
    names = [name for name in converted.state_dict() if name.endswith("stride")]
    assert names == ["body.downsample.stride"]
    assert isinstance(converted.shortcut.downsample, Following)
    # In whatever order both run, they have one size.
    small = converted.shortcut(torch.rand(1, 3, 21, 17)).shape
    assert converted.body(torch.rand(1, 3, 21, 17)).shape == small
    converted(X)[:, :2].square().sum().backward()
    whole = converted.body.downsample.stride.grad.clone()
    converted.zero_grad()
    converted.shortcut(X).square().sum().backward()
    assert (converted.body.downsample.stride.grad != 0).all()
    assert not torch.equal(whole, converted.body.downsample.stride.grad)
    converted.to(torch.float64)
    assert converted(X.double()).dtype == torch.float64


def test_a_replaced_pooling_is_replaced_under_all_its_names():
    pool = nn.MaxPool2d(2)
    model = Does(lambda m, x: m.b(m.a(x)), a=pool, b=pool)
    converted, _ = convert(model, X, pooling="replace", smoothness=1.0)
    assert converted.a is converted.b
    assert isinstance(converted.b, nn.Identity)
    alone, _ = convert(nn.MaxPool2d(2), X, pooling="replace")
    assert isinstance(alone, nn.Identity)


def test_replicas_of_data_parallel_are_refused():
    converted, _ = convert(branches(), X)
    replica = converted.shortcut.downsample._replicate_for_data_parallel()
    with pytest.raises(RuntimeError, match=r"use nn\.parallel\.DistributedDataParallel"):
        replica(X)


def test_a_stride_of_one_that_is_followed_has_a_gradient(monkeypatch):
    """Also with a clamp that passes none at its bound, as that of some versions of torch."""
    clamp = torch.Tensor.clamp

    def strict(x, min=None, max=None):
        limited = clamp(x.detach(), min, max)
        inside = (x > min) & (x < (float("inf") if max is None else max))
        return torch.where(inside, x, limited)

    monkeypatch.setattr(torch.Tensor, "clamp", strict)

    converted, _ = convert(nn.Sequential(conv(3, 2)), X, stride=1.0)
    following = Following(converted[0], (1.0, 1.0))
    converted(X)
    following(torch.rand(2, 4, 32, 32)).square().sum().backward()
    assert (converted[0].downsample.stride.grad != 0).all()


# Wrapped, compiled, lazy, patched, single


def learnable():
    torch.manual_seed(0)
    return convert(branches(), X, smoothness=1.0)[0]


def compiled_inside():
    model = nn.Sequential(learnable(), nn.ReLU())
    model[0].compile(backend="eager")
    return model


def compiled_part():
    return nn.Sequential(torch.compile(learnable(), backend="eager"), nn.ReLU())


def patched():
    model = learnable()
    inner = model.body.forward
    model.body.forward = lambda input: inner(input) * torch.ones(4, 1, 1)  # on the CPU
    return model


def lazy():
    return nn.Sequential(learnable(), nn.LazyConv2d(4, 3))


class Parallel(nn.parallel.DistributedDataParallel):
    """Has no processes to talk to, and can't run."""

    def __init__(self, module):
        nn.Module.__init__(self)
        self.module = module

    def forward(self, x):
        raise RuntimeError("no process group")


ASK = {
    "cost": lambda model: cost(model, SIZE).macs,
    "stride_table": lambda model: str(stride_table(model, SIZE)),
    "soft_macs": lambda model: soft_macs(model, SIZE).item(),
    "fit_budget": lambda model: fit_budget(model, SIZE, 1e12),
}
WRAPPED = {
    "DataParallel": (lambda: nn.DataParallel(learnable()), "is wrapped in DataParallel: convert"),
    "DistributedDataParallel": (lambda: Parallel(learnable()), "is wrapped in Parallel: convert m"),
    "compiled": (lambda: torch.compile(learnable(), backend="eager"), "the model is compiled"),
    "both": (
        lambda: Parallel(torch.compile(learnable(), backend="eager")),
        "the model is wrapped in Parallel",
    ),
    "a compiled part": (compiled_part, "0 is compiled: convert the network that it was made of"),
    "compiled in place": (compiled_inside, "0 is compiled: convert the network"),
    "patched": (patched, r"body \(ConvertedConv2d\) had its method forward replaced"),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_wrapped_and_patched_networks_cost_what_is_inside(name):
    make, refusal = WRAPPED[name]
    model = make()
    for ask in ("cost", "soft_macs", "fit_budget"):
        assert ASK[ask](model) == ASK[ask](learnable()), ask
    assert "downsample" in ASK["stride_table"](model)
    with pytest.raises(ValueError, match=refusal):
        convert(model, X)


@pytest.mark.parametrize("ask", [*ASK, "convert"])
def test_what_can_not_be_run_is_refused_by_name(ask):
    ask = ASK.get(ask, lambda model: convert(model, X))
    with pytest.raises(ValueError, match=r"1 \(LazyConv2d\) is lazy .* run the model once"):
        ask(lazy())
    with warnings.catch_warnings():  # that it is deprecated, of newer versions of torch
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(nn.ReLU())
    with pytest.raises(ValueError, match=r"1 was made by torch\.jit"):
        ask(nn.Sequential(learnable(), scripted))


@pytest.mark.parametrize("ask", [cost, stride_table, soft_macs, lambda m, s: fit_budget(m, s, 1.0)])
def test_a_size_with_too_many_or_too_few_axes_is_refused(ask):
    model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), learnable_after())
    for size, shape in (((32, 32), r"\(1, 32, 32\)"), ((2, 1, 32, 32), r"\(1, 2, 1, 32, 32\)")):
        message = rf"0 \(Conv2d\) takes a batch of 4 axes: .* was given the shape {shape}"
        with pytest.raises(ValueError, match=message):
            ask(model, size)


def learnable_after():
    return convert(nn.Sequential(conv(4, 2)), torch.rand(1, 4, 16, 16))[0]


def test_a_single_example_is_no_batch():
    message = r"must be a batch, of 4 axes for body \(Conv2d\): .* got the shape \(3, 32, 32\)\. A"
    with pytest.raises(ValueError, match=message):
        convert(branches(), X[0])
