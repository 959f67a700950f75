"""Recordings of any rate, length and number of channels become windows of one second."""

import io

import numpy as np
import pytest
import soundfile
import torch

from diffstride.data import audio
from diffstride.data.audio import WINDOW, Batches, Evaluation, Recordings
from diffstride.data.sources import DataError, Paths


def tone(seconds, rate=16_000, hertz=440.0):
    return 0.5 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)


def encoded(samples, rate=16_000, kind="WAV", subtype=None):
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=kind, subtype=subtype)
    return file.getvalue()


def files(folder, contents, split="train"):
    """Paths to files with these contents, of classes 0, 1, 0, ..."""
    folder.mkdir(exist_ok=True)
    paths = []
    for i, content in enumerate(contents):
        path = folder / f"{split}{i}.wav"
        path.write_bytes(content)
        paths.append(path)
    return Paths(tuple(paths), split, torch.arange(len(paths)) % 2)


@pytest.mark.parametrize("kind", ["WAV", "FLAC"])
def test_sixteen_bits_at_sixteen_kilohertz_are_kept_bit_for_bit(kind, tmp_path):
    samples = np.random.default_rng(0).integers(-32768, 32768, 2000, dtype=np.int16)
    data = encoded(samples, kind=kind)
    np.testing.assert_array_equal(audio.decode("a", data) * 32768, samples)
    recordings = audio.load(files(tmp_path / "in", [data]), tmp_path / "cache", "here")
    np.testing.assert_array_equal(recordings.samples, samples)


@pytest.mark.parametrize("rate", [8_000, 22_050, 44_100, 48_000])
def test_other_rates_are_resampled(rate):
    found = audio.decode("a", encoded(tone(1, rate), rate))
    assert abs(len(found) - 16_000) <= 1
    inner = slice(500, 15_500)  # without the edges, where a filter sees the end
    np.testing.assert_allclose(found[inner], tone(1)[inner], atol=2e-3)


def test_stereo_becomes_mono():
    both = np.stack([tone(0.5), 0.5 * tone(0.5)], 1)
    found = audio.decode("a", encoded(both, subtype="FLOAT"))
    np.testing.assert_allclose(found, 0.75 * tone(0.5), atol=1e-6)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no such file, or it is empty"),
        (b"no audio at all", "can't be read as audio"),
        (encoded(np.zeros(0)), "it has no samples"),
        (encoded(np.zeros(1), rate=48_000), "it has no samples"),
        (encoded(np.array([0, np.nan, 1]), subtype="FLOAT"), "no finite numbers"),
        (encoded(np.array([0, np.inf, 1]), subtype="FLOAT"), "no finite numbers"),
    ],
    # By name: there is the time in a file of floats, which differs from process to process.
    ids=["empty", "text", "no samples", "one sample", "nan", "inf"],
)
def test_what_can_not_be_read_is_named(data, message, tmp_path):
    with pytest.raises(DataError, match=r"bird\.wav can't be read") as raised:
        audio.decode("bird.wav", data)
    assert message in str(raised.value)
    broken = files(tmp_path / "in", [encoded(tone(1)), data, encoded(tone(2))])
    with pytest.raises(DataError, match=r"train1\.wav can't be read as audio"):
        audio.load(broken, tmp_path / "cache", "here")
    assert not any((tmp_path / "cache").iterdir())
    for _ in range(2):  # decoded, then from the cache
        recordings = audio.load(broken, tmp_path / "cache", "here", skip_corrupt=True)
        assert [name.endswith("train1.wav") for name in recordings.skipped] == [True]
        assert recordings.labels.tolist() == [0, 0]
        assert [recordings.length(i) for i in range(2)] == [16_000, 32_000]
    with pytest.raises(DataError, match=r"train1\.wav can't be read as audio"):
        audio.load(broken, tmp_path / "cache", "here")


