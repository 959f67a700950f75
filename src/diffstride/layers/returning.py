"""Layers that make maps larger, followed by the way back to what was read on the way down.

This is what conversion makes of decoders. The layer itself stays as it is, stride and all: where
nothing has been learned yet it makes the size that is wanted, and so computes what it always has.
"""

import functools
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.conv import _ConvTransposeNd

from diffstride.layers.resizer import Resizer
from diffstride.layers.undo import Undo

KINDS = (
    *(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
    *(nn.Upsample, nn.PixelShuffle),
)
"""Layers of torch that make maps larger."""
_CONTAINERS = nn.Sequential | nn.ModuleList | nn.ModuleDict


class Returning(nn.Module):
    """A layer that runs as ever, and then ``undo``, which makes its output fit.

    It is a layer of torch, or any module around a function that makes maps larger. This is mixed
    into its class, so that parameters keep their names and ``isinstance`` its answers. What it
    makes, s times as large as its input, is resized to the size that was read by what ``undo``
    undoes; where both are the same, that changes nothing.
    """

    returning_from: type[nn.Module]
    undo: Undo

    def forward(self, *given: Any, **named: Any) -> Tensor:
        if isinstance(self, _ConvTransposeNd):  # it may be told a size that it can't make any more
            given = given[:1]
            named.pop("output_size", None)
        larger: Tensor = super().forward(*given, **named)
        return self.undo(larger)  # type: ignore[no-any-return]

    def __reduce_ex__(self: Any, protocol: Any) -> Any:
        # Pickles name classes by where they are written, and these are written nowhere.
        state = self.__getstate__() if hasattr(self, "__getstate__") else vars(self)
        return _empty_returning, (self.returning_from,), state


@functools.cache
def returning_class(kind: Any) -> type[Any]:
    """Return a class with :class:`Returning` mixed in."""
    return type(f"Returning{kind.__name__}", (Returning, kind), {"returning_from": kind})


def _empty_returning(kind: Any) -> Any:
    return object.__new__(returning_class(kind))


def is_way_up(module: nn.Module) -> bool:
    """Return whether a layer of torch makes maps larger, and does not know yet how large."""
    return isinstance(module, KINDS) and not isinstance(module, Returning)


def may_be_way_up(module: nn.Module) -> bool:
    """Return whether a module can go back to a size, should it be seen to make maps larger.

    Besides those of torch that do, these are modules that are no part of torch: a function of it in
    them may.
    """
    if isinstance(module, Returning | Resizer | _CONTAINERS):
        return False
    return isinstance(module, KINDS) or not type(module).__module__.startswith("torch.")
