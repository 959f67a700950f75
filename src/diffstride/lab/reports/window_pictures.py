"""Windows on the spectrum of real inputs, and inputs before and after them."""

import base64
import io
from typing import Any

import numpy as np

from diffstride.lab.reports import plots
from diffstride.lab.reports.chapters import Legend, PageBlock, figures
from diffstride.lab.reports.run_reader import RunRecord
from diffstride.lab.reports.window_plots import Array, downsample, fit, spectrum, window
from diffstride.text import times

MOST_IMAGES = 2
LARGEST = 64  # of an example in the panel, which computes while one drags


def run_blocks(run: RunRecord, legend: Legend) -> list[PageBlock]:
    """A figure for each axis with the windows of all layers, and a row of images per example."""
    images = [image for _, image in run.examples if image.ndim == len(run.axes)]
    items = []
    for axis, name in enumerate(run.axes):
        strides = [stride for stride in run.strides if stride.axis == axis]
        windows = [
            window(size, stride.last, run.smoothness, run.offset(axis), kept)
            for stride in strides
            for size, kept in [stride.sizes]
        ]
        size, kept = strides[0].sizes if strides else (0, 0)
        background = spectrum(images, axis) if images else None
        svg = plots.passband(
            background,
            windows,
            highest=max(size // 2, 0 if background is None else len(background) - 1),
            band=kept / 2,
            xlabel=f"{name}: frequency (periods per axis)",
        )
        items.append((svg, f"{run.name}: windows, {name}"))
    blocks = figures(legend, items)
    for label, image in run.examples[:MOST_IMAGES] if images else ():
        height, width = image.shape
        blocks.append(
            {
                "kind": "images",
                "title": f"{run.name}: an example of “{label}”, and what is left after each layer",
                "shape": f"{width} / {height}",
                "items": _layer_by_layer(run, image),
            }
        )
    return blocks


def _layer_by_layer(run: RunRecord, image: Array) -> list[tuple[str, str]]:
    """An image, and what is left of it after the window of each layer in turn."""
    items = [(png_address(image), f"input, {times(image.shape)}")]
    for i, strides in enumerate(run.layers.values()):
        sizes = [stride.sizes[0] for stride in strides]
        if any(size > length for size, length in zip(sizes, image.shape, strict=True)):
            break  # the network has made it larger meanwhile
        image = fit(image, sizes)
        for stride in strides:
            offset = run.offset(stride.axis)
            image = downsample(image, stride.axis, stride.last, run.smoothness, offset)
        items.append((png_address(image), f"layer {i + 1}, {times(image.shape)}"))
    return items


def _grey(image: Array) -> Any:
    return np.clip(np.rint(image), 0, 255).astype(np.uint8)


def png_address(image: Array) -> str:
    """The address of a grey image with values from 0 to 255, with the whole PNG in it."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(_grey(image)).save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def for_panel(runs: list[RunRecord]) -> dict[str, Any]:
    """What the interactive panel begins with: examples, and the layers of the first run."""
    examples = next((run.examples for run in runs if run.examples), [])
    small = [(label, fit(image, [LARGEST] * image.ndim)) for label, image in examples]
    layers = [
        {
            "label": f"{stride.layer}, {run.axes[stride.axis]}",
            "size": stride.sizes[0],
            "stride": stride.last,
            "smoothness": run.smoothness,
            "convention": run.convention,
        }
        for run in [run for run in runs if run.sizes_known][:1]
        for stride in run.strides
    ]
    images = [{"label": label, "pixels": _grey(image).tolist()} for label, image in small]
    return {"examples": images, "layers": layers}
