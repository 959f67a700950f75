"""What a downsampling does to each axis, found by asking it.

It is linear, treats each axis by itself, and makes a constant of a constant. All that there is to
know is what it makes of single samples: of every one for a matrix; of the first alone, whose
spectrum has all frequencies alike, for the weights of a filter.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from diffstride.core import fft
from diffstride.core.resample import by_fft
from diffstride.layers.frozen import Constants

Layer = Callable[[Tensor], Tensor]
# Of what a layer is asked at a time, and of a matrix that an axis may have.
LARGEST_BYTES = 2**28


def read_constants(layer: Layer, size: Sequence[int], like: Tensor) -> list[Constants]:
    """What a layer does along each axis, in the precision of ``like`` and on its device.

    Raises:
        ValueError: for a long axis that is not filtered, but interpolated.
    """
    with torch.no_grad():
        gain = float(layer(like.new_ones(1, 1, *size)).flatten()[0])
        axes = [_read(layer, tuple(size), i, gain, like) for i in range(len(size))]
    # Each has the gain of all: what stays as large has none, the others share it.
    smaller = [i for i, axis in enumerate(axes) if axis.size != axis.kept] or [0]
    share = gain ** (1 / len(smaller))
    shared = [a.times((share if i in smaller else 1.0) / gain) for i, a in enumerate(axes)]
    return [Constants(a.size, a.kept) if _is_identity(a) else a for a in shared]


def _read(layer: Layer, size: tuple[int, ...], axis: int, gain: float, like: Tensor) -> Constants:
    n = size[axis]
    if by_fft(n, "auto", len(size)):
        found = _weights(layer, size, axis, gain, like)
        if found is not None:
            return found
    first = _responses(layer, size, axis, torch.eye(1, n).to(like))
    kept = first.shape[1]
    if n * kept * like.element_size() > LARGEST_BYTES:
        raise ValueError(
            f"an axis of {n} samples is interpolated to {kept}, which no filter does, and its "
            f"matrix would have {n * kept / 1e6:.0f} million numbers: convert the network so that "
            f"no branch is shorter than the one it meets, or freeze it for shorter inputs"
        )
    return Constants(n, kept, gain, matrix=_responses(layer, size, axis, torch.eye(n).to(like)).T)


def _weights(
    layer: Layer, size: tuple[int, ...], axis: int, gain: float, like: Tensor
) -> Constants | None:
    """The weights of an axis that is filtered and cut, None for one that is not."""
    n = size[axis]
    probe = torch.rand(n, generator=torch.Generator().manual_seed(0)).to(like)
    first = torch.zeros_like(probe)
    first[0] = 1
    answers = _responses(layer, size, axis, torch.stack([first, probe]))
    kept = answers.shape[1]
    if kept > n:
        return None
    weights = fft.spectrum(answers[0]).real
    close = torch.finfo(like.dtype).eps ** 0.75 * answers[1].abs().max()
    off = (fft.apply(probe, -1, kept, weights) - answers[1]).abs().max()
    return Constants(n, kept, gain, weights=weights) if off <= close else None


def _responses(layer: Layer, size: tuple[int, ...], axis: int, signals: Tensor) -> Tensor:
    """What a layer makes of signals along an axis, the same everywhere on the others."""
    found = []
    at_once = max(1, LARGEST_BYTES // 16 // (math.prod(size) * signals.element_size()))
    for some in torch.split(signals, at_once):
        shape = [len(some), 1, *(n if i == axis else 1 for i, n in enumerate(size))]
        output = layer(some.reshape(shape).expand(-1, -1, *size).contiguous())
        for i in reversed(range(len(size))):
            if i != axis:
                output = output.select(2 + i, 0)
        found.append(output[:, 0])
    return torch.cat(found)


def _is_identity(axis: Constants) -> bool:
    if axis.size != axis.kept:
        return False
    found = axis.matrix if axis.weights is None else axis.weights
    assert found is not None
    nothing = torch.eye(len(found)) if axis.weights is None else torch.ones(len(found))
    close = torch.finfo(found.dtype).eps ** 0.75
    return torch.allclose(found, nothing.to(found), rtol=0, atol=close)
