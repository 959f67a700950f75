"""What a downsampling that has learned all it will does to each axis, as constants."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from diffstride.core.bases import BASES, Basis, cached
from diffstride.core.plan import AxisPlan
from diffstride.core.work import by_fft, cheapest_order, fft_macs


@dataclass(frozen=True)
class AxisConstants:
    """What happens to one axis of N samples, which become M.

    It is multiplied by a matrix (M × N), or filtered without one, by a weight for each frequency.
    With neither it stays as it is.
    """

    size: int
    kept: int
    gain: float = 1.0
    """What a constant is multiplied by."""
    matrix: Tensor | None = None
    weights: Tensor | None = None
    basis: Basis = BASES["fourier"]

    @classmethod
    def of(cls, axis: AxisPlan, axes: int, like: Tensor) -> "AxisConstants":
        """Return what a plan does, in the precision of ``like``: the cheaper of both ways."""
        made = cls(axis.size, axis.kept, axis.gain, basis=axis.basis)
        if axis.size == axis.kept and bool((axis.weights == 1).all()):
            return made
        if by_fft(axis.basis, axis.size, "auto", axes):
            return replace(made, weights=axis.weights.to(like))
        return replace(made, matrix=dense(axis).to(like))

    @property
    def is_identity(self) -> bool:
        return self.matrix is None and self.weights is None

    def dense(self, like: Tensor) -> Tensor:
        """Return the matrix (M × N) of the axis, however it is done."""
        if self.matrix is not None:
            return self.matrix
        if self.weights is None:
            return torch.eye(self.size, dtype=like.dtype, device=like.device)
        weights = self.weights.double()
        return dense(AxisPlan(self.size, self.kept, weights, self.gain, self.basis)).to(like)


def dense(axis: AxisPlan) -> Tensor:
    """Return the matrix (M × N) of a plan, in the precision of its weights."""
    analysis, synthesis = cached(axis.basis.matrices, axis.size, axis.kept, axis.weights)
    return (synthesis * axis.per_function) @ analysis


def work(axes: Sequence[AxisConstants]) -> int:
    """Return the multiply-accumulates of one channel."""
    current: list[Any] = [axis.size for axis in axes]
    total = 0
    for i in cheapest_order(current, [axis.kept for axis in axes]):
        axis, before = axes[i], torch.Size(current).numel()
        current[i] = axis.kept
        if axis.matrix is not None:
            total += before * axis.kept
        elif axis.weights is not None:
            total += fft_macs(axis.size, axis.kept, before, torch.Size(current).numel())
    return total
