"""Run a network once, leave it as it was, and show each :class:`Observer` what happens in it."""

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from diffstride.analysis.restoring import restored


@dataclass(frozen=True)
class Operation:
    """A call of a function or method of torch; reading the shape of a tensor is one too."""

    name: str
    args: Sequence[Any]
    kwargs: dict[str, Any]
    result: Any

    @property
    def inputs(self) -> list[Tensor]:
        return _tensors((self.args, self.kwargs))

    @property
    def outputs(self) -> list[Tensor]:
        return _tensors(self.result)

    def argument(self, name: str, place: int) -> Any:
        """Return an argument that was given by its place or its name; None if it was not."""
        return self.args[place] if len(self.args) > place else self.kwargs.get(name)


class Observer:
    """Sees what happens while a network runs; does nothing unless a subclass does."""

    def begin(self, x: Tensor) -> None:
        """Called with the input of the network."""

    def enter(self, layer: nn.Module, x: Tensor) -> None:
        """Called before a layer, with its first tensor (None if it takes none)."""

    def leave(self, layer: nn.Module, x: Tensor, output: Any) -> None:
        """Called after a layer."""

    def operation(self, operation: Operation) -> None:
        """Called after every operation, those within layers included."""


class Running(Observer):
    """Knows which module is running: what fails, fails there."""

    def __init__(self, model: nn.Module) -> None:
        self._names = {module: name for name, module in model.named_modules()}
        self._running = [""]

    @property
    def name(self) -> str:
        """The name of the innermost module that is running."""
        return self._running[-1]

    def enter(self, layer: nn.Module, x: Tensor) -> None:
        self._running.append(self._names[layer])

    def leave(self, layer: nn.Module, x: Tensor, output: Any) -> None:
        self._running.pop()


class _Operations(TorchFunctionMode):
    """Shows operations to observers."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        super().__init__()
        self.observers = observers

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        name = getattr(function, "__name__", str(function))
        for observer in self.observers:
            observer.operation(Operation(name, args, kwargs or {}, result))
        return result


def cloned(tensor: Tensor) -> Tensor:
    # Parameters can't change in eval mode, all else might.
    return tensor if isinstance(tensor, nn.Parameter) else tensor.clone()


def observe(
    model: nn.Module,
    x: Tensor,
    *observers: Observer,
    layers: Collection[nn.Module] | None = None,
    new: Callable[[Tensor], Tensor] = cloned,
    mode: TorchFunctionMode | None = None,
) -> Any:
    """Run a network on a batch, as eval mode does, and return its output.

    Observers see ``layers``, or every module, in this order; ``new`` replaces tensors meanwhile;
    ``mode`` is given every operation before it is carried out.
    """

    def tell(layer: nn.Module, args: Any, kwargs: Any, *output: Any) -> None:
        first = next(iter(_tensors((args, kwargs))), None)
        with torch._C.DisableTorchFunction():  # what observers do is no operation of the network
            for observer in observers:
                method: Any = observer.leave if output else observer.enter
                method(layer, first, *output)

    tracing = [o for o in observers if type(o).operation is not Observer.operation]
    with restored(model, new), torch.no_grad(), ExitStack() as hooks:
        for layer in list(model.modules() if layers is None else layers):
            hooks.enter_context(layer.register_forward_pre_hook(tell, with_kwargs=True))
            hooks.enter_context(layer.register_forward_hook(tell, with_kwargs=True))
        x = x.clone()
        for observer in observers:
            observer.begin(x)
        with mode or nullcontext(), _Operations(tracing) if tracing else nullcontext():
            return model(x)


def _tensors(values: Any) -> list[Tensor]:
    return [x for x in tree_leaves(values) if isinstance(x, Tensor)]


def tensors_in(values: Any) -> list[Tensor]:
    """Return all tensors in what a network takes or returns, objects that hold some included."""
    leaves = []
    for leaf in tree_leaves(values):
        holds = hasattr(leaf, "__dict__") and not isinstance(leaf, Tensor | nn.Module | type)
        leaves += tree_leaves(vars(leaf)) if holds else [leaf]
    return [x for x in leaves if isinstance(x, Tensor)]
