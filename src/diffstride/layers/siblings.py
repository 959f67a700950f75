"""Converted convolutions that read one map and share a stride, run as one.

A block often has two: one in its main branch, and one in its shortcut. Most of what they take,
where taps come first or on the spectrum, is to downsample what both read. So the first of them that
runs computes all, with the weights side by side, and the others find what they are to return.

Nobody can tell. What waits is returned only to who reads the very tensor that it was computed from,
while no weight, no stride and no option has changed; otherwise it is computed again. (What is
written through ``.data`` is the one change that torch does not count.) Where something looks on, or
a convolution has no weight of its own at hand, each is run by itself.
"""

import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from diffstride.core.conv import cheapest_order_of, convolve, work_of
from diffstride.core.resample import is_channels_last
from diffstride.core.rule import AxisPlan
from diffstride.core.tracing import shape_of
from diffstride.layers.joined import (
    in_cheapest_order,
    is_layer_seen,
    is_seen,
    note_size,
    options_of,
)
from diffstride.layers.resizer import Size

if TYPE_CHECKING:
    from diffstride.layers.converted import Converted

SHARING = ("taps", "spectral")
"""The orders in which convolutions of one map have work in common."""
_RANGE = ("min_stride", "max_stride")
PATIENCE = 3
"""How often in a row something may be computed that nobody comes for."""


class Waiting(NamedTuple):
    """What one sibling has computed for another."""

    read: weakref.ref[Tensor]
    moment: "Moment"
    made: Tensor


class Moment(NamedTuple):
    """All that what a convolution makes of a tensor depends on besides, as it is now."""

    tensors: list[Tensor]
    """Held, so that no other tensor can have the identity of one of them."""
    known: tuple[Any, ...]


class Siblings:
    """Convolutions of one map that share a stride; each of them refers to this."""

    def __init__(self) -> None:
        self.members: list[Any] = []
        self._missed = 0
        self._of_threads = threading.local()

    def add(self, convolution: "Converted") -> None:
        """Have a convolution computed with the others from now on."""
        self.members.append(convolution)
        convolution.siblings = self

    def __reduce__(self) -> Any:
        # A copy has nothing waiting. It is made first, because its members refer to it.
        return Siblings, (), {"members": self.members}

    @property
    def _waiting(self) -> "dict[Converted, Waiting]":
        """What this thread has computed that nobody has come for yet."""
        return self._of_threads.__dict__.setdefault("waiting", {})  # type: ignore[no-any-return]

    def run(self, convolution: Any, x: Tensor) -> Tensor:
        """Return what a convolution and its downsampling make of ``x``."""
        layer, waiting = convolution.downsample, self._waiting
        if torch._C._are_functorch_transforms_active():
            return in_cheapest_order(convolution, layer, x)
        found = waiting.pop(convolution, None)
        if found and found.read() is x and found.moment.known == _moment(convolution, x).known:
            self._missed = 0
            note_size(convolution, layer, x)
            return found.made
        if waiting or found:
            self._missed += 1
            waiting.clear()
        beside = [other for other in self.members if other is not convolution]
        if self._missed >= PATIENCE or not self._can_share(convolution, beside, x):
            return in_cheapest_order(convolution, layer, x)
        size = note_size(convolution, layer, x)
        every = [convolution, *beside]
        outputs = sum(one.out_channels for one in every)
        sizes = shape_of(x)[-layer.axes :], size, layer.leading.output_size(size)
        order = cheapest_order_of(convolution, layer.rule, convolution.in_channels, *sizes, outputs)
        if order not in SHARING:
            return in_cheapest_order(convolution, layer, x)
        plans = layer.leading.plans(size, x.device)  # first of all: it may bring a stride in range
        moments = [_moment(other, x) for other in beside]
        first, *others = _side_by_side(every, x, plans, order, waiting)
        for other, made, moment in zip(beside, others, moments, strict=True):
            waiting[other] = Waiting(weakref.ref(x), moment, made)
        return first

    def _can_share(self, convolution: Any, beside: Sequence[Any], x: Tensor) -> bool:
        """Return whether the others can be computed now, before they are called."""
        if torch.is_inference_mode_enabled():
            return False
        if _is_kept_watched():
            return False
        if x.is_inference() or 0 in shape_of(x) or not _is_at_hand(convolution, x):
            return False
        if is_seen(convolution):
            return False
        for other in beside:
            if not other.is_reorderable or other.training != convolution.training:
                return False
            if is_seen(other) or is_layer_seen(other.downsample):
                return False
            if other.downsample.leading is not convolution.downsample.leading:
                return False
            if not _is_at_hand(other, x) or not may_be_siblings(convolution, other):
                return False
            if other.weight.dtype != convolution.weight.dtype:
                return False
        return True

    def work(
        self, convolution: Any, channels: int, size: Size, full: Size, kept: Size
    ) -> tuple[Any, Any]:
        """Return the multiply-accumulates of resampling and of convolving an example.

        What is done for all of them counts for the first.
        """
        rule, sizes = convolution.downsample.rule, (size, full, kept)
        outputs = sum(shape_of(one.weight)[0] for one in self.members)
        order = cheapest_order_of(convolution, rule, channels, *sizes, outputs)
        if order not in SHARING:
            return work_of(convolution, rule, channels, *sizes)
        first, *rest = self.members
        each = [work_of(one, rule, channels, *sizes, order)[1] for one in rest]
        if convolution is not first:
            return 0, each[rest.index(convolution)]
        resampling, convolving = work_of(first, rule, channels, *sizes, order, outputs)
        return resampling, convolving + -sum(each)


