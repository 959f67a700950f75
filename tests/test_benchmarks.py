"""The benchmarks can be started, and the contender they are won against computes the same."""

import importlib
from pathlib import Path

import pytest
import torch

from benchmarks import contenders, harness, memory
from diffstride import DiffStride2d
from diffstride.lab.sweeps.step_cost import PeakBytes

pytestmark = pytest.mark.slow

NAMES = [
    path.stem
    for path in (Path(__file__).parents[1] / "benchmarks").glob("*.py")
    if path.stem not in {"harness", "contenders", "shared_weights"}
]


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_benchmark_can_be_loaded_and_says_how_to_run_it(name):
    module = importlib.import_module(f"benchmarks.{name}")
    assert callable(module.main)
    assert f"python -m benchmarks.{name}" in module.__doc__


@pytest.mark.parametrize("size", [(31, 31), (31, 27)])
def test_the_textbook_layer_is_the_same_layer(size):
    """On odd output sizes; on even ones it drops one of two rows, as one would at first."""
    x = torch.randn(2, 3, *size)
    y, expected = contenders.TextbookFFT(2.0)(x), DiffStride2d(2.0)(x)
    assert all(m % 2 for m in expected.shape[2:])
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-5)


def test_bytes_are_counted_once_and_without_the_input():
    x = torch.randn(4, 5, requires_grad=True)
    kept, output = memory.bytes_kept(lambda x: (x.exp() * 2).exp(), x)
    assert (kept, output) == (2 * x.nbytes, x.nbytes)


def test_the_peak_counts_what_is_alive_at_the_same_time():
    with PeakBytes() as counter:
        a = torch.zeros(256)
        b = (a + 1) * 2  # a + 1 dies here
        a.add_(b)
        a[:3].neg_()
        del a
        torch.zeros(128)
    assert counter.peak == 3 * 1024
    assert counter.alive == b.nbytes


def test_sides_take_turns_after_a_warm_up():
    calls = []
    times = harness.interleaved({name: lambda n=name: calls.append(n) for name in "ab"}, rounds=3)
    assert calls == ["a", "a", "b", "b", *"abbaab"]
    assert set(times) == {"a", "b"}
