"""What a run keeps of its test data for its report."""

from types import SimpleNamespace

import pytest
import torch

from diffstride.lab.training.preparation import Prepared, choose_examples


class Signals:
    """Test signals of two channels, each of a length of its own."""

    def __init__(self, lengths, labels):
        self.lengths, self.labels = lengths, torch.tensor(labels)

    def length(self, index):
        return self.lengths[index]

    def windows(self, places, length):
        ((index, start),) = places
        assert start == 0 and length <= self.lengths[index]
        time = torch.arange(length, dtype=torch.float32)
        x = torch.stack([100 * index + torch.sin(0.1 * time), torch.full_like(time, 9e9)])
        return x[None], torch.ones(1, length, dtype=torch.bool)


def prepared(signals, length):
    facts = {"classes": ["ant", "bee", "cat", "dog"], "size": (2, length)}
    return Prepared(facts, None, None, SimpleNamespace(signals=signals))


def test_signals_are_kept_as_scaled_samples():
    found = choose_examples(prepared(Signals([50, 5000, 300, 40, 60], [3, 1, 1, 0, 2]), 10_000))
    assert [example["label"] for example in found] == ["bee", "ant", "cat"]
    assert [len(example["samples"]) for example in found] == [2000, 40, 60]  # what is filled up is
    for example in found:  # no signal
        assert set(example) == {"label", "samples"}
        values = example["samples"]
        assert min(values) == -1 and max(values) == 1
        assert all(value == round(value, 4) for value in values)
    assert found[0]["samples"][16] == pytest.approx(torch.tensor(1.6).sin().item(), abs=1e-3)


def test_no_more_than_the_network_sees_is_kept():
    (found,) = choose_examples(prepared(Signals([500], [0]), 120))
    assert len(found["samples"]) == 120


def test_a_signal_that_is_constant_is_kept_too():
    (found,) = choose_examples(prepared(Signals([1], [0]), 120))
    assert found["samples"] == [0.0]
