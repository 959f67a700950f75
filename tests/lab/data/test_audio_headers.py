"""A recording that is not as long as it says, or longer than can be, is refused."""

import struct
import tracemalloc

import numpy as np
import pytest

from diffstride.lab.data import recordings
from diffstride.lab.data.labelled_files import DataError
from tests.lab.data.example_files import encode_sound, tone, wav, write_recordings

SAMPLES = np.random.default_rng(0).integers(-32768, 32768, 1000).astype("<i2")


def chunk(name, content):
    return name + struct.pack("<I", len(content)) + content + bytes(len(content) % 2)


WHOLE = SAMPLES.tobytes()
NOTE = chunk(b"LIST", b"odd")
UNKNOWN = 0xFFFF_FFFF
LEGITIMATE = {
    "plain": wav(WHOLE),
    "chunks around it": wav(WHOLE, before=NOTE, after=NOTE),
    "bytes after the end": wav(WHOLE, after=b"\0\0\0"),
    "from ffmpeg, by a pipe": wav(WHOLE, size=UNKNOWN, riff=UNKNOWN),
    "the same, with a note": wav(WHOLE, size=UNKNOWN, riff=UNKNOWN, before=NOTE),
    "from sox, by a pipe": wav(WHOLE, size=0x7FFF_F000, riff=0x7FFF_F024),
    "from arecord, by a pipe": wav(WHOLE, size=0x8000_0000, riff=0x8000_0024),
    "all sizes left at 0": wav(WHOLE, size=0, riff=0),
    "never finished": wav(WHOLE, size=0, riff=36),
    "a wrong size of the file": wav(WHOLE, riff=7),
}


@pytest.mark.parametrize("name", LEGITIMATE)
def test_whole_recordings_are_read_whatever_is_around_them(name):
    np.testing.assert_array_equal(recordings.decode(name, LEGITIMATE[name]) * 32768, SAMPLES)


@pytest.mark.parametrize("kind", ["WAV", "WAVEX", "RF64", "AIFF", "FLAC", "OGG", "MP3", "W64"])
def test_whole_recordings_of_every_format_are_read(kind):
    for seconds in (0.5, 0.5 + 1 / 16_000):  # of an odd number of bytes in 8 bits
        subtype = "PCM_U8" if kind == "WAV" else None
        data = encode_sound(tone(seconds), kind=kind, subtype=subtype)
        assert abs(len(recordings.decode("a", data)) - 16_000 * seconds) < 1200


@pytest.mark.parametrize("kind", ["WAV", "WAVEX", "RF64", "AIFF", "FLAC"])
@pytest.mark.parametrize("lost", [0.01, 0.5, 0.9])
def test_recordings_that_were_cut_off_are_refused(kind, lost, tmp_path):
    data = encode_sound(np.random.default_rng(0).uniform(-1, 1, 16_000), kind=kind)
    cut = data[: round(len(data) * (1 - lost))]
    with pytest.raises(DataError, match=r"a\.wav can't be read as audio") as raised:
        recordings.decode("a.wav", cut)
    if kind != "FLAC":  # whose decoder notices by itself
        assert "it was cut off: its header says 32,0" in str(raised.value)
    source = write_recordings(tmp_path / "in", [data, cut])
    with pytest.raises(DataError, match=r"train1\.wav .*leave out such .* --data\.skip_corrupt"):
        recordings.load(source, tmp_path / "cache", "here")
    found = recordings.load(source, tmp_path / "cache", "here", skip_corrupt=True)
    assert (len(found), len(found.skipped)) == (1, 1)


def test_a_single_byte_that_is_missing_is_noticed():
    with pytest.raises(DataError, match="says 2,000 bytes of samples, and there are 1,999"):
        recordings.decode("a.wav", wav(WHOLE)[:-1])


def flac(frames, rate=16_000):
    """A FLAC file that says it has so many samples."""
    data = bytearray(encode_sound(tone(0.5), rate, "FLAC"))
    others = int.from_bytes(data[21:26], "big") >> 36 << 36
    data[21:26] = (others | frames).to_bytes(5, "big")
    return bytes(data)


ABSURD = {
    "1 Hz": (wav(WHOLE * 30, rate=1), "it has 1 samples a second, and must have from 1,000"),
    "999 Hz": (wav(WHOLE, rate=999), "it has 999 samples a second"),
    "4 GHz": (wav(WHOLE, rate=4 * 10**9), "it has 4,000,000,000 samples a second"),
    "no channel": (wav(WHOLE, channels=0), "it has 0 channels"),
    "channels": (wav(WHOLE * 70, channels=65_535), "it has 65,535 channels, and must have from 1"),
    "hours": (flac(2**36 - 1), "68,719,476,735 samples of 1 channels at 16,000 Hz, 1,193.0 hours"),
    "resampled hours": (flac(2**26 + 1, 1000), "18.6 hours: cut it into shorter"),
}


@pytest.mark.parametrize("name", ABSURD)
def test_recordings_that_nobody_made_are_refused_before_they_are_decoded(name):
    data, message = ABSURD[name]
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"a\.wav can't be read as audio") as raised:
            recordings.decode("a.wav", data)
        assert tracemalloc.get_traced_memory()[1] < 2 * len(data) + 10**6
    finally:
        tracemalloc.stop()
    assert message in str(raised.value)


@pytest.mark.parametrize("rate", [1_000, 192_000, 768_000])
def test_unusual_rates_are_resampled(rate):
    found = recordings.decode("a", encode_sound(tone(0.5, rate, 100.0), rate))
    assert abs(len(found) - 8_000) <= 1


def test_many_channels_are_read_by_parts():
    samples = np.random.default_rng(0).uniform(-1, 1, (5_000, 300)).astype(np.float32)
    data = encode_sound(samples, subtype="FLOAT")
    np.testing.assert_allclose(recordings.decode("a", data), samples.mean(1), atol=1e-7)
