"""A convolution and the layer that downsamples after it, run as one in the cheapest exact order.

Which orders there are says :mod:`diffstride.core.conv`. Nobody can tell which one is taken: where
something is hooked to one of the two, or looks on otherwise, they run one after the other.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn.modules import module as torch_modules

from diffstride.core.conv import convolve, convolved_size
from diffstride.core.tracing import is_followed, shape_of
from diffstride.layers.resizer import Resizer

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
PLANNED_FORWARDS: list[Callable[..., Any]] = [Resizer.forward]
"""What layers compute that do nothing but carry out their plans."""
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class Pair(NamedTuple):
    """A convolution and a layer that could have been run as one, and what the first one reads."""

    convolution: nn.Module
    layer: Resizer
    x: Tensor


_running: ContextVar[Pair | None] = ContextVar("_running", default=None)


def running() -> Pair | None:
    """Return the pair that is running one after the other, because somebody looks on."""
    return _running.get()


@contextmanager
def _looked_at(pair: Pair) -> Iterator[None]:
    token = _running.set(pair)
    try:
        yield
    finally:
        _running.reset(token)


def run(convolution: nn.Module, layer: nn.Module, x: Tensor) -> Tensor:
    """Return ``layer(convolution(x))``, in the cheapest order if both can be run as one."""
    y: Tensor
    if is_followed() or not can_join(convolution, layer):
        y = layer(convolution(x))
        return y
    assert isinstance(layer, Resizer)
    if not (is_seen(convolution) or is_layer_seen(layer)):
        return in_cheapest_order(convolution, layer, x)
    with _looked_at(Pair(convolution, layer, x)):
        y = layer(convolution(x))
        return y


def again(layer: nn.Module, x: Tensor) -> Tensor:
    """Return ``layer(x)`` for a branch that meets the one that the layer has read just before."""
    y: Tensor = layer.again(x) if isinstance(layer, Resizer) else layer(x)
    return y


class JoiningSequential(nn.Sequential):
    """``nn.Sequential`` in which a convolution and the downsampling after it run as one."""

    def forward(self, input: Tensor) -> Tensor:
        layers = list(self)
        while layers:
            first = layers.pop(0)
            if layers and isinstance(first, CONVOLUTIONS) and isinstance(layers[0], Resizer):
                input = run(first, layers.pop(0), input)
            else:
                input = first(input)
        return input


def can_join(convolution: nn.Module, layer: nn.Module) -> bool:
    """Return whether both are of kinds that may be run as one for the same numbers."""
    if not (isinstance(layer, Resizer) and layer.is_planned and is_plain_convolution(convolution)):
        return False
    stride: Any = convolution.stride
    return set(stride) == {1}


def is_plain_convolution(module: nn.Module) -> bool:
    """Return whether a convolution, or one that was converted, computes what those of torch do."""
    base = next((kind for kind in type(module).__mro__ if kind in CONVOLUTIONS), None)
    if base is None:
        return False
    kind: Any = getattr(module, "converted_from", type(module))
    return all(getattr(kind, name) is getattr(base, name) for name in ("forward", "_conv_forward"))


def is_seen(module: nn.Module) -> bool:
    """Return whether something looks at, or changes, what goes into a module or comes out."""
    replaced = {"forward", "_conv_forward"} & set(vars(module))
    hooked = any(getattr(module, name) for name in _HOOKS)
    # Of all modules: torch 2.6 has no function that says whether there are any.
    everywhere = any(getattr(torch_modules, f"_global{name}") for name in _HOOKS)
    return bool(replaced) or hooked or everywhere


def is_layer_seen(layer: Resizer) -> bool:
    """Return the same of a layer that downsamples, and of the one that it follows."""
    modules: set[Resizer] = {layer, layer.leading}
    return any(is_seen(one) or type(one).forward not in PLANNED_FORWARDS for one in modules)


def in_cheapest_order(convolution: Any, layer: Resizer, x: Tensor) -> Tensor:
    """Return ``layer(convolution(x))`` for a pair that can be joined."""
    size = note_size(convolution, layer, x)
    plans = layer.leading.plans(size, x.device)
    weight, bias, rule = convolution.weight, convolution.bias, layer.leading.rule
    return convolve(x, weight, bias, plans, rule=rule, order="auto", **options_of(convolution))


def options_of(convolution: Any) -> dict[str, Any]:
    """Return what a convolution is told besides its weights and its stride."""
    names = ("padding", "dilation", "groups", "padding_mode")
    return {name: getattr(convolution, name) for name in names}


def note_size(convolution: Any, layer: Resizer, x: Tensor) -> tuple[int, ...]:
    """Return the size that a convolution makes, once the layer behind it knows it too."""
    leading = layer.leading
    leading.check(x)
    axes = shape_of(x)[-leading.axes :]
    size = convolved_size(axes, convolution.kernel_size, convolution.padding, convolution.dilation)
    if min(size) < 1:
        kernel = tuple(convolution.kernel_size)
        raise ValueError(f"a kernel of {kernel} is larger than its padded input of {tuple(axes)}")
    layer.note(size)
    if layer is not leading:
        leading.note(size)
    return size
