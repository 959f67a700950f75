"""Bases: the functions of an axis that a downsampling keeps the lowest of.

E (K×N), the analysis, takes N samples to K coefficients, and D (M×K), the synthesis, takes these to
M samples. K is the smaller of N and M: an axis that grows keeps all functions that its samples
have, and there are no others. D·E is the identity for M = N. A constant has the coefficient N times
itself, and its synthesis is 1/M, so that the norms mean the same in every basis.

To add one, write a class with what :class:`Basis` asks for and put it into ``BASES``.
"""

import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from diffstride.core import fft


class Basis(Protocol):
    """What a downsampling needs to know of a basis. Frequencies are periods per axis."""

    wraps: bool
    """Whether a circular convolution multiplies each function by a complex number."""

    @property
    def transform(self) -> Callable[[Tensor, int, int, fft.Weights], Tensor] | None:
        """How to filter and resample without matrices, if it is known: x, dim, M, weights."""

    def matrices(self, size: int, kept: int) -> tuple[Tensor, Tensor]:
        """Return E (K×N) and D (M×K) in float64, for the K lowest functions, K = min(N, M)."""

    def frequencies(self, kept: int) -> Tensor:
        """Return the different frequencies of the M lowest functions, in float64."""

    def highest(self, size: int) -> float:
        """Return the highest frequency that N samples can have."""

    def per_function(self, values: Tensor, kept: int) -> Tensor:
        """Return one value for each function, from one for each different frequency (last axis)."""

    def is_kept(self, frequencies: Tensor, kept: int) -> Tensor:
        """Return which frequencies are among those of the M lowest functions."""


