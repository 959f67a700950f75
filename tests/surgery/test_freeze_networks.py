"""Networks that are built in unusual ways: each is frozen and exported, or refused by name."""

import types

import onnxruntime
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from diffstride import (
    DiffStride1d,
    DiffStride2d,
    DiffStrideConv2d,
    SpectralPool2d,
    convert,
    export_onnx,
    freeze,
)
from diffstride.analysis.restoring import copied
from diffstride.core.tracing import OLD_TORCH
from diffstride.layers.converted import Following
from diffstride.layers.frozen import Frozen

SIZE = (4, 24, 24)


class Calling(nn.Module):
    """A convolution and two downsamplings, called in a way that is given."""

    def __init__(self, how):
        super().__init__()
        self.convolution = nn.Conv2d(4, 8, 3, padding=1)
        self.downsample = DiffStride2d(2.3, smoothness=0.5)
        self.fused = DiffStrideConv2d(8, 8, 3, stride=1.6, smoothness=0.5)
        self.how = how

    def forward(self, x):
        return self.how(self, x)


def network(convolution=None):
    return nn.Sequential(
        convolution or nn.Conv2d(4, 32, 3, padding=1), DiffStride2d(3.1, smoothness=0.25), nn.ReLU()
    )


def parametrised(kind, make=nn.Conv2d):
    parametrise = {
        "weight_norm": parametrizations.weight_norm,
        "spectral_norm": parametrizations.spectral_norm,
        "weight_norm by hooks": nn.utils.weight_norm,
        "spectral_norm by hooks": nn.utils.spectral_norm,
    }[kind]
    return parametrise(make(4, 32, 3, padding=1))


def converted_and_parametrised():
    model, _ = convert(nn.Sequential(nn.Conv2d(4, 32, 3, 3, 1)), torch.rand(1, *SIZE))
    parametrizations.weight_norm(model[0])
    return model


def tied():
    first, second = (nn.Conv2d(4, 4, 3, padding=1) for _ in range(2))
    second.weight, second.bias = first.weight, first.bias
    return nn.Sequential(first, DiffStride2d(3.1, smoothness=0.25), second, nn.ReLU())


class Twice(nn.Module):
    """The same modules under several names."""

    def __init__(self, used):
        super().__init__()
        self.convolution = nn.Conv2d(4, 4, 3, padding=1)
        self.downsample = DiffStride2d(2.3, smoothness=0.25)
        self.again = self.convolution
        self.blocks = nn.ModuleList([nn.Sequential(self.convolution, self.downsample)])
        self.alias = self.downsample
        self.used = used

    def forward(self, x):
        if self.used == "both":
            return self.blocks[0](x) + self.alias(self.again(-x))
        return self.blocks[0](x) + self.alias(x)


class InsideAndAlone(nn.Module):
    """A layer that is a part of a converted convolution, and is used by itself as well."""

    def __init__(self):
        super().__init__()
        self.body, _ = convert(nn.Sequential(nn.Conv2d(4, 4, 3, 2, 1)), torch.rand(1, *SIZE))
        self.shortcut = self.body[0].downsample

    def forward(self, x):
        return self.body(x) + self.shortcut(x)


class Sites(nn.Module):
    """Two convolutions that meet, so that one stride is learned for both."""

    def __init__(self):
        super().__init__()
        self.wide = nn.Conv2d(4, 4, 3, stride=2, padding=1)
        self.narrow = nn.Conv2d(4, 4, 1, stride=2)

    def forward(self, x):
        return self.wide(x) + self.narrow(x)


def following():
    return convert(Sites(), torch.rand(1, *SIZE), smoothness=1.0)[0]


WORKING = {
    "by name": lambda: Calling(lambda s, x: s.fused(x=s.downsample(x=s.convolution(x)))),
    "convolution by name": lambda: Calling(
        lambda s, x: s.fused(s.downsample(s.convolution(input=x)))
    ),
    "unbatched": lambda: Calling(
        lambda s, x: torch.stack([s.fused(s.downsample(s.convolution(y))) for y in x])
    ),
    "weight asked for": lambda: Calling(
        lambda s, x: (
            s.downsample(s.fused(s.convolution(x).to(s.fused.weight.dtype))) + s.fused.bias.mean()
        )
    ),
    "weight norm": lambda: network(parametrised("weight_norm")),
    "spectral norm": lambda: network(parametrised("spectral_norm")),
    "weight norm of ours": lambda: network(parametrised("weight_norm", DiffStrideConv2d)),
    "weight norm by hooks": lambda: network(parametrised("weight_norm by hooks")),
    "spectral norm by hooks": lambda: network(parametrised("spectral_norm by hooks")),
    "of ours, by hooks": lambda: network(parametrised("weight_norm by hooks", DiffStrideConv2d)),
    "converted, weight norm": converted_and_parametrised,
    "tied weights": tied,
    "twice": lambda: Twice("once"),
    "twice, both used": lambda: Twice("both"),
    "inside and alone": InsideAndAlone,
    "following": following,
    "no parameters": lambda: nn.Sequential(SpectralPool2d(2.5), nn.ReLU()),
}


