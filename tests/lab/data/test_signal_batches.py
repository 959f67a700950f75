"""Batches of signals: every signal once, windows within it, zeros where nothing is."""

import numpy as np
import pytest
import torch

from diffstride.lab.data.signal_batches import (
    SignalBatches,
    SignalEvaluation,
    normalise,
    statistics,
)
from diffstride.lab.data.signals import Signals

NONE = {"mean": torch.zeros(1), "std": torch.ones(1)}


def counters(*lengths, channels=1):
    """Signals of a counter from 1 each, which says where a sample was; further channels repeat."""
    arrays = [np.arange(1, n + 1)[None].repeat(channels, 0) for n in lengths]
    return Signals.of(arrays, torch.arange(len(lengths)))


def test_windows_lie_within_signals_and_are_anywhere_in_them():
    loader = SignalBatches(counters(3, 10, 25), 3, 10, **NONE)
    assert len(loader) == 1
    firsts = {label: set() for label in range(3)}
    for epoch in range(300):
        loader.epoch = lambda epoch=epoch: epoch
        ((x, real, labels),) = loader
        assert x.shape == (3, 1, 10)
        assert sorted(labels.tolist()) == [0, 1, 2]
        for window, number, label in zip(x[:, 0], real.tolist(), labels.tolist(), strict=True):
            assert number == min(10, (3, 10, 25)[label])
            first = int(window[0])
            assert torch.equal(window[:number], torch.arange(first, first + number).float())
            assert (window[number:] == 0).all()
            firsts[label].add(first)
    assert firsts[0] == firsts[1] == {1}
    assert firsts[2] == set(range(1, 17))


def test_batches_follow_from_seed_and_epoch_and_are_shared_by_processes():
    signals = counters(*[30] * 11)

    def drawn(epoch=0, place=(0, 1), **options):
        loader = SignalBatches(signals, 4, 10, **NONE, **options)
        loader.epoch, loader.place = lambda: epoch, lambda: place
        batches = list(loader)
        assert len(batches) == len(loader) == 2  # three signals are too few for another
        return batches

    first = drawn()
    assert len({label for _, _, labels in first for label in labels.tolist()}) == 8
    for x, y in zip(first, drawn(), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(x, y, strict=True))
    for other in (drawn(epoch=1), drawn(seed=1)):
        assert not torch.equal(first[0][0], other[0][0])
    halves = [drawn(place=(rank, 2)) for rank in (0, 1)]
    for step in range(2):
        for part in range(3):
            together = torch.stack([half[step][part] for half in halves], 1).flatten(0, 1)
            assert torch.equal(together, first[step][part])


def test_fewer_signals_than_a_batch_are_one_batch():
    ((x, real, labels),) = SignalBatches(counters(5, 6), 8, 6, **NONE)
    assert (x.shape, sorted(real.tolist()), len(labels)) == ((2, 1, 6), [5, 6], 2)


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_evaluation_sees_every_sample_once(processes):
    lengths = (1, 7, 14, 23)
    seen = {i: [] for i in range(4)}
    for rank in range(processes):
        loader = SignalEvaluation(counters(*lengths), 3, 7, **NONE)
        loader.place = lambda rank=rank: (rank, processes)
        assert len(list(loader)) == len(loader) == 3
        for x, real, numbers in loader:
            assert x.shape == (len(numbers), 1, 7)
            for window, number, signal in zip(x, real.tolist(), numbers.tolist(), strict=True):
                seen[signal] += window[0, :number].tolist()
                assert (window[:, number:] == 0).all()
    for signal, length in enumerate(lengths):
        assert sorted(seen[signal]) == list(range(1, length + 1))


def test_channels_are_normalised_and_the_end_stays_zero():
    signals = Signals.of([[[1, 3], [10, 10]], [[2, 2, 2], [30, 30, 30]]], torch.tensor([0, 1]))
    mean, std = statistics(signals)
    assert mean.tolist() == pytest.approx([2, 22])
    assert std.tolist() == pytest.approx([0.4**0.5, 96**0.5])
    ((x, real, _),) = SignalEvaluation(signals, 4, 4, mean=mean, std=std)
    assert real.tolist() == [2, 3]
    assert (x[0, :, 2:] == 0).all()
    assert (x[1, :, 3:] == 0).all()
    every = torch.cat([x[0, :, :2], x[1, :, :3]], dim=1)
    assert every.mean(1).tolist() == pytest.approx([0, 0], abs=1e-6)
    assert every.std(1, correction=0).tolist() == pytest.approx([1, 1])
    ((x, real, labels),) = SignalBatches(signals, 2, 4, mean=mean, std=std)
    assert (x[labels.tolist().index(0), :, 2:] == 0).all()


@pytest.mark.parametrize(("offset", "scale"), [(0, 1e-9), (1e6, 1.0), (-1e3, 1e4), (5, 0)])
def test_statistics_hold_at_any_scale(offset, scale):
    noise = np.random.default_rng(0).normal(size=4000)
    values = (offset + scale * noise).astype(np.float32)
    mean, std = statistics(Signals.of([values[None, :1000], values[None, 1000:]], torch.zeros(2)))
    exact = values.astype(np.float64)
    assert mean.item() == pytest.approx(exact.mean(), rel=1e-6, abs=1e-3 * scale)
    assert std.item() == pytest.approx(exact.std() if scale else 1.0, rel=1e-3)


def test_each_signal_may_be_normalised_by_itself():
    """However large or far from 0 it is, and over its real samples alone."""
    real = torch.tensor([40, 25, 40])
    windows = torch.randn(3, 2, 40) * torch.tensor([1e-5, 1.0, 1e6])[:, None, None] + 3e-5
    windows[2] = 7.5  # constant
    x = normalise(windows, real)
    for i in range(2):
        assert x[i, :, : real[i]].mean(-1).abs().max() < 1e-5
        torch.testing.assert_close(x[i, :, : real[i]].std(-1, correction=0), torch.ones(2))
    assert (x[1, :, 25:] == 0).all()
    assert (x[2] == 0).all()
    again = normalise(1000 * windows + 5, real)
    torch.testing.assert_close(again, x, atol=2e-3, rtol=1e-3)
    for window, number, _ in SignalEvaluation(counters(4, 9, 12), 1, 8):
        assert window.sum().abs() < 1e-5
        assert window.square().sum() == pytest.approx(float(number) if number > 1 else 0, abs=1e-4)
