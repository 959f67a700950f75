"""Which convolutions a downsampling follows at once, found by running a network once."""

from collections import Counter
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from diffstride.analysis.running import first_tensor

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


class Uses(TorchFunctionMode):
    """While a network runs, counts for what every tensor is used, be it only to read its shape."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = 0
        """How many layers that do not count are running."""
        self.numbers: Counter[int] = Counter()

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if not self.inside:
            self.count((args, kwargs))
        return func(*args, **(kwargs or {}))

    def count(self, values: Any) -> None:
        self.numbers.update({id(x) for x in tensors(values)})


def tensors(values: Any) -> list[Tensor]:
    """All tensors in whatever a network takes or returns, objects that hold some included."""
    found = []
    for leaf in tree_leaves(values):
        if isinstance(leaf, Tensor):
            found.append(leaf)
        elif hasattr(leaf, "__dict__") and not isinstance(leaf, nn.Module | type):
            found += [x for x in tree_leaves(vars(leaf)) if isinstance(x, Tensor)]
    return found


def find_pairs(
    model: nn.Module, example: Tensor, layers: Collection[nn.Module]
) -> dict[nn.Module, tuple[nn.Module, tuple[int, ...]]]:
    """Convolutions whose output goes into one of these layers and nowhere else.

    Each with the layer, and the spatial size that comes to the convolution. One that is used
    several times is left out.
    """
    uses = Uses()
    calls: Counter[nn.Module] = Counter()
    made: dict[int, tuple[nn.Module, tuple[int, ...], Tensor]] = {}
    """By number of the tensor, which is kept: the number of one that is gone is given again."""
    followed: list[tuple[int, nn.Module]] = []

    def convolved(module: nn.Module, args: Any, kwargs: Any, output: Tensor) -> None:
        calls[module] += 1
        uses.inside += 1  # asking for a shape here is no use of the network's
        size = tuple(first_tensor(args, kwargs).shape[-len(module.kernel_size) :])  # type: ignore[arg-type]
        made[id(output)] = (module, size, output)
        uses.inside -= 1
        uses.numbers[id(output)] = 0  # what was counted was another tensor, which is gone

    def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
        number = id(first_tensor(args, kwargs))
        if number in made:
            followed.append((number, module))
        uses.inside += 1

    def leave(module: nn.Module, args: Any, output: Tensor) -> None:
        uses.inside -= 1

    hooks = [
        module.register_forward_hook(convolved, with_kwargs=True)
        for module in model.modules()
        if type(module) in CONVOLUTIONS
        and set(module.stride) == {1}  # type: ignore[arg-type]
        and not has_hooks(module)
    ]
    for layer in layers:
        if not has_hooks(layer):
            hooks += [
                layer.register_forward_pre_hook(enter, with_kwargs=True),
                layer.register_forward_hook(leave),
            ]
    try:
        with torch.no_grad(), uses:
            output = model(example)
    finally:
        for hook in hooks:
            hook.remove()
    uses.count(output)
    uses.numbers.update(number for number, _ in followed)
    pairs = {}
    for number, layer in followed:
        convolution, size, _ = made[number]
        if uses.numbers[number] == 1 and calls[convolution] == 1:
            pairs[convolution] = (layer, size)
    return pairs


def has_hooks(module: nn.Module) -> bool:
    """Whether something happens around a module that is no part of it."""
    return bool(module._forward_hooks or module._forward_pre_hooks)
