"""Layers whose stride is a parameter."""

import contextlib
import functools
import inspect
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from diffstride.core import arguments
from diffstride.core.rule import AxisPlan, Rule, held_in, plan
from diffstride.core.tracing import shape_of
from diffstride.layers.resizer import Resizer, Size


class Reading(NamedTuple):
    """The values that a layer last read from its parameter, and what they are in its range."""

    parameter: Tensor | None  # none that is computed from others: that can't be copied
    version: int
    values: tuple[float, ...]
    strides: tuple[float, ...]


class DiffStrideNd(Resizer):
    """Downsampling with a learnable stride, on any number of axes.

    This is :func:`diffstride.functional.diff_stride` with a parameter that has a range: in training
    mode it is projected to [``min_stride``, ``max_stride``] before use, and written only when it
    lies outside; in eval mode it is never written. The range does not depend on the input, so
    data-parallel replicas can't drift apart.

    One layer object may be used in several branches, whose sizes then always agree.
    """

    way = "down"
    """Where the stride leads, as a :class:`Rule` has it."""

    def __init__(
        self,
        stride: float | Sequence[float] = 2.0,
        *,
        smoothness: float | Sequence[float] = 4.0,
        shared: bool = False,
        learnable: bool = True,
        crop: bool = True,
        output_size: int | Sequence[int] | None = None,
        size_multiple: int = 1,
        min_stride: float = 1.0,
        max_stride: float | None = None,
        norm: str = "ortho",
        convention: str = "paper",
        window: str = "ramp",
        basis: str = "fourier",
        path: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        initial = arguments.per_axis(stride, self.axes, "stride")
        arguments.check_strides(initial)
        if output_size is not None:
            output_size = arguments.whole_numbers(output_size, self.axes)
        sizes = (crop, output_size, size_multiple)
        self.rule = Rule(smoothness, *sizes, norm, convention, window, basis, path, self.way)
        self.rule.widths(self.axes)  # or an error that says how many axes there are
        arguments.check_strides((min_stride,), "min_stride")
        highest = math.inf if max_stride is None else max_stride
        if not highest >= min_stride:
            raise ValueError(f"max_stride must be at least min_stride={min_stride}, got {highest}")
        if not all(min_stride <= s <= highest for s in initial):
            raise ValueError(
                f"stride must be from min_stride to max_stride, got {initial} and "
                f"[{min_stride}, {highest}]"
            )
        if shared and len(set(initial)) > 1:
            raise ValueError(f"stride must be the same on all axes when shared=True, got {initial}")
        self.shared = shared
        self.min_stride, self.max_stride = min_stride, max_stride
        self._initial = initial
        values = torch.empty(1 if shared else self.axes, device=device, dtype=dtype)
        self.stride = nn.Parameter(values, requires_grad=learnable)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the stride back to what the layer was made with."""
        values = self._initial[: self.stride.numel()]
        initial = torch.tensor(values, dtype=torch.float64, device="cpu")
        with torch.no_grad():
            self.stride.copy_(initial)
        values = tuple(initial.to(self.stride.dtype).tolist())  # without reading an accelerator
        self._reading = Reading(self.stride, -1, values, self.in_range(values))

    @property
    def stride_owner(self) -> "DiffStrideNd":
        return self

    @property
    def strides(self) -> tuple[float, ...]:
        """The strides in use, one per axis: the parameter's values, within the layer's range."""
        return self._read().strides

    def differentiable_strides(self) -> Tensor:
        """Return one stride per axis within the range; the gradient passes straight through."""
        stride: Tensor = self.stride
        if not (self.training and stride.is_leaf):  # else it was projected already
            stride = held_in(stride, self.min_stride, self.max_stride)
        return stride.expand(self.axes)

    def scale_stride(self, factor: float) -> None:
        strides = self.scaled_strides(factor)
        self._initial = tuple(max(1.0, factor * stride) for stride in self._initial)
        if self.min_stride > 1:  # else it is what any input allows
            self.min_stride = max(1.0, factor * self.min_stride)
        self.max_stride = None if self.max_stride is None else factor * self.max_stride
        with torch.no_grad():
            self.stride.copy_(torch.tensor(strides[: self.stride.numel()], dtype=torch.float64))
        self._refresh()

    def check(self, x: Tensor) -> None:
        super().check(x)
        if self.stride.is_meta and not x.is_meta:
            raise ValueError(
                "the stride is on the meta device and has no value, but the input is not: "
                "use to_empty() and load a state, or reset_parameters()"
            )

    def prepare(self, size: Sequence[int]) -> tuple[int, ...] | None:
        if not torch.compiler.is_compiling():
            return None
        from diffstride.layers import outside_graphs  # which loads the compiler

        return outside_graphs.output_size(self, size)

    def plans(self, size: Size, device: torch.device, known: Size | None = None) -> list[AxisPlan]:
        """Project the stride in training mode, and return what to do to each axis."""
        if torch.compiler.is_compiling():
            kept = known if self.rule.crop else None
            return plan(self.rule, size, self.differentiable_strides(), device, output_size=kept)
        numbers = self.project()
        if self.stride.is_meta:
            return plan(self.rule, size, numbers, device)
        return plan(self.rule, size, self.differentiable_strides(), device, numbers=numbers)

    def project(self) -> tuple[float, ...]:
        """Return the strides, to whose range the parameter is projected if the layer learns."""
        _, _, values, strides = self._read()
        arguments.check_strides(strides)
        # Not written without need: a write between the two branches that share a layer would
        # invalidate the graph of the first. One that is computed from others can't be written.
        if self.training and self.stride.is_leaf and strides[: len(values)] != values:
            with torch.no_grad():
                self.stride.clamp_(self.min_stride, self.max_stride)
        return strides

    def in_range(self, values: Sequence[float]) -> tuple[float, ...]:
        """Return what ``torch.clamp`` makes of these values, one for each axis."""
        low, high = _in_precision(self.min_stride, self.max_stride, self.stride.dtype)
        clamped = tuple(min(max(value, low), high) for value in values)
        return clamped * self.axes if self.shared else clamped

    def _read(self) -> Reading:
        """Return the parameter's values, read once an update where an accelerator would wait."""
        stride, last = self.stride, self._reading
        if stride.is_meta:  # it has a shape, but no value: plan with the last one known
            return last
        parameter, free = stride if stride.is_leaf else None, _reads_are_free(stride.device)
        # It counts every change in place but those made through ``.data``.
        version = -1 if stride.is_inference() else stride._version
        if free or last.parameter is not stride or not last.version == version >= 0:
            values = arguments.per_axis(stride, shape_of(stride)[0], "stride")
            reading = Reading(parameter, version, values, self.in_range(values))
            if not free or last.parameter is not parameter or last[2:] != reading[2:]:
                self._reading = reading
        return self._reading

    def _refresh(self) -> None:
        """Read the stride for whole graphs in eval mode, which can't read it by themselves."""
        with contextlib.suppress(TypeError):  # one without values, as the compiler has them
            self._read()

    def train(self, mode: bool = True) -> "DiffStrideNd":
        super().train(mode)
        self._refresh()
        return self

    def _load_from_state_dict(self, *arguments: Any) -> None:
        super()._load_from_state_dict(*arguments)
        self._refresh()

    def _apply(self, *arguments: Any, **options: Any) -> "DiffStrideNd":
        super()._apply(*arguments, **options)  # type: ignore[no-untyped-call]
        # Another precision rounds a stride, and another device has other memory.
        self._reading = self._reading._replace(version=-1)
        self._refresh()
        return self

    def extra_repr(self) -> str:
        strides = ", ".join(f"{s:.4g}" for s in self.strides)
        smoothness = f"{self.smoothness!r}".removesuffix(".0")
        text = f"stride=({strides}), learnable={self.stride.requires_grad}, smoothness={smoothness}"
        for name, argument in inspect.signature(DiffStrideNd).parameters.items():
            value = getattr(self.rule if hasattr(self.rule, name) else self, name, None)
            if name not in ("stride", "smoothness", "learnable") and value != argument.default:
                text += f", {name}={value!r}"
        return text


@functools.cache
def _in_precision(lowest: float, highest: float | None, dtype: torch.dtype) -> tuple[float, ...]:
    """Return the range of a stride, in the precision that it has itself."""
    bounds = [lowest, math.inf if highest is None else highest]
    return tuple(torch.tensor(bounds, dtype=dtype, device="cpu").tolist())


def _reads_are_free(device: torch.device) -> bool:
    return device.type == "cpu"


class DiffStride1d(DiffStrideNd):
    """Downsampling along one axis, for signals; arguments as for :class:`DiffStride2d`.

    Input (batch, channels, N) or (channels, N), output the same with ⌊N/S + 2R⌋ samples.

    >>> DiffStride1d(stride=4.0)(torch.rand(8, 16, 100)).shape
    torch.Size([8, 16, 33])
    """

    axes = 1


class DiffStride2d(DiffStrideNd):
    """Downsampling with a learnable stride along each of two axes, for images and spectrograms.

    Input (batch, channels, H, W) or (channels, H, W), output the same with ⌊H/S + 2R⌋ × ⌊W/S + 2R⌋
    samples. What is computed, in what order: :func:`diffstride.functional.diff_stride`.

    Args:
        stride: the initial stride, one number or one per axis, at least 1.
        smoothness: R, over how many frequencies the window falls, one number or one per axis. The
            stride learns from these: from 2 on (1 with ``convention="symmetric"``) at least one is
            always kept, and with 0 the stride stays where it is.
        shared: one stride for all axes instead of one each.
        learnable: False makes the stride a constant (``requires_grad=False``).
        crop: False keeps the size of the input and only filters.
        output_size: the size to come out whatever the stride, at most that of the input, for
            compilers and hardware that need it to stay; the window still learns.
        size_multiple: rounds the kept length up to a multiple of this, at most to the input's.
        min_stride, max_stride: the range the stride is held in while training.
        norm: ``"ortho"``, ``"forward"`` or ``"backward"``: by how much a constant grows.
        convention: ``"paper"``: the last axis keeps one frequency more than the others;
            ``"symmetric"``: it does not; ``"tight"``: windows end at the cut-off, and an axis keeps
            ⌊N/S⌋ samples.
        window: the shape of the fall; :func:`diffstride.functional.diff_stride` has the names.
        basis: the functions of which the lowest are kept; the names are there too.
        path: ``"auto"``, ``"operator"`` or ``"fft"``: how it is computed, not what.
        device, dtype: of the parameter.

    Raises:
        ValueError: for an argument out of range; the message names it.

    Attributes:
        stride: the parameter, with one element per axis, or one in all when shared.

    >>> layer = DiffStride2d(stride=2.0)
    >>> layer
    DiffStride2d(stride=(2, 2), learnable=True, smoothness=4)
    >>> layer.output_size((32, 32))
    (24, 24)
    >>> layer(torch.rand(8, 16, 32, 32)).mean().backward()
    >>> layer.stride.grad.shape
    torch.Size([2])
    """

    axes = 2


class DiffStride3d(DiffStrideNd):
    """Downsampling along three axes, for volumes and video; arguments as for :class:`DiffStride2d`.

    Input (batch, channels, D, H, W) or (channels, D, H, W).

    >>> DiffStride3d(stride=(1.0, 2.0, 2.0), smoothness=2.0)(torch.rand(2, 4, 8, 16, 16)).shape
    torch.Size([2, 4, 8, 12, 12])
    """

    axes = 3