@pytest.mark.parametrize("name", WORKING)
@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
@pytest.mark.parametrize("training", [True, False])
def test_unusual_networks_are_frozen_and_left_as_they_are(name, training):
    torch.manual_seed(0)
    model = WORKING[name]().train(training)
    if training:
        next(model.children()).eval()  # a part that is not trained
    state = {key: value.clone() for key, value in model.state_dict().items()}
    modes = {name: module.training for name, module in model.named_modules()}
    hooks = [len(module._forward_hooks) for module in model.modules()]
    frozen = freeze(model, SIZE)
    assert model.state_dict().keys() == state.keys()
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    assert {name: module.training for name, module in model.named_modules()} == modes
    assert [len(module._forward_hooks) for module in model.modules()] == hooks
    assert not any(module.training for module in frozen.modules())
    assert not any(module._forward_hooks for module in frozen.modules())
    assert any(isinstance(module, Frozen) for module in frozen.modules())
    assert not any(isinstance(m, DiffStride2d | Following) for m in frozen.modules())
    own = {tensor.data_ptr() for tensor in model.state_dict().values() if tensor.numel()}
    assert not own & {tensor.data_ptr() for tensor in frozen.state_dict().values()}
    x = torch.randn(3, *SIZE)
    with torch.no_grad():
        expected = copied(model).eval()(x)
        torch.testing.assert_close(frozen(x), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", WORKING)
@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
def test_unusual_networks_become_plain_strided_ones(name):
    model = WORKING[name]()
    if name == "by name":  # the convolution is one of torch then, which has another name for it
        with pytest.raises(ValueError, match=r"unexpected keyword argument 'x'.*as one of torch"):
            freeze(model, SIZE, integer_strides=True)
        return
    plain = freeze(model, SIZE, integer_strides=True)
    assert not any(isinstance(m, DiffStride2d | Following | Frozen) for m in plain.modules())
    assert not any(module.training for module in plain.modules())
    x = torch.randn(3, *SIZE)
    assert plain(x).ndim == model.eval()(x).ndim


@pytest.mark.skipif(OLD_TORCH, reason="torch 2.6 can't write ONNX, and is told so")
@pytest.mark.parametrize("name", ["by name", "weight norm", "twice, both used", "no parameters"])
def test_unusual_networks_are_exported(name, tmp_path):
    torch.manual_seed(0)
    model = WORKING[name]()
    session = onnxruntime.InferenceSession(
        export_onnx(model, tmp_path / "model.onnx", SIZE), providers=["CPUExecutionProvider"]
    )
    x = torch.randn(2, *SIZE)
    (found,) = session.run(None, {"input": x.numpy()})
    with torch.no_grad():
        expected = model.eval()(x)
    torch.testing.assert_close(torch.from_numpy(found), expected, atol=1e-5, rtol=1e-4)


def distributed():
    """Without the group of processes that making one needs."""
    model = network()
    wrapped = nn.parallel.DistributedDataParallel.__new__(nn.parallel.DistributedDataParallel)
    nn.Module.__init__(wrapped)
    wrapped.module = model
    return wrapped


def compiled_in_place():
    model = network()
    model[0].compile()
    return model


def patched(make):
    model = network()
    model[0].forward = make(model[0])
    return model


def only_one_example():
    return Calling(lambda s, x: s.downsample(s.convolution(x[None]))[0])


REFUSED = {
    "DataParallel": (
        lambda: nn.DataParallel(network()),
        r"the model is wrapped in DataParallel: \w+ model\.module, and wrap what comes out$",
    ),
    "DistributedDataParallel": (
        distributed,
        r"the model is wrapped in DistributedDataParallel: \w+ model\.module, and wrap",
    ),
    "a wrapped part": (
        lambda: nn.Sequential(nn.ReLU(), nn.DataParallel(network())),
        r"1 is wrapped in DataParallel: \w+ 1\.module, and wrap what comes out$",
    ),
    "compiled": (
        lambda: torch.compile(network()),
        r"the model is compiled: \w+ the network that it was made of.* model\._orig_mod is that",
    ),
    "compiled in place": (
        compiled_in_place,
        r"0 is compiled: \w+ the network that it was made of, and compile what comes out",
    ),
    "lazy": (
        lambda: network(nn.LazyConv2d(8, 3)),
        r"0 \(LazyConv2d\) is lazy and has no weights yet: run the model once",
    ),
    "patched with a function": (
        lambda: patched(lambda layer: lambda x: nn.Conv2d.forward(layer, x) * 2),
        r"0 \(Conv2d\) had its method forward replaced by another function.*write a subclass",
    ),
    "patched with a method": (
        lambda: patched(lambda layer: types.MethodType(lambda self, x: x, layer)),
        r"0 \(Conv2d\) had its method forward replaced by another function.*write a subclass",
    ),
    "script": (
        lambda: nn.Sequential(DiffStride2d(2.0), torch.jit.trace(nn.ReLU(), torch.rand(1))),
        r"1 was made by torch\.jit, and its layers can't be seen from outside: give the network",
    ),
    "one example at a time": (
        only_one_example,
        r"can't take a batch of one example, of the shape \(1, 4, 24, 24\): input_size must be",
    ),
    "another number of axes": (
        lambda: nn.Sequential(nn.Conv1d(4, 4, 3), DiffStride1d(2.0)),
        r"can't take a batch of one example, of the shape \(1, 4, 24, 24\): input_size must be",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore:.torch.jit")
def test_what_can_not_be_frozen_is_refused_by_name(name, tmp_path):
    make, said = REFUSED[name]
    model = make()
    with pytest.raises(ValueError, match=said):
        freeze(model, SIZE)
    with pytest.raises(ValueError, match=said):
        export_onnx(model, tmp_path / "model.onnx", SIZE)
    assert not list(tmp_path.iterdir())


def test_hooks_of_replaced_layers_stay():
    model = network()
    seen = []
    model[1].register_forward_pre_hook(lambda layer, args: seen.append("before"))
    model[1].register_forward_hook(lambda layer, args, output: seen.append("after"))
    frozen = freeze(model.eval(), SIZE)
    seen.clear()
    frozen(torch.rand(1, *SIZE))
    assert seen == ["before", "after"]
    assert type(model[1]) is DiffStride2d
    assert len(model[1]._forward_hooks) == 1
