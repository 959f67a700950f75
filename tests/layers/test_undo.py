"""A layer that undoes another one makes the size that this one has read, whatever it was."""

import copy
import gc
import pickle
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from diffstride import (
    DiffStride1d,
    DiffStride2d,
    DiffStride3d,
    DiffStrideConv2d,
    SpectralPool1d,
    SpectralPool2d,
    convert,
    functional,
)
from diffstride.layers import Undo
from diffstride.layers.converted import Converted
from diffstride.layers.joined import JoiningSequential
from tests.small_networks import UNet

SIZES = [(32, 32), (31, 29), (7, 13), (64, 5), (1, 2)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("stride", [1.0, 2.0, 3.3])
def test_a_u_net_fits_at_any_size_and_stride(size, stride):
    network = UNet(stride)
    x = torch.randn(2, 1, *size)
    y = network(x)
    assert y.shape == x.shape
    y.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


def test_strides_move_and_sizes_follow():
    network = UNet(2.0)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.5)
    before = network.down.strides
    for size in SIZES[:3]:
        optimiser.zero_grad()
        x = torch.randn(4, 1, *size)
        (network(x) - x).square().mean().backward()
        optimiser.step()
    assert network.down.strides != before
    assert network.deeper.stride.grad.abs().max() > 0


@pytest.mark.parametrize("norm", ["ortho", "forward", "backward"])
@pytest.mark.parametrize("options", [{"stride": 2.3}, {"output_size": (4, 9)}])
def test_spectral_pooling_and_back_is_a_projection(norm, options):
    down = SpectralPool2d(**options, norm=norm)
    up = down.up()
    x = torch.randn(2, 3, 17, 20, dtype=torch.float64)
    once = up(down(x))
    torch.testing.assert_close(up(down(once)), once)
    small = down(x)
    torch.testing.assert_close(down(up(small)), small)


def test_it_is_a_resize_with_the_norm_basis_and_path_of_the_layer():
    x = torch.randn(2, 3, 17, 20)
    down = DiffStride2d(2.0, smoothness=1.0, norm="forward", path="fft")
    up = down.up()
    assert isinstance(up, Undo)
    assert (up.norm, up.basis, up.path) == ("forward", "fourier", "fft")
    small = torch.randn_like(down(x))
    expected = functional.spectral_resize(small, (17, 20), norm="forward", path="fft")
    assert torch.equal(up(small), expected)
    assert up.output_size(small.shape[2:]) == (17, 20)
    assert list(up.parameters()) == list(up.buffers()) == list(up.children()) == []
    assert repr(up) == "Undo(DiffStride2d, norm='forward')"


def test_what_comes_may_have_another_size_than_what_left():
    """Convolutions without borders in between: each axis goes where it must, up or down."""
    down = SpectralPool2d(2)
    up = down.up()
    down(torch.randn(1, 1, 16, 18))
    assert up(torch.randn(1, 1, 5, 30)).shape[2:] == (16, 18)


def test_a_layer_of_its_own_for_each_level_and_several_for_one():
    down = DiffStride1d(2.0)
    one, other = down.up(), down.up()
    small = down(torch.randn(2, 3, 31))
    assert one(small).shape == other(small).shape == (2, 3, 31)


def test_the_last_call_counts():
    down = SpectralPool1d(2)
    up = down.up()
    first, second = down(torch.randn(1, 1, 20)), down(torch.randn(1, 1, 31))
    assert up(second).shape[-1] == 31
    assert up(first).shape[-1] == 31
    down(torch.randn(1, 1, 20))
    assert up(first).shape[-1] == 20


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_follow_their_own_and_have_read_nothing(copied):
    network = UNet(2.0)
    x = torch.randn(2, 1, 31, 29)
    expected = network(x)
    back = copied(network)
    assert back.up.undone is back.down
    assert back.up.undone is not network.down
    with pytest.raises(RuntimeError, match=r"Undo\(DiffStride2d.* has not run yet"):
        back.up(x)
    network(torch.randn(1, 1, 8, 8))
    assert torch.equal(back(x), expected)
    alone = copied(network.up)  # with a copy of what it undoes, which nobody calls
    with pytest.raises(RuntimeError, match="has not run yet"):
        alone(x)


def test_states_know_nothing_of_it():
    network = UNet(2.0)
    plain = UNet(2.0)
    assert not [name for name in network.state_dict() if "up" in name or "size" in name]
    plain.load_state_dict(network.state_dict())
    x = torch.randn(2, 1, 31, 29)
    assert torch.equal(plain(x), network(x))


