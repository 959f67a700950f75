"""Sound as an image of time and frequency: log-compressed mel spectrograms, on any device."""

import functools
import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

RATE = 16_000  # samples a second
HOP = 160  # samples from frame to frame: 10 ms, so that there are 100 frames a second
FRAME_RATE = RATE // HOP
WINDOW = 400  # samples of the window of a frame: 25 ms
FFT = 512
CHANNELS = 64
LOWEST, HIGHEST = 60.0, 7800.0  # the band of the mel channels, in Hz
FLOOR = 1e-6  # added before the logarithm; silence is its logarithm


def log_mel(waves: Tensor) -> Tensor:
    """Return spectrograms (..., frames, 64) of waves (..., samples) at 16 kHz.

    There is a frame every 10 ms, 100 a second: the logarithm of the power in 64 mel channels of a
    Hann window of 25 ms, which has these 10 ms in its middle.

    >>> log_mel(torch.zeros(2, 16_000)).shape
    torch.Size([2, 100, 64])
    """
    frames = F.pad(waves, [(FFT - HOP) // 2] * 2).unfold(-1, FFT, HOP)
    window = torch.hann_window(WINDOW, device=waves.device, dtype=waves.dtype)
    window = F.pad(window, [(FFT - WINDOW) // 2] * 2)
    spectrum = torch.fft.rfft(frames * window)
    power = spectrum.real.square() + spectrum.imag.square()
    return torch.log(power @ mel_filters().to(power).T + FLOOR)


@functools.cache
@torch.inference_mode(False)
def mel_filters() -> Tensor:
    """Return triangles (64, 257) over the frequencies of the transform, of area one (Slaney)."""
    edges = _hertz(torch.linspace(_mel(LOWEST), _mel(HIGHEST), CHANNELS + 2, dtype=torch.float64))
    frequencies = torch.linspace(0, RATE / 2, FFT // 2 + 1, dtype=torch.float64)
    low, middle, high = (edges[i : i + CHANNELS, None] for i in range(3))
    rising = (frequencies - low) / (middle - low)
    falling = (high - frequencies) / (high - middle)
    triangles = torch.minimum(rising, falling).clamp(min=0)
    return (triangles * 2 / (high - low)).float()


# The mel scale of Slaney's Auditory Toolbox: linear up to 1 kHz, logarithmic above.
_LINEAR = 200 / 3
_STEP = math.log(6.4) / 27


def _mel(hertz: float) -> float:
    return hertz / _LINEAR if hertz < 1000 else 15 + math.log(hertz / 1000) / _STEP


def _hertz(mel: Tensor) -> Tensor:
    return torch.where(mel < 15, mel * _LINEAR, 1000 * torch.exp(_STEP * (mel - 15)))


class LogMel(nn.Module):
    """Makes normalised spectrograms (batch, 1, frames, 64) of waves (batch, samples)."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: float = 0.0, std: float = 1.0) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(float(mean)))
        self.register_buffer("std", torch.tensor(float(std)))

    @torch.no_grad()
    def forward(self, waves: Tensor) -> Tensor:
        # Frequencies are summed at full precision, whatever the network is computed at.
        with torch.autocast(waves.device.type, enabled=False):
            return ((log_mel(waves.float()) - self.mean) / self.std).unsqueeze(-3)
