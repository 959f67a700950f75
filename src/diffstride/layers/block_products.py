"""A long axis by matrix products alone, for files that run where there is no FFT.

A dense matrix for an axis of 16,000 samples has 64 million numbers. Here the axis is cut into B
blocks, before as after it is downsampled. A sample lies at b/B + τ, where b is its block, and every
frequency f is g modulo B for some g. So the wave that joins two samples falls into two factors,

    exp(2πi f (b/B + τ)) = exp(2πi g b/B) · exp(2πi f τ),    0 ≤ τ < 1/B

The second one has few periods in a block: it is a short sum of products u(τ) · v(f), as precise as
one likes. Five matrix products then do it all:

1. samples of each block → how much of each function u is in them
2. blocks → frequencies g, a small Fourier transform
3. for every g a matrix with the functions v and the weights of all f that are g modulo B
4. frequencies g → blocks
5. functions u → samples of each block

No size has to have divisors. But if B divides one, its blocks all share one matrix.

Cosines of a mirrored axis of N samples are waves of one of 2N, which is the axis and its mirror
image, with samples half a sample later.
"""

import math

import torch
from torch import Tensor, nn

from diffstride.core.bases import Basis, Cosine, Fourier

PRECISION = 1e-7  # what the sums of products may leave out: less than float32 rounds
LARGEST_BYTES = 4_500_000  # of the constants of one axis, if there is a way


