"""Photographs with noise, and what networks make of them.

    python -m docs.denoise RUN...

RUNs are folders of runs of `diffstride train denoise` on images in colour. The photographs come
with scikit-learn; they get noise of the first run's strength. A part of each, of the size that the
networks were trained with, is restored by itself and drawn, in docs/results/denoise.png, with its
PSNR; and whole photographs are restored, whose PSNR is printed.
"""

import sys
from pathlib import Path

import torch
from sklearn.datasets import load_sample_images

from diffstride.lab.data.noise import add_noise
from diffstride.lab.inference.restoring import RestoringReader
from diffstride.lab.inference.trained_model import open_model
from diffstride.lab.runs.run_folder import Run
from diffstride.lab.training.image_quality import psnr
from docs.figures import plt
from docs.results import DATA, NAMES

CORNERS = ((190, 300), (180, 290))
"""Where the part of each photograph begins that is drawn: its first row and column."""


def photographs(strength):
    """Each photograph clean, and as a file of it with noise would be; values from 0 to 1."""
    generator = torch.Generator().manual_seed(0)
    for photograph in load_sample_images().images:
        clean = torch.tensor(photograph).permute(2, 0, 1) / 255
        noise = strength * torch.randn(clean.shape, generator=generator)
        yield clean, (255 * add_noise(clean, noise)).round() / 255


def restored(readers, noisy):
    """What each network makes of an image, by its name."""
    with torch.inference_mode():
        return {name: x.restored(255 * noisy).clamp(0, 1) for name, x in readers.items()}


def quality(image, clean):
    return f"{psnr(image[None], clean[None]).item():.1f} dB"


def draw(rows):
    """A row for each photograph, a column for each of its pictures."""
    size = 2 * len(rows[0]), 2.2 * len(rows)
    figure, axes = plt.subplots(len(rows), len(rows[0]), figsize=size)
    for line, shown in zip(axes, rows, strict=True):
        clean = shown["clean"]
        for ax, (title, image) in zip(line, shown.items(), strict=True):
            ax.imshow(image.permute(1, 2, 0).numpy(), interpolation="nearest")
            parts = [title] if image is clean else [title, quality(image, clean)]
            ax.set_title(", ".join(parts), fontsize=9)
            ax.axis("off")
    return figure


def main(folders):
    runs = [Run.open(folder) for folder in folders]
    names = [NAMES[run.config.model.downsampling] for run in runs]
    readers = dict(zip(names, map(RestoringReader, map(open_model, folders)), strict=True))
    height, width = runs[0].data["size"][1:]
    rows = []
    for corner, (clean, noisy) in zip(CORNERS, photographs(runs[0].config.data.noise), strict=True):
        (top, left), whole = corner, restored(readers, noisy)
        shown = [x[:, top : top + height, left : left + width] for x in (clean, noisy)]
        rows.append(dict(zip(("clean", "noise"), shown, strict=True)) | restored(readers, shown[1]))
        found = [f"{name} {quality(image, clean)}" for name, image in whole.items()]
        print(f"a whole photograph, noise {quality(noisy, clean)}: {', '.join(found)}")
    path = DATA / "denoise.png"
    draw(rows).savefig(path, dpi=110)
    print(path)


if __name__ == "__main__":
    main([Path(word) for word in sys.argv[1:]])
