"""Which tensors autograd keeps from a forward pass until the backward pass, by operation.

Each is counted once, however many operations keep it: the output of an activation function is the
input of the convolution after it. Parameters, the network's own input, numbers for whole channels
such as the statistics of a normalisation, and what operations keep that are named nowhere here are
left out. A layer with learned strides keeps its truncated spectrum, which is as large as its
output; so does one that is run together with a convolution, whose input is kept as well. That is
the most: taps and kept frequencies keep less (core/conv.py), as do max poolings that were
converted, which on a CPU keep no places of their maxima.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

_INPUT = {
    *(f"{kind}{axes}d" for kind in ("conv", "conv_transpose", "avg_pool") for axes in (1, 2, 3)),
    *("batch_norm", "instance_norm", "group_norm", "layer_norm", "linear", "gelu", "silu", "mish"),
    *("hardswish", "hardsigmoid", "softplus", "leaky_relu", "relu6", "hardtanh", "log", "abs"),
    *("pow", "square", "clamp"),
}
_OUTPUT = {"relu", "sigmoid", "tanh", "exp", "sqrt", "rsqrt", "softmax", "log_softmax", "elu"}
_BOTH = {"mul", "div", "__mul__", "__rmul__", "__truediv__", "matmul", "bmm", "__matmul__"}


def kept_by(
    name: str, inputs: list[Tensor], outputs: list[Tensor]
) -> Iterator[tuple[Tensor, torch.dtype | None]]:
    """Yield the maps that an operation keeps, of those that it reads and makes.

    With a type, it is not the map itself that is kept, but another tensor as large as it.
    """
    name = name if name.endswith("__") else name.rstrip("_")
    if name in _INPUT:
        yield inputs[0], None
    elif name in _OUTPUT:
        yield outputs[0], None
    elif name in _BOTH and len(inputs) > 1:  # with a number, neither is needed
        yield from ((x, None) for x in inputs)
    elif name.startswith("max_pool"):
        yield inputs[0], None
        yield outputs[0], torch.int64  # where the largest numbers were
