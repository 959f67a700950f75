"""Which convolutions a downsampling follows at once, so that both can be merged."""

from collections import Counter
from collections.abc import Collection
from typing import Any

from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from diffstride.analysis.observing import Observer, Operation, observe, tensors_in

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


class Uses(Observer):
    """Counts for what every output of a convolution is used, be it only to read its shape.

    Args:
        convolutions: the layers whose outputs are followed.
        layers: those into which an output may go; what they do with it counts as one use.
    """

    def __init__(self, convolutions: Collection[nn.Module], layers: Collection[nn.Module]) -> None:
        self.convolutions, self.layers = set(convolutions), set(layers)
        self.calls: Counter[nn.Module] = Counter()
        self.made: Any = WeakIdKeyDictionary()
        """Of every output the convolution, and the spatial size that came to it."""
        self.uses: Any = WeakIdKeyDictionary()
        self.followed: list[tuple[Tensor, nn.Module]] = []
        """Outputs of convolutions, and the layers that they went into."""
        self._inside = 0

    def enter(self, layer: nn.Module, x: Tensor) -> None:
        if layer in self.layers:
            if x in self.made and not self._inside:
                self.followed.append((x, layer))
                self._count([x])
            self._inside += 1

    def leave(self, layer: nn.Module, x: Tensor, output: Any) -> None:
        if layer in self.layers:
            self._inside -= 1
        elif layer in self.convolutions:
            self.calls[layer] += 1
            self.made[output] = (layer, tuple(x.shape[-len(layer.kernel_size) :]))  # type: ignore[arg-type]
            self.uses[output] = 0  # from now on

    def operation(self, operation: Operation) -> None:
        if not self._inside:
            self._count(operation.inputs)

    def _count(self, tensors: list[Tensor]) -> None:
        for x in {x for x in tensors if x in self.made}:
            self.uses[x] += 1

    def finish(self, output: Any) -> None:
        """Count what comes out of the network as a use."""
        self._count(tensors_in(output))


def find_mergeable(
    model: nn.Module, example: Tensor, layers: Collection[nn.Module]
) -> dict[nn.Module, tuple[nn.Module, tuple[int, ...]]]:
    """Return convolutions whose output goes into one of these layers and nowhere else.

    Each with the layer, and the spatial size that comes to the convolution. One that is used
    several times is left out, as is one around which hooks do something.
    """
    convolutions = [
        module
        for module in model.modules()
        if type(module) in CONVOLUTIONS
        and set(module.stride) == {1}  # type: ignore[arg-type]
        and not has_hooks(module)
    ]
    uses = Uses(convolutions, [layer for layer in layers if not has_hooks(layer)])
    uses.finish(observe(model, example, uses))
    mergeable = {}
    for x, layer in uses.followed:
        convolution, size = uses.made[x]
        if uses.uses[x] == 1 and uses.calls[convolution] == 1:
            mergeable[convolution] = (layer, size)
    return mergeable


def has_hooks(module: nn.Module) -> bool:
    """Return whether something happens around a module that is no part of it."""
    return bool(module._forward_hooks or module._forward_pre_hooks)
