"""The way up again to where a layer came from, whatever size that was."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from diffstride.core.rule import AxisPlan, Rule, plan
from diffstride.core.tracing import is_followed, shape_of
from diffstride.core.work import resampling_macs
from diffstride.layers.joined import PLANNED_FORWARDS
from diffstride.layers.resizer import Resizer, Size
from diffstride.layers.size_read import SizeRead

if TYPE_CHECKING:
    from diffstride.layers.converted import Converted


class ToSize(Resizer):
    """Resizes to a size that it finds in its ``source``, where another layer has noted it.

    It is :func:`diffstride.functional.spectral_resize`, with nothing to learn.
    """

    is_planned = False
    source: SizeRead
    passes_on = False
    """Whether an input that has its size already may come out itself, and not a copy: where it was
    made for this layer alone."""

    def size_to_make(self) -> tuple[int, ...]:
        """Return the size that was noted last."""
        size = self.source.read()
        if size is None:
            raise RuntimeError(self._unknown())
        return size

    def _unknown(self) -> str:
        """Return what is wrong while no size was noted."""
        raise NotImplementedError

    def size_after(self, size: Sequence[int], strides: Sequence[float]) -> tuple[int, ...]:
        return self.size_to_make()

    def soft_size(self, size: Size, whole: Sequence[int], strides: Size) -> Size:
        return whole

    def macs(self, channels: int, outputs: int, size: Size, kept: Size) -> Any:
        changes = [int(n) != int(m) for n, m in zip(size, kept, strict=True)]
        return channels * resampling_macs(size, kept, self.rule, changes)

    def forward(self, x: Tensor) -> Tensor:
        if self.passes_on and not is_followed():
            self.check(x)
            size = shape_of(x)[-self.axes :]
            if size == self.size_to_make():
                self.note(size)
                return x
        return super().forward(x)

    def prepare(self, size: Sequence[int]) -> tuple[int, ...] | None:
        if not torch.compiler.is_compiling():
            return None
        from diffstride.layers import outside_graphs  # which loads the compiler

        return outside_graphs.size_to_make(self)

    def plans(self, size: Size, device: torch.device, known: Size | None = None) -> list[AxisPlan]:
        made = self.size_to_make() if known is None else tuple(known)
        return plan(self.rule, size, 1.0, device, output_size=made)


PLANNED_FORWARDS.append(ToSize.forward)


class Undo(ToSize):
    """Resizes to the size that another layer read: what ``layer.up()`` returns.

    It is :func:`diffstride.functional.spectral_resize` with the norm, basis and path of that layer,
    and has nothing to learn: the size follows from where the other layer came from, whatever its
    stride and however often it changes. So skips fit at any size of the input. Of a spectral
    pooling it is the left inverse; what a window has damped stays damped.

    The size is that of the last call of the layer that is undone, which must come first in every
    forward pass. If that runs several times in one, the last of its calls before this one counts.
    To undo each of several calls, make a layer for each.

    The layer that is undone belongs to the network where it stands, and is only referred to here:
    it is saved, copied and counted once. Another one that takes its place, fixed or frozen, is
    undone instead.

    Args:
        undone: any layer of this library that changes sizes; or one of torch that was converted,
            whose downsampling may have a convolution before it, which is gone back behind too.

    Raises:
        RuntimeError: when it is called, if the layer that it undoes has not run yet.

    >>> import torch
    >>> from diffstride import DiffStride2d
    >>> down = DiffStride2d(2.4, smoothness=1.0)
    >>> up = down.up()
    >>> small = down(torch.rand(8, 16, 37, 50))
    >>> small.shape, up(small).shape
    (torch.Size([8, 16, 17, 22]), torch.Size([8, 16, 37, 50]))
    >>> up
    Undo(DiffStride2d, norm='ortho')
    """

    def __init__(self, undone: "Resizer | Converted") -> None:
        super().__init__()
        if undone.size_read is None:
            undone.size_read = SizeRead()
        # In a list: as an attribute it would be registered here too.
        self._undone: list[Resizer | Converted] = [undone]
        self.source = undone.size_read
        self.axes = self.undone.axes
        like = self.undone.rule
        self.rule = Rule(0.0, norm=like.norm, basis=like.basis, path=like.path, way="any")

    @property
    def undone(self) -> Resizer:
        """The layer whose way is gone back."""
        layer = self._undone[0]
        if isinstance(layer, Resizer):
            return layer
        assert isinstance(layer.downsample, Resizer)
        return layer.downsample

    def undoes(self, layer: Resizer) -> bool:
        """Return whether it must be told if another layer takes the place of this one."""
        return self._undone[0] is layer

    def undo_instead(self, layer: Resizer) -> None:
        """Undo another layer, which has taken the place of the one before."""
        if isinstance(self._undone[0], Resizer):  # else what was converted has it, and notes sizes
            layer.size_read = self.source
            self._undone[0] = layer

    @property
    def strides(self) -> tuple[float, ...]:
        """The strides of the layer that is undone."""
        return self.undone.strides

    def strides_for(self, size: Sequence[int]) -> tuple[float, ...]:
        made = self.source.read() or tuple(size)
        return tuple(1 / stride for stride in self.undone.strides_for(made))

    def _unknown(self) -> str:
        return (
            f"{self} makes the size that the layer it undoes has read, but that has not run "
            f"yet: in every forward pass, call it first"
        )

    def extra_repr(self) -> str:
        return f"{type(self.undone).__name__}, norm={self.norm!r}"
