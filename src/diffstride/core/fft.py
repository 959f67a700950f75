"""The operator by FFT, for long axes: the same numbers as by matrices.

The only module that calls ``torch.fft``. Frequencies are cut at the end of a half spectrum, never
of a full one, and every inverse is given its length. Of the last bin of an even length the inverse
takes the real part: the lone cosine.
"""

import torch
from torch import Tensor


def apply(x: Tensor, dim: int, kept: int, weights: Tensor) -> Tensor:
    """Filter one axis with a weight for each of the frequencies 0 … ⌊M/2⌋, resample it to M.

    For the backward pass it keeps the truncated spectrum, as large as the output.

    >>> apply(torch.ones(2, 8), dim=-1, kept=3, weights=torch.ones(2))
    tensor([[2.6667, 2.6667, 2.6667],
            [2.6667, 2.6667, 2.6667]])
    """
    if x.numel() == 0:  # an empty batch, which MKL refuses
        return x.narrow(dim, 0, kept) * weights.sum()
    # clone, or the whole spectrum would be kept for the sake of its beginning.
    spectrum = torch.fft.rfft(x, dim=dim).narrow(dim, 0, kept // 2 + 1).clone()
    spectrum = spectrum * weights.reshape(-1, *[1] * (-1 - dim))
    y: Tensor = torch.fft.irfft(spectrum, n=kept, dim=dim)
    return y
