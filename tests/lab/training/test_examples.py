"""What a run keeps of its test data for its report."""

import numpy as np
import pytest
import torch

from diffstride.lab.data.signal_batches import SignalEvaluation
from diffstride.lab.data.signals import Signals
from diffstride.lab.training.examples import choose_examples
from diffstride.lab.training.preparation import Prepared


def prepared(lengths, labels, length):
    """Test signals of two channels, each of a length of its own."""
    times = [np.arange(n) for n in lengths]
    arrays = [
        np.stack([100 * i + np.sin(0.1 * t), np.full(len(t), 9e9)]) for i, t in enumerate(times)
    ]
    test = SignalEvaluation(Signals.of(arrays, torch.tensor(labels)), 4, length)
    facts = {"classes": ["ant", "bee", "cat", "dog"], "size": (2, length)}
    return Prepared(facts, None, None, test, None)


def test_signals_are_kept_as_scaled_samples():
    found = choose_examples(prepared([50, 5000, 300, 40, 60], [3, 1, 1, 0, 2], 10_000))
    assert [example["label"] for example in found] == ["bee", "ant", "cat"]
    assert [len(example["samples"]) for example in found] == [2000, 40, 60]  # what is filled up is
    for example in found:  # no signal
        assert set(example) == {"label", "samples"}
        values = example["samples"]
        assert min(values) == -1 and max(values) == 1
        assert all(value == round(value, 4) for value in values)
    assert found[0]["samples"][16] == pytest.approx(torch.tensor(1.6).sin().item(), abs=1e-3)


def test_no_more_than_the_network_sees_is_kept():
    (found,) = choose_examples(prepared([500], [0], 120))
    assert len(found["samples"]) == 120


def test_a_signal_that_is_constant_is_kept_too():
    (found,) = choose_examples(prepared([1], [0], 120))
    assert found["samples"] == [0.0]
