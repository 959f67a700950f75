"""Examples as they are shown: which way their axes run, and what layers leave of them."""

import base64
import io
from collections.abc import Iterator
from typing import Any

import numpy as np

from diffstride.lab.reports.chapters import Block
from diffstride.lab.reports.run_reader import RunRecord
from diffstride.lab.reports.windows import Array, downsample, fit, part
from diffstride.lab.runs.axes import Axis
from diffstride.text import times

SHORT = {"pixel": "px", "mel channel": "mel"}
"""What a tick has room for."""


def time_first(axes: tuple[Axis, ...]) -> bool:
    """Whether the rows of a picture are moments: time runs to the right, and what is next to it up.

    >>> time_first((Axis("time", 100.0, "Hz"), Axis("frequency", 1.0, "cycles per mel channel")))
    True
    """
    return len(axes) == 2 and axes[0].name == "time"


def directions(axes: tuple[Axis, ...]) -> tuple[int, int]:
    """Which of two axes is drawn from left to right, and which upwards or downwards."""
    return (0, 1) if time_first(axes) else (1, 0)


def scale(axis: Axis, samples: float) -> tuple[str, str]:
    """The name of an axis with its unit, and how long so many samples are.

    >>> scale(Axis("time", 16_000.0, "Hz"), 24_000)
    ('time (s)', '1.5')
    >>> scale(Axis("width", 1.0, "cycles per pixel"), 32)
    ('width (px)', '32')
    """
    unit = "s" if axis.unit == "Hz" else axis.unit.removeprefix("cycles per ")
    return f"{axis.name} ({SHORT.get(unit, unit)})", f"{samples / axis.rate:.4g}"


def shape(axes: tuple[Axis, ...], sizes: tuple[int, ...]) -> float:
    """The width of a picture for each of its height: of lengths in one unit, else of samples."""
    same = len({axis.unit for axis in axes}) == 1
    across, up = (sizes[i] / (axes[i].rate if same else 1.0) for i in directions(axes))
    return across / up


def left_of(run: RunRecord, example: Array) -> Iterator[Array]:
    """What is left of an example after the window of each layer in turn."""
    shares = [there / size for there, size in zip(example.shape, run.size, strict=True)]
    for strides in run.layers.values():
        sizes = [part(s.sizes[0], shares[s.axis]) for s in strides]
        if any(size > there for size, there in zip(sizes, example.shape, strict=True)):
            return  # the network has made it larger meanwhile
        example = fit(example, sizes)
        for stride in strides:
            rule = run.smoothness, run.offset(stride.axis), run.convention
            whole = stride.sizes[0], shares[stride.axis]
            example = downsample(example, stride.axis, stride.last, *rule, *whole)
        yield example


def title(run: RunRecord, label: str) -> str:
    """What is written above an example."""
    return f"{run.name}: an example of “{label}”, and what is left after each layer"


def row_of_images(run: RunRecord, label: str, image: Array) -> Block:
    """An image, and what is left of it after each layer, with the axes as they lie in the world."""
    across, up = directions(run.data_axes)
    items = [(_png_address(run, image), f"input, {times(image.shape)}")]
    for i, left in enumerate(left_of(run, image)):
        items.append((_png_address(run, left), f"layer {i + 1}, {times(left.shape)}"))
    return {
        "kind": "images",
        "title": title(run, label),
        "shape": shape(run.data_axes, image.shape),
        "across": scale(run.data_axes[across], image.shape[across]),
        "along": scale(run.data_axes[up], image.shape[up]),
        "upwards": time_first(run.data_axes),
        "items": items,
    }


def grey(image: Array) -> Any:
    """An image as whole numbers from 0 to 255."""
    return np.clip(np.rint(image), 0, 255).astype(np.uint8)


def _png_address(run: RunRecord, image: Array) -> str:
    """The address of a grey image with values from 0 to 255, with the PNG itself in it."""
    from PIL import Image

    file = io.BytesIO()
    pixels = grey(image)
    Image.fromarray(pixels.T[::-1] if time_first(run.data_axes) else pixels).save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
