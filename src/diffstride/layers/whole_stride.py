"""What layers have in common that downsample by whole strides, as a strided convolution does."""

from collections.abc import Sequence

from diffstride.core.rule import Rule
from diffstride.core.whole_strides import strided_size, whole_strides
from diffstride.layers.resizer import Resizer, Size


class WholeStrideNd(Resizer):
    """The base of layers with a whole stride, which leave ⌈N/S⌉ of N samples of each axis."""

    rule = Rule(0.0, norm="forward")
    is_planned = False
    method: str
    """What it is called in messages."""

    def __init__(self, stride: int | Sequence[int] = 2) -> None:
        super().__init__()
        self.stride = whole_strides(stride, self.axes, self.method)

    @property
    def strides(self) -> tuple[float, ...]:
        return tuple(map(float, self.stride))

    def scale_stride(self, factor: float) -> None:
        self.stride = whole_strides(self.scaled_strides(factor), self.axes, self.method)

    def size_after(self, size: Sequence[int], strides: Sequence[float]) -> tuple[int, ...]:
        return strided_size(size, strides)

    def soft_size(self, size: Size, whole: Sequence[int], strides: Size) -> Size:
        return [n / s for n, s in zip(size, strides, strict=True)]

    def extra_repr(self) -> str:
        return f"stride={self.stride}"
