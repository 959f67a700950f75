"""The section with images before and after a network has taken their noise away."""

import base64
import binascii
import io
import math
from typing import Any, NamedTuple

from diffstride.lab.reports import pictures
from diffstride.lab.reports.chapters import Block, Chapter, Section
from diffstride.lab.reports.run_reader import RunRecord
from diffstride.lab.runs.documents import DamagedFile, read_json
from diffstride.lab.runs.run_folder import Run

MOST_RUNS = 6
MOST_EXAMPLES = 3
MOST_BYTES = 2**24
"""Of a picture."""
STATES = ("clean", "noisy", "restored")


class Restored(NamedTuple):
    """A test image in three states, each as the address of a PNG with the PNG in it."""

    label: str
    addresses: tuple[str, ...]
    scores: tuple[float, float]
    """With its noise, and restored."""
    size: tuple[int, int]


def before_and_after(chapter: Chapter) -> Section:
    """Test images as they are, with noise, and as networks have restored them."""
    blocks = [_row(run, image) for run in chapter.runs[:MOST_RUNS] for image in read_restored(run)]
    text = "Test images as they are, with the noise that was added, and as the network restored "
    text += "them after its last epoch. PSNR is 10·log10(1/MSE), of pixels from 0 to 1."
    return Section("Before and after", text, blocks)


def _row(run: RunRecord, image: Restored) -> Block:
    clean, *others = STATES
    labels = [clean]
    for state, value in zip(others, image.scores, strict=True):
        labels.append(f"{state}, {run.score.text(value)}")
    across, up = pictures.directions(run.data_axes)
    return {
        "kind": "images",
        "title": f"{run.name}: an example of “{image.label}”",
        "shape": pictures.shape(run.data_axes, image.size),
        "across": pictures.scale(run.data_axes[across], image.size[across]),
        "along": pictures.scale(run.data_axes[up], image.size[up]),
        "upwards": False,
        "items": list(zip(image.addresses, labels, strict=True)),
    }


def read_restored(run: RunRecord) -> list[Restored]:
    """Return the images that a run has restored, if it kept some; a DamagedFile if they are not."""
    path = Run(run.folder).restored_file
    if not path.is_file():
        return []
    images = read_json(path, "images")["images"]
    try:
        return [_read(entry) for entry in images[:MOST_EXAMPLES]]
    except Exception as error:  # a damaged PNG raises whatever it likes
        wanted = f"images with label, psnr, noisy_psnr and PNGs named {', '.join(STATES)}"
        raise DamagedFile(f"{path} must have {wanted}: {error!r}") from error


def _read(entry: dict[str, Any]) -> Restored:
    files = [_checked(entry[state]) for state in STATES]
    sizes = [size for _, size in files]
    if len(set(sizes)) > 1:
        raise ValueError(f"pictures of one image have sizes {sizes}")
    scores = float(entry["noisy_psnr"]), float(entry["psnr"])
    if not all(map(math.isfinite, scores)):
        raise ValueError(f"{scores} are no finite numbers")
    return Restored(str(entry["label"]), tuple(address for address, _ in files), scores, sizes[0])


def _checked(text: str) -> tuple[str, tuple[int, int]]:
    """Return the address of a PNG, and its height and width, or raise an error if it is none."""
    from PIL import Image

    if len(text) > MOST_BYTES:
        raise ValueError(f"a picture has more than {MOST_BYTES:,} letters")
    try:
        content = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"a picture is not in base64: {error}") from error
    picture = Image.open(io.BytesIO(content), formats=["PNG"])
    width, height = picture.size
    picture.verify()
    return f"data:image/png;base64,{text}", (height, width)
