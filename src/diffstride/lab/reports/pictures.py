"""Windows on the spectrum of real inputs, and inputs before and after them."""

import base64
import io
from typing import Any

import numpy as np

from diffstride.lab.reports import plots
from diffstride.lab.reports import window_plots as windows
from diffstride.lab.reports.run_reader import Run

EXAMPLES = 2
LARGEST = 64  # of an example in the panel, which computes while one drags


def of_run(run: Run, legend: list[Any]) -> list[dict[str, Any]]:
    """A figure an axis with the windows of all layers, and a row of images an example."""
    images = [np.array(pixels) for _, pixels in run.examples if np.ndim(pixels) == len(run.axes)]
    items = []
    for axis, name in enumerate(run.axes):
        own = [site for site in run.sites if site.axis == axis]
        offset = run.offset(axis)
        drawn, band, highest = [], 0.0, 0
        for i, site in enumerate(own):
            assert site.sizes is not None
            size, kept = site.sizes
            values = windows.window(size, site.strides[-1], run.smoothness, offset, kept)
            drawn.append((i, values))
            band, highest = (band, highest) if i else (kept / 2, size // 2)
        spectrum = windows.spectrum(images, axis) if images else None
        highest = max(highest, 0 if spectrum is None else len(spectrum) - 1)
        unit = f"{name}: frequency (periods per axis)"
        svg = plots.passband(spectrum, drawn, highest=highest, band=band, xlabel=unit)
        items.append((svg, f"{run.name}: windows, {name}"))
    blocks: list[dict[str, Any]] = [{"kind": "figures", "legend": legend, "items": items}]
    if len(run.axes) == 2:
        for label, pixels in run.examples[:EXAMPLES]:
            row = _passed(run, np.array(pixels))
            height, width = np.shape(pixels)
            title = f"{run.name}: an example of “{label}”, and what is left after each layer"
            shape = f"{width} / {height}"
            blocks.append({"kind": "images", "title": title, "shape": shape, "items": row})
    return blocks


def _passed(run: Run, image: windows.Array) -> list[tuple[str, str]]:
    """An image, and what is left of it after the window of each layer in turn."""
    shown = [(picture(image), f"input, {_by(image)}")]
    for i, layer in enumerate(run.layers):
        own = [site for site in run.sites if site.layer == layer]
        sizes = [site.sizes[0] for site in own if site.sizes is not None]
        if any(size > length for size, length in zip(sizes, image.shape, strict=True)):
            break  # the network has made it larger meanwhile
        image = windows.fit(image, sizes)
        for site in own:
            image = windows.downsample(
                image, site.axis, site.strides[-1], run.smoothness, run.offset(site.axis)
            )
        shown.append((picture(image), f"layer {i + 1}, {_by(image)}"))
    return shown


def _by(image: windows.Array) -> str:
    return " × ".join(map(str, image.shape))


def picture(image: windows.Array) -> str:
    """A grey image of values from 0 to 255 as the address of a PNG that is the address itself."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.clip(np.rint(image), 0, 255).astype(np.uint8)).save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def for_panel(runs: list[Run]) -> dict[str, Any]:
    """What the interactive panel begins with: examples, and the layers of the first run."""
    with_sites = next((r for r in runs if r.sites and all(s.sizes for s in r.sites)), None)
    with_examples = next((run for run in runs if run.examples), None)
    examples = []
    for label, pixels in with_examples.examples if with_examples else ():
        image = np.array(pixels)
        if image.ndim == 2:
            small = windows.fit(image, [min(size, LARGEST) for size in image.shape])
            whole = np.clip(np.rint(small), 0, 255).astype(int)
            examples.append({"label": label, "pixels": whole.tolist()})
    layers = []
    for site in with_sites.sites if with_sites else ():
        assert with_sites is not None and site.sizes is not None
        layers.append(
            {
                "label": f"{site.layer}, {with_sites.axes[site.axis]}",
                "size": site.sizes[0],
                "stride": site.strides[-1],
                "smoothness": with_sites.smoothness,
                "convention": with_sites.convention,
            }
        )
    return {"examples": examples, "layers": layers}
