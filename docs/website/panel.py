"""The page of the live panel, and what the panel shows."""

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_image

from diffstride.lab.reports import panel

SIDE = 128
PAGE = """# The live panel

A stride in your hands: drag S and R, or use the sliders, and see which frequencies a layer keeps, how many samples come
out, and what the picture looks like then. Everything is computed in this page, by the formulas of
[the mathematics](maths.md). Every report of a run ends with this panel, with the layers and the examples of that run.

<iframe class="panel" src="alone.html" title="The live panel: try a stride"></iframe>

[The panel alone](panel/alone.html), as large as your window.

Things to try:

- Make the stride larger along one axis alone. Detail is lost along that axis, and the other one keeps its own.
- Set R to 0: the window is a step, and edges ring. A stride has no gradient then; it learns from the frequencies in the ramp.
- Let the window fall behind N/(2S). More samples are kept, 2R along each axis, and the whole band up to N/(2S) passes unchanged.
- Take the rings as the example, and watch the outer, finer ones go first.

The photograph is by Flickr's danielbuechele (CC BY), as it comes with scikit-learn.
"""


def examples() -> dict[str, object]:
    """What the panel begins with: a photograph, and rings that become finer outwards."""
    grey = Image.fromarray(load_sample_image("china.jpg")).convert("L")
    square = grey.crop((0, 0, grey.height, grey.height)).resize((SIDE, SIDE), Image.Resampling.BOX)
    rows, columns = np.mgrid[:SIDE, :SIDE] - SIDE / 2 + 0.5
    # At the middle of a side they have half a cycle per pixel: the finest that there is.
    rings = 127.5 + 127.5 * np.cos(np.pi * (rows**2 + columns**2) / SIDE)
    images = [("a photograph", np.asarray(square, dtype=float)), ("rings", rings)]
    return panel.of_images(images, layers=3)
