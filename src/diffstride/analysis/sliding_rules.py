"""The sizes that convolutions, poolings, interpolations and borders make."""

from collections.abc import Callable
from typing import Any

import torch

from diffstride.analysis.lengths import Length, Size, linear, made, same
from diffstride.analysis.rule_call import Call, NoRule, Sizes
from diffstride.analysis.size_program import Program, Scaled, Smaller


def _per_axis(value: Any, axes: int) -> list[Any]:
    values = list(value) if isinstance(value, list | tuple | torch.Size) else [value]
    values = values * axes if len(values) == 1 else values
    if len(values) != axes or not all(type(v) is int for v in values):
        raise NoRule
    return values


def _slid(
    program: Program, size: Size, kernel: int, stride: int, padding: int, dilation: int
) -> Size:
    """Return at how many places a kernel fits."""
    plus = padding - dilation * (kernel - 1) - 1 + stride
    return linear(program, [(size, 1)], plus, stride)


def convolution(axes: int) -> Callable[[Call], Sizes]:
    def rule(call: Call) -> Sizes:
        x, weight = call.first, call.get("weight", 1)
        kernel = list(weight.shape[2:])
        stride = _per_axis(call.get("stride", 3, 1), axes)
        dilation = _per_axis(call.get("dilation", 5, 1), axes)
        padding = call.get("padding", 4, 0)
        if padding == "valid":
            padding = 0
        if padding == "same":
            both = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        else:
            both = [2 * p for p in _per_axis(padding, axes)]
        same(x[-axes - 1], weight.shape[1] * call.get("groups", 6, 1))
        rows = zip(x[-axes:], kernel, stride, both, dilation, strict=True)
        return (*x[: -axes - 1], weight.shape[0], *(_slid(call.program, *row) for row in rows))

    return rule


def transposed_convolution(axes: int) -> Callable[[Call], Sizes]:
    def rule(call: Call) -> Sizes:
        x, weight = call.first, call.get("weight", 1)
        options = (
            ("stride", 3, 1),
            ("padding", 4, 0),
            ("output_padding", 5, 0),
            ("dilation", 7, 1),
        )
        given = [_per_axis(call.get(*option), axes) for option in options]
        same(x[-axes - 1], weight.shape[0])
        out = [
            linear(call.program, [(n, s)], d * (k - 1) + more + 1 - s - 2 * p)
            for n, k, s, p, more, d in zip(x[-axes:], weight.shape[2:], *given, strict=True)
        ]
        return (*x[: -axes - 1], weight.shape[1] * call.get("groups", 6, 1), *out)

    return rule


def pooling(axes: int, dilated: bool) -> Callable[[Call], Sizes]:
    def rule(call: Call) -> Sizes:
        x = call.first
        kernel = _per_axis(call.get("kernel_size", 1), axes)
        stride = _per_axis(call.get("stride", 2) or kernel, axes)
        padding = _per_axis(call.get("padding", 3, 0), axes)
        dilation = _per_axis(call.get("dilation", 4, 1) if dilated else 1, axes)
        ceil = call.get("ceil_mode", 5 if dilated else 4, False)
        out = []
        for n, k, s, p, d in zip(x[-axes:], kernel, stride, padding, dilation, strict=True):
            fits = _slid(call.program, n, k, s, 2 * p + (s - 1 if ceil else 0), d)
            if ceil:  # a window must begin within the map or its left border
                begins = linear(call.program, [(n, 1)], p - 1 + s, s)
                fits = _smaller(call.program, fits, begins)
            out.append(fits)
        return (*x[:-axes], *out)

    return rule


def _smaller(program: Program, one: Size, other: Size) -> Size:
    if type(one) is not Length and type(other) is not Length:
        return min(one, other)
    if type(one) is not Length or type(other) is not Length:
        raise NoRule
    return one if one.place == other.place else made(program, Smaller(one.place, other.place))


def adaptive_pooling(axes: int) -> Callable[[Call], Sizes]:
    def rule(call: Call) -> Sizes:
        x, wanted = call.first, call.get("output_size", 1)
        several = list(wanted) if isinstance(wanted, list | tuple) else [wanted] * axes
        kept = zip(x[-axes:], several, strict=True)
        return (*x[:-axes], *(n if m is None else m for n, m in kept))

    return rule


def interpolation(call: Call) -> Sizes:
    x, size, factor = call.first, call.get("size", 1), call.get("scale_factor", 2)
    axes = len(x) - 2
    several = list(size) if isinstance(size, list | tuple) else [size] * axes
    if size is not None:
        return (*x[:2], *several)
    factors = list(factor) if isinstance(factor, list | tuple) else [factor] * axes
    out: list[Size] = []
    for n, f in zip(x[2:], factors, strict=True):
        if type(n) is not Length:
            out.append(int(n * float(f)))
        elif float(f).is_integer():
            out.append(linear(call.program, [(n, int(f))]))
        else:
            out.append(made(call.program, Scaled(n.place, float(f))))
    return (*x[:2], *out)


def border(call: Call) -> Sizes:
    x, amounts = list(call.first), list(call.get("pad", 1))
    copies = call.get("mode", 2, "constant") not in ("constant", "replicate")
    for i in range(len(amounts) // 2):  # from the last axis on
        before, after = amounts[2 * i], amounts[2 * i + 1]
        if copies and not (x[-1 - i] > before and x[-1 - i] > after):
            raise NoRule  # of a map that may be too small for its border
        x[-1 - i] = linear(call.program, [(x[-1 - i], 1), (before, 1), (after, 1)])
    return tuple(x)
