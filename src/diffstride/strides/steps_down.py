"""The steps by which a network goes down, and whole strides for them that cost the same."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from diffstride.analysis.cost_record import LayerCost
from diffstride.layers.conv import DiffStrideConvNd
from diffstride.layers.converted import Converted, shortening
from diffstride.strides.rounding import (
    Numbers,
    Strides,
    how_many,
    nearest_whole,
    sharp_costs,
    together,
)
from diffstride.strides.sites import StrideSite, fixed_stride

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, DiffStrideConvNd)
ALIKE = 10
"""How many per cents of the cost are counted as one: within five, what was learned decides."""


@dataclass(frozen=True)
class Step:
    """From one level to the next one down: all sites that read the same size and make the same."""

    before: tuple[int, ...]
    """The size that is read, by the convolution before the stride if it is one with it."""
    after: tuple[int, ...]
    sites: tuple[StrideSite, ...]
    lost: tuple[tuple[int, ...], ...]
    """For each site, by how many samples its convolution makes axes shorter."""

    @property
    def ratios(self) -> tuple[float, ...]:
        """By which the size becomes smaller, one number for each axis."""
        return tuple(n / m for n, m in zip(self.before, self.after, strict=True))

    def choices(self, axes: Sequence[int]) -> range:
        """Return the whole numbers that the stride of some axes may become.

        Stride and ratio of sizes differ by what is rounded off, most where maps are tiny. If a
        whole number lies between them, it is that one. Otherwise it is one of those next to them,
        and so it is where windows need room, which makes a ratio smaller than its stride.
        """
        site = self.sites[0]
        both = [x for i in axes for x in (site.strides[i], self.ratios[i])]
        next_one = math.ceil(min(both))
        if next_one <= max(both) and not site.needs_room:
            return range(next_one, next_one + 1)
        return range(math.floor(min(both)), math.ceil(max(both)) + 1)


def find_steps(
    model: nn.Module, sites: Sequence[StrideSite], size: tuple[int, ...]
) -> tuple[Step, ...]:
    """Return the steps down of a network for inputs of a spatial size, in the order they run.

    Raises:
        ValueError: if a site reads a map that no level before it has made.
    """
    steps: list[Step] = []
    for site in sites:
        if len(site.strides) != len(size):
            raise ValueError(
                f"every layer with a stride must have the {len(size)} axes of the input, and "
                f"{site.name!r} has {len(site.strides)}"
            )
        lost = _lost(model, site)
        before = tuple(n + k for n, k in zip(site.input_size, lost, strict=True))
        beside = [
            i for i, s in enumerate(steps) if (s.before, s.after) == (before, site.output_size)
        ]
        if beside and before != site.output_size:
            step = steps[beside[0]]
            both = (*step.sites, site), (*step.lost, lost)
            steps[beside[0]] = Step(before, step.after, *both)
            continue
        last = steps[-1].after if steps else size
        if any(n > m for n, m in zip(before, last, strict=True)):
            raise ValueError(
                f"a network must go down one level after the other, and {site.name!r} makes "
                f"{site.output_size} of {before} after there was a level of {last}: such a "
                f"network has a StridePlan, and no strides for each level"
            )
        steps.append(Step(before, site.output_size, (site,), (lost,)))
    return tuple(steps)


def _lost(model: nn.Module, site: StrideSite) -> tuple[int, ...]:
    """Return how many samples an axis loses in the layer of torch that has the stride in it."""
    parent = model.get_submodule(site.name.rpartition(".")[0])
    comes_after = isinstance(parent, Converted) and not parent.downsample_first
    if site.name and (comes_after or isinstance(parent, DiffStrideConvNd)):
        return shortening(parent, len(site.strides))
    return (0,) * len(site.strides)


def whole_steps(
    model: nn.Module, steps: Sequence[Step], input_size: Sequence[int], target: float
) -> tuple[list[tuple[int, ...]], int]:
    """Return whole strides for each step, and the multiply-accumulates of the network with them.

    :func:`diffstride.stride_plan` says which they are.

    Raises:
        ValueError: if the network can't be run with whole strides.
    """
    sites = [site for step in steps for site in step.sites]
    costs, shared = sharp_costs(model, sites, input_size)
    places = [(i, axes) for i, s in enumerate(steps) for axes in together(s.sites[0], shared)]

    def by_step(numbers: Numbers) -> list[tuple[int, ...]]:
        found = [[1] * len(step.before) for step in steps]
        for number, (i, axes) in zip(numbers, places, strict=True):
            for axis in axes:
                found[i][axis] = number
        return [tuple(each) for each in found]

    def strides(numbers: Numbers) -> Strides:
        return _exact_strides(steps, by_step(numbers), tuple(input_size[1:]))

    def value(numbers: Numbers) -> float | None:
        try:
            return float(costs.value("macs", strides(numbers)))
        except (ValueError, RuntimeError):  # maps that are too small for what comes after
            return None

    wanted = [math.prod(steps[i].ratios[a] for a in axes) ** (1 / len(axes)) for i, axes in places]
    choices = [steps[i].choices(axes) for i, axes in places]
    ends = (tuple(some[i] for some in choices) for i in (0, -1))
    try:
        most = how_many(costs, *map(strides, ends))
    except ValueError:
        most = 0
    found = nearest_whole(wanted, choices, value, target, most, ALIKE)
    macs = None if found is None else value(found)
    if found is None or macs is None:
        real = [step.ratios for step in steps]
        raise ValueError(
            f"the network can't be run with whole strides next to {real} for inputs of "
            f"{tuple(input_size)}: a layer in it needs maps of one size, or larger ones"
        )
    return by_step(found), int(macs)


def _exact_strides(
    steps: Sequence[Step], whole: Sequence[tuple[int, ...]], size: tuple[int, ...]
) -> Strides:
    """Return strides by the names of sites, with which cutting spectra makes maps of ⌈N/S⌉."""
    found: Strides = {}
    now = size  # of the level before, in the network as it is
    for step, numbers in zip(steps, whole, strict=True):
        gaps = [n - m for n, m in zip(now, step.before, strict=True)]
        before = [n - gap for n, gap in zip(size, gaps, strict=True)]
        most = [n - max(axis) for n, axis in zip(before, zip(*step.lost, strict=True), strict=True)]
        if min(most) < 1:
            raise ValueError(
                f"an input of {tuple(size)} is too small: no sample is left for "
                f"{step.sites[0].name!r} to read. Give a larger input_size"
            )
        ratios = zip(before, numbers, most, strict=True)
        after = tuple(min(math.ceil(n / s), m) for n, s, m in ratios)
        for site, lost in zip(step.sites, step.lost, strict=True):
            axes = zip(before, lost, after, strict=True)
            found[site.name] = tuple(fixed_stride(n - k, m, (n - k) / m) for n, k, m in axes)
        now, size = step.after, after
    return found


def kernel_sizes(
    model: nn.Module, uses: Sequence[LayerCost], steps: Sequence[Step]
) -> list[list[int]] | None:
    """Return the kernel of the convolutions of each level on the way down, if it has one kernel.

    Convolutions of 1×1 are left aside. A convolution that has the stride belongs to the level that
    it leads to; where the level above has no other, it is that one's too.
    """
    levels = {
        model.get_submodule(site.name): level
        for level, step in enumerate(steps, 1)
        for site in step.sites
    }
    found: list[set[tuple[int, ...]]] = [set() for _ in range(len(steps) + 1)]
    level, smallest = 0, steps[-1].after
    for use in uses:
        layer: nn.Module = use.layer
        # One that has a stride in it is listed with the size before that.
        reached = levels.get(getattr(layer, "downsample", layer))
        if reached is not None:
            level = reached
        elif level == len(steps) and any(
            n > m for n, m in zip(use.output_size, smallest, strict=False)
        ):
            break  # here it goes up
        if isinstance(layer, CONVOLUTIONS):
            kernel = tuple(layer.kernel_size)
            if len(kernel) == len(smallest) and set(kernel) != {1}:
                found[level].add(kernel)
    for level in reversed(range(len(steps))):
        found[level] = found[level] or found[level + 1]
    if any(len(kernels) != 1 for kernels in found):
        return None
    return [list(kernel) for kernels in found for kernel in kernels]