class Fourier:
    """The real Fourier basis: 1, cos 1, sin 1, cos 2, sin 2, …

    What belongs to neighbouring frequencies lies together. An even M ends with the lone cosine of
    the Nyquist frequency M/2, whose sine is 0 on M points.

    >>> analysis, synthesis = Fourier().matrices(5, 5)
    >>> torch.allclose(synthesis @ analysis, torch.eye(5, dtype=torch.float64))
    True
    >>> Fourier().frequencies(6)
    tensor([0., 1., 2., 3.], dtype=torch.float64)
    >>> Fourier().per_function(torch.tensor([1.0, 0.5, 0.25]), kept=4)
    tensor([1.0000, 0.5000, 0.5000, 0.2500])
    """

    wraps = True
    transform = staticmethod(fft.apply)

    def matrices(self, size: int, kept: int) -> tuple[Tensor, Tensor]:
        functions = kept if kept <= size else size
        f = self.per_function(self.frequencies(functions), functions)
        return waves(size, functions), waves(kept, functions).mT * shares(f, kept)

    def frequencies(self, kept: int) -> Tensor:
        return count(kept // 2 + 1)

    def highest(self, size: int) -> float:
        return size // 2

    def per_function(self, values: Tensor, kept: int) -> Tensor:
        return torch.stack([values, values], -1).flatten(-2)[..., 1 : kept + 1]

    def is_kept(self, frequencies: Tensor, kept: int) -> Tensor:
        return 2 * frequencies <= kept


def count(numbers: int) -> Tensor:
    """Return 0, 1, … in float64: compilers stumble over arithmetic with integers."""
    return torch.arange(numbers, dtype=torch.float64, device="cpu")


def angles(frequencies: Tensor, points: Tensor, grid: int) -> Tensor:
    """Return 2π f n / grid for frequencies f and points n.

    The phase is reduced while it is a whole number, so that large grids are as exact as small ones.
    """
    return torch.outer(frequencies, points).remainder(grid) * (2 * math.pi / grid)


def shares(frequencies: Tensor, kept: int) -> Tensor:
    """Return 1/M for 0 and for the lone cosine of M/2, 2/M for those that stand for −f as well."""
    alone = (frequencies == 0) | (2 * frequencies.abs() == kept)
    return (2 - alone.double()) / kept


def waves(grid: int, kept: int) -> Tensor:
    """Return the M lowest real Fourier functions, one in each row, on a grid, in float64."""
    angle = angles(FOURIER.per_function(FOURIER.frequencies(kept), kept), count(grid), grid)
    values = angle.cos()
    values[2::2] = angle[2::2].sin()
    return values


class Cosine:
    """The basis of the DCT-II: half a period, one, one and a half, … of a cosine, and a constant.

    They are all waves of an axis that goes on as its mirror image, and then as itself again. So
    both its ends meet their like, and none meets the other end. There is one function for each
    frequency, and M of them end below M/2, so that windows and sizes mean what they mean in the
    Fourier basis.

    >>> analysis, synthesis = Cosine().matrices(5, 5)
    >>> torch.allclose(synthesis @ analysis, torch.eye(5, dtype=torch.float64))
    True
    >>> Cosine().frequencies(4)
    tensor([0.0000, 0.5000, 1.0000, 1.5000], dtype=torch.float64)
    """

    wraps = False
    transform = staticmethod(fft.apply_cosines)

    def matrices(self, size: int, kept: int) -> tuple[Tensor, Tensor]:
        functions = kept if kept <= size else size
        counted = torch.full((functions,), 2 / kept, dtype=torch.float64, device="cpu")
        counted[0] = 1 / kept
        return cosines(size, functions), cosines(kept, functions).mT * counted

    def frequencies(self, kept: int) -> Tensor:
        return count(kept) / 2

    def highest(self, size: int) -> float:
        return (size - 1) / 2

    def per_function(self, values: Tensor, kept: int) -> Tensor:
        return values[..., :kept]

    def is_kept(self, frequencies: Tensor, kept: int) -> Tensor:
        return 2 * frequencies < kept


def cosines(grid: int, kept: int) -> Tensor:
    """Return the M lowest cosines of a mirrored axis, one in each row, on a grid, in float64."""
    # πk(n + ½)/N is 2π·k(2n + 1)/(4N), with whole numbers to be reduced.
    return angles(count(kept), 2 * count(grid) + 1, 4 * grid).cos()


FOURIER = Fourier()
BASES: dict[str, Basis] = {"fourier": FOURIER, "dct": Cosine()}
"""By the name that ``basis=`` takes; the real Fourier basis is the paper's."""


@dataclass(frozen=True, eq=False)
class Matrices:
    """E and D of one axis, in one object: transforms of torch look into tuples."""

    analysis: Tensor
    synthesis: Tensor


def along(matrix: Tensor, x: Tensor, dim: int, out: Tensor | None = None) -> Tensor:
    """Return the product of a matrix with one axis (negative) of ``x``, the others untouched.

    >>> along(torch.ones(1, 3), torch.ones(2, 3, 4), dim=-2).shape
    torch.Size([2, 1, 4])
    """
    if dim == -1:
        return torch.matmul(x, matrix.mT, out=out)
    shape = (*x.shape[:dim], matrix.shape[0], *x.shape[dim + 1 :])
    flat = None if out is None else out.flatten(dim + 1)
    return torch.matmul(matrix, x.flatten(dim + 1), out=flat).reshape(shape)


Pair = tuple[Tensor, Tensor]
Make = Callable[[int, int], Pair]


def cached(make: Make, size: int, kept: int, like: Tensor) -> Pair:
    """Return the matrices ``make(size, kept)`` in the precision and on the device of ``like``.

    They are made once, and kept while they are in use.
    """
    # What a compiler or a fake tensor mode traces must be made before its eyes.
    if torch.compiler.is_compiling() or type(torch.empty(0)) is not Tensor:
        return _on_device(make, size, kept, like.dtype, like.device)
    return _cache.matrices(make, size, kept, like.dtype, like.device)


def _on_device(make: Make, size: int, kept: int, dtype: torch.dtype, device: torch.device) -> Pair:
    analysis, synthesis = (matrix.to(device, dtype) for matrix in make(size, kept))
    return analysis, synthesis.contiguous()


class _Cache:
    """The matrices in use, up to a number of bytes; the ones not used for longest go first."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._bytes = 0
        self._entries: OrderedDict[tuple[object, ...], Pair] = OrderedDict()
        self._lock = threading.Lock()

    def matrices(self, *key: Any) -> Pair:
        """Return what ``_on_device`` makes of these arguments."""
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
                return self._entries[key]
        # Whatever mode the caller is in (inference, torch.func, a default device), the next one may
        # be in another: modes belong to a thread, and a new thread has none.
        with ThreadPoolExecutor(1) as thread:
            pair = thread.submit(_on_device, *key).result()
        with self._lock:
            if key not in self._entries:
                self._entries[key] = pair
                self._bytes += sum(m.nbytes for m in pair)
            while self._bytes > self.max_bytes and len(self._entries) > 1:
                _, old = self._entries.popitem(last=False)
                self._bytes -= sum(m.nbytes for m in old)
        return pair


_cache = _Cache(max_bytes=64 * 2**20)
