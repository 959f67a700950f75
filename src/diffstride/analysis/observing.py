"""Run a network once and see all that happens in it: the one runner, and the one tracer.

Whoever wants to know something of a network writes an :class:`Observer` of what it has to see. The
network is run in eval mode and left as it was.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from diffstride.analysis.restoring import (
    eval_mode,
    replaced_tensors,
    unchanged,
    uncompiled,
)


@dataclass(frozen=True)
class Operation:
    """A call of a function or method of torch; reading the shape of a tensor is one too."""

    name: str
    args: Sequence[Any]
    kwargs: dict[str, Any]
    result: Any

    @property
    def inputs(self) -> list[Tensor]:
        return [x for x in tree_leaves((self.args, self.kwargs)) if isinstance(x, Tensor)]

    @property
    def outputs(self) -> list[Tensor]:
        return [x for x in tree_leaves(self.result) if isinstance(x, Tensor)]


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
        self._running: list[str] = []

    @property
    def name(self) -> str:
        """The name of the innermost module that is running."""
        return self._running[-1] if self._running else ""

    def enter(self, layer: nn.Module, x: Tensor) -> None:
        self._running.append(self._names[layer])

    def leave(self, layer: nn.Module, x: Tensor, output: Any) -> None:
        self._running.pop()


class _Operations(TorchFunctionMode):
    """Tells observers of operations, but not of those that they do themselves."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        super().__init__()
        self.observers = observers
        self.observing = False

    @contextmanager
    def unseen(self) -> Iterator[None]:
        before, self.observing = self.observing, True
        try:
            yield
        finally:
            self.observing = before

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        if not self.observing:
            name = getattr(function, "__name__", str(function))
            for observer in self.observers:
                observer.operation(Operation(name, args, kwargs or {}, result))
        return result


def observe(
    model: nn.Module,
    x: Tensor,
    *observers: Observer,
    layers: Collection[nn.Module] | None = None,
) -> Any:
    """Run a network on an input, as eval mode does, and return its output.

    Args:
        model: it keeps its modes, tensors and hooks.
        x: a batch.
        observers: who sees what happens, in this order.
        layers: the modules that observers are told of; all of them unless given.
    """
    with unchanged(model):
        return _observe(model, x, observers, list(model.modules() if layers is None else layers))


def _observe(
    model: nn.Module, x: Tensor, observers: Sequence[Observer], layers: Collection[nn.Module]
) -> Any:
    """Run a network as :func:`observe` does; what it does to itself is not undone."""
    operations = _Operations(observers)
    sees_operations = any(type(o).operation is not Observer.operation for o in observers)

    def enter(layer: nn.Module, args: Any, kwargs: Any) -> None:
        with operations.unseen():
            for observer in observers:
                observer.enter(layer, first_tensor(args, kwargs))

    def leave(layer: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        with operations.unseen():
            for observer in observers:
                observer.leave(layer, first_tensor(args, kwargs), output)

    handles = [
        handle
        for layer in layers
        for handle in (
            layer.register_forward_pre_hook(enter, with_kwargs=True),
            layer.register_forward_hook(leave, with_kwargs=True),
        )
    ]
    try:
        with torch.no_grad(), eval_mode(model), uncompiled(model):
            x = x.clone()
            for observer in observers:
                observer.begin(x)
            with operations if sees_operations else nullcontext():
                return model(x)
    finally:
        for handle in handles:
            handle.remove()


def observe_example(
    model: nn.Module,
    input_size: Sequence[int],
    make: Callable[[], Observer],
    layers: Collection[nn.Module],
) -> None:
    """Run one example of a size through a network, for observers that need no values.

    Tensors have shapes and no values (the meta device of torch), so that nothing is computed. A
    network that can't run like that, because it makes tensors of its own or looks at values, is run
    again with an input of zeros: ``make`` makes an observer for each pass.
    """
    tensors = [*model.parameters(), *model.buffers()]
    like = next((x for x in tensors if x.is_floating_point()), torch.zeros(()))
    try:
        with replaced_tensors(model, lambda x: x.detach().to("meta")):
            x = torch.empty(1, *input_size, device="meta", dtype=like.dtype)
            _observe(model, x, [make()], layers)
    except Exception:  # whatever a network says of tensors without values
        x = torch.zeros(1, *input_size, device=like.device, dtype=like.dtype)
        observe(model, x, make(), layers=layers)


def first_tensor(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return what a layer was called with, by place or by name; None if that is no tensor."""
    return next((x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)), None)


def tensors_in(values: Any) -> list[Tensor]:
    """Return all tensors in what a network takes or returns, objects that hold some included."""
    found = []
    for leaf in tree_leaves(values):
        if isinstance(leaf, Tensor):
            found.append(leaf)
        elif hasattr(leaf, "__dict__") and not isinstance(leaf, nn.Module | type):
            found += [x for x in tree_leaves(vars(leaf)) if isinstance(x, Tensor)]
    return found
