"""Layers that choose for each example on which grid they sample it."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from diffstride.core.polyphase import polyphase_macs, polyphase_sample
from diffstride.core.tracing import shape_of
from diffstride.layers.joined import PLANNED_FORWARDS
from diffstride.layers.resizer import Size
from diffstride.layers.whole_stride import WholeStrideNd


class PolyphaseSampleNd(WholeStrideNd):
    """Adaptive polyphase sampling: :func:`diffstride.functional.polyphase_sample`."""

    method = "polyphase sampling"

    def __init__(self, stride: int | Sequence[int] = 2) -> None:
        super().__init__(stride)
        self._grids: Tensor | None = None
        """Those that were chosen last, for a branch that is to be sampled alike."""
        self._repeats = False

    def __getstate__(self) -> dict[str, Any]:
        # What was chosen is for the branch that meets this one: no copy and no file has it.
        return {**vars(self), "_grids": None}

    def macs(self, channels: int, outputs: int, size: Size, kept: Size) -> Any:
        return channels * polyphase_macs(kept, self.stride)

    def frozen(self, size: Sequence[int]) -> "PolyphaseSampleNd":
        return self

    def again(self, x: Tensor) -> Tensor:
        self._repeats = True
        try:
            return self(x)  # type: ignore[no-any-return]
        finally:
            self._repeats = False

    def forward(self, x: Tensor) -> Tensor:
        self.check(x)
        self.note(shape_of(x)[-self.axes :])
        grids = self._grids if self._repeats else None
        y, self._grids = polyphase_sample(x, self.stride, grids=grids)
        return y


PLANNED_FORWARDS.append(PolyphaseSampleNd.forward)


class PolyphaseSample1d(PolyphaseSampleNd):
    """Adaptive polyphase sampling of one axis; arguments as for :class:`PolyphaseSample2d`.

    >>> import torch
    >>> PolyphaseSample1d(2)(torch.tensor([[[0.0, 3.0, 1.0, 5.0]]]))
    tensor([[[3., 5.]]])
    """

    axes = 1


class PolyphaseSample2d(PolyphaseSampleNd):
    """Adaptive polyphase sampling of images (Chaman and Dokmanić 2021): the strongest grid.

    Input (batch, channels, H, W) or (channels, H, W), output ⌈H/S⌉ × ⌈W/S⌉. It has nothing to
    learn. What is computed: :func:`diffstride.functional.polyphase_sample`. Of two branches that
    meet, ``layer.again(x)`` samples the second one on the grids that the last call chose. So
    checkpoints, which run parts of a network again, must take in both branches or none.

    Args:
        stride: a whole number, one or one per axis.

    Raises:
        ValueError: if a stride is not whole.

    >>> import torch
    >>> layer, x = PolyphaseSample2d(2), torch.rand(1, 3, 16, 16)
    >>> moved = x.roll(1, dims=-1)
    >>> torch.equal(layer(x).sort().values, layer(moved).sort().values)
    True
    """

    axes = 2


class PolyphaseSample3d(PolyphaseSampleNd):
    """Adaptive polyphase sampling of three axes; arguments as for :class:`PolyphaseSample2d`.

    >>> import torch
    >>> PolyphaseSample3d((1, 2, 2))(torch.rand(2, 4, 8, 16, 16)).shape
    torch.Size([2, 4, 8, 8, 8])
    """

    axes = 3
