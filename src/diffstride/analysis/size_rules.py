"""The sizes that operations of torch make of the sizes that they are given, by their names.

An operation that stands nowhere here is tried on tensors of other sizes, see :func:`tried`: most
keep some axes, and drop or add others. One that does something else has no rule, and its sizes
can't be followed.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from diffstride.analysis.lengths import Length, Size, linear, made, product, same, traced
from diffstride.analysis.size_program import Program, Quotient, Scaled, Smaller

Sizes = tuple[Size, ...]


class NoRule(Exception):
    """Raised for an operation whose sizes can't be followed."""


class Call:
    """An operation, with the sizes of its tensors and the numbers it was given."""

    def __init__(self, program: Program, args: Any, kwargs: Any, sizes: Callable[..., Any]) -> None:
        self.program, self.args, self.kwargs, self._sizes = program, args, kwargs, sizes

    def get(self, name: str, place: int, default: Any = None) -> Any:
        """Return an argument that was given by its place or its name."""
        return self.args[place] if len(self.args) > place else self.kwargs.get(name, default)

    def sizes(self, x: Tensor) -> Sizes:
        return self._sizes(x)  # type: ignore[no-any-return]

    @property
    def first(self) -> Sizes:
        """The sizes of the first tensor, whatever it is called."""
        x = next((x for x in tree_leaves((self.args, self.kwargs)) if isinstance(x, Tensor)), None)
        if x is None:
            raise NoRule
        return self.sizes(x)

    def slid(self, size: Size, kernel: int, stride: int, padding: int, dilation: int) -> Size:
        """Return at how many places a kernel fits."""
        plus = padding - dilation * (kernel - 1) - 1 + stride
        return linear(self.program, [(size, 1)], plus, stride)


def _per_axis(value: Any, axes: int) -> list[Any]:
    values = list(value) if isinstance(value, list | tuple | torch.Size) else [value]
    values = values * axes if len(values) == 1 else values
    if len(values) != axes or not all(type(v) is int for v in values):
        raise NoRule
    return values


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
        channels = same(x[-axes - 1], weight.shape[1] * call.get("groups", 6, 1))
        assert channels is not None
        made = map(call.slid, x[-axes:], kernel, stride, both, dilation)
        return (*x[: -axes - 1], weight.shape[0], *made)

    return rule


