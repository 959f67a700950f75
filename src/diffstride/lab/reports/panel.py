"""What the interactive panel of a page begins with: a run's axes, layers and examples."""

from collections.abc import Sequence
from typing import Any

from diffstride.lab.reports.pictures import directions, grey, scale, shape, time_first
from diffstride.lab.reports.run_reader import RunRecord
from diffstride.lab.reports.windows import Array, fit
from diffstride.lab.runs.axes import Axis, data_axes

LARGEST = 128  # side of a picture in the panel, which computes while one drags
USUAL_SIZE = 32


def for_panel(runs: list[RunRecord]) -> dict[str, Any]:
    """The axes, layers and examples of the first run that has most of them."""
    drawable = [run for run in runs if len(run.axes) <= 2]
    run = min(drawable, key=lambda run: (not run.windows_known, not run.examples), default=None)
    axes = data_axes({}) if run is None else run.data_axes
    sizes: tuple[int, ...] = (USUAL_SIZE,) * len(axes)
    if run is not None and all(run.size):
        sizes = run.size
    elif run is not None and run.examples:
        sizes = run.examples[0][1].shape
    layers = [{"label": "of the input", "sizes": sizes, "strides": [2.0] * len(axes)}]
    if run is not None and run.windows_known:
        layers = [
            {"label": name, "sizes": [s.sizes[0] for s in own], "strides": [s.last for s in own]}
            for name, own in run.layers.items()
        ]
    return {
        "run": run.name if run else "",
        "axes": [_axis(axis, size) for axis, size in zip(axes, sizes, strict=True)],
        "time_first": time_first(axes),
        "shape": shape(axes, sizes) if len(axes) == 2 else None,
        "across": directions(axes)[0] if len(axes) == 2 else 0,
        "layers": layers,
        "learned": bool(run and run.windows_known),
        "smoothness": run.smoothness if run else 4.0,
        "convention": run.convention if run else "paper",
        "examples": [_example(*example, sizes) for example in (run.examples if run else ())],
    }


def of_images(examples: Sequence[tuple[str, Array]], layers: int) -> dict[str, Any]:
    """The panel of no run: names and images of one size, and layers that halve it in turn."""
    _, image = examples[0]
    each = [[size >> depth for size in image.shape] for depth in range(layers)]
    return for_panel([]) | {
        "axes": [_axis(axis, size) for axis, size in zip(data_axes({}), image.shape, strict=True)],
        "shape": shape(data_axes({}), image.shape),
        "layers": [
            {"label": " × ".join(map(str, sizes)), "sizes": sizes, "strides": [2.0] * len(sizes)}
            for sizes in each
        ],
        "smoothness": 1.0,
        "convention": "tight",
        "examples": [_example(*example, image.shape) for example in examples],
    }


def _axis(axis: Axis, size: int) -> dict[str, Any]:
    """An axis: its name, its unit, the frequency of a period in its length, and the length."""
    label, _ = scale(axis, size)
    period, length = axis.rate / size, size / axis.rate
    return {"name": axis.name, "unit": axis.unit, "period": period} | {
        "length": length,
        "label": label,
    }


def _example(label: str, values: Array, sizes: tuple[int, ...]) -> dict[str, Any]:
    """An example in rows, and which share of each axis it has.

    Images have no more pixels than can be computed while one drags, all axes fewer alike.
    """
    shares = [there / size for there, size in zip(values.shape, sizes, strict=True)]
    if values.ndim == 1:
        return {"label": label, "rows": [values.tolist()], "shares": shares}
    fewer = max(1.0, max(values.shape) / LARGEST)
    small = fit(values, [max(1, round(size / fewer)) for size in values.shape])
    return {"label": label, "rows": grey(small).tolist(), "shares": shares}
