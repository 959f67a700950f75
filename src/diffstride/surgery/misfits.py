"""Whether maps that lie side by side show the same part of the input, whatever their sizes are.

What goes up by a function, and is then padded or cropped to its skip, has the size of the skip at
any strides. But only where nothing was padded or cropped does it show the same part of the input.
Resizing does not change which part a map shows, and a border that is added or taken away does.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from diffstride.analysis.observing import Observer, Operation, Running, tensors_in
from diffstride.layers.converted import Converted
from diffstride.layers.resizer import Resizer
from diffstride.layers.returning import Returning
from diffstride.surgery.map_sizes import Resizing, Size, has_stride, is_larger, steps_of
from diffstride.surgery.ways_up import INSTEAD
from diffstride.text import times

BORDERS = ("pad", "__getitem__", "narrow")
"""Operations that add or take away samples at a border, and leave those in between as they are."""

Shares = tuple[float, ...]


@dataclass(frozen=True)
class Raised:
    """Where a map was last made larger by an operation that follows no converted layer."""

    by: Resizing
    shares: Shares
    """What part of the input it showed then."""
    factors: Shares
    """How many samples are made of one: fewer than that may be lost where sizes are rounded."""

    def differ(self, some: Shares, others: Shares, size: Size) -> bool:
        """Return whether two parts differ by more samples of a map than are lost by rounding."""
        axes = zip(some, others, size, self.factors, strict=True)
        return any(k > 1 and abs(a - b) * n > (k - 0.5) * a for a, b, n, k in axes)


@dataclass(frozen=True)
class Shown:
    """What is known of a tensor that was computed from the input."""

    shares: Shares
    """What part of the input it shows along each axis: 1 for all, more with a padding around it."""
    size: Size
    """Its own, or that of the last map that it was computed from."""
    sites: frozenset[str] = frozenset()
    """The converted layers that it was computed from."""
    raised: Raised | None = None
    channels_last: bool = False

    def axes_of(self, output: Tensor) -> tuple[Size, bool]:
        """Return the size of what an operation makes of this, and whether channels come last."""
        first, last = tuple(output.shape[2:]), tuple(output.shape[1:-1])
        if self.size in (first, last):
            return self.size, self.size != first
        return (last, True) if self.channels_last else (first, False)


class Misfits(Observer):
    """While a converted network runs, notes which maps are put together that do not belong so."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.running = Running(model)
        self.names = {module: name for name, module in model.named_modules()}
        self.shown: Any = WeakIdKeyDictionary()
        self.found: list[Shown] = []
        """Maps that lie beside others, and were padded or cropped for that."""
        self.outputs: list[Shown | None] = []
        self._inside = 0
        """How many converted layers and resizers are running, whose operations do not count."""

    def error(self, initial: "Misfits | None" = None) -> str:
        """Return what to say if something is made to fit where it does not belong, or nothing.

        What comes out has to show the same part of the input as at the initial strides, if what
        did then is given.
        """
        found = [*self.found]
        for one, other in zip(self.outputs, initial.outputs if initial else (), strict=False):
            if one and other and _is_misfit(one, other):
                found.append(one)
        if not found or not (up := found[0].raised):
            return ""
        return (
            f"{up.by} makes maps larger by a factor, and follows no layer: they are padded or "
            f"cropped to {times(found[0].size)}, where they do not belong, and nobody would notice "
            f"while strides learn. {INSTEAD}; or leave out what comes before it with "
            f"exclude={sorted(up.by.sites)}"
        )

    def begin(self, x: Tensor) -> None:
        size = tuple(x.shape[2:])
        self.axes = len(size)
        self.shown[x] = Shown((1.0,) * self.axes, size)

    def enter(self, layer: nn.Module, x: Tensor) -> None:
        self.running.enter(layer, x)
        self._inside += isinstance(layer, Converted | Resizer)

    def leave(self, layer: nn.Module, x: Tensor, output: Any) -> None:
        self.running.leave(layer, x, output)
        self._inside -= isinstance(layer, Converted | Resizer)
        if layer is self.model:
            self.outputs = [self.shown.get(made) for made in tensors_in(output)]
        if not isinstance(layer, Converted | Resizer | Returning) or x not in self.shown:
            return
        # All of these resize, which shows the same part in more or fewer samples.
        name = {self.names[layer]} if isinstance(layer, Converted) else set()
        before = self.shown[x]
        raised = None if isinstance(layer, Returning) else before.raised
        for made in tensors_in(output):
            size = tuple(made.shape[2:]) if made.ndim == self.axes + 2 else before.size
            self.shown[made] = Shown(before.shares, size, before.sites | name, raised)

    def operation(self, operation: Operation) -> None:
        given = [self.shown[x] for x in operation.inputs if x in self.shown]
        if self._inside or not given:
            return
        sites = frozenset().union(*(x.sites for x in given))
        for output in operation.outputs:
            if output.ndim != self.axes + 2:
                self.shown[output] = replace(given[0], sites=sites)
                continue
            size, channels_last = given[0].axes_of(output)
            beside = [x for x in given if x.size == size]
            pairs = itertools.permutations(beside, 2)
            self.found += [one for one, other in pairs if _is_misfit(one, other)]
            # What lies beside a map that was not made larger has its place from then on.
            before = next((x for x in beside if x.raised is None), (*beside, *given)[0])
            before = replace(before, sites=sites, channels_last=channels_last)
            self.shown[output] = self._changed(operation, before, size)

    def _changed(self, operation: Operation, before: Shown, size: Size) -> Shown:
        """Return what is known of a map of some size that an operation makes of another map."""
        if size == before.size:
            return before
        shares, raised = before.shares, before.raised
        ratios = tuple(m / max(n, 1) for n, m in zip(before.size, size, strict=True))
        steps = steps_of(operation)
        if steps is not None:  # its own padding, or what it lacks, besides the stride
            each = steps if isinstance(steps, list | tuple) else [steps]
            each = each if len(each) == len(size) else [each[0]] * len(size)
            shares = _times(shares, _times(ratios, each))
        elif operation.name in BORDERS and not has_stride(operation, before.size, size):
            shares = _times(shares, ratios)
        elif is_larger(before.size, size) and before.sites:
            by = Resizing(self.running.name, operation.name, before.size, size, before.sites)
            factors = tuple(max(1.0, ratio) for ratio in ratios)
            raised = Raised(by, shares, _times(raised.factors, factors) if raised else factors)
        return replace(before, shares=shares, size=size, raised=raised)


def _is_misfit(one: Shown, other: Shown) -> bool:
    """Return whether a map was padded or cropped since it went up, to where it does not belong."""
    up = one.raised
    return up is not None and all(
        up.differ(one.shares, part, one.size) for part in (up.shares, other.shares)
    )


def _times(some: Sequence[float], others: Sequence[float]) -> Shares:
    return tuple(a * b for a, b in zip(some, others, strict=True))