def may_be_siblings(one: Any, other: Any) -> bool:
    """Return whether two convolutions of one map do the same, but for their weights."""
    names = ("kernel_size", *options_of(one))
    same = all(getattr(one, name) == getattr(other, name) for name in names)
    biased = (one.bias is None) == (other.bias is None)
    return same and biased and one.groups == 1 and one.in_channels == other.in_channels


def _side_by_side(
    every: Sequence[Any],
    x: Tensor,
    plans: list[AxisPlan],
    order: str,
    waiting: dict[Any, Waiting],
) -> list[Tensor]:
    """Return what each of some convolutions makes, computed as one."""
    first, axes = every[0], len(plans)
    rule = first.downsample.leading.rule
    weight = torch.cat([one.weight for one in every])
    bias = None if first.bias is None else torch.cat([one.bias for one in every])
    y = convolve(x, weight, bias, plans, rule=rule, order=order, **options_of(first))
    if y.requires_grad:
        # After a backward pass, what still waits could not be differentiated again.
        y.register_hook(lambda _: waiting.clear())  # type: ignore[no-untyped-call]
    parts = torch.split(y, [one.out_channels for one in every], dim=-axes - 1)
    if is_channels_last(y, axes):
        return [part.movedim(1, -1).contiguous().movedim(-1, 1) for part in parts]
    return [part.contiguous() for part in parts]


def _is_kept_watched() -> bool:
    """Return whether hooks are called for tensors that are kept for the backward pass.

    Checkpoints have such hooks, and run a part of a network again: it must keep as many tensors as
    before, whether or not another part is run again too.
    """
    try:
        with torch.autograd.graph.disable_saved_tensors_hooks("there are some"):
            return False
    except RuntimeError:
        return True


def _is_at_hand(convolution: Any, x: Tensor) -> bool:
    """Return whether the whole weight is there, and neither computed, nor fetched for each call."""
    own = convolution._parameters
    weight: Any = own.get("weight")
    if weight is None or own.get("bias") is not convolution.bias:
        return False
    whole = (convolution.out_channels, convolution.in_channels, *convolution.kernel_size)
    is_here = bool(weight.device == x.device) and not weight.is_inference()
    return is_here and shape_of(weight) == whole


def _moment(convolution: Any, x: Tensor) -> Moment:
    layer, device = convolution.downsample.leading, x.device.type
    tensors = [convolution.weight, convolution.bias, *layer.parameters()]
    tensors = [t for t in tensors if t is not None]
    versions = [(id(t), t.data_ptr(), t._version, t.requires_grad) for t in tensors]
    versions.append((id(x), 0, x._version, x.requires_grad))
    casting = torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device)
    how = layer.rule, layer.training, torch.is_grad_enabled(), casting, _is_kept_watched()
    options = *options_of(convolution).values(), *(getattr(layer, name, 1) for name in _RANGE)
    return Moment(tensors, (versions, *how, *options))
