"""The sizes of what is joined, flattened, cut, multiplied or computed number by number."""

from collections.abc import Callable

from torch import Tensor
from torch.utils._pytree import tree_leaves

from diffstride.analysis.lengths import Length, Size, linear, made, plain, product, same, traced
from diffstride.analysis.rule_call import Call, NoRule, Sizes
from diffstride.analysis.size_program import Program, Quotient


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


def filled(first: int) -> Callable[[Call], Sizes]:
    """Return the rule of what makes a tensor of a size that is given from a place on."""

    def rule(call: Call) -> Sizes:
        size = call.args[first:] or (call.kwargs["size"],)
        size = tuple(size[0]) if isinstance(size[0], list | tuple) else size
        if not all(type(n) is int or type(n) is Length for n in size):
            raise NoRule
        return tuple(size)

    return rule


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
    """Return how many samples are left; what decides that is expected to stay as it is."""
    if not any(type(i) is Length for i in (size, index.start, index.stop, index.step)):
        return len(range(*index.indices(size)))
    begins, ends, step = index.start or 0, index.stop, 1 if index.step is None else index.step
    if begins < 0 or type(step) is not int:
        raise NoRule
    if ends is None or ends >= size:
        ends = size
    elif ends < 0:
        ends = size + ends
    if not begins < ends:
        raise NoRule
    return linear(program, [(ends, 1), (begins, -1)], step - 1, step)


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


def layer_norm(call: Call) -> Sizes:
    x, shape = call.first, call.get("normalized_shape", 1)
    for i in range(1, len(shape) + 1):
        same(x[-i], shape[-i])
    return x


def channel_norm(call: Call) -> Sizes:
    """Of what has numbers for each channel, so that there must be as many as there are."""
    plain(call.first[1])
    return call.first
