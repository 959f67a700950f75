"""A downsampling that has learned all it will: constant matrices, one an axis."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Frozen(nn.Module):
    """Downsampling by matrix products alone, for inputs of one size.

    The matrix of an axis, M × N, holds transform, window and crop; that of an axis on which nothing
    happens is left out. Matrices are read off the layer by asking it: it is linear, treats each
    axis by itself, and makes a constant of a constant.

    Args:
        layer: a downsampling of this library, in eval mode.
        size: of its input, spatially.
        like: a tensor of the dtype and device that the matrices are to have.
    """

    def __init__(self, layer: nn.Module, size: Sequence[int], like: Tensor) -> None:
        super().__init__()
        self.size = tuple(size)
        with torch.no_grad():
            gain = layer(like.new_ones(1, 1, *size, dtype=torch.float64)).flatten()[0]
            responses = [_responses(layer, self.size, i, like) for i in range(len(size))]
        # Each has the gains of all other axes in it.
        responses[0] = responses[0] / gain ** (len(size) - 1)
        self.output_size = tuple(len(matrix) for matrix in responses)
        for i, matrix in enumerate(responses):
            same = matrix.shape[0] == matrix.shape[1] and torch.allclose(
                matrix, torch.eye(len(matrix)).to(matrix)
            )
            self.register_buffer(f"matrix{i}", None if same else matrix.to(like))

    def forward(self, x: Tensor) -> Tensor:
        first = x.ndim - len(self.size)
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


def _responses(layer: nn.Module, size: tuple[int, ...], axis: int, like: Tensor) -> Tensor:
    """What a layer makes of each sample along an axis, the same everywhere on the others: M × N."""
    n = size[axis]
    found = []
    for some in torch.split(torch.eye(n, dtype=torch.float64, device=like.device), 16):
        shape = [len(some), 1, *(n if i == axis else 1 for i in range(len(size)))]
        output = layer(some.reshape(shape).expand(-1, -1, *size).contiguous())
        for i in reversed(range(len(size))):
            if i != axis:
                output = output.select(2 + i, 0)
        found.append(output[:, 0])
    return torch.cat(found).T


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