def test_no_tensor_is_kept():
    down = SpectralPool1d(2)
    up = down.up()
    x = torch.randn(1, 1, 20)
    seen = weakref.ref(x)
    small = down(x)
    del x
    gc.collect()
    assert seen() is None
    assert up(small).shape[-1] == 20


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_decoder_that_is_computed_again_in_the_backward_pass(reentrant):
    class Checkpointed(UNet):
        def decode(self, x, skip):
            return checkpoint(super().decode, x, skip, use_reentrant=reentrant)

    network, plain = Checkpointed(2.0), UNet(2.0)
    network.load_state_dict(plain.state_dict())
    x = torch.randn(2, 1, 31, 29)
    for one in (network, plain):
        one(x).square().sum().backward()
    for p, q in zip(network.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad)


@pytest.mark.parametrize("reentrant", [True, False])
def test_what_a_thread_of_backward_passes_has_read_in_an_earlier_one_does_not_count(reentrant):
    """On a GPU all backward passes are carried out in one thread, which runs nothing else."""
    down = DiffStride2d(2.0, smoothness=1.0)
    up = down.up()
    with ThreadPoolExecutor(1) as thread:
        for size in (16, 23, 11):
            x = torch.randn(1, 1, size, size, requires_grad=True)
            small = checkpoint(down, x, use_reentrant=reentrant)
            y = checkpoint(lambda x: up(x).square(), small, use_reentrant=reentrant)
            thread.submit(y.sum().backward).result()
            x_again = x.detach().requires_grad_()
            up(down(x_again)).square().sum().backward()
            torch.testing.assert_close(x.grad, x_again.grad)


def test_threads_do_not_see_each_others_sizes():
    network = UNet(2.0).eval()
    wrong, together = [], threading.Barrier(4)

    def run(size):
        together.wait()
        for _ in range(20):
            with torch.no_grad():
                y = network(torch.randn(1, 1, *size))
            if y.shape[2:] != size:
                wrong.append((size, y.shape))

    threads = [threading.Thread(target=run, args=((17 + i, 30 - i),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_replicas_of_data_parallel_follow_each_their_own():
    """What ``nn.DataParallel`` does to each layer, where there is no second device to do it on."""
    down = DiffStride2d(2.0, smoothness=1.0)
    up = down.up()
    expected = {}

    def run(size):
        replicas = [layer._replicate_for_data_parallel() for layer in (down, up)]
        replicas[0].stride = down.stride * 1
        expected[size] = replicas[1](replicas[0](torch.randn(1, 1, *size))).shape[2:]

    for size in SIZES[:3]:
        thread = threading.Thread(target=run, args=(size,))
        thread.start()
        thread.join()
    assert expected == {size: size for size in SIZES[:3]}


@pytest.mark.parametrize("kernel", [{}, {"padding": 1}])
@pytest.mark.parametrize("order", ["auto", "after", "taps"])
def test_a_convolution_with_a_stride_is_undone_to_what_it_read(kernel, order):
    down = DiffStrideConv2d(1, 3, 3, stride=2.0, order=order, **kernel)
    up, inner = down.up(), down.downsample.up()
    small = down(torch.randn(2, 1, 17, 20))
    assert up(small).shape[2:] == (17, 20)
    assert inner(small).shape[2:] == down.convolved_size((17, 20))


@pytest.mark.parametrize("hooked", [False, True])
def test_where_a_convolution_and_a_layer_run_as_one(hooked):
    down = DiffStride2d(2.0, smoothness=1.0)
    up = down.up()
    encoder = JoiningSequential(nn.Conv2d(1, 4, 5), down)
    if hooked:
        down.register_forward_hook(lambda *_: None)
    assert up(encoder(torch.randn(2, 1, 17, 20))).shape[2:] == (13, 16)


def test_converted_layers_can_be_undone():
    """To the size behind the convolution or pooling that they are in, before their stride."""
    network = nn.Sequential(nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    network, _ = convert(network, torch.randn(1, 1, 32, 32))
    layers = [layer for layer in network.modules() if isinstance(layer, Converted)]
    ups = [layer.downsample.up() for layer in layers]
    small = network(torch.randn(1, 1, 31, 29))
    made = [up(small).shape[2:] for up in ups]
    assert made[0] == (31, 29)
    seen = []
    layers[1].downsample.register_forward_pre_hook(lambda _, x: seen.append(x[0].shape[2:]))
    network(torch.randn(1, 1, 31, 29))
    assert made[1:] == seen


def test_three_axes():
    down = DiffStride3d((1.0, 2.0, 1.7), smoothness=1.0, convention="tight")
    up = down.up()
    assert up(down(torch.randn(2, 3, 5, 9, 11))).shape == (2, 3, 5, 9, 11)


def test_half_precision_and_autocast():
    network = UNet(2.0)
    x = torch.randn(2, 1, 31, 29)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert network(x).shape == x.shape
    half = copy.deepcopy(network).to(torch.bfloat16)
    torch.testing.assert_close(
        half(x.bfloat16()).float(), network(x), rtol=0.1, atol=0.1 * network(x).abs().max().item()
    )
