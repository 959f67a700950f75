"""Classify files with a network that was trained, wherever it is kept."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from diffstride.lab.data import image_decoding
from diffstride.lab.data.audio_batches import AudioEvaluation
from diffstride.lab.data.audio_decoding import to_samples
from diffstride.lab.data.labelled_files import DataError
from diffstride.lab.data.recordings import Recordings
from diffstride.lab.data.spectrogram import LogMel
from diffstride.lab.inference.load_trained import Score, open_model
from diffstride.lab.inference.preprocessing import Preparation

MOST_BYTES = 2**32
"""Of a file, which is read whole: what a WAV can hold."""


class Prediction(NamedTuple):
    """What a file is taken for."""

    file: str
    task: str
    """Empty where there is but one."""
    classes: list[tuple[str, float]]
    """Names and probabilities, the most probable first."""


class Predictions(NamedTuple):
    found: list[Prediction]
    """In the order of the files, of each a line a task."""
    errors: list[str]
    """What is wrong with the others."""


def predict(
    model: str | Path,
    files: Sequence[str | Path],
    *,
    top: int = 1,
    resize: bool = False,
    best: bool = False,
) -> Predictions:
    """Classify files as the evaluation of a run does; those that can't be read are left out.

    Args:
        model: the folder of a run, a file or folder that :func:`export` wrote.
        files: images, or recordings of any length.
        top: of how many classes to tell, the most probable first.
        resize: whether images of another size than the network was trained on are scaled until
            they cover it, and their middle is taken; otherwise they are errors.
        best: of a run, the epoch that was best on the test data, instead of the last.

    Raises:
        ValueError: if there is no such model, or it can't be read.
    """
    if top < 1:
        raise ValueError(f"--top must be at least 1, got {top}")
    preparation, score = open_model(model, best)
    of_images = preparation.kind == "images"
    if resize and not of_images:
        raise ValueError(f"--resize is for images, and {model} is for audio")

    def attempt(file: str | Path) -> Any:
        try:
            data = _content(Path(file))
            if of_images:
                return pixels(str(file), data, preparation, resize)
            return to_samples(str(file), data)
        except DataError as error:
            return error

    from tqdm import tqdm

    # As many at once as fit whatever their size; of recordings, which may be long, a few.
    at_once = _batch_size(preparation) if of_images else 32
    judge = _judge_images if of_images else _judge_recordings
    found, errors = [], []
    with (
        torch.inference_mode(),
        ThreadPoolExecutor(os.cpu_count()) as threads,
        tqdm(None, "predicting", len(files), leave=False, delay=2, disable=None) as bar,
    ):
        for start in range(0, len(files), at_once):
            some = files[start : start + at_once]
            read_files = list(threads.map(attempt, some))
            errors += [str(x) for x in read_files if isinstance(x, DataError)]
            good = [i for i, x in enumerate(read_files) if not isinstance(x, DataError)]
            if good:
                scores = judge([read_files[i] for i in good], preparation, score)
                names = [str(some[i]) for i in good]
                found += _ranked(names, scores, preparation, top)
            bar.update(len(some))
    return Predictions(found, errors)


def table(found: Sequence[Prediction]) -> str:
    """Predictions in aligned columns: file, task if there are several, classes, probabilities."""
    tasks = any(prediction.task for prediction in found)
    lines = [["file", *(["task"] if tasks else [])]]
    for i in range(max((len(prediction.classes) for prediction in found), default=1)):
        lines[0] += [f"class {i + 1}" if i else "class", "probability"]
    for file, task, classes in found:
        cells = [cell for name, value in classes for cell in (name, f"{value:.4f}")]
        line = [file, *([task] if tasks else []), *cells]
        lines.append(line + [""] * (len(lines[0]) - len(line)))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _content(path: Path) -> bytes:
    if path.is_dir():
        raise DataError(f"{path} is a folder: give the files in it")
    try:
        size = path.stat().st_size
        if not (path.is_file() or path.is_fifo()):  # a device may have no end
            raise DataError(f"{path} is no file")
        if size > MOST_BYTES:
            raise DataError(f"{path} has {size:,} bytes, and {MOST_BYTES:,} is the most")
        return path.read_bytes()
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist") from error
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror}") from error


def pixels(name: str, data: bytes, preparation: Preparation, resize: bool) -> Tensor:
    """An image as the network takes it, in bytes."""
    channels, height, width = preparation.size
    picture = image_decoding.open_picture(name, data).convert("L" if channels == 1 else "RGB")
    if preparation.margin is not None:
        picture = image_decoding.middle(name, picture, (height, width), preparation.margin)
    elif picture.size != (width, height):
        if not resize:
            raise DataError(
                f"{name} is {picture.height}×{picture.width}, and the network was trained on "
                f"{height}×{width}: --resize scales it, and takes its middle"
            )
        picture = image_decoding.middle(name, picture, (height, width))
    return image_decoding.to_pixels(picture)


def _judge_images(pixels: list[Tensor], preparation: Preparation, score: Score) -> list[Tensor]:
    mean, std = (torch.tensor(x).reshape(1, -1, 1, 1) for x in (preparation.mean, preparation.std))
    return score((torch.stack(pixels).float() / 255 - mean) / std)


def _judge_recordings(waves: list[Any], preparation: Preparation, score: Score) -> list[Tensor]:
    """The mean score of the windows of each."""
    starts = np.cumsum([0, *(len(wave) for wave in waves)])
    recordings = Recordings(np.concatenate(waves), starts, torch.zeros(len(waves)))
    frontend = LogMel(preparation.mean[0], preparation.std[0])
    sums = [
        torch.zeros(len(waves), len(names), dtype=torch.float64)
        for names in preparation.classes.values()
    ]
    numbers = torch.zeros(len(waves), 1, dtype=torch.float64)
    for batch in AudioEvaluation({"": recordings}, _batch_size(preparation)):
        windows, owners = batch[""]
        numbers.index_add_(0, owners, torch.ones(len(owners), 1, dtype=torch.float64))
        for total, scores in zip(sums, score(frontend(windows)), strict=True):
            total.index_add_(0, owners, scores.double())
    return [total / numbers for total in sums]


def _batch_size(preparation: Preparation) -> int:
    """So that large inputs take no more memory than many small ones."""
    _, height, width = preparation.size
    return max(1, min(256, 2**20 // (height * width)))


def _ranked(
    names: list[str], scores: list[Tensor], preparation: Preparation, top: int
) -> list[Prediction]:
    ranks = [y.double().softmax(1).topk(min(top, y.shape[1])) for y in scores]
    return [
        Prediction(
            name,
            task,
            [(classes[j], value) for value, j in zip(*(x[i].tolist() for x in rank), strict=True)],
        )
        for i, name in enumerate(names)
        for (task, classes), rank in zip(preparation.classes.items(), ranks, strict=True)
    ]
