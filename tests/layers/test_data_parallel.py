"""Replicas that see inputs of different sizes keep the same strides, bit for bit."""

import os

import pytest
import torch
from torch import multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel

from diffstride import DiffStride2d

pytestmark = pytest.mark.slow


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        DiffStride2d((1.0, 2.5), smoothness=2.0),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, padding=1),
        DiffStride2d(3.0, shared=True, max_stride=3.1),
        nn.ReLU(),  # the mean alone would never tell the stride anything: no window touches it
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 2),
    )


def train(rank, folder, sizes, steps):
    torch.set_num_threads(1)
    # Only this machine takes part, whatever networks it has.
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=len(sizes)
    )
    model = DistributedDataParallel(network())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    generator = torch.Generator().manual_seed(rank)
    history = []
    for step in range(steps):
        size = sizes[rank][step % len(sizes[rank])]
        x = torch.randn(8, 1, *size, generator=generator)
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x), torch.arange(8) % 2).backward()
        optimiser.step()
        history.append([model.module[i].stride.detach().clone() for i in (1, 4)])
    torch.save(history, f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()
    # What torch has of threads may be left without an owner when Python ends, which aborts the
    # process now and then, after all that is tested here.
    os._exit(0)


@pytest.mark.parametrize(
    "sizes",
    [
        [[(16, 16)], [(9, 31)]],
        [[(5, 7), (32, 32), (2, 40)], [(24, 24), (4, 4), (1, 16)]],
    ],
    ids=["fixed", "changing"],
)
def test_ranks_with_different_input_sizes_do_not_drift_apart(tmp_path, sizes):
    multiprocessing.spawn(train, (str(tmp_path), sizes, 20), nprocs=2)
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1))
    assert len(first) == 20
    for ours, theirs in zip(first, second, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            assert torch.equal(a, b)
    start = [torch.tensor([1.0, 2.5]), torch.tensor([3.0])]
    assert all(not torch.equal(a, b) for a, b in zip(first[-1], start, strict=True))


@pytest.mark.parametrize("training", [True, False])
def test_copies_that_data_parallel_makes_in_one_process_compute_and_learn_the_same(training):
    """What ``nn.DataParallel`` does to each layer, where there is no second device to do it on."""
    layers = [m for m in network().train(training) if isinstance(m, DiffStride2d)]
    for layer in layers:
        copy = layer._replicate_for_data_parallel()
        copy.stride = layer.stride * 1  # there: sent to the device of the copy
        x = torch.randn(2, 4, 32, 32)
        y, expected = copy(x), layer(x)
        assert torch.equal(y, expected)
        y.square().sum().backward()
        found, layer.stride.grad = layer.stride.grad, None
        expected.square().sum().backward()
        torch.testing.assert_close(found, layer.stride.grad)
