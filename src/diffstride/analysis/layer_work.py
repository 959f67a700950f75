"""The multiply-accumulates and activations of a layer, as functions of sizes."""

from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from diffstride.analysis.lengths import linear, plain
from diffstride.analysis.uses import Amount, AnyAmount, FunctionAmount, Sizes, Use
from diffstride.core.conv import work_of
from diffstride.layers.converted import Converted, shortening
from diffstride.layers.joined import Pair, running
from diffstride.layers.resizer import Counted, Resizer, Size

if TYPE_CHECKING:
    from diffstride.analysis.network_trace import NetworkTrace


class LayerWork:
    """Notes what every use of a layer costs.

    A convolution and the downsampling after it that are run as one count as in the order that they
    are run in when nobody looks on.
    """

    def __init__(self, trace: "NetworkTrace") -> None:
        self.trace = trace
        self._around: list[tuple[Converted, Tensor, list[FunctionAmount] | None]] = []
        """Converted convolutions that are running, what they read, and the work of both parts."""
        self._convolution: Use | None = None
        """The last use of a convolution that is run as one with what comes next."""

    def enter(self, layer: nn.Module, x: Tensor) -> None:
        if isinstance(layer, Converted) and layer.is_reorderable:
            self._around.append((layer, x, None))

    def leave(self, use: Use, layer: nn.Module) -> None:
        """Complete a use of a layer that has ended."""
        size, kept = use.input_sizes[2:], use.output_sizes[2:]
        use.made = self._made(layer, size, kept)
        use.activations = Amount(1, (*use.output_sizes[1:2], *use.made))
        use.macs = self._macs(use, layer, size, kept)

    def _made(self, layer: nn.Module, size: Sizes, kept: Sizes) -> Sizes:
        """Return the size that a layer makes before a downsampling that was converted into it."""
        if isinstance(layer, Converted) and not layer.downsample_first:
            program = self.trace.program
            less = zip(size, shortening(layer, len(size)), strict=True)
            return tuple(linear(program, [(n, 1)], -k) for n, k in less)
        return kept

    def _macs(self, use: Use, layer: nn.Module, size: Sizes, kept: Sizes) -> AnyAmount:
        if pair := running():
            if layer is pair.convolution:
                self._convolution = use
                return Amount()  # until it is known what the downsampling makes
            if layer in (pair.layer, pair.layer.leading) and self._convolution is not None:
                read = self.trace.sizes(pair.x)
                work = FunctionAmount(partial(_work, pair, plain(read[1])), (read[2:], size, kept))
                resampling, self._convolution.macs = work.parts(2)
                self._convolution = None
                return resampling
        if self._around and isinstance(layer, Converted | Resizer):
            convolution, started, shared = self._around[-1]
            if shared is None:
                read = self.trace.sizes(started)
                work = FunctionAmount(partial(convolution.work, plain(read[1])), (read[2:], kept))
                shared = work.parts(2)
                self._around[-1] = convolution, started, shared
            if layer is convolution:
                self._around.pop()
            return shared[layer is convolution]
        return _macs(use, layer, size, use.made)


def _work(pair: Pair, channels: int, size: Size, full: Size, kept: Size) -> tuple[Any, Any]:
    return work_of(pair.convolution, pair.layer.rule, channels, size, full, kept)


def _macs(use: Use, layer: nn.Module, size: Sizes, made: Sizes) -> AnyAmount:
    if isinstance(layer, Counted):
        channels = use.input_sizes[1:2], use.output_sizes[1:2]
        return FunctionAmount(
            lambda c, d, n, m: layer.macs(c[0], d[0], n, m), (*channels, size, made)
        )
    if isinstance(layer, nn.Linear):
        return Amount(layer.weight.numel(), use.output_sizes[1:-1])
    assert isinstance(layer, _ConvNd)
    places = size if isinstance(layer, _ConvTransposeNd) else made
    return Amount(layer.weight.numel(), places)
