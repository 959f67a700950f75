"""What may be wrong with examples, in five strengths: noise, blur, low contrast, large pixels.

Examples are (batch, channels, *spatial) with one to three spatial axes, on any scale of values.
Each corruption takes them and an amount, and says what the amount is. The same number of an axis'
samples is blurred or made one pixel whatever the axis is long.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from diffstride.lab.data.noise import noise_of


def noisy(x: Tensor, amount: float, numbers: Tensor) -> Tensor:
    """Return examples with noise of so large a standard deviation.

    The noise of an example follows from its number alone, and is the same at all strengths.
    """
    return x + amount * noise_of(numbers, tuple(x.shape[1:])).to(x)


def blurred(x: Tensor, amount: float, numbers: Tensor | None = None) -> Tensor:
    """Return examples that are blurred by a Gaussian with this standard deviation, in samples.

    It ends at four of them. Beyond its borders, an example goes on as it is there.

    >>> x = torch.tensor([[[0.0, 0.0, 1.0, 0.0, 0.0]]])
    >>> blurred(x, 0.5).squeeze()  # weights e^(-2k²), divided by their sum
    tensor([2.6387e-04, 1.0645e-01, 7.8657e-01, 1.0645e-01, 2.6387e-04])
    """
    if amount == 0:
        return x
    reach = math.ceil(4 * amount)
    distances = torch.arange(-reach, reach + 1, device=x.device, dtype=x.dtype)
    weights = torch.exp(-0.5 * (distances / amount) ** 2)
    weights = (weights / weights.sum()).reshape(1, 1, -1)

    def along(lines: Tensor) -> Tensor:
        return F.conv1d(F.pad(lines, (reach, reach), mode="replicate"), weights)

    return _along_each_axis(x, along)


def faded(x: Tensor, amount: float, numbers: Tensor | None = None) -> Tensor:
    """Return examples with this part of their contrast lost.

    Each value loses that part of its distance to the mean of its channel, over its example.

    >>> faded(torch.tensor([[[0.0, 1.0, 5.0]]]), 0.5)
    tensor([[[1.0000, 1.5000, 3.5000]]])
    """
    mean = x.mean(tuple(range(2, x.ndim)), keepdim=True)
    return x - amount * (x - mean)


def pixelated(x: Tensor, amount: float, numbers: Tensor | None = None) -> Tensor:
    """Return examples made of blocks with so many samples a side, each with their mean.

    The last block of an axis is smaller where they do not fit: it has the mean of what is there.

    >>> pixelated(torch.tensor([[[1.0, 3.0, 4.0, 6.0, 7.0]]]), 2)
    tensor([[[2., 2., 5., 5., 7.]]])
    """
    side = int(amount)
    if side == 1:
        return x

    def along(lines: Tensor) -> Tensor:
        means = F.avg_pool1d(lines, min(side, lines.shape[-1]), side, ceil_mode=True)
        return means.repeat_interleave(side, -1)[..., : lines.shape[-1]]

    return _along_each_axis(x, along)


def _along_each_axis(x: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply what changes lines (lines, 1, samples) along every spatial axis, one after another."""
    for dim in range(2, x.ndim):
        last = x.movedim(dim, -1)
        x = change(last.reshape(-1, 1, last.shape[-1])).reshape(last.shape).movedim(-1, dim)
    return x


class Corruption(NamedTuple):
    """A way in which examples may be worse than those that were trained on."""

    change: Callable[[Tensor, float, Tensor], Tensor]
    amounts: tuple[float, ...]
    """Of each strength from 0, which changes nothing, to 5."""
    unit: str
    """Of the amounts; {} is what the samples of an example are called."""


CORRUPTIONS: Mapping[str, Corruption] = {
    "noise": Corruption(noisy, (0, 0.1, 0.2, 0.4, 0.6, 0.8), "standard deviations of the data"),
    "blur": Corruption(blurred, (0, 0.5, 1, 1.5, 2, 3), "{}"),
    "contrast": Corruption(faded, (0, 0.25, 0.5, 0.65, 0.8, 0.9), "of it lost"),
    "pixelation": Corruption(pixelated, (1, 2, 3, 4, 6, 8), "{} a block"),
}
"""Values are taken to have a standard deviation of 1 over the data, as inputs of networks have."""


def corrupted(x: Tensor, name: str, strength: int, numbers: Tensor) -> Tensor:
    """Return examples that are worse by one corruption.

    Args:
        x: (batch, channels, *spatial), of a standard deviation of 1 over the data.
        name: of the corruption, one of :data:`CORRUPTIONS`.
        strength: from 0, which changes nothing, to 5.
        numbers: of each example in its set, from which its noise follows.

    >>> x = torch.tensor([[[1.0, 3.0, 4.0, 6.0]]])
    >>> corrupted(x, "pixelation", 1, torch.tensor([0]))
    tensor([[[2., 2., 5., 5.]]])
    """
    change, amounts, _ = CORRUPTIONS[name]
    return change(x, amounts[strength], numbers)
