"""What all networks here have beside their layers."""

import math

from torch import Tensor, nn


class Network(nn.Module):
    """The base of the networks of this library."""

    is_dense = False
    """Whether scores are of every place of an example, (batch, classes, *spatial), and not of the
    example as a whole, (batch, classes)."""

    def at_rate(self, ratio: float) -> "Network":
        """Return a copy of the network for signals at another sampling rate, ``ratio`` times its.

        Raises:
            ValueError: if the network begins with a convolution or a pooling, which are for the
                rate it was trained at.
        """
        check_ratio(ratio)
        raise ValueError(
            f"this {type(self).__name__} begins with a convolution or a pooling of a few samples, "
            f"for the sampling rate it was trained at: resample the signals to that, or train a "
            f"signal_cnn with downsampling 'diffstride' or 'spectral', which begins with a stride"
        )


def check_ratio(ratio: float) -> None:
    """Raise a ValueError unless this can be a new sampling rate divided by an old one."""
    if not (isinstance(ratio, int | float) and 0 < ratio < math.inf):
        wanted = "the new sampling rate divided by the old one, above 0 and finite"
        raise ValueError(f"ratio must be {wanted}, got {ratio!r}")


def mean_over_time(x: Tensor, part: Tensor) -> Tensor:
    """Return the mean (batch, channels) over the first part of the last axis of each example.

    A part that ends within a sample counts that much of it.

    Raises:
        ValueError: unless there are signals (batch, channels, samples) and one part for each.

    >>> import torch
    >>> mean_over_time(torch.tensor([[[1.0, 3.0, 8.0, 9.0]]]), torch.tensor([0.625]))
    tensor([[3.2000]])
    """
    if x.ndim != 3 or part.shape != x.shape[:1]:
        raise ValueError(
            f"lengths must be one number for each signal of a batch (batch, channels, samples), "
            f"got {tuple(part.shape)} for maps of {tuple(x.shape)}"
        )
    samples = x.shape[-1]
    places = x.new_ones(samples).cumsum(0) - 1
    weights = (part.to(x.dtype)[:, None] * samples - places).clamp(0, 1)
    return (x * weights[:, None]).sum(-1) / weights.sum(-1, keepdim=True)
