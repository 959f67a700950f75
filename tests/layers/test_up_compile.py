"""torch.compile and torch.export of the way up: few graphs while sizes move."""

import copy
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

from diffstride import DiffUpsample2d, SpectralPool2d, SpectralUpsample2d, functional
from tests.small_networks import UNet

pytestmark = pytest.mark.slow

TORCH = tuple(int(number) for number in torch.__version__.split(".")[:2])
CLOSE = {"rtol": 1e-3, "atol": 1e-3}


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("rule", [{}, {"smoothness": 4.0, "convention": "paper"}, {"path": "fft"}])
def test_a_stride_that_moves_makes_few_graphs(rule, training):
    if TORCH <= (2, 6) and rule.get("path") == "fft":
        rule = {}  # torch 2.6 can't compile an FFT of a length that changes
    layer, reference = DiffUpsample2d(2.0, **rule), DiffUpsample2d(2.0, **rule)
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(layer.train(training), backend=counter)
    reference.train(training)
    x = torch.randn(2, 3, 16, 13)
    for step in range(20):
        for one in (layer, reference):
            with torch.no_grad():
                one.stride.fill_(0.9 + 0.2 * step)  # the first is out of range
            one.stride.grad = None
        y, expected = compiled(x), reference(x)
        torch.testing.assert_close(y, expected, **CLOSE)
        y.square().sum().backward()
        expected.square().sum().backward()
        torch.testing.assert_close(layer.stride.grad, reference.stride.grad, rtol=1e-3, atol=1e-2)
    if TORCH > (2, 6):  # which makes a graph a size
        assert counter.frame_count <= 4


def test_the_function_is_one_graph_for_many_sizes():
    counter = CompileCounterWithBackend("eager")

    def function(x, size):
        return functional.spectral_resize(x, size)

    compiled = torch.compile(function, backend=counter, fullgraph=True)
    x = torch.randn(2, 3, 32, 31)
    for m in range(14, 50):
        torch.testing.assert_close(compiled(x, (m, m + 1)), function(x, (m, m + 1)), **CLOSE)
    assert counter.frame_count <= 6  # up and down are graphs of their own


# The compiler looks at the gradients of maps between two graphs, whatever layer parts them.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
@pytest.mark.parametrize("training", [True, False])
def test_a_u_net_whose_strides_and_inputs_change(training):
    network = UNet(2.0).train(training)
    reference = copy.deepcopy(network)
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(network, backend=counter)
    frames = []
    with torch.set_grad_enabled(training):
        for step in range(16):
            for one in (network, reference):
                with torch.no_grad():
                    one.down.stride.fill_(1.2 + 0.1 * step)
                one.down.stride.grad = None
            x = torch.randn(2, 1, 32 + 2 * (step % 3), 41)
            y, expected = compiled(x), reference(x)
            torch.testing.assert_close(y, expected, **CLOSE)
            frames.append(counter.frame_count)
            if training:
                y.square().sum().backward()
                expected.square().sum().backward()
                grads = network.down.stride.grad, reference.down.stride.grad
                torch.testing.assert_close(*grads, rtol=1e-3, atol=1e-2)
    if TORCH > (2, 6):
        assert frames[-1] == frames[5]  # not one a size


def test_threads_that_run_compiled_layers_do_not_see_each_others_sizes():
    down = SpectralPool2d(2)
    network = nn.Sequential(down, nn.ReLU(), down.up())
    compiled, wrong, together = torch.compile(network, backend="eager"), [], threading.Barrier(2)
    sizes = [(17, 20), (20, 23)]
    for size in sizes:
        with torch.no_grad():
            compiled(torch.randn(1, 1, *size))

    @torch.no_grad()
    def run(size):
        together.wait()
        for _ in range(50):
            y = compiled(torch.randn(1, 1, *size))
            if y.shape[2:] != size:
                wrong.append((size, y.shape))

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(run, sizes))
    assert not wrong


def test_eval_is_one_graph_of_all_levels():
    network = UNet(2.0).eval()
    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile(network, backend=counter, fullgraph=True)
    with torch.no_grad():
        for size in ((32, 28), (33, 37), (40, 41), (50, 52)):
            x = torch.randn(2, 1, *size)
            torch.testing.assert_close(compiled(x), network(x), **CLOSE)
    if TORCH > (2, 6):
        assert counter.frame_count <= 2


@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node")
@pytest.mark.filterwarnings("ignore:Node .* does not reference an nn.Module")
# What strict export has to say of the size that is noted, which it takes into the program itself.
@pytest.mark.filterwarnings("ignore:While compiling, we found certain side effects")
@pytest.mark.parametrize("strict", [False, True])
def test_programs_compute_the_same(strict):
    pool = SpectralPool2d(2)
    up = nn.Sequential(DiffUpsample2d(1.7), SpectralUpsample2d(1.3), pool, nn.ReLU(), pool.up())
    for model in (UNet(2.0).eval(), up.eval()):
        x = torch.randn(2, 1, 17, 12)
        with torch.no_grad():
            program = torch.export.export(model, (x,), strict=strict).module()
            torch.testing.assert_close(program(x), model(x), **CLOSE)


@pytest.mark.filterwarnings("ignore:.torch.jit")
@pytest.mark.parametrize("training", [True, False])
def test_traces_compute_the_same(training):
    network = UNet(2.0).train(training)
    x = torch.randn(2, 1, 17, 12)
    traced = torch.jit.trace(network, torch.randn(2, 1, 17, 12))
    torch.testing.assert_close(traced(x), network(x), **CLOSE)
