"""What a rule for sizes is given: an operation of torch, its arguments and the sizes of tensors."""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves

from diffstride.analysis.lengths import Size
from diffstride.analysis.size_program import Program

Sizes = tuple[Size, ...]


class NoRule(Exception):
    """Raised for an operation whose sizes can't be followed."""


class Call:
    """An operation, with the sizes of its tensors and the numbers it was given."""

    def __init__(self, program: Program, args: Any, kwargs: Any, sizes: Callable[..., Any]) -> None:
        self.program, self.args, self.kwargs, self._sizes = program, args, kwargs, sizes

    def get(self, name: str, place: int, default: Any = None) -> Any:
        """Return an argument that was given by its place or its name."""
        return self.args[place] if len(self.args) > place else self.kwargs.get(name, default)

    def sizes(self, x: Tensor) -> Sizes:
        return self._sizes(x)  # type: ignore[no-any-return]

    @property
    def first(self) -> Sizes:
        """The sizes of the first tensor, whatever it is called."""
        x = next((x for x in tree_leaves((self.args, self.kwargs)) if isinstance(x, Tensor)), None)
        if x is None:
            raise NoRule
        return self.sizes(x)