class Blocks:
    """The samples of one axis in blocks, some of which may be one sample shorter than others.

    After so many ``different`` blocks, the samples lie in them as in the first one again. The first
    sample lies ``later`` than the axis begins.
    """

    def __init__(self, size: int, number: int, later: float = 0.0) -> None:
        self.size, self.number, self.later = size, number, later
        self.longest = -(-size // number)
        self.repeats = math.gcd(size, number)
        self.different = number // self.repeats

    def samples(self) -> Tensor:
        """Return the samples of the different blocks, as many for each as the longest has."""
        return self._starts()[:-1, None] + torch.arange(self.longest)

    def is_inside(self) -> Tensor:
        """Return which of these samples the block does have."""
        return self.samples() < self._starts()[1:, None]

    def places(self) -> Tensor:
        """Return where these samples lie in their block, from −1 to 1."""
        before = torch.arange(self.different, dtype=torch.float64)[:, None]
        samples = self.samples().double() + self.later
        return 2 * (samples * self.number / self.size - before) - 1

    def _starts(self) -> Tensor:
        before = torch.arange(self.different + 1) * self.size
        return -((int(2 * self.later) * self.number - 2 * before) // (2 * self.number))


def work(size: int, kept: int, blocks: int) -> tuple[int, int]:
    """Return about the multiply-accumulates of a map, and the bytes of constants in float32."""
    before, after = Blocks(size, blocks), Blocks(kept, blocks)
    periods, half = min(size, kept) / blocks, blocks // 2 + 1
    rank = math.ceil(periods + 7 + 2.9 * math.log(periods + 1))
    macs = rank * blocks * (before.longest + after.longest + 4 * half) + 2 * half * rank**2
    if before.different > 1:  # all samples change places in memory first, which takes as long
        macs += 30 * size
    sides = sum(side.different * side.longest for side in (before, after))
    return macs, 4 * (rank * sides + half * rank**2 + 4 * half * blocks)


def choose_blocks(size: int, kept: int) -> int:
    """Return how many blocks are the least work with small constants, else the smallest ones.

    >>> choose_blocks(16000, 4008)
    80
    """
    works = {b: work(size, kept, b) for b in range(1, math.isqrt(4 * size) + 1)}
    small = {b: macs for b, (macs, nbytes) in works.items() if nbytes <= LARGEST_BYTES}
    return min(small or works, key=lambda b: small[b] if small else works[b][1])


class BlockProducts(nn.Module):
    """Filters and resamples an axis of N samples to M, as :func:`diffstride.core.fft.apply` does.

    ``weights`` are those of the frequencies 0 … ⌊M/2⌋, or ⌊N/2⌋ if that is less;
    :func:`choose_blocks` says how many blocks unless they are given. Samples may lie half a sample
    ``later``, 0.5, before as after.

    >>> layer = BlockProducts(100, 31, torch.ones(16, dtype=torch.float64))
    >>> layer(torch.ones(2, 100, dtype=torch.float64), dim=-1).shape
    torch.Size([2, 31])
    """

    analysis: Tensor
    transform: Tensor
    middle: Tensor
    synthesis: Tensor
    read: Tensor
    written: Tensor

    def __init__(
        self,
        size: int,
        kept: int,
        weights: Tensor,
        blocks: int | None = None,
        later: float = 0.0,
    ) -> None:
        super().__init__()
        self.size, self.kept = size, kept
        blocks = blocks or choose_blocks(size, kept)
        self.before, self.after = Blocks(size, blocks, later), Blocks(kept, blocks, later)
        polynomials, of_frequency = _separate(min(size, kept) // 2, blocks)
        self.rank = polynomials.shape[-1]  # how many functions there are, of each parity
        last = size // self.before.repeats - 1
        constants = {
            "analysis": _functions(self.before, polynomials).mT,
            "transform": _transform(blocks),
            "middle": _middle(kept, blocks, weights.double().cpu(), of_frequency),
            "synthesis": _functions(self.after, polynomials),
            "read": self.before.samples().clamp(max=last).flatten(),
            "written": self.after.is_inside().flatten().nonzero()[:, 0],
        }
        for name, values in constants.items():
            dtype = weights.dtype if values.is_floating_point() else values.dtype
            self.register_buffer(name, values.to(weights.device, dtype).contiguous())

    def forward(self, x: Tensor, dim: int) -> Tensor:
        # All that is not of this axis becomes one axis, the last: matrices come from the left.
        before, after, rank = self.before, self.after, self.rank
        others = [n for i, n in enumerate(x.shape) if i != dim % x.ndim]
        half = before.number // 2 + 1
        if before.different == 1:  # unless they may come from the right while there is most of it
            x = x.movedim(dim, -1).reshape(-1, before.number, before.longest) @ self.analysis[0].mT
            x = x.reshape(-1, before.number * 2 * rank).mT
        else:
            x = x.movedim(dim, 0).reshape(before.repeats, before.size // before.repeats, -1)
            x = x.index_select(1, self.read)
            x = x.reshape(before.repeats, before.different, before.longest, -1)
            x = self.analysis @ x
        x = x.reshape(before.number, 2, rank, -1).transpose(0, 1).reshape(2, before.number, -1)
        x = self.transform @ x
        x = x.reshape(2, 2, half, rank, -1).permute(1, 2, 0, 3, 4).reshape(2, half, 2 * rank, -1)
        x = self.middle @ x
        x = self.transform.mT @ x.reshape(2, 2 * half, -1)
        x = x.reshape(2, after.number, rank, -1).transpose(0, 1)
        x = self.synthesis @ x.reshape(after.repeats, after.different, 2 * rank, -1)
        if after.different > 1:
            x = x.reshape(after.repeats, after.different * after.longest, -1)
            x = x.index_select(1, self.written)
        if dim % (len(others) + 1) == len(others):
            return x.reshape(after.size, -1).mT.reshape(*others, after.size)
        return x.reshape(after.size, *others).movedim(0, dim)


class MirroredBlockProducts(BlockProducts):
    """The same of cosines, as :func:`diffstride.core.fft.apply_cosines` does.

    ``weights`` are those of the cosines 0 … M−1, or N−1 if that is less.

    >>> layer = MirroredBlockProducts(100, 31, torch.ones(31, dtype=torch.float64))
    >>> layer(torch.ones(2, 100, dtype=torch.float64), dim=-1).shape
    torch.Size([2, 31])
    """

    def __init__(self, size: int, kept: int, weights: Tensor) -> None:
        cosines = weights[: min(size, kept)]
        weights = torch.cat([cosines, cosines.new_zeros(1)])  # what would be next is 0 everywhere
        super().__init__(2 * size, 2 * kept, weights, later=0.5)
        self.size, self.kept = size, kept

    def forward(self, x: Tensor, dim: int) -> Tensor:
        return super().forward(torch.cat([x, x.flip(dim)], dim), dim).narrow(dim, 0, self.kept)


def products(basis: Basis, size: int, kept: int, weights: Tensor) -> nn.Module | None:
    """Return what resamples an axis by small products, if they are known and take less time.

    They take about three times as long as one large product, for the same work.
    """
    mirrored = isinstance(basis, Cosine)
    if not mirrored and not isinstance(basis, Fourier):
        return None
    before, after = (2 * size, 2 * kept) if mirrored else (size, kept)
    if size * kept <= 3 * work(before, after, choose_blocks(before, after))[0]:
        return None
    return (MirroredBlockProducts if mirrored else BlockProducts)(size, kept, weights)


def _chebyshev(places: Tensor, degree: int) -> Tensor:
    """Return the Chebyshev polynomials below a degree, along a new last axis."""
    return torch.cos(places.clamp(-1, 1).arccos()[..., None] * torch.arange(degree))


def _separate(highest: int, blocks: int) -> tuple[Tensor, Tensor]:
    """Return functions u and v with cos(2πfτ) = Σ u(τ)·v(f), even ones, and with sin, odd ones.

    For all τ in a block around 0 and all f up to the highest: u as coefficients of polynomials,
    (2, degree, rank), and v, (2, f, rank).
    """
    phase = math.pi * highest / blocks  # of the highest frequency at the end of a block
    # Beyond the phase the coefficients fall faster than any power.
    degree = 2 * math.ceil((phase + 30 + 4 * phase ** (1 / 3)) / 2)
    points = torch.cos((torch.arange(degree, dtype=torch.float64) + 0.5) * (math.pi / degree))
    phases = torch.outer(points, torch.arange(highest + 1)) * (math.pi / blocks)
    to_coefficients = _chebyshev(points, degree).T * (2 / degree)
    to_coefficients[0] /= 2
    # The fewest functions there can be are singular vectors.
    factors = [
        torch.linalg.svd((to_coefficients @ wave)[parity::2], full_matrices=False)
        for parity, wave in enumerate((phases.cos(), phases.sin()))
    ]
    largest = factors[0].S[0]
    rank = max(int((values > PRECISION * largest).sum()) for _, values, _ in factors)
    polynomials = torch.zeros(2, degree, rank, dtype=torch.float64)
    of_frequency = torch.zeros(2, highest + 1, rank, dtype=torch.float64)
    for parity, (left, values, right) in enumerate(factors):
        some = min(rank, len(values))
        polynomials[parity, parity::2, :some] = left[:, :some]
        of_frequency[parity, :, :some] = (values[:, None] * right)[:some].T
    return polynomials, of_frequency


def _functions(side: Blocks, polynomials: Tensor) -> Tensor:
    """Return u at the samples of the different blocks: (block, sample, both parities)."""
    values = _chebyshev(side.places(), polynomials.shape[1]) @ polynomials[:, None]
    return (values * side.is_inside()[..., None]).permute(1, 2, 0, 3).flatten(2)


def _transform(blocks: int) -> Tensor:
    """Return what makes real and imaginary frequencies 0 … ⌊B/2⌋ of blocks, for each parity."""
    turns = torch.outer(torch.arange(blocks // 2 + 1), torch.arange(blocks)) % blocks
    angle = turns.double() * (2 * math.pi / blocks)
    cos, sin = angle.cos(), angle.sin()
    # What belongs to odd functions is turned by a quarter, so that all else is real.
    return torch.stack([torch.cat([cos, -sin]), torch.cat([-sin, -cos])])


def _middle(kept: int, blocks: int, weights: Tensor, of_frequency: Tensor) -> Tensor:
    """Return what becomes of all functions: (parity, 1, g, functions of this parity, functions)."""
    highest = of_frequency.shape[1] - 1
    f = torch.arange(-highest, highest + 1)
    weight = weights[f.abs()] / kept
    if 2 * highest == kept:  # both ends are one frequency
        weight[[0, -1]] /= 2
    signs = torch.stack([torch.ones_like(f), f.sign()])
    v = (of_frequency[:, f.abs()] * signs[..., None]).transpose(0, 1).flatten(1)
    matrices = []
    for g in range(blocks // 2 + 1):
        mine = f % blocks == g
        # −g is left out, and would add the same, except for 0 and B/2, which are −g themselves.
        times = 1 if 2 * g % blocks == 0 else 2
        matrices.append(times * (v[mine].T * weight[mine]) @ v[mine])
    rank = v.shape[1] // 2
    return torch.stack(matrices).reshape(-1, 2, rank, 2 * rank).transpose(0, 1)[:, None]
