"""All that a network holds, also what torch does not know of: in lists, dictionaries and more."""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor, nn

CONTAINERS = (dict, list, set, deque)
_FIXED = (tuple, frozenset)


def held(model: nn.Module) -> Iterator[tuple[nn.Module, Any]]:
    """Every module, tensor and container in a network, each once and with the module that has it.

    Looked for in the attributes of modules and of their classes, and in dictionaries, lists, sets,
    queues and tuples there, at any depth. The dictionary of a module's attributes is a container
    itself, as are those in which torch keeps parameters, parts and hooks.
    """
    seen: dict[int, Any] = {}  # with what they are numbers of, lest they are given again
    waiting: list[tuple[nn.Module, Any]] = [(model, model)]
    while waiting:
        owner, value = waiting.pop()
        if not isinstance(value, (nn.Module, Tensor, *CONTAINERS, *_FIXED)) or id(value) in seen:
            continue
        seen[id(value)] = value
        if isinstance(value, nn.Module):
            owner, parts = value, [vars(value), *_of_class(type(value))]
        else:
            parts = [] if isinstance(value, Tensor) else contents(value)
        yield owner, value
        waiting += [(owner, part) for part in reversed(parts)]


def held_modules(model: nn.Module) -> list[nn.Module]:
    """Every module in a network, also those that are no registered part of it."""
    return [value for _, value in held(model) if isinstance(value, nn.Module)]


def _of_class(kind: type[nn.Module]) -> list[Any]:
    """Containers that all modules of a class have in common."""
    own = kind.__mro__[: kind.__mro__.index(nn.Module)]
    return [value for c in own for value in vars(c).values() if isinstance(value, CONTAINERS)]


def contents(container: Any) -> list[Any]:
    """What is in a container, of a dictionary the values."""
    return list(container.values() if isinstance(container, dict) else container)


class Saved:
    """What was in a container, to be put back."""

    def __init__(self, container: Any) -> None:
        self.container = container
        self.keys = _keys(container)
        self.values = contents(container)

    def replace(self, new: Callable[[Tensor], Tensor]) -> None:
        """Have other tensors in the container."""
        self._fill([_replaced(value, new) for value in self.values])

    def put_back(self) -> None:
        self._fill(self.values)

    def _fill(self, values: list[Any]) -> None:
        # By the methods of Python's own classes: a subclass may refuse, or do something else too.
        now = self.container
        if _same(contents(now), values) and _same(_keys(now), self.keys):
            return
        if isinstance(now, dict):
            kind: Any = OrderedDict if isinstance(now, OrderedDict) else dict
            kind.clear(now)
            for key, value in zip(self.keys, values, strict=True):
                kind.__setitem__(now, key, value)
        elif isinstance(now, list):
            list.__setitem__(now, slice(None), values)
        elif isinstance(now, set):
            set.clear(now)
            set.update(now, values)
        else:
            deque.clear(now)
            deque.extend(now, values)


def _keys(container: Any) -> list[Any]:
    return list(container) if isinstance(container, dict) else []


def _same(some: list[Any], others: list[Any]) -> bool:
    return len(some) == len(others) and all(a is b for a, b in zip(some, others, strict=True))


def _replaced(value: Any, new: Callable[[Tensor], Tensor]) -> Any:
    """A tensor, or a tuple of tensors, with others in their place; all else as it is."""
    if isinstance(value, Tensor):
        return new(value)
    if not isinstance(value, _FIXED):
        return value
    parts = [_replaced(part, new) for part in value]
    kind: Any = type(value)
    if _same(parts, list(value)):
        return value
    if hasattr(kind, "_make"):
        return kind._make(parts)
    # Whoever derived another class knows how it is made; with its tensors the network runs still.
    known = kind in _FIXED or kind.__module__ == "torch.return_types"
    return kind(parts) if known else value
