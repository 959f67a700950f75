"""torch.compile: whole graphs in eval mode, and few of them while strides move."""

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

from diffstride import (
    DiffStride1d,
    DiffStride2d,
    DiffStrideConv2d,
    SpectralPool2d,
    functional,
    parameter_groups,
)

pytestmark = pytest.mark.slow

TORCH = tuple(int(number) for number in torch.__version__.split(".")[:2])


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        DiffStride2d(2.0, smoothness=2.0),
        nn.ReLU(),
        DiffStrideConv2d(4, 4, 1, stride=1.5, norm="forward"),
        DiffStride2d(1.5, crop=False),
        SpectralPool2d(1.3),
    )


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_eval_is_one_graph_and_follows_new_strides(backend):
    model = network().eval()
    counter = CompileCounterWithBackend(backend)
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    x = torch.randn(2, 1, 32, 28)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
        assert counter.frame_count == 1
        other = network()
        other[1].stride.fill_(3.1)
        model.load_state_dict(other.state_dict())
        expected = other.eval()(x)
        assert compiled(x).shape == expected.shape
        torch.testing.assert_close(compiled(x), expected, rtol=1e-4, atol=1e-5)


def test_training_with_moving_strides_makes_two_graphs():
    counter = CompileCounterWithBackend("aot_eager")
    layer, reference = DiffStride2d(2.0), DiffStride2d(2.0)
    compiled = torch.compile(layer, backend=counter)
    x = torch.randn(2, 3, 32, 32)
    for step in range(20):
        for one in (layer, reference):
            with torch.no_grad():
                one.stride.fill_(0.9 + 0.2 * step)  # the first is out of range
            one.stride.grad = None
        y, expected = compiled(x), reference(x)
        assert y.shape == expected.shape
        torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-5)
        y.square().sum().backward()
        expected.square().sum().backward()
        torch.testing.assert_close(layer.stride.grad, reference.stride.grad, rtol=1e-3, atol=1e-3)
        assert torch.equal(layer.stride, reference.stride)
    if TORCH > (2, 6):  # which makes a graph a size
        assert counter.frame_count <= 3


@pytest.mark.parametrize(
    "path",
    [
        "operator",
        pytest.param(
            "fft",
            marks=pytest.mark.skipif(
                TORCH <= (2, 6), reason="torch 2.6 can't compile an FFT of a length that changes"
            ),
        ),
    ],
)
def test_the_function_is_one_graph_for_many_sizes(path):
    counter = CompileCounterWithBackend("eager")

    def function(x, stride, size):
        return functional.diff_stride(x, stride, output_size=size, path=path)

    compiled = torch.compile(function, backend=counter, fullgraph=True)
    x, stride = torch.randn(2, 3, 32, 31), torch.tensor([2.0, 2.2])
    for m in range(14, 30):
        torch.testing.assert_close(
            compiled(x, stride, (m, m + 1)),
            function(x, stride, (m, m + 1)),
            rtol=1e-4,
            atol=1e-5,
        )
    assert counter.frame_count <= 3


def in_place(model):
    model[1].stride.fill_(3.1)
    model[3].downsample.stride.fill_(1.2)


def by_an_optimiser(model):
    optimiser = torch.optim.SGD(parameter_groups(model, 0.5, weight_decay=0, stride_lr=100))
    with torch.enable_grad():
        model(torch.randn(2, 1, 32, 28)).square().mean().backward()
    optimiser.step()


def by_an_average(model):
    averaged = torch.optim.swa_utils.AveragedModel(model, avg_fn=lambda _old, new, _n: new)
    other = network()
    in_place(other)
    averaged.update_parameters(model)
    averaged.update_parameters(other)
    for own, its in zip(model.parameters(), averaged.module.parameters(), strict=True):
        own.copy_(its)


