"""Restore images with a network that was trained to take noise away, wherever it is kept."""

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from diffstride.files import write
from diffstride.lab.data.labelled_files import DataError
from diffstride.lab.data.noise import without
from diffstride.lab.data.pictures import open_picture, to_pixels, to_png
from diffstride.lab.inference.given_files import content, in_groups, list_files
from diffstride.lab.inference.readers import ImageReader
from diffstride.lab.inference.trained_model import TrainedModel
from diffstride.lab.runs.documents import json_text
from diffstride.lab.runs.waiting import progress_bar
from diffstride.text import aligned, csv_line, one_line

OUT = "restored"
"""The folder that restored images are written into unless another is given."""


class RestoredFile(NamedTuple):
    file: str
    restored: str
    """Where the restored image is."""


class RestoringReader(ImageReader):
    """Images of any size, each by itself."""

    def __init__(self, model: TrainedModel) -> None:
        super().__init__(model)
        self.at_once = os.cpu_count() or 1

    def read(self, name: str, data: bytes) -> Tensor:
        channels, *size = self.model.preparation.size
        picture = open_picture(name, data).convert("L" if channels == 1 else "RGB")
        if self.model.is_fixed and [picture.height, picture.width] != size:
            wrong = f"is {picture.height}×{picture.width}, and {self.model.where} takes images of "
            advice = "a run takes any size, and what `diffstride export RUN -o FOLDER` writes"
            raise DataError(f"{name} {wrong}{'×'.join(map(str, size))} alone: {advice}")
        return to_pixels(picture)

    def restored(self, pixels: Tensor) -> Tensor:
        """Return an image, from 0 to 1, without the noise that the network finds in its bytes."""
        preparation = self.model.preparation
        mean, std = (
            torch.tensor(values).reshape(1, -1, 1, 1)
            for values in (preparation.mean, preparation.std)
        )
        inputs = (pixels[None].float() / 255 - mean) / std
        outputs = self.model.outputs(inputs)
        noise = outputs if isinstance(outputs, Tensor) else outputs[0]
        return without(inputs, noise, mean, std)[0]


def restore(
    model: TrainedModel, files: Sequence[str | Path], errors: list[str], out: str | Path = OUT
) -> Iterator[RestoredFile]:
    """Write images without their noise as PNGs into a folder, and yield where each one is.

    An image has the name of its file; those of a folder lie as they do there. What is there already
    is never replaced.

    Args:
        model: of :func:`open_model`; it must be one that restores images.
        files: images of any size; or folders, of which all images are taken.
        errors: a list, to which is added what is wrong with files that are left out.
        out: the folder to write into, which is made.
    """
    reader, folder = RestoringReader(model), Path(out).expanduser()
    targets: dict[Path, Path] = {}
    taken: set[Path] = set()
    for path in map(Path, files):
        for file in list_files([path], reader, errors):
            inside = file.relative_to(path) if path.is_dir() else file.name
            target = (folder / inside).with_suffix(".png")
            if target in taken:
                errors.append(f"{file} would be {target} as well: restore it with another --out")
            elif target.exists():
                errors.append(f"{target} is there already: remove it, or give another --out")
            else:
                targets[file] = target
                taken.add(target)

    def attempt(file: Path) -> Tensor | DataError:
        try:
            return reader.read(str(file), content(file))
        except DataError as error:
            return error

    with (
        ThreadPoolExecutor(os.cpu_count()) as threads,
        progress_bar("restoring", len(targets)) as bar,
    ):
        for group in in_groups(list(targets), reader.at_once):
            for file, pixels in zip(group, threads.map(attempt, group), strict=True):
                if isinstance(pixels, DataError):
                    errors.append(str(pixels))
                    continue
                with torch.inference_mode():
                    restored = reader.restored(pixels)
                write(targets[file], to_png(restored))
                yield RestoredFile(str(file), str(targets[file]))
            bar.update(len(group))


def table(restored: Iterable[RestoredFile]) -> Iterator[str]:
    """Yield files in columns: each, and where it is restored."""
    rows = [tuple(map(one_line, pair)) for pair in restored]
    yield from aligned([RestoredFile._fields, *rows]) if rows else ()


def as_json(restored: Iterable[RestoredFile]) -> Iterator[str]:
    """Yield the line of a JSON list with an object for each file."""
    yield json_text([pair._asdict() for pair in restored])


def as_csv(restored: Iterable[RestoredFile]) -> Iterator[str]:
    """Yield the lines of a CSV table."""
    yield csv_line(RestoredFile._fields)
    yield from map(csv_line, restored)


FORMS = {"table": table, "json": as_json, "csv": as_csv}
"""What makes lines of restored files, by name."""
