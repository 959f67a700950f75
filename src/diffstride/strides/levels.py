"""The strides of a network that goes down and up again, level by level: plans for its decoder too.

In the form that other libraries build such networks of, whole numbers alone.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from diffstride.analysis.cost_record import short_count
from diffstride.analysis.restoring import unwrapped
from diffstride.strides.sites import find_sites
from diffstride.strides.steps_down import find_steps, kernel_sizes, whole_steps
from diffstride.text import aligned, times


@dataclass(frozen=True)
class Level:
    """All maps of one size on the way down."""

    strides: tuple[int, ...]
    """By which it is smaller than the level before, as whole numbers, one for each axis."""
    learned: tuple[float, ...]
    """By which it is smaller in the network, one for each axis: size before / size after."""
    size: tuple[int, ...]
    """Of the network's maps."""
    sites: tuple[str, ...] = ()
    """The layers that make this size; none for the first level, which has that of the input."""


@dataclass(frozen=True)
class LevelPlan:
    """Whole strides for each level of a U-Net, as nnU-Net and MONAI take them.

    Numbers alone: it prints as a table, and :meth:`as_dict` is what JSON has of it.

    Attributes:
        input_size: of one example, (channels, *spatial).
        levels: from the largest maps to the smallest. The first has strides of 1.
        kernel_sizes: of the convolutions of each level on the way down, 1×1 ones apart; None where
            those of a level differ, so that no one number says it.
        macs: what the network costs now, in multiply-accumulates.
        whole_macs: what it costs with these whole strides, maps of ⌈N/S⌉ samples.
    """

    input_size: tuple[int, ...]
    levels: tuple[Level, ...]
    kernel_sizes: list[list[int]] | None
    macs: int
    whole_macs: int

    @property
    def strides(self) -> list[list[int]]:
        """The strides of all levels, the first included."""
        return [list(level.strides) for level in self.levels]

    @property
    def multiple_of(self) -> list[int]:
        """What sizes of inputs should be multiples of, one number for each axis."""
        return [math.prod(axis) for axis in zip(*self.strides, strict=True)]

    def nnunet(self) -> dict[str, Any]:
        """Return what replaces the like in ``architecture.arch_kwargs`` of a plan of nnU-Net v2.

        ``kernel_sizes`` only where they are known. Its other entries have one number for each
        level too: there must be ``n_stages`` of ``features_per_stage`` and ``n_conv_per_stage``.
        Older plans call the two ``pool_op_kernel_sizes`` and ``conv_kernel_sizes``.
        """
        kernels = {} if self.kernel_sizes is None else {"kernel_sizes": self.kernel_sizes}
        return {"n_stages": len(self.levels), "strides": self.strides, **kernels}

    def monai_unet(self) -> dict[str, Any]:
        """Return arguments of MONAI's ``UNet``, which takes one more number of ``channels``."""
        return {"spatial_dims": len(self.input_size) - 1, "strides": self.strides[1:]}

    def monai_dynunet(self) -> dict[str, Any]:
        """Return arguments of MONAI's ``DynUNet``; ``kernel_size`` only where it is known."""
        kernels = {} if self.kernel_sizes is None else {"kernel_size": self.kernel_sizes}
        return {
            "spatial_dims": len(self.input_size) - 1,
            "strides": self.strides,
            "upsample_kernel_size": self.strides[1:],
            **kernels,
        }

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as JSON has it, with what :meth:`nnunet` returns."""
        return {**asdict(self), "nnunet": self.nnunet()}

    def __str__(self) -> str:
        lines = [("level", "strides", "learned", "size")]
        for number, level in enumerate(self.levels, 1):
            learned = times(level.learned, "{:.2f}") if level.sites else ""
            lines.append((str(number), times(level.strides), learned, times(level.size)))
        change = self.whole_macs / max(1, self.macs) - 1
        return "\n".join(
            [
                *aligned(lines),
                f"{short_count(self.macs)} multiply-accumulates as learned, for an input of "
                f"{times(self.input_size)} (channels × size);",
                f"{short_count(self.whole_macs)} with these strides ({change:+.0%}). Sizes of "
                f"inputs should be multiples of {times(self.multiple_of)}.",
            ]
        )


def stride_plan(model: nn.Module, input_size: Sequence[int]) -> LevelPlan:
    """Return the strides that a U-Net has learned, as whole numbers for each level.

    For networks that go down level by level and up again: ``unet`` of :mod:`diffstride.models`, and
    what :func:`diffstride.convert` made of others. A level is what has one size on the way down.
    The strides are what nnU-Net's plans and MONAI's arguments want (:meth:`LevelPlan.nnunet`,
    :meth:`LevelPlan.monai_unet`, :meth:`LevelPlan.monai_dynunet`); what is between levels, channels
    and blocks, is theirs to say.

    Each stride, the size before divided by the size after, becomes one of the whole numbers next to
    it; if one lies between it and the layer's own stride, so that only sizes were rounded, then
    that. Of all combinations the one is taken with which this network would cost most nearly what
    it costs now, in multiply-accumulates, with maps of ⌈N/S⌉ samples; where costs are within 5 % of
    that, and in steps of 10 % beyond, the one whose log-strides changed least. Axes that share a
    stride go on sharing it. How near the cost is, the plan says.

    Args:
        model: a network with layers that have a stride, learnable or fixed, or one wrapped for
            training in parallel. It is run without computing, and left as it is.
        input_size: of one example, (channels, *spatial).

    Raises:
        ValueError: if it has no such layer, if a layer goes down from a size that no level has, or
            if it can't be run with whole strides.

    >>> from diffstride import models
    >>> strides = [(1.8, 1.1), (2.2, 1.8), (1.9, 2.3)]
    >>> network = models.create("unet", num_classes=2, width=0.125, strides=strides,
    ...                         smoothness=1.0, convention="tight")
    >>> plan = stride_plan(network, (3, 96, 64))
    >>> print(plan)
    level  strides  learned      size
    1      1 × 1                 96 × 64
    2      2 × 1    1.81 × 1.10  53 × 58
    3      2 × 2    2.21 × 1.81  24 × 32
    4      2 × 3    2.00 × 2.46  12 × 13
    119 M multiply-accumulates as learned, for an input of 3 × 96 × 64 (channels × size);
    115 M with these strides (-3%). Sizes of inputs should be multiples of 8 × 6.
    >>> plan.nnunet()["strides"]
    [[1, 1], [2, 1], [2, 2], [2, 3]]
    """
    model = unwrapped(model)
    sites, cost = find_sites(model, input_size)
    size = tuple(input_size[1:])
    steps = find_steps(model, sites, size)
    whole, macs = whole_steps(model, steps, input_size, float(cost.macs))
    levels = [Level((1,) * len(size), (1.0,) * len(size), size)]
    for step, strides in zip(steps, whole, strict=True):
        names = tuple(site.name for site in step.sites)
        levels.append(Level(strides, step.ratios, step.after, names))
    kernels = kernel_sizes(model, cost.layers, steps)
    return LevelPlan(tuple(input_size), tuple(levels), kernels, int(cost.macs), macs)
