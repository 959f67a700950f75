"""The real Fourier basis by FFT, for long axes: the same maps as ``basis``, the same numbers.

The only module that calls ``torch.fft``. A coefficient pair (c, s) of the real basis is the complex
number c − i·s of the half spectrum; frequencies are cut at the end of that half spectrum, never of
a full one, and every inverse is given its length.
"""

import torch
from torch import Tensor

from diffstride.core.basis import multiplicities


class FFTBasis:
    """E, Eᵀ, D, Dᵀ along one axis; implements ``basis.Basis``."""

    def __init__(self, size: int, kept: int) -> None:
        self.size = size
        self.kept = kept

    def analyse(self, x: Tensor, dim: int) -> Tensor:
        spectrum = _rfft(x, dim).narrow(dim, 0, self.kept // 2 + 1)
        return _to_real(spectrum, self.kept, dim)

    def analyse_adjoint(self, z: Tensor, dim: int) -> Tensor:
        # The inverse transform counts every bin but 0 and N/2 twice: Eᵀ wants each once.
        counted = multiplicities(self.size)[: self.kept // 2 + 1]
        spectrum = _to_complex(z, self.kept, dim) / _column(counted, z, dim)
        return _irfft(spectrum, self.size, dim, norm="forward")

    def synthesise(self, z: Tensor, dim: int) -> Tensor:
        return _irfft(_to_complex(z, self.kept, dim), self.kept, dim, norm="backward")

    def synthesise_adjoint(self, y: Tensor, dim: int) -> Tensor:
        coefficients = _to_real(_rfft(y, dim), self.kept, dim)
        return coefficients * _column(multiplicities(self.kept) / self.kept, y, dim)


def _rfft(x: Tensor, dim: int) -> Tensor:
    if x.numel() == 0:  # an empty batch, which MKL refuses
        return x.narrow(dim, 0, x.shape[dim] // 2 + 1).to(x.dtype.to_complex())
    spectrum: Tensor = torch.fft.rfft(x, dim=dim)
    return spectrum


def _irfft(spectrum: Tensor, size: int, dim: int, norm: str) -> Tensor:
    if spectrum.numel() == 0:
        shape = list(spectrum.shape)
        shape[dim] = size
        return spectrum.real.reshape(shape)
    x: Tensor = torch.fft.irfft(spectrum, n=size, dim=dim, norm=norm)
    return x


def _to_real(spectrum: Tensor, kept: int, dim: int) -> Tensor:
    sines = spectrum.imag.narrow(dim, 1, (kept - 1) // 2)
    return torch.cat([spectrum.real, -sines], dim)


def _to_complex(z: Tensor, kept: int, dim: int) -> Tensor:
    cosines, sines = torch.split(z, [kept // 2 + 1, (kept - 1) // 2], dim)
    # Frequency 0 and, for an even M, M/2 have no sine.
    zero = torch.zeros_like(cosines.narrow(dim, 0, 1))
    parts = [zero, -sines] if kept % 2 else [zero, -sines, zero]
    return torch.complex(cosines.contiguous(), torch.cat(parts, dim))


def _column(vector: Tensor, like: Tensor, dim: int) -> Tensor:
    """The vector, shaped to multiply the axis ``dim`` of a tensor."""
    return vector.to(like.device, like.dtype).reshape(-1, *[1] * (-1 - dim))
