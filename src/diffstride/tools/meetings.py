"""Which layers of a network must agree on the size of what they make, found by running it once."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves


class Grid:
    """A size in the network: all tensors whose sizes follow from each other without a change."""

    def __init__(self, size: tuple[int, ...], maker: str, parent: "Grid | None" = None) -> None:
        self.size = size
        self.makers = [maker]
        """What made it: a site by its name, or the input or an operation in brackets."""
        self.parent = parent
        """What an operation, not a site, made it of."""
        self._same: Grid | None = None

    def found(self) -> "Grid":
        """The one that stands for all that are the same."""
        grid = self
        while grid._same is not None:
            grid = grid._same
        return grid

    def made_from(self) -> Iterator["Grid"]:
        """What this was made of without a site, and what that was made of, and so on."""
        grid = self.found().parent
        while grid is not None:
            yield grid.found()
            grid = grid.found().parent

    def join(self, other: "Grid") -> None:
        """Both must stay of one size from now on."""
        one, two = self.found(), other.found()
        if one is two:
            return
        two._same = one
        one.makers += two.makers
        # Both were made without a site: where what they are made of has one size as well, it
        # must have one whatever strides are learned.
        if one.parent is not None and two.parent is not None:
            if one.parent.found().size == two.parent.found().size:
                one.parent.join(two.parent)


class Follow(TorchFunctionMode):
    """While a network runs, notes on which grid every tensor lies.

    A tensor lies on the grid of what it is computed from if it has its size; two of one size that
    are added, multiplied or put side by side are joined. Sites, and what changes the size
    otherwise, make new grids.
    """

    def __init__(self, axes: int) -> None:
        super().__init__()
        self.axes = axes
        self.grids: dict[int, Grid] = {}
        self.tensors: list[Tensor] = []
        """Kept alive: the number of a tensor that is gone is given to another."""
        self.inside = 0

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if not self.inside:
            inputs = [x for x in tree_leaves((args, kwargs)) if id(x) in self.grids]
            if inputs:
                name = getattr(func, "__name__", str(func))
                for output in tree_leaves(result):
                    if isinstance(output, Tensor):
                        self.place(output, inputs, f"[{name}]")
        return result

    def place(self, output: Tensor, inputs: list[Tensor], maker: str) -> None:
        if output.ndim != self.axes + 2:
            return
        size = tuple(output.shape[2:])
        grids = [self.grids[id(x)].found() for x in inputs]
        same = [grid for grid in grids if grid.size == size]
        if not same:  # padded and then shortened, or permuted there and back
            same = [grid for x in grids for grid in x.made_from() if grid.size == size][:1]
        if same:
            for other in same[1:]:
                same[0].join(other)
            self.put(output, same[0])
        elif any(n > 1 for n in size):  # the mean over everything is of no size
            self.put(output, Grid(size, maker, parent=grids[0]))

    def put(self, tensor: Tensor, grid: Grid) -> None:
        self.grids[id(tensor)] = grid
        self.tensors.append(tensor)


def find_grids(
    model: nn.Module, example: Tensor, sites: Mapping[str, nn.Module]
) -> list[tuple[str, Grid, Grid]]:
    """Every use of a site in the order they run: its name, and the grids it reads and makes."""
    follow = Follow(example.ndim - 2)
    names = {module: name for name, module in sites.items()}
    uses: list[tuple[str, Grid, Grid]] = []

    def enter(module: nn.Module, args: Any) -> None:
        follow.inside += 1

    def leave(module: nn.Module, args: Any, output: Tensor) -> None:
        follow.inside -= 1
        name = names[module]
        read = follow.grids.get(id(args[0])) or Grid(tuple(args[0].shape[2:]), "[input]")
        made = Grid(tuple(output.shape[2:]), name)
        follow.put(output, made)
        uses.append((name, read, made))

    hooks = [
        hook
        for module in names
        for hook in (
            module.register_forward_pre_hook(enter),
            module.register_forward_hook(leave),
        )
    ]
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad(), follow:
            example = example.clone()
            follow.put(example, Grid(tuple(example.shape[2:]), "[input]"))
            model(example)
    finally:
        for hook in hooks:
            hook.remove()
        model.train(was_training)
    return uses
