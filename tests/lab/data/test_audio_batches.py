"""Windows lie within recordings, and evaluation sees every sample once."""

import numpy as np
import pytest
import torch

from diffstride.lab.data.batches import AudioBatches, AudioEvaluation
from diffstride.lab.data.labelled_files import DataError
from diffstride.lab.data.recordings import WINDOW_LENGTH, Recordings


def recordings(*seconds):
    """Recordings of a counter each, which says where a sample was."""
    lengths = [round(s * WINDOW_LENGTH) for s in seconds]
    samples = np.concatenate([np.arange(n) % 32768 for n in lengths]).astype(np.int16)
    return Recordings(samples, np.cumsum([0, *lengths]), torch.arange(len(lengths)))


def test_windows_lie_within_recordings_and_short_ones_are_padded():
    whole = recordings(0.25, 1.0, 2.5)
    seen = set()
    loader = AudioBatches({"": whole}, 3, steps=200)
    for batch in loader:
        waves, labels = batch[""]
        assert waves.shape == (3, WINDOW_LENGTH)
        assert sorted(labels.tolist()) == [0, 1, 2]  # each once before any comes again
        for wave, label in zip((waves * 32768).round().long(), labels.tolist(), strict=True):
            first, length = int(wave[0]), whole.length(label)
            inside = min(WINDOW_LENGTH, length)
            assert torch.equal(wave[:inside], (first + torch.arange(inside)) % 32768)
            assert (wave[inside:] == 0).all()
            assert 0 <= first <= max(0, length - WINDOW_LENGTH)
            seen.add((label, first))
    starts = [first for label, first in seen if label == 2]
    assert min(starts) < 2000
    assert max(starts) > 1.5 * WINDOW_LENGTH - 2000
    assert {first for label, first in seen if label != 2} == {0}


def test_batches_follow_from_seed_and_epoch_and_are_balanced_over_tasks():
    tasks = {"a": recordings(*[1.5] * 4), "b": recordings(*[2.0] * 9), "c": recordings(3.0, 1.0)}

    def drawn(epoch=0, place=(0, 1), **options):
        loader = AudioBatches(tasks, 7, **options)
        loader.epoch, loader.place = lambda: epoch, lambda: place
        return list(loader)

    first = drawn()
    assert len(first) == 9 * 3 // 7  # about as often as the largest task is long
    for batch in first:
        assert {name: len(labels) for name, (_, labels) in batch.items()} == {
            "a": 3,
            "b": 2,
            "c": 2,
        }
    same = drawn()
    assert all(torch.equal(x["b"][0], y["b"][0]) for x, y in zip(first, same, strict=True))
    for other in (drawn(epoch=1), drawn(seed=1)):
        assert not torch.equal(first[0]["b"][0], other[0]["b"][0])
    halves = [drawn(place=(rank, 2)) for rank in (0, 1)]
    together = torch.cat([half[0]["a"][1] for half in halves])
    assert sorted(together.tolist()) == sorted(first[0]["a"][1].tolist())
    assert len(drawn(steps=5)) == 5
    with pytest.raises(DataError, match="at least the number of tasks, 3, got 2"):
        AudioBatches(tasks, 2)


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_evaluation_sees_every_sample_once(processes):
    seconds = (0.25, 1.0, 10.37, 2.0)
    tasks = {"a": recordings(*seconds), "b": recordings(0.5)}
    seen = {name: [] for name in tasks}
    for rank in range(processes):
        loader = AudioEvaluation(tasks, 4)
        loader.place = lambda rank=rank: (rank, processes)
        assert len(list(loader)) == len(loader) == 5
        for batch in loader:
            ((name, (waves, owners)),) = batch.items()
            assert waves.shape == (len(owners), WINDOW_LENGTH)
            seen[name] += [
                (owner, int(wave[0] * 32768))
                for wave, owner in zip(waves, owners.tolist(), strict=True)
            ]
    expected = [
        (i, k * WINDOW_LENGTH % 32768)
        for i, s in enumerate(seconds)
        for k in range(int(np.ceil(s)))
    ]
    assert sorted(seen["a"]) == sorted(expected)
    assert seen["b"] == [(0, 0)]
