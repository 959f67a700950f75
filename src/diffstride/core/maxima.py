"""Max pooling of a large batch on a CPU, a few examples at a time with their channels together.

torch takes the maximum of many channels at once where they lie next to each other, which is 5 to 10
times as fast as where they do not, the conversion included. And it keeps, for the backward pass, a
place of 8 bytes for each maximum. To find it again for a few examples takes less time than to get
fresh memory for those of all, so the input is all that is kept.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from diffstride.core.tracing import is_followed

CHUNK_BYTES = 2**23


def max_pool(x: Tensor, pool: Callable[[Tensor], Tensor]) -> Tensor:
    """Return ``pool(x)`` for a batch (examples, channels, *size) of a max pooling of torch.

    The channels of what comes out may lie next to each other.
    """
    transformed = is_followed() or torch._C._are_functorch_transforms_active()
    if x.device.type != "cpu" or transformed or 0 in x.shape:
        return pool(x)
    return _MaxPool.apply(x, pool)  # type: ignore[no-untyped-call,no-any-return]


class _MaxPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, pool: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.pool = pool
        ctx.save_for_backward(x)
        y = None
        for few in _chunks(x):
            some = pool(_channels_last(x[few]))
            if y is None:
                y = x.new_empty(len(x), *some.shape[2:], some.shape[1]).movedim(-1, 1)
            y[few] = some
        assert y is not None
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # it is differentiated itself
            return *torch.autograd.grad(ctx.pool(x), x, gradient, create_graph=True), None
        made = torch.empty_like(x)
        for few in _chunks(x):
            with torch.enable_grad():
                some = _channels_last(x[few]).requires_grad_()
                y = ctx.pool(some)
            (made[few],) = torch.autograd.grad(y, some, _channels_last(gradient[few]))
        return made, None


def _chunks(x: Tensor) -> Iterator[slice]:
    step = max(1, CHUNK_BYTES // x[0].nbytes)
    for start in range(0, len(x), step):
        yield slice(start, start + step)


def _channels_last(x: Tensor) -> Tensor:
    return x.detach().movedim(1, -1).contiguous().movedim(-1, 1)