def test_loud_recordings_are_clipped_and_not_wrapped(tmp_path):
    loud = encoded(np.array([2.0, -2.0, 0.25]), subtype="FLOAT")
    recordings = audio.load(files(tmp_path / "in", [loud]), tmp_path / "cache", "here")
    assert recordings.samples.tolist() == [32767, -32768, 8192]


def test_nothing_is_decoded_twice_unless_files_change(tmp_path, monkeypatch):
    contents = [encoded(tone(0.5)), encoded(tone(1.5))]
    source = files(tmp_path / "in", contents)
    decoded = []
    decode = audio.decode
    monkeypatch.setattr(
        audio, "decode", lambda name, data: (decoded.append(name), decode(name, data))[1]
    )

    def load(source=source):
        decoded.clear()
        return audio.load(source, tmp_path / "cache", "here")

    first = load()
    assert len(decoded) == 2
    again = load()
    assert decoded == []
    np.testing.assert_array_equal(first.samples, again.samples)
    # One file changes, and is as long as before.
    source.paths[0].write_bytes(encoded(tone(0.5, hertz=1000)))
    changed = load()
    assert len(decoded) == 2
    assert np.array_equal(first.starts, changed.starts)
    expected = np.rint(tone(0.5, hertz=1000) * 32767)  # as soundfile makes it 16 bits
    assert np.abs(changed.samples[:8000] - expected).max() <= 2
    assert len(list((tmp_path / "cache").iterdir())) == 2  # in the place of the old ones
    # Other files beside them do not disturb.
    load(source.select([1]))
    load()
    assert decoded == []


def test_a_file_that_changes_while_it_is_decoded_is_decoded_again(tmp_path, monkeypatch):
    source = files(tmp_path / "in", [encoded(tone(0.5))])
    decode = audio.decode

    def slow(name, data):
        source.paths[0].write_bytes(encoded(tone(1.5)))
        return decode(name, data)

    monkeypatch.setattr(audio, "decode", slow)
    assert audio.load(source, tmp_path / "cache", "here").length(0) == 8_000
    monkeypatch.undo()
    assert audio.load(source, tmp_path / "cache", "here").length(0) == 24_000


@pytest.mark.parametrize("damage", ["samples", "npz", "no samples", "no npz"])
def test_a_damaged_cache_is_made_anew(damage, tmp_path):
    source = files(tmp_path / "in", [encoded(tone(0.5)), encoded(tone(1.5))])
    whole = np.array(audio.load(source, tmp_path / "cache", "here").samples)
    (path,) = (tmp_path / "cache").glob(f"*.{damage.removeprefix('no ')}")
    if damage.startswith("no "):
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-10])
    found = audio.load(source, tmp_path / "cache", "here")
    np.testing.assert_array_equal(found.samples, whole)