@pytest.mark.parametrize("change", [in_place, by_an_optimiser, by_an_average])
def test_compiled_eval_follows_strides_that_change_in_place(change):
    model = network().eval()
    compiled = torch.compile(model, backend="eager")
    x = torch.randn(2, 1, 32, 28)
    with torch.no_grad():
        before = compiled(x)
        change(model)
        expected = model(x)
        assert expected.shape != before.shape
        torch.testing.assert_close(compiled(x), expected, rtol=1e-4, atol=1e-5)


def test_compiled_eval_follows_strides_that_are_passed_in():
    model = network().eval()
    compiled = torch.compile(
        lambda values, x: torch.func.functional_call(model, values, (x,)), backend="eager"
    )
    x = torch.randn(2, 1, 32, 28)
    own = {name: p.detach().clone() for name, p in model.named_parameters()}
    with torch.no_grad():
        for stride in (2.0, 3.1, 2.4):
            values = own | {"1.stride": torch.full((2,), stride)}
            expected = torch.func.functional_call(model, values, (x,))
            torch.testing.assert_close(compiled(values, x), expected, rtol=1e-4, atol=1e-5)


def test_a_whole_graph_tells_when_a_stride_has_changed_and_follows_after_eval():
    model = network().eval()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    x = torch.randn(2, 1, 32, 28)
    with torch.no_grad():
        compiled(x)
        in_place(model)
        with pytest.raises(RuntimeError, match=r"a stride has changed.*call eval\(\)"):
            compiled(x)
        model.eval()
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)


# What torch 2.6 has to say of its own programs.
@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node")
@pytest.mark.filterwarnings("ignore:Node .* does not reference an nn.Module")
@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_program_is_never_of_another_stride_than_it_has(strict):
    model = network().eval()
    x = torch.randn(2, 1, 32, 28)
    with torch.no_grad():
        in_place(model)
        if strict:  # where the graph is made by the compiler, which sees what eval() has seen
            stale = torch.export.export(model, (x,), strict=True).module()
            with pytest.raises(RuntimeError, match="a stride has changed"):
                stale(x)
            model.eval()
        program = torch.export.export(model, (x,), strict=strict).module()
        torch.testing.assert_close(program(x), model(x), rtol=1e-4, atol=1e-5)
        program.get_parameter("1.stride").fill_(1.7)
        with pytest.raises(RuntimeError, match="a stride has changed"):
            program(x)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("options", [{"output_size": 9}, {"crop": False}, {}])
def test_compiled_layers_tell_of_strides_that_are_none(options, value, training):
    layer = DiffStride2d(2.0, smoothness=2.0, **options).train(training)
    compiled = torch.compile(layer, backend="eager")
    x = torch.randn(1, 1, 16, 16)
    with torch.no_grad():
        compiled(x)
        layer.stride[0] = value
        with pytest.raises((ValueError, RuntimeError), match="stride must be finite"):
            compiled(x)


def test_a_whole_graph_has_the_size_of_a_stride_that_was_cast():
    layer = DiffStride1d(2.006, smoothness=1.0).eval().to(torch.bfloat16)
    x = torch.randn(1, 1, 3000)
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    assert compiled(x).shape == layer(x).shape


@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node")
@pytest.mark.filterwarnings("ignore:Node .* does not reference an nn.Module")
def test_exports_leave_other_layers_alone():
    layer = DiffStride2d(2.0).eval().bfloat16()
    x = torch.randn(1, 1, 24, 24)
    with torch.no_grad():
        program = torch.export.export(layer, (x,), strict=False).module()
    torch.testing.assert_close(program(x), layer(x))
    assert DiffStride2d(2.0, dtype=torch.bfloat16)(x).shape == layer(x).shape


def test_a_layer_that_learns_is_not_exported():
    with pytest.raises(RuntimeError, match=r"call eval\(\) on the model first"):
        torch.export.export(DiffStride2d(2.0), (torch.randn(1, 1, 24, 24),), strict=False)
