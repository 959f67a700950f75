"""What the live panel of the site shows."""

from typing import Any

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_image

from diffstride.lab.reports import panel

SIDE = 128


def examples() -> dict[str, Any]:
    """What the panel begins with: a photograph, and rings that become finer outwards."""
    grey = Image.fromarray(load_sample_image("china.jpg")).convert("L")
    square = grey.crop((0, 0, grey.height, grey.height)).resize((SIDE, SIDE), Image.Resampling.BOX)
    rows, columns = np.mgrid[:SIDE, :SIDE] - SIDE / 2 + 0.5
    # At the middle of a side they have half a cycle per pixel: the finest that there is.
    rings = 127.5 + 127.5 * np.cos(np.pi * (rows**2 + columns**2) / SIDE)
    images = [("a photograph", np.asarray(square, dtype=float)), ("rings", rings)]
    return panel.of_images(images, layers=3)