def test_an_interruption_leaves_no_cache_or_a_whole_one(tmp_path, monkeypatch):
    source = files(tmp_path / "in", [encoded(tone(0.5)) for _ in range(3)])

    def interrupted(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", interrupted)
    with pytest.raises(KeyboardInterrupt):
        audio.load(source, tmp_path / "cache", "here")
    monkeypatch.undo()
    assert not list((tmp_path / "cache").glob("*.npz"))
    assert len(audio.load(source, tmp_path / "cache", "here")) == 3


def recordings(*seconds):
    """Recordings of a counter each, which says where a sample was."""
    lengths = [round(s * WINDOW) for s in seconds]
    samples = np.concatenate([np.arange(n) % 32768 for n in lengths]).astype(np.int16)
    return Recordings(samples, np.cumsum([0, *lengths]), torch.arange(len(lengths)))


def test_windows_lie_within_recordings_and_short_ones_are_padded():
    whole = recordings(0.25, 1.0, 2.5)
    seen = set()
    loader = Batches({"": whole}, 3, steps=200)
    for batch in loader:
        waves, labels = batch[""]
        assert waves.shape == (3, WINDOW)
        assert sorted(labels.tolist()) == [0, 1, 2]  # each once before any comes again
        for wave, label in zip((waves * 32768).round().long(), labels.tolist(), strict=True):
            first, length = int(wave[0]), whole.length(label)
            inside = min(WINDOW, length)
            assert torch.equal(wave[:inside], (first + torch.arange(inside)) % 32768)
            assert (wave[inside:] == 0).all()
            assert 0 <= first <= max(0, length - WINDOW)
            seen.add((label, first))
    starts = [first for label, first in seen if label == 2]
    assert min(starts) < 2000
    assert max(starts) > 1.5 * WINDOW - 2000
    assert {first for label, first in seen if label != 2} == {0}


def test_batches_follow_from_seed_and_epoch_and_are_balanced_over_tasks():
    tasks = {"a": recordings(*[1.5] * 4), "b": recordings(*[2.0] * 9), "c": recordings(3.0, 1.0)}

    def drawn(epoch=0, place=(0, 1), **options):
        loader = Batches(tasks, 7, **options)
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
        Batches(tasks, 2)


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_evaluation_sees_every_sample_once(processes):
    seconds = (0.25, 1.0, 10.37, 2.0)
    tasks = {"a": recordings(*seconds), "b": recordings(0.5)}
    seen = {name: [] for name in tasks}
    for rank in range(processes):
        loader = Evaluation(tasks, 4)
        loader.place = lambda rank=rank: (rank, processes)
        assert len(list(loader)) == len(loader) == 5
        for batch in loader:
            ((name, (waves, owners)),) = batch.items()
            assert waves.shape == (len(owners), WINDOW)
            seen[name] += [
                (owner, int(wave[0] * 32768))
                for wave, owner in zip(waves, owners.tolist(), strict=True)
            ]
    expected = [
        (i, k * WINDOW % 32768) for i, s in enumerate(seconds) for k in range(int(np.ceil(s)))
    ]
    assert sorted(seen["a"]) == sorted(expected)
    assert seen["b"] == [(0, 0)]


def test_folders_by_class(tmp_path):
    for split, names in (("train", ("low", "high", "low")), ("test", ("high",))):
        for i, name in enumerate(names):
            folder = tmp_path / "sounds" / split / name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{i}.flac").write_bytes(b"")
            (folder / "notes.txt").write_bytes(b"")
    (tmp_path / "sounds/train/.hidden").mkdir()
    (tmp_path / "sounds/train/low/deeper").mkdir()
    (tmp_path / "sounds/train/low/deeper/5.WAV").write_bytes(b"")
    train, test, classes = audio.open_recordings(str(tmp_path / "sounds"))
    assert classes == ("high", "low")
    assert train.labels.tolist() == [0, 1, 1, 1]
    with pytest.raises(DataError, match="no column 'pitch' of labels"):
        audio.open_recordings(str(tmp_path / "sounds"), label="pitch")
    assert [path.name for path in test.paths] == ["0.flac"]
    assert test.labels.tolist() == [0]


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        ([], "neither parquet files nor the folders train and test"),
        (["train/a/0.wav", "test/a/0.wav"], "each of two classes or more"),
        (["train/a/0.wav", "train/b/0.wav"], "neither parquet files nor the folders"),
        (["train/a/0.wav", "train/b/0.txt", "test/a/0.wav"], "train/b has no audio file"),
        (["train/a/0.wav", "train/b/0.wav", "test/c/0.wav"], r"test/c is no class .*: a, b"),
        (["train/a/0.wav", "train/b/0.wav", "test/a/0.txt"], r"test/a has no audio file \(\.wav"),
    ],
)
def test_wrong_folders_are_named(paths, message, tmp_path):
    (tmp_path / "sounds").mkdir()
    for name in paths:
        (tmp_path / "sounds" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "sounds" / name).write_bytes(b"")
    with pytest.raises(DataError, match=message):
        audio.open_recordings(str(tmp_path / "sounds"))
