"""Layers whose stride is a parameter."""

import contextlib
import functools
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from diffstride.core import arguments, sizes
from diffstride.core.resample import AxisPlan, plan, resample
from diffstride.core.tracing import shape_of
from diffstride.core.window import held_in

STALE = (
    "a stride has changed since this graph was made, and sizes may be others now: call eval() on "
    "the model, and run the compiled model or export the model again"
)


class DiffStrideNd(nn.Module):
    """Downsampling with a learnable stride, on any number of axes.

    The forward pass is :func:`diffstride.functional.diff_stride` with this layer's parameter. What
    the layer adds is the parameter's range: in training mode it is projected to
    [``min_stride``, ``max_stride``] before use, and written only when it lies outside. The range
    does not depend on the input, so data-parallel replicas can't drift apart; and in eval mode the
    parameter is never written.

    One layer object may be used in several branches, whose sizes then always agree.
    """

    axes: ClassVar[int]

    def __init__(
        self,
        stride: float | Sequence[float] = 2.0,
        *,
        smoothness: float = 4.0,
        shared: bool = False,
        learnable: bool = True,
        crop: bool = True,
        output_size: int | Sequence[int] | None = None,
        size_multiple: int = 1,
        min_stride: float = 1.0,
        max_stride: float | None = None,
        norm: str = "ortho",
        convention: str = "paper",
        path: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        initial = arguments.per_axis(stride, self.axes, "stride")
        arguments.check_strides(initial)
        arguments.check_smoothness(smoothness)
        arguments.check_choice(norm, arguments.NORMS, "norm")
        arguments.check_choice(convention, arguments.CONVENTIONS, "convention")
        arguments.check_choice(path, arguments.PATHS, "path")
        arguments.check_static(crop, output_size, size_multiple)
        arguments.check_strides((min_stride,), "min_stride")
        if max_stride is not None and not max_stride >= min_stride:
            raise ValueError(
                f"max_stride must be at least min_stride, got {max_stride} and {min_stride}"
            )
        highest = math.inf if max_stride is None else max_stride
        if not all(min_stride <= s <= highest for s in initial):
            raise ValueError(
                f"stride must be from min_stride to max_stride, "
                f"got {initial} and [{min_stride}, {highest}]"
            )
        if shared and len(set(initial)) > 1:
            raise ValueError(
                f"stride must be the same on every axis when shared=True, got {initial}"
            )
        self.smoothness = smoothness
        self.shared = shared
        self.crop = crop
        self.fixed_size = (
            None if output_size is None else arguments.whole_numbers(output_size, self.axes)
        )
        self.size_multiple = size_multiple
        self.min_stride = min_stride
        self.max_stride = max_stride
        self.norm = norm
        self.convention = convention
        self.path = path
        self._initial = initial
        self.stride = nn.Parameter(
            torch.empty(self._elements, device=device, dtype=dtype),
            requires_grad=learnable,
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the stride back to what the layer was made with."""
        with torch.no_grad():
            initial = torch.tensor(self._initial[: self._elements], dtype=torch.float64)
            self.stride.copy_(initial)
        self._remembered = self._initial
        self._remembered_parameter: list[Tensor] = [self.stride]
        self._seen: tuple[Tensor, int, tuple[float, ...]] | None = None

    @property
    def _elements(self) -> int:
        return 1 if self.shared else self.axes

    @property
    def strides(self) -> tuple[float, ...]:
        """The strides in use, one per axis: the parameter's values, within the layer's range."""
        if self.stride.is_meta:  # a shape, but no value: plan with the last one known
            return self._remembered
        values = self._clamp(self._read())
        return values * self.axes if self.shared else values

    def output_size(self, size: int | Sequence[int]) -> tuple[int, ...]:
        """The spatial size that comes out for an input of spatial size ``size``."""
        return self._output_size(arguments.spatial_size(size, self.axes), self.strides)

    def _output_size(self, size: Sequence[int], strides: tuple[float, ...]) -> tuple[int, ...]:
        if self.fixed_size is not None:
            return sizes.pooled_size(size, None, self.fixed_size)
        return sizes.output_size(
            size,
            strides,
            smoothness=self.smoothness,
            crop=self.crop,
            size_multiple=self.size_multiple,
        )

    def forward(self, x: Tensor) -> Tensor:
        self.check(x)
        size = shape_of(x)[-self.axes :]
        plans = self.plans(size, x.device, planned=self.planned(size))
        return resample(x, plans, path=self.path)

    def check(self, x: Tensor) -> None:
        """Raise a TypeError or ValueError unless the layer can take ``x``."""
        arguments.check_tensor(x)
        arguments.check_rank(x, self.axes)
        if self.stride.is_meta and not x.is_meta:
            raise ValueError(
                "the stride is on the meta device and has no value, but the input is not: "
                "use to_empty() and load a state, or reset_parameters()"
            )

    def planned(self, size: Sequence[int]) -> tuple[int, ...]:
        """Project the parameter to its range in training mode, and say which size follows."""
        if not torch.compiler.is_compiling():
            return self.project(size)
        if self.training and not torch.compiler.is_dynamo_compiling():
            raise RuntimeError(
                "a layer that learns its stride can't be exported in training mode, in which it "
                "may write its stride: call eval() on the model first"
            )
        if not self.training and (self.fixed_size is not None or not self.crop):
            # The size is the same whatever the stride, but that must be a number.
            torch._assert_async(self.in_range().isfinite().all(), "stride must be finite")
            return self._output_size(size, self._remembered)
        from diffstride.layers import outside_graphs

        if self.training or not outside_graphs.is_graph_whole():
            return outside_graphs.project(self, size)  # type: ignore[no-any-return]
        # A graph can't read the stride: it is the one last seen, and the graph checks that.
        known = self._last_seen()
        same = self.in_range().expand(self.axes) == self.stride.new_tensor(known)
        torch._assert_async(same.all(), STALE)
        return self._output_size(size, known)

    def plans(
        self, size: Sequence[int], device: torch.device, planned: tuple[int, ...]
    ) -> list[AxisPlan]:
        """What to do to each axis of an input of this size; ``planned`` is its size to be."""
        output_size, numbers = self.fixed_size, None
        if not torch.compiler.is_compiling():
            numbers = self.strides
        elif self.crop:
            output_size = planned
        return plan(
            size,
            self._remembered if self.stride.is_meta else self.in_range().expand(self.axes),
            numbers=numbers,
            smoothness=self.smoothness,
            crop=self.crop,
            output_size=output_size,
            size_multiple=1 if output_size is not None else self.size_multiple,
            norm=self.norm,
            convention=self.convention,
            device=device,
        )

    def project(self, size: Sequence[int]) -> tuple[int, ...]:
        """Project the parameter to its range if the layer learns, and say which size follows."""
        # Not written without need: a write between the two branches that share a layer would
        # invalidate the graph of the first. One that is computed from others can't be written.
        writable = self.training and self.stride.is_leaf and not self.stride.is_meta
        if writable and self._clamp(self._read()) != self._read():
            with torch.no_grad():
                self.stride.clamp_(self.min_stride, self.max_stride)
        strides = self.strides
        arguments.check_strides(strides)
        return self._output_size(size, strides)

    def in_range(self) -> Tensor:
        """The parameter, within its range; the gradient passes straight through."""
        if self.training and self.stride.is_leaf:  # projected already
            return self.stride
        return held_in(self.stride, self.min_stride, self.max_stride)

    def _clamp(self, values: Sequence[float]) -> tuple[float, ...]:
        """What ``torch.clamp`` makes of these values."""
        low, high = _in_precision(self.min_stride, self.max_stride, self.stride.dtype)
        return tuple(min(max(value, low), high) for value in values)

    def _read(self) -> tuple[float, ...]:
        """The parameter's values, read once an update where reading makes an accelerator wait.

        Updates are told by the version of the tensor, which counts every change in place but those
        made through ``.data``.
        """
        stride = self.stride
        if _reads_are_free(stride.device):
            return arguments.per_axis(stride, self._elements, "stride")
        if self._seen is not None:
            alias, version, values = self._seen
            # The alias holds its memory, so no other tensor can have come to the same place.
            if alias.data_ptr() == stride.data_ptr() and stride._version == version:
                return values
        values = arguments.per_axis(stride, self._elements, "stride")
        self._seen = (stride.detach(), stride._version, values)
        return values

    def train(self, mode: bool = True) -> "DiffStrideNd":
        super().train(mode)
        self._remember()
        return self

    def _load_from_state_dict(self, *arguments: Any) -> None:
        super()._load_from_state_dict(*arguments)
        self._remember()

    def _apply(self, *arguments: Any, **options: Any) -> "DiffStrideNd":
        super()._apply(*arguments, **options)  # type: ignore[no-untyped-call]
        self._remember()  # another precision rounds a stride
        return self

    def _remember(self) -> None:
        """Read the strides for whole graphs in eval mode, which can't read them by themselves."""
        with contextlib.suppress(TypeError):  # one without values, as the compiler has them
            self._remembered = self.strides
        # One that is computed from others can't be copied, and is none that could be exported.
        known = self.stride if self.stride.is_leaf else self.stride.detach().clone()
        self._remembered_parameter = [known]  # in a list: it is registered already

    def _last_seen(self) -> tuple[float, ...]:
        """The strides, for a graph that is being made."""
        if torch.compiler.is_dynamo_compiling():
            return self._remembered  # one of those is made anew when this changes
        # torch.export has put a tensor without values in the place of the parameter, and looks at
        # all that is done in this thread.
        with ThreadPoolExecutor(1) as thread:
            known = self._remembered_parameter[0]
            values = thread.submit(lambda: self._clamp(known.tolist())).result()
        return values * (self.axes if self.shared else 1)

    def extra_repr(self) -> str:
        strides = ", ".join(f"{s:.4g}" for s in self.strides)
        parts = [f"stride=({strides})", f"learnable={self.stride.requires_grad}"]
        parts.append(f"smoothness={self.smoothness:g}")
        usual = {
            "shared": False,
            "crop": True,
            "fixed_size": None,
            "size_multiple": 1,
            "min_stride": 1.0,
            "max_stride": None,
            "norm": "ortho",
            "convention": "paper",
            "path": "auto",
        }
        parts += [
            f"{name.replace('fixed', 'output')}={getattr(self, name)!r}"
            for name, value in usual.items()
            if getattr(self, name) != value
        ]
        return ", ".join(parts)


@functools.cache
def _in_precision(lowest: float, highest: float | None, dtype: torch.dtype) -> tuple[float, ...]:
    """The range of a stride, in the precision that it has itself."""
    bounds = [lowest, math.inf if highest is None else highest]
    return tuple(torch.tensor(bounds, dtype=dtype, device="cpu").tolist())


def _reads_are_free(device: torch.device) -> bool:
    return device.type == "cpu"


class DiffStride1d(DiffStrideNd):
    """Downsampling with a learnable stride along one axis, for signals.

    Input (batch, channels, N) or (channels, N), output the same with ⌊N/S + 2R⌋ samples. Arguments
    as for :class:`DiffStride2d`.

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
        smoothness: R, the width of the window's ramp in frequencies. The stride learns from the
            frequencies in that ramp: from 2 on (1 with ``convention="symmetric"``) at least one of
            them is always kept, and with 0 the stride stays where it is.
        shared: one stride for all axes instead of one each.
        learnable: False makes the stride a constant (``requires_grad=False``).
        crop: False keeps the size of the input and only filters.
        output_size: the size to come out whatever the stride, for compilers and hardware that need
            it to stay; the window still learns. At most the size of the input.
        size_multiple: rounds the kept length up to a multiple of this, at most to the input's.
        min_stride, max_stride: the range the stride is held in while training.
        norm: ``"ortho"``, ``"forward"`` or ``"backward"``: by how much a constant grows.
        convention: ``"paper"`` or ``"symmetric"``: whether the last axis keeps one frequency more.
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
    """Downsampling with a learnable stride along each of three axes, for volumes and video.

    Input (batch, channels, D, H, W) or (channels, D, H, W). Arguments as for
    :class:`DiffStride2d`.

    >>> DiffStride3d(stride=(1.0, 2.0, 2.0), smoothness=2.0)(torch.rand(2, 4, 8, 16, 16)).shape
    torch.Size([2, 4, 8, 12, 12])
    """

    axes = 3
