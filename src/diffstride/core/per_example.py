"""Downsampling by strides of each example's own.

Examples that come out at one size share the matrices E and D of each axis, and differ by their
weights alone, which are those of their strides:

    z = (⊗ E) x        y = (⊗ D) (z · ⊗ w(S))

For the backward pass z is kept, as large as the output, and the strides; their windows are made
again. Examples that come out at different sizes are done in groups of one size.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from diffstride.core import arguments
from diffstride.core.bases import BASES, Basis, cached
from diffstride.core.resample import chain, is_channels_last, no_autocast
from diffstride.core.rule import NORMS, Rule, axis_weights
from diffstride.core.tracing import is_followed, shape_of
from diffstride.core.windows import CONVENTIONS
from diffstride.core.work import by_fft

Weigh = Callable[[Tensor], list[Tensor]]
"""From strides (examples, axes) to weights (examples, functions) of each of some axes."""


def diff_stride_each(x: Tensor, strides: Tensor, rule: Rule) -> Tensor | list[Tensor]:
    """Downsample each example by strides (batch, axes) of its own.

    Returns one tensor if a size is said, by ``output_size`` or ``crop=False``, else a list of one
    tensor (channels, *size) for each example.
    """
    arguments.check_tensor(x)
    _check_shapes(x, strides)
    size = shape_of(x)[2:]
    # A compiler can't read them, and need not where a size is said.
    unread = torch.compiler.is_compiling() and rule.output_size is not None
    rows = [] if unread else strides.detach().unbind()
    numbers = [arguments.per_axis(row, len(size), "stride") for row in rows]
    for row in numbers:
        arguments.check_strides(row)
    if rule.output_size is not None:
        made = arguments.fixed_size(size, rule.output_size)
        return at_one_size(x, strides, rule, made, None)
    if not rule.crop:
        return at_one_size(x, strides, rule, size, numbers)
    outputs: list[Any] = [None] * len(numbers)
    for made, members in groups_by_size(size, numbers, rule).items():
        chosen = torch.tensor(members, device=x.device)
        own = [numbers[i] for i in members]
        y = at_one_size(x[chosen], strides[chosen.to(strides.device)], rule, made, own)
        for i, output in zip(members, y.unbind(), strict=True):
            outputs[i] = output
    return outputs


def groups_by_size(
    size: Sequence[int], strides: Sequence[Sequence[float]], rule: Rule
) -> dict[tuple[int, ...], list[int]]:
    """Return which examples come out at which size, the smallest first.

    >>> groups_by_size((32,), [(2.0,), (4.0,), (2.01,)], Rule(convention="tight", smoothness=1.0))
    {(8,): [1], (15,): [2], (16,): [0]}
    """
    groups: dict[tuple[int, ...], list[int]] = {}
    for i, row in enumerate(strides):
        groups.setdefault(rule.size_after(size, row), []).append(i)
    return dict(sorted(groups.items()))


def padded(outputs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return examples of different sizes as one batch, and the size of each (batch, axes).

    Zeros follow what is shorter than the longest, along each axis.

    Args:
        outputs: one tensor for each example, (channels, *spatial).

    Raises:
        ValueError: if there is none, or they differ in more than their sizes.

    >>> batch, sizes = padded([torch.ones(2, 3), torch.ones(2, 5)])
    >>> batch.shape, sizes.tolist()
    (torch.Size([2, 2, 5]), [[3], [5]])
    """
    if len(outputs) == 0:
        raise ValueError("there is no example to pad: got an empty list")
    shapes = [shape_of(y) for y in outputs]
    if len({(len(shape), shape[:1]) for shape in shapes}) > 1 or len(shapes[0]) < 2:
        raise ValueError(
            f"examples must be (channels, *spatial), with as many channels and axes in each, got "
            f"{shapes}"
        )
    sizes = torch.tensor([shape[1:] for shape in shapes])
    largest = sizes.amax(0).tolist()
    rows = []
    for y, shape in zip(outputs, shapes, strict=True):
        # Of the last axis first, as torch wants it: nothing before, and what is missing behind.
        missing = [(0, n - m) for n, m in zip(largest, shape[1:], strict=True)]
        rows.append(F.pad(y, [side for pair in reversed(missing) for side in pair]))
    return torch.stack(rows), sizes


def _check_shapes(x: Tensor, strides: Tensor) -> None:
    axes = x.ndim - 2
    if axes < 1 or shape_of(strides) != (shape_of(x)[0], axes):
        raise ValueError(
            f"strides of each example's own must be (batch, axes) for an input of (batch, "
            f"channels, *spatial), got strides of {shape_of(strides)} for {shape_of(x)}"
        )


def at_one_size(
    x: Tensor,
    strides: Tensor,
    rule: Rule,
    made: Sequence[int],
    numbers: Sequence[Sequence[float]] | None = None,
) -> Tensor:
    """Downsample all examples to one size; ``numbers`` are the strides if sizes follow them."""
    size, axes = shape_of(x)[2:], x.ndim - 2
    work = x if x.dtype == torch.float64 else x.to(torch.float32)
    strides = strides.to(x.device)
    windows = _Windows(rule, size, tuple(made), numbers, work.dtype)
    if x.numel() == 0:
        return x.new_zeros(*shape_of(x)[:2], *made) + 0 * strides.sum().to(x.dtype)
    short = []
    for i, (n, m) in enumerate(zip(size, made, strict=True)):
        if by_fft(windows.basis, n, rule.path, axes):
            weigh = functools.partial(windows.frequencies, (i,))
            multiply = functools.partial(_multiply, strides=strides, weigh=weigh, dims=(i - axes,))
            assert windows.basis.transform is not None
            work = windows.basis.transform(work, i - axes, m, multiply)
        else:
            short.append(i)
    if short:
        pairs = [cached(windows.basis.matrices, size[i], made[i], work) for i in short]
        dims = tuple(i - axes for i in short)
        with no_autocast(x.device):
            z = _products([analysis for analysis, _ in pairs], work, dims)
            z = _multiply(z, strides, functools.partial(windows.functions, tuple(short)), dims)
            work = _products([synthesis for _, synthesis in pairs], z, dims)
    work = work.contiguous()
    if is_channels_last(x, axes):
        work = work.movedim(1, -1).contiguous().movedim(-1, 1)
    return work.to(x.dtype)


