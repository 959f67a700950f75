"""Recordings of any rate and number of channels are decoded once, and kept."""

import numpy as np
import pytest

from diffstride.lab.data import recordings
from diffstride.lab.data.labelled_files import DataError
from tests.lab.data.example_files import encode_sound, tone, write_recordings


@pytest.mark.parametrize("kind", ["WAV", "FLAC"])
def test_sixteen_bits_at_sixteen_kilohertz_are_kept_bit_for_bit(kind, tmp_path):
    samples = np.random.default_rng(0).integers(-32768, 32768, 2000, dtype=np.int16)
    data = encode_sound(samples, kind=kind)
    np.testing.assert_array_equal(recordings.decode("a", data) * 32768, samples)
    loaded = recordings.load(write_recordings(tmp_path / "in", [data]), tmp_path / "cache", "here")
    np.testing.assert_array_equal(loaded.samples, samples)


@pytest.mark.parametrize("rate", [8_000, 22_050, 44_100, 48_000])
def test_other_rates_are_resampled(rate):
    found = recordings.decode("a", encode_sound(tone(1, rate), rate))
    assert abs(len(found) - 16_000) <= 1
    inner = slice(500, 15_500)  # without the edges, where a filter sees the end
    np.testing.assert_allclose(found[inner], tone(1)[inner], atol=2e-3)


def test_stereo_becomes_mono():
    both = np.stack([tone(0.5), 0.5 * tone(0.5)], 1)
    found = recordings.decode("a", encode_sound(both, subtype="FLOAT"))
    np.testing.assert_allclose(found, 0.75 * tone(0.5), atol=1e-6)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no such file, or it is empty"),
        (b"no audio at all", "can't be read as audio"),
        (encode_sound(np.zeros(0)), "it has no samples"),
        (encode_sound(np.zeros(1), rate=48_000), "it has no samples"),
        (encode_sound(np.array([0, np.nan, 1]), subtype="FLOAT"), "NaN or infinite"),
        (encode_sound(np.array([0, np.inf, 1]), subtype="FLOAT"), "NaN or infinite"),
    ],
    # By name: there is the time in a file of floats, which differs from process to process.
    ids=["empty", "text", "no samples", "one sample", "nan", "inf"],
)
def test_what_can_not_be_read_is_named(data, message, tmp_path):
    with pytest.raises(DataError, match=r"bird\.wav can't be read") as raised:
        recordings.decode("bird.wav", data)
    assert message in str(raised.value)
    broken = write_recordings(tmp_path / "in", [encode_sound(tone(1)), data, encode_sound(tone(2))])
    with pytest.raises(DataError, match=r"train1\.wav can't be read as audio"):
        recordings.load(broken, tmp_path / "cache", "here")
    assert not any((tmp_path / "cache").iterdir())
    for _ in range(2):  # decoded, then from the cache
        loaded = recordings.load(broken, tmp_path / "cache", "here", skip_corrupt=True)
        assert [name.endswith("train1.wav") for name in loaded.skipped] == [True]
        assert loaded.labels.tolist() == [0, 0]
        assert [loaded.length(i) for i in range(2)] == [16_000, 32_000]
    with pytest.raises(DataError, match=r"train1\.wav can't be read as audio"):
        recordings.load(broken, tmp_path / "cache", "here")


def test_loud_recordings_are_clipped_and_not_wrapped(tmp_path):
    loud = encode_sound(np.array([2.0, -2.0, 0.25]), subtype="FLOAT")
    loaded = recordings.load(write_recordings(tmp_path / "in", [loud]), tmp_path / "cache", "here")
    assert loaded.samples.tolist() == [32767, -32768, 8192]


def test_nothing_is_decoded_twice_unless_files_change(tmp_path, monkeypatch):
    contents = [encode_sound(tone(0.5)), encode_sound(tone(1.5))]
    source = write_recordings(tmp_path / "in", contents)
    decoded = []
    decode = recordings.decode
    monkeypatch.setattr(
        recordings, "decode", lambda name, data: (decoded.append(name), decode(name, data))[1]
    )

    def load(source=source):
        decoded.clear()
        return recordings.load(source, tmp_path / "cache", "here")

    first = load()
    assert len(decoded) == 2
    again = load()
    assert decoded == []
    np.testing.assert_array_equal(first.samples, again.samples)
    # One file changes, and is as long as before.
    source.paths[0].write_bytes(encode_sound(tone(0.5, hertz=1000)))
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
    source = write_recordings(tmp_path / "in", [encode_sound(tone(0.5))])
    decode = recordings.decode

    def slow(name, data):
        source.paths[0].write_bytes(encode_sound(tone(1.5)))
        return decode(name, data)

    monkeypatch.setattr(recordings, "decode", slow)
    assert recordings.load(source, tmp_path / "cache", "here").length(0) == 8_000
    monkeypatch.undo()
    assert recordings.load(source, tmp_path / "cache", "here").length(0) == 24_000


@pytest.mark.parametrize("damage", ["samples", "npz", "no samples", "no npz"])
def test_a_damaged_cache_is_made_anew(damage, tmp_path):
    source = write_recordings(tmp_path / "in", [encode_sound(tone(0.5)), encode_sound(tone(1.5))])
    whole = np.array(recordings.load(source, tmp_path / "cache", "here").samples)
    (path,) = (tmp_path / "cache").glob(f"*.{damage.removeprefix('no ')}")
    if damage.startswith("no "):
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-10])
    found = recordings.load(source, tmp_path / "cache", "here")
    np.testing.assert_array_equal(found.samples, whole)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("starts", [0, 40_000, 32_000]),
        ("starts", [0, -8_000, 32_000]),
        ("starts", [8_000, 24_000, 32_000]),
        ("starts", [0, 32_000]),
        ("starts", 32_000),
        ("starts", [0.0, float("nan"), 32_000.0]),
        ("kept", [0, 7]),
        ("kept", [1, 0]),
        ("kept", [-1, 1]),
        ("kept", []),
        ("skipped", ["another"]),
    ],
)
def test_an_index_that_can_not_be_right_is_made_anew(name, value, tmp_path):
    source = write_recordings(tmp_path / "in", [encode_sound(tone(0.5)), encode_sound(tone(1.5))])
    whole = recordings.load(source, tmp_path / "cache", "here")
    assert whole.starts.tolist() == [0, 8_000, 32_000]
    (path,) = (tmp_path / "cache").glob("*.npz")
    with np.load(path) as content:
        known = dict(content)
    np.savez(path, **(known | {name: np.array(value)}))
    found = recordings.load(source, tmp_path / "cache", "here", skip_corrupt=True)
    assert found.starts.tolist() == [0, 8_000, 32_000]
    assert (found.labels.tolist(), found.skipped) == ([0, 1], ())


def test_an_interruption_leaves_no_cache_or_a_whole_one(tmp_path, monkeypatch):
    source = write_recordings(tmp_path / "in", [encode_sound(tone(0.5)) for _ in range(3)])

    def interrupted(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", interrupted)
    with pytest.raises(KeyboardInterrupt):
        recordings.load(source, tmp_path / "cache", "here")
    monkeypatch.undo()
    assert not list((tmp_path / "cache").glob("*.npz"))
    assert len(recordings.load(source, tmp_path / "cache", "here")) == 3
