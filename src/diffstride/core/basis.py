"""The real Fourier basis as matrices.

The M lowest real Fourier functions of an axis are, in this order everywhere,

    1, cos 1, sin 1, cos 2, sin 2, …

so that what belongs to neighbouring frequencies lies together. An even M ends with the lone cosine
of the Nyquist frequency M/2, whose sine is 0 on M points. E (M×N) takes samples to coefficients on
the N-point grid, D (M×M) takes coefficients to samples on the M-point grid, and D·E is the identity
for M = N.
"""

import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor


class MatrixBasis:
    """E and D of one axis in the precision and on the device of the data."""

    def __init__(self, size: int, kept: int, dtype: torch.dtype, device: torch.device) -> None:
        self.analysis, self.synthesis = cached(matrices, size, kept, dtype, device)


def along(matrix: Tensor, x: Tensor, dim: int, out: Tensor | None = None) -> Tensor:
    """The matrix applied to one axis (negative) of ``x``, the others untouched.

    >>> along(torch.ones(1, 3), torch.ones(2, 3, 4), dim=-2).shape
    torch.Size([2, 1, 4])
    """
    if dim == -1:
        return torch.matmul(x, matrix.mT, out=out)
    shape = (*x.shape[:dim], matrix.shape[0], *x.shape[dim + 1 :])
    flat = None if out is None else out.flatten(dim + 1)
    return torch.matmul(matrix, x.flatten(dim + 1), out=flat).reshape(shape)


def frequencies(kept: int) -> Tensor:
    """The frequency of each of the M basis functions.

    Whole numbers, but not integers: compilers stumble over arithmetic with those.

    >>> frequencies(6)
    tensor([0., 1., 1., 2., 2., 3.], dtype=torch.float64)
    """
    return (torch.arange(1, kept + 1, dtype=torch.float64, device="cpu") / 2).floor()


def per_function(values: Tensor, kept: int) -> Tensor:
    """One value a frequency to one value a basis function, as frequencies repeat among those.

    >>> per_function(torch.tensor([1.0, 0.5, 0.25]), kept=4)
    tensor([1.0000, 0.5000, 0.5000, 0.2500])
    """
    return torch.stack([values, values], -1).flatten()[1 : kept + 1]


def multiplicities(kept: int) -> Tensor:
    """How many bins of the M-point spectrum each basis function stands for: 1 for 0 and M/2."""
    f = frequencies(kept)
    return 2.0 - ((f == 0) | (2 * f == kept)).to(torch.float64)


def functions(grid: int, kept: int) -> Tensor:
    """The basis functions, one a row, on a grid of ``grid`` points, in float64.

    The phase is reduced while it is a whole number, so that large grids are as exact as small ones.
    """
    points = torch.arange(grid, dtype=torch.float64, device="cpu")
    angle = torch.outer(frequencies(kept), points).remainder(grid) * (2 * math.pi / grid)
    waves = angle.cos()
    waves[2::2] = angle[2::2].sin()
    return waves


def matrices(size: int, kept: int) -> tuple[Tensor, Tensor]:
    """E (M×N) and D (M×M) in float64: an unnormalised transform in, 1/M on the way out.

    >>> analysis, synthesis = matrices(5, 5)
    >>> torch.allclose(synthesis @ analysis, torch.eye(5, dtype=torch.float64))
    True
    """
    return functions(size, kept), functions(kept, kept).mT * (multiplicities(kept) / kept)


Pair = tuple[Tensor, Tensor]


def cached(
    make: Callable[[int, int], Pair],
    size: int,
    kept: int,
    dtype: torch.dtype,
    device: torch.device,
) -> Pair:
    """The matrices ``make(size, kept)`` in this precision and on this device, made once."""
    # What a compiler or a fake tensor mode traces must be made before its eyes.
    if torch.compiler.is_compiling() or type(torch.empty(0)) is not Tensor:
        return _on_device(make, size, kept, dtype, device)
    return _cache.matrices(make, size, kept, dtype, device)


def _on_device(
    make: Callable[[int, int], Pair],
    size: int,
    kept: int,
    dtype: torch.dtype,
    device: torch.device,
) -> Pair:
    analysis, synthesis = (matrix.to(device, dtype) for matrix in make(size, kept))
    return analysis, synthesis.contiguous()


class _Cache:
    """The matrices in use, up to a number of bytes; the ones not used for longest go first."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._bytes = 0
        self._entries: OrderedDict[tuple[object, ...], Pair] = OrderedDict()
        self._lock = threading.Lock()

    def matrices(
        self,
        make: Callable[[int, int], Pair],
        size: int,
        kept: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> Pair:
        key = (make, size, kept, dtype, device)
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
                return self._entries[key]
        # Whatever mode the caller is in (inference, torch.func, a default device), the next one may
        # be in another: modes belong to a thread, so a thread of its own has none.
        with ThreadPoolExecutor(1) as thread:
            pair = thread.submit(_on_device, make, size, kept, dtype, device).result()
        self._store(key, pair)
        return pair

    def _store(self, key: tuple[object, ...], pair: Pair) -> None:
        with self._lock:
            if key not in self._entries:
                self._entries[key] = pair
                self._bytes += sum(m.nbytes for m in pair)
            while self._bytes > self.max_bytes and len(self._entries) > 1:
                _, old = self._entries.popitem(last=False)
                self._bytes -= sum(m.nbytes for m in old)


_cache = _Cache(max_bytes=64 * 2**20)