@dataclass(frozen=True)
class _Windows:
    """The windows of examples that come out at one size, norm included."""

    rule: Rule
    size: tuple[int, ...]
    made: tuple[int, ...]
    numbers: Sequence[Sequence[float]] | None
    dtype: torch.dtype

    @property
    def basis(self) -> Basis:
        return BASES[self.rule.basis]

    def frequencies(self, axes: Sequence[int], strides: Tensor) -> list[Tensor]:
        """Return weights (batch, frequencies) for each of some axes."""
        rule, last = self.rule, len(self.size) - 1
        widths, found = rule.widths(last + 1), []
        for i in axes:
            n, m = self.size[i], self.made[i]
            band: Any = m
            if self.numbers is not None and widths[i] == 0:  # what passes is a whole number
                bands = [[rule.band(self.size, row)[i]] for row in self.numbers]
                band = torch.tensor(bands, device=strides.device)
            offset = CONVENTIONS[rule.convention].offset if i == last else 0.0
            stride = strides[:, i : i + 1]
            weights, _ = axis_weights(rule, n, band, m, stride, widths[i], offset)
            found.append((weights * NORMS[rule.norm](n, m)).to(self.dtype))
        return found

    def functions(self, axes: Sequence[int], strides: Tensor) -> list[Tensor]:
        """Return weights (batch, functions) for each of some axes."""
        weights = self.frequencies(axes, strides)
        both = zip(weights, axes, strict=True)
        return [self.basis.per_function(weight, self.made[i]) for weight, i in both]


def _products(matrices: Sequence[Tensor], x: Tensor, dims: tuple[int, ...]) -> Tensor:
    if _is_seen_through():
        return chain(matrices, x, dims)
    y: Tensor = _Products.apply(x, matrices, dims)  # type: ignore[no-untyped-call]
    return y


def _is_seen_through() -> bool:
    """Return whether what is differentiated by hand would be in the way: torch.func looks on."""
    return is_followed() or torch._C._are_functorch_transforms_active()


class _Products(torch.autograd.Function):
    """Products with constant matrices, which keep nothing."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, matrices: Sequence[Tensor], dims: tuple[int, ...]) -> Tensor:
        ctx.matrices, ctx.dims = matrices, dims
        return chain(matrices, x, dims)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        with no_autocast(gradient.device):
            return _products([m.mT for m in ctx.matrices], gradient, ctx.dims), None, None


def _multiply(z: Tensor, strides: Tensor, weigh: Weigh, dims: tuple[int, ...]) -> Tensor:
    """Multiply the coefficients of each example by the weights of its strides."""
    if _is_seen_through():
        return _times(z, weigh(strides), dims)
    y: Tensor = _Weighted.apply(z, strides, weigh, dims)  # type: ignore[no-untyped-call]
    return y


class _Weighted(torch.autograd.Function):
    """:func:`_multiply`, which keeps the coefficients and the strides alone."""

    @staticmethod
    def forward(
        ctx: Any, z: Tensor, strides: Tensor, weigh: Weigh, dims: tuple[int, ...]
    ) -> Tensor:
        ctx.weigh, ctx.dims = weigh, dims
        ctx.save_for_backward(z if strides.requires_grad else None, strides)
        return _times(z, weigh(strides), dims)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        z, strides = ctx.saved_tensors
        again = torch.is_grad_enabled()  # when a gradient is differentiated itself
        needs_z, needs_strides, _, _ = ctx.needs_input_grad
        with torch.enable_grad():
            if not again:
                strides = strides.detach().requires_grad_(needs_strides)
            weights = ctx.weigh(strides)
        grad_z = _times(gradient, weights, ctx.dims) if needs_z else None
        grad_strides = None
        if needs_strides:
            total = (gradient * z.conj()).real if z.is_complex() else gradient * z
            slopes = []
            for i, dim in enumerate(ctx.dims):
                others = [j for j in range(len(ctx.dims)) if j != i]
                rest = _times(total, [weights[j] for j in others], [ctx.dims[j] for j in others])
                kept = (0, rest.ndim + dim)
                slopes.append(rest.sum([axis for axis in range(rest.ndim) if axis not in kept]))
            (grad_strides,) = torch.autograd.grad(weights, strides, slopes, create_graph=again)
        return grad_z, grad_strides, None, None


def _times(z: Tensor, weights: Sequence[Tensor], dims: Sequence[int]) -> Tensor:
    """Return z (batch, channels, *axes) times weights (batch, n) along each of some axes."""
    for weight, dim in zip(weights, dims, strict=True):
        shape = [1] * z.ndim
        shape[0], shape[dim] = weight.shape
        z = z * weight.reshape(shape)
    return z
