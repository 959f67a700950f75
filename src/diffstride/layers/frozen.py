"""A downsampling that has learned all it will: constant matrices, one an axis."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def read_matrices(layer: nn.Module, size: Sequence[int], device: torch.device) -> list[Tensor]:
    """The matrix (M × N) of every axis of a downsampling, read off by asking it.

    It is linear, treats each axis by itself, and makes a constant of a constant. Together the
    matrices have its gain once.
    """
    with torch.no_grad():
        ones = torch.ones(1, 1, *size, dtype=torch.float64, device=device)
        gain = layer(ones).flatten()[0]
        matrices = [_responses(layer, tuple(size), i, device) for i in range(len(size))]
    # Each has the gains of all other axes in it.
    matrices[0] = matrices[0] / gain ** (len(size) - 1)
    return matrices


def _responses(layer: nn.Module, size: tuple[int, ...], axis: int, device: torch.device) -> Tensor:
    """What a layer makes of each sample along an axis, the same everywhere on the others: M × N."""
    n = size[axis]
    found = []
    for some in torch.split(torch.eye(n, dtype=torch.float64, device=device), 16):
        shape = [len(some), 1, *(n if i == axis else 1 for i in range(len(size)))]
        output = layer(some.reshape(shape).expand(-1, -1, *size).contiguous())
        for i in reversed(range(len(size))):
            if i != axis:
                output = output.select(2 + i, 0)
        found.append(output[:, 0])
    return torch.cat(found).T


def spread(
    matrix: Tensor, size: int, kernel: int, dilation: int, padding: tuple[int, int], mode: str
) -> Tensor:
    """A matrix for before a convolution that does what ``matrix`` does after it: kM × N.

    Behind each other, what downsampling makes of the input shifted for each of the k taps. The
    convolution then finds its taps M samples apart, for every one of only M outputs.
    """
    samples = torch.eye(size, dtype=matrix.dtype, device=matrix.device)
    mode = "constant" if mode == "zeros" else mode
    padded = F.pad(samples[None], padding, mode=mode)[0]
    outputs = matrix.shape[1]
    taps = [padded[:, i * dilation : i * dilation + outputs] for i in range(kernel)]
    return torch.cat([matrix @ tap.T for tap in taps])


def is_identity(matrix: Tensor) -> bool:
    rows, columns = matrix.shape
    return rows == columns and torch.allclose(matrix, torch.eye(rows).to(matrix))


def work(matrices: Sequence[Tensor]) -> int:
    """Multiply-accumulates of one channel, the last axis first."""
    size = [matrix.shape[1] for matrix in matrices]
    total = 0
    for i in reversed(range(len(matrices))):
        if not is_identity(matrices[i]):
            total += math.prod(size) * len(matrices[i])
        size[i] = len(matrices[i])
    return total


class Frozen(nn.Module):
    """Downsampling by matrix products alone, for inputs of one size.

    The matrix of an axis, M × N, holds transform, window and crop; that of an axis on which nothing
    happens is left out.

    Args:
        matrices: one an axis.
        like: a tensor of the dtype and device that they are to have.
    """

    done_before = False
    """Whether a convolution in front of it has taken its work over, here or in one of its places:
    what comes at the size it makes passes."""

    def __init__(self, matrices: Sequence[Tensor], like: Tensor) -> None:
        super().__init__()
        self.size = tuple(matrix.shape[1] for matrix in matrices)
        self.output_size = tuple(matrix.shape[0] for matrix in matrices)
        self.macs = work(matrices)
        """Multiply-accumulates of one channel."""
        for i, matrix in enumerate(matrices):
            kept = None if is_identity(matrix) else matrix.to(like)
            self.register_buffer(f"matrix{i}", kept)

    def forward(self, x: Tensor) -> Tensor:
        first = x.ndim - len(self.size)
        if self.done_before and tuple(x.shape[first:]) == self.output_size:
            return x
        for i in reversed(range(len(self.size))):
            matrix = self._buffers[f"matrix{i}"]
            if matrix is None:
                continue
            after = x.shape[first + i + 1 :]
            if not after:
                x = x @ matrix.T
            elif len(after) == 1:
                x = matrix @ x
            else:
                x = (matrix @ x.flatten(first + i + 1)).reshape(*x.shape[: first + i], -1, *after)
        return x

    def extra_repr(self) -> str:
        return " → ".join(" × ".join(map(str, size)) for size in (self.size, self.output_size))


class Subsample(nn.Module):
    """One of so many samples along each axis: what a whole stride does."""

    def __init__(self, strides: Sequence[int]) -> None:
        super().__init__()
        self.strides = tuple(strides)

    def forward(self, x: Tensor) -> Tensor:
        for i, stride in enumerate(reversed(self.strides), 1):
            x = x[(slice(None),) * (x.ndim - i) + (slice(None, None, stride),)]
        return x

    def extra_repr(self) -> str:
        return " × ".join(map(str, self.strides))
