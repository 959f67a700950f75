"""Batches of windows of signals, normalised, with zeros where no signal is.

As in batches.py they depend on seed and epoch alone.
"""

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from diffstride.lab.data.batches import Loader
from diffstride.lab.data.signals import Signals

MOST_COUNTED = 2**26  # samples that are looked at for their mean, spread over a set


class SignalBatches(Loader):
    """A loader for training: every signal once an epoch, a random window of those that are longer.

    Yields windows (batch, channels, length), how many samples of each are real, and labels.
    """

    def __init__(
        self,
        signals: Signals,
        batch_size: int,
        length: int,
        *,
        mean: Tensor | None = None,
        std: Tensor | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(seed)
        self.signals, self.batch_size, self.length = signals, batch_size, length
        self.mean, self.std = mean, std

    def __len__(self) -> int:
        # The last signals, too few for a batch, would make a noisy step: leave them out.
        return max(1, len(self.signals) // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        rank, processes = self.place()
        generator = self.generator(0)
        order = torch.randperm(len(self.signals), generator=generator)
        fractions = torch.rand(len(order), generator=generator, dtype=torch.float64)
        spare = [max(0, self.signals.length(i) - self.length) + 1 for i in order.tolist()]
        firsts = (fractions * torch.tensor(spare)).long()
        for step in range(len(self)):
            share = slice(step * self.batch_size + rank, (step + 1) * self.batch_size, processes)
            chosen = order[share]
            places = list(zip(chosen.tolist(), firsts[share].tolist(), strict=True))
            windows, real = self.signals.windows(places, self.length)
            x = normalise(windows, real, self.mean, self.std)
            yield x, real, self.signals.labels[chosen]


class SignalEvaluation(Loader):
    """A loader of all signals, cut into windows one after another; a rest is one too.

    Yields windows (batch, channels, length), how many samples of each are real, and the number of
    each one's signal.
    """

    def __init__(
        self,
        signals: Signals,
        batch_size: int,
        length: int,
        *,
        mean: Tensor | None = None,
        std: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.signals, self.length, self.mean, self.std = signals, length, mean, std
        places = [
            (signal, first)
            for signal in range(len(signals))
            for first in range(0, signals.length(signal), length)
        ]
        self.batches = [places[i : i + batch_size] for i in range(0, len(places), batch_size)]

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        rank, processes = self.place()
        for batch in self.batches:
            places = batch[rank::processes]
            windows, real = self.signals.windows(places, self.length)
            numbers = torch.tensor([signal for signal, _ in places], dtype=torch.long)
            yield normalise(windows, real, self.mean, self.std), real, numbers


def normalise(
    windows: Tensor, real: Tensor, mean: Tensor | None = None, std: Tensor | None = None
) -> Tensor:
    """Return windows (batch, channels, length) less a mean, divided by a standard deviation.

    They are those of each channel of a set; or, if none are given, of each channel of each window,
    over its real samples. Behind these there are zeros.
    """
    there = torch.arange(windows.shape[-1]) < real[:, None, None]
    if mean is None or std is None:
        samples = windows.double()  # the squares of small numbers far from 0 need many digits
        mean = torch.where(there, samples, 0).sum(-1, keepdim=True) / real[:, None, None]
        squares = torch.where(there, (samples - mean).square(), 0).sum(-1, keepdim=True)
        std = (squares / real[:, None, None]).sqrt()
        # Of a window that is constant, rounding is not to be blown up.
        std = torch.where(std > 1e-7 * mean.abs(), std, 1.0)
        values = ((samples - mean) / std).float()
    else:
        values = (windows - mean.reshape(1, -1, 1)) / std.reshape(1, -1, 1)
    return torch.where(there, values, 0.0)


def statistics(signals: Signals) -> tuple[Tensor, Tensor]:
    """Return the mean and standard deviation of each channel.

    >>> statistics(Signals.of([[[1, 3]], [[1, 3]]], torch.tensor([0, 1])))
    (tensor([2.]), tensor([1.]))
    """
    every = max(1, math.ceil(len(signals.samples) / MOST_COUNTED))
    number, sums, squares = 0, 0.0, 0.0
    middle = signals.samples[0].astype(np.float64)  # numbers far from 0 would lose their digits
    for i in range(0, len(signals), every):
        samples = signals.samples[signals.starts[i] : signals.starts[i + 1]] - middle
        number += len(samples)
        sums, squares = sums + samples.sum(0), squares + np.square(samples).sum(0)
    mean = sums / number
    std = np.sqrt(np.maximum(squares / number - mean**2, 0))
    # Of a channel that is constant, rounding is not to be blown up.
    std = np.where(std > 1e-7 * np.abs(middle + mean), std, 1.0)
    return torch.tensor(middle + mean).float(), torch.tensor(std).float()