def transposed_convolution(axes: int) -> Callable[[Call], Sizes]:
    def rule(call: Call) -> Sizes:
        x, weight = call.first, call.get("weight", 1)
        options = (("stride", 3, 1), ("padding", 4, 0), ("output_padding", 5, 0), ("dilation", 7, 1))
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
            fits = call.slid(n, k, s, 2 * p + (s - 1 if ceil else 0), d)
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
    out = []
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
    for i in range(len(amounts) // 2):  # from the last axis on
        before, after = amounts[2 * i], amounts[2 * i + 1]
        x[-1 - i] = linear(call.program, [(x[-1 - i], 1), (before, 1), (after, 1)])
    return tuple(x)


def concatenation(call: Call) -> Sizes:
    tensors = call.get("tensors", 0)
    axis = call.get("dim", 1, call.kwargs.get("axis", 0))
    if not isinstance(tensors, list | tuple) or type(axis) is not int:
        raise NoRule
    all_sizes = [call.sizes(x) for x in tensors]
    out = list(all_sizes[0])
    if any(len(sizes) != len(out) for sizes in all_sizes):
        raise NoRule
    for i, _ in enumerate(out):
        column = [sizes[i] for sizes in all_sizes]
        if i == axis % len(out):
            out[i] = linear(call.program, [(n, 1) for n in column])
        else:
            for n in column[1:]:
                out[i] = same(out[i], n)
    return tuple(out)


def flattening(call: Call) -> Sizes:
    x = call.first
    first, last = call.get("start_dim", 1, 0), call.get("end_dim", 2, -1)
    first, last = first % len(x), last % len(x)
    return (*x[:first], product(x[first : last + 1]), *x[last + 1 :])


def reshaping(call: Call) -> Sizes:
    x = call.first
    wanted = call.args[1:] or (call.kwargs.get("shape") or call.kwargs.get("size"),)
    if len(wanted) == 1 and isinstance(wanted[0], list | tuple):
        wanted = tuple(wanted[0])
    if not all(type(n) is int or type(n) is Length for n in wanted):
        raise NoRule
    known = [n for n in wanted if type(n) is Length or n != -1]
    # What stands on both sides needs no division.
    rest, left = list(x), []
    for n in known:
        match = next((i for i, m in enumerate(rest) if _is_same(n, m)), None)
        if match is None:
            left.append(n)
        else:
            del rest[match]
    whole, part = product(rest), product(left)
    if len(known) == len(wanted):
        same(whole, part)
        return tuple(wanted)
    if type(part) is Length:
        top = whole if type(whole) is Length else None
        if top is None:
            raise NoRule
        missing: Size = made(call.program, Quotient(top.place, part.place))
    else:
        missing = linear(call.program, [(whole, 1)], 0, part)
        if type(whole) is Length and part > 1:  # or the network fails
            _ = whole % part == 0
    return tuple(missing if type(n) is int and n == -1 else n for n in wanted)


def _is_same(one: Size, other: Size) -> bool:
    if type(one) is Length:
        return type(other) is Length and one.place == other.place
    return type(other) is not Length and bool(one == other)


def indexing(call: Call) -> Sizes:
    x, index = call.first, call.args[1]
    indices = list(index) if isinstance(index, tuple) else [index]
    if not all(i is None or i is Ellipsis or type(i) in (int, slice) for i in indices):
        raise NoRule
    used = sum(i is not None and i is not Ellipsis for i in indices)
    if Ellipsis not in indices:
        indices.append(Ellipsis)
    out: list[Size] = []
    axis = 0
    for i in indices:
        if i is None:
            out.append(1)
        elif i is Ellipsis:
            out += x[axis : axis + len(x) - used]
            axis += len(x) - used
        else:
            if isinstance(i, slice):
                out.append(_sliced(call.program, x[axis], i))
            elif type(x[axis]) is Length:  # or there would be no such sample
                _ = x[axis] > (i if i >= 0 else -i - 1)
            axis += 1
    return tuple(out)


def _sliced(program: Program, size: Size, index: slice) -> Size:
    start, stop, step = index.start, index.stop, 1 if index.step is None else index.step
    if type(size) is not Length:
        return len(range(*slice(*map(_number, (start, stop, step))).indices(size)))
    if type(step) is not int or any(type(i) is not int for i in (start or 0, stop or 0)):
        raise NoRule
    begins, ends = start or 0, size if stop is None else stop
    if type(begins) is int and begins < 0:
        raise NoRule
    if stop is not None and stop < 0:
        ends = size + stop
    elif stop is not None:
        if not size >= stop:  # which is expected to stay so
            ends = size
    if not ends > begins:
        raise NoRule
    return linear(program, [(ends, 1)], step - 1 - begins, step)


def _number(value: Any) -> Any:
    return value.read() if type(value) is Length else value


def applied_linear(call: Call) -> Sizes:
    x, weight = call.first, call.get("weight", 1)
    same(x[-1], weight.shape[1])
    return (*x[:-1], weight.shape[0])


def broadcasting(call: Call) -> Sizes:
    tensors = [x for x in tree_leaves((call.args, call.kwargs)) if isinstance(x, Tensor)]
    out: list[Size] = []
    for sizes in map(call.sizes, tensors):
        out = [1] * (len(sizes) - len(out)) + out
        for i in range(1, len(sizes) + 1):
            one, other = out[-i], sizes[-i]
            if type(one) is int and one == 1:
                out[-i] = other
            elif type(other) is int and other == 1:
                continue
            elif traced(one) == traced(other):
                out[-i] = same(one, other)
            else:  # one of both is 1 here, and expected to stay so
                out[-i] = other if one == 1 else one
                _ = other == 1
    return tuple(out)


def keeping(call: Call) -> Sizes:
    return call.first


_ELEMENTWISE = (
    "add sub mul div true_divide maximum minimum pow where lerp addcmul "
    "__add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __pow__"
).split()
_KEEPING = (
    "relu relu6 sigmoid tanh silu gelu elu selu celu leaky_relu hardswish hardsigmoid hardtanh mish "
    "softplus exp log sqrt rsqrt abs neg clamp clamp_min clamp_max square batch_norm dropout "
    "dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout instance_norm group_norm "
    "layer_norm softmax log_softmax contiguous clone detach to float double half type_as normalize"
).split()

RULES: dict[str, Callable[[Call], Sizes]] = {
    "interpolate": interpolation,
    "pad": border,
    "cat": concatenation,
    "concat": concatenation,
    "flatten": flattening,
    "view": reshaping,
    "reshape": reshaping,
    "__getitem__": indexing,
    "linear": applied_linear,
    **dict.fromkeys(_ELEMENTWISE, broadcasting),
    **dict.fromkeys(_KEEPING, keeping),
}
for _axes in (1, 2, 3):
    RULES[f"conv{_axes}d"] = convolution(_axes)
    RULES[f"conv_transpose{_axes}d"] = transposed_convolution(_axes)
    RULES[f"max_pool{_axes}d"] = RULES[f"max_pool{_axes}d_with_indices"] = pooling(_axes, True)
    RULES[f"avg_pool{_axes}d"] = pooling(_axes, False)
    for _kind in ("avg", "max"):
        RULES[f"adaptive_{_kind}_pool{_axes}d"] = adaptive_pooling(_axes)


def rule_for(name: str) -> Callable[[Call], Sizes] | None:
    """Return the rule of an operation, or of what does the same in place."""
    rule = RULES.get(name)
    if rule is None and name.endswith("_") and not name.endswith("__"):
        rule = RULES.get(name[:-1])
    return rule


def tried(function: Any, call: Call) -> list[Sizes]:
    """Return the sizes of what an operation makes, from what it makes of tensors of other sizes.

    Twice, every length is replaced by a large prime of its own. An axis of the result that has
    become such a prime has that length; one that did not change never does.
    """
    lengths: dict[int, Length] = {}
    for x in tree_leaves((call.args, call.kwargs)):
        if isinstance(x, Tensor):
            lengths |= {n.place: n for n in call.sizes(x) if type(n) is Length}
    shapes = []
    for primes in ((1009, 1013, 1019, 1021, 1031, 1033), (1201, 1213, 1217, 1223, 1229, 1231)):
        if len(lengths) > len(primes):
            raise NoRule
        numbers = dict(zip(lengths, primes, strict=False))

        def replaced(x: Any, numbers: dict[int, int] = numbers) -> Any:
            if not isinstance(x, Tensor):
                return x
            shape = [numbers[n.place] if type(n) is Length else n for n in call.sizes(x)]
            return torch.empty(shape, dtype=x.dtype, device="meta")

        args, kwargs = tree_map(replaced, (call.args, call.kwargs))
        try:
            result = function(*args, **kwargs)
        except Exception as error:  # sizes that it can't take, or values that it needs
            raise NoRule from error
        places = {prime: place for place, prime in numbers.items()}
        outputs = [x for x in tree_leaves(result) if isinstance(x, Tensor)]
        shapes.append([[(places.get(n), n) for n in x.shape] for x in outputs])
    first, second = ([[(p, n if p is None else 0) for p, n in x] for x in s] for s in shapes)
    if first != second:
        raise NoRule
    return [tuple(n if p is None else lengths[p] for p, n in shape) for shape in shapes[0]]
