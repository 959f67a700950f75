"""The sizes that operations of torch make of the sizes that they are given, by their names.

An operation that stands nowhere here is tried on tensors of other sizes, see :func:`tried`: most
keep some axes, and drop or add others. One that does something else has no rule, and its sizes
can't be followed.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from diffstride.analysis.axis_rules import (
    applied_linear,
    broadcasting,
    channel_norm,
    concatenation,
    filled,
    flattening,
    indexing,
    keeping,
    layer_norm,
    reshaping,
)
from diffstride.analysis.lengths import Length
from diffstride.analysis.rule_call import Call, NoRule, Sizes
from diffstride.analysis.sliding_rules import (
    adaptive_pooling,
    border,
    convolution,
    interpolation,
    pooling,
    transposed_convolution,
)

_ELEMENTWISE = (
    "add sub mul div true_divide maximum minimum pow where lerp addcmul "
    "__add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __pow__"
).split()
_KEEPING = (
    "relu relu6 sigmoid tanh silu gelu elu selu celu leaky_relu hardswish hardsigmoid hardtanh "
    "mish softplus exp log sqrt rsqrt abs neg clamp clamp_min clamp_max square dropout "
    "dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout softmax log_softmax "
    "contiguous clone detach to float double half type_as normalize "
    "zeros_like ones_like empty_like full_like rand_like randn_like"
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
    "layer_norm": layer_norm,
    **dict.fromkeys(_ELEMENTWISE, broadcasting),
    **dict.fromkeys(_KEEPING, keeping),
    **dict.fromkeys(("batch_norm", "instance_norm", "group_norm", "prelu"), channel_norm),
    **dict.fromkeys(("zeros", "ones", "empty", "rand", "randn", "full"), filled(0)),
    **dict.fromkeys(("new_zeros", "new_ones", "new_empty", "new_full"), filled(1)),
}
for _axes in (1, 2, 3):
    RULES[f"conv{_axes}d"] = convolution(_axes)
    RULES[f"conv_transpose{_axes}d"] = transposed_convolution(_axes)
    RULES[f"max_pool{_axes}d"] = RULES[f"max_pool{_axes}d_with_indices"] = pooling(_axes, True)
    RULES[f"avg_pool{_axes}d"] = pooling(_axes, False)
    for _kind in ("avg", "max"):
        RULES[f"adaptive_{_kind}_pool{_axes}d"] = adaptive_pooling(_axes)


_BY_PLACE = ("narrow", "select", "index_select")
"""What takes samples that there may not be in a smaller map."""


def rule_for(name: str) -> Callable[[Call], Sizes] | None:
    """Return the rule of an operation, or of what does the same in place."""
    rule = RULES.get(name)
    if rule is None and name.endswith("_") and not name.endswith("__"):
        rule = RULES.get(name[:-1])
    return rule


def tried(function: Any, name: str, call: Call) -> list[Sizes]:
    """Return the sizes of what an operation makes, from what it makes of tensors of other sizes.

    Twice, every length is replaced by a large prime of its own. An axis of the result that has
    become such a prime has that length; one that did not change never does.
    """
    if name in _BY_PLACE and type(call.first[call.get("dim", 1)]) is Length:
        raise NoRule
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
