"""Spectrograms are those of librosa, and always numbers."""

import warnings

import numpy as np
import pytest
import torch

from diffstride.lab.data.spectrogram import FLOOR, LogMel, log_mel, mel_filters

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import librosa


def wave(seconds=1.0, seed=0):
    """Noise and a few tones."""
    time = np.arange(int(16_000 * seconds)) / 16_000
    tones = sum(np.sin(2 * np.pi * f * time) for f in (100, 440, 3000))
    noise = np.random.default_rng(seed).standard_normal(len(time))
    return torch.tensor(0.2 * tones + 0.05 * noise, dtype=torch.float32)


def test_filters_are_those_of_librosa():
    expected = librosa.filters.mel(sr=16_000, n_fft=512, n_mels=64, fmin=60, fmax=7800)
    np.testing.assert_allclose(mel_filters().numpy(), expected, atol=1e-7, rtol=1e-4)
    assert (mel_filters().sum(1) > 0).all()


@pytest.mark.parametrize("seconds", [0.01, 0.1, 1.0, 1.234])
def test_values_are_those_of_librosa(seconds):
    x = wave(seconds)
    power = librosa.feature.melspectrogram(
        y=np.pad(x.numpy(), 176),
        sr=16_000,
        n_fft=512,
        win_length=400,
        hop_length=160,
        center=False,
        n_mels=64,
        fmin=60,
        fmax=7800,
    )
    expected = np.log(power + FLOOR).T
    found = log_mel(x).numpy()
    assert found.shape == expected.shape == (int(16_000 * seconds) // 160, 64)
    np.testing.assert_allclose(found, expected, atol=1e-4, rtol=0)


def test_a_second_has_a_hundred_frames_and_batches_do_not_matter():
    waves = torch.stack([wave(seed=i) for i in range(6)]).reshape(2, 3, -1)
    found = log_mel(waves)
    assert found.shape == (2, 3, 100, 64)
    torch.testing.assert_close(found[1, 2], log_mel(waves[1, 2]), atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    "samples",
    [torch.zeros(16_000), torch.ones(16_000), wave().mul(100).clamp(-1, 1), 1e-30 * wave()],
    ids=["silence", "constant", "clipped", "faint"],
)
def test_extreme_waves_give_finite_spectrograms(samples):
    found = log_mel(samples)
    assert found.isfinite().all()
    assert (found >= np.log(FLOOR) - 1e-3).all()


def test_a_tone_is_where_it_should_be():
    filters = mel_filters()
    for hertz in (200.0, 1000.0, 5000.0):
        time = torch.arange(16_000) / 16_000
        found = log_mel(torch.sin(2 * torch.pi * hertz * time))[50].argmax()
        expected = filters[:, round(hertz / 31.25)].argmax()
        assert abs(found - expected) <= 1


def test_the_module_normalises_and_keeps_full_precision():
    x = wave()[None]
    plain = log_mel(x)
    module = LogMel(plain.mean().item(), plain.std().item())
    found = module(x)
    assert found.shape == (1, 1, 100, 64)
    assert found.mean().item() == pytest.approx(0, abs=1e-4)
    assert found.std().item() == pytest.approx(1, abs=1e-4)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(module(x), found)
    assert set(module.state_dict()) == {"mean", "std"}
