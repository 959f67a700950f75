"""Layers whose stride is a parameter."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from diffstride.core import arguments, sizes
from diffstride.core.pooling import diff_stride


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
            torch.empty(1 if shared else self.axes, device=device, dtype=dtype),
            requires_grad=learnable,
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the stride back to what the layer was made with."""
        with torch.no_grad():
            initial = torch.tensor(self._initial[: len(self.stride)], dtype=torch.float64)
            self.stride.copy_(initial)
        self._remembered = self._initial

    @property
    def strides(self) -> tuple[float, ...]:
        """The strides in use, one per axis: the parameter's values, within the layer's range."""
        if self.stride.is_meta:  # a shape, but no value: plan with the last one known
            return self._remembered
        return arguments.per_axis(self._clamped().expand(self.axes), self.axes, "stride")

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
        stride, options = self.prepare(x.shape[-self.axes :], self.planned(x.shape[-self.axes :]))
        return diff_stride(x, stride, **options)

    def check(self, x: Tensor) -> None:
        """Raise a TypeError or ValueError unless the layer can take ``x``."""
        arguments.check_tensor(x)
        arguments.check_rank(x, self.axes)
        if self.stride.is_meta and not x.is_meta:
            raise ValueError(
                "the stride is on the meta device and has no value, but the input is not: "
                "use to_empty() and load a state, or reset_parameters()"
            )

    def planned(self, size: Sequence[int]) -> tuple[int, ...] | None:
        """What :meth:`plan` says in training mode; in eval mode nothing is written or planned."""
        if not self.training:
            return None
        if torch.compiler.is_compiling():
            from diffstride.layers import outside_graphs

            return outside_graphs.plan(self, size)  # type: ignore[no-any-return]
        return self.plan(size)

    def plan(self, size: Sequence[int]) -> tuple[int, ...]:
        """Project the parameter to its range, and say which size follows for such an input."""
        if self.stride.is_meta:
            return self._output_size(size, self._remembered)
        clamped = self._clamped()
        # Not written without need: a write between the two branches that share a layer would
        # invalidate the graph of the first.
        current = arguments.to_numbers(self.stride, "stride")
        outside = arguments.to_numbers(clamped, "stride") != current
        if outside and self.stride.is_leaf:  # one that is computed from others can't be written
            with torch.no_grad():
                self.stride.copy_(clamped)
        return self._output_size(size, self.strides)

    def prepare(
        self, size: Sequence[int], planned: tuple[int, ...] | None
    ) -> tuple[Tensor | tuple[float, ...], dict[str, Any]]:
        """What to pass to :func:`diff_stride` for an input of this size: the stride, one per axis,
        and the other arguments. ``planned`` is what :meth:`plan` said in training mode."""
        names = ("smoothness", "crop", "size_multiple", "norm", "convention", "path")
        options = {name: getattr(self, name) for name in names}
        options["output_size"] = self.fixed_size
        if self.stride.is_meta:
            return self._remembered, options
        if torch.compiler.is_compiling() and self.crop:
            # A graph can't read the stride, so the size goes in as an argument.
            if planned is None:
                planned = self._output_size(size, self._remembered)
            options |= {"output_size": planned, "size_multiple": 1}
        stride: Tensor = self.stride
        if not (self.training and stride.is_leaf):
            # The gradient passes straight through, and the sum is exact: its second term is 0.
            stride = self._clamped() + (self.stride - self.stride.detach())
        return stride.expand(self.axes), options

    def _clamped(self) -> Tensor:
        return self.stride.detach().clamp(self.min_stride, self.max_stride)

    def train(self, mode: bool = True) -> "DiffStrideNd":
        super().train(mode)
        self._remember()
        return self

    def _load_from_state_dict(self, *arguments: Any) -> None:
        super()._load_from_state_dict(*arguments)
        self._remember()

    def _remember(self) -> None:
        """Read the strides for compiled code in eval mode, which can't read them by itself."""
        self._remembered = self.strides

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
