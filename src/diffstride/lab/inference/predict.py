"""Classify files with a network that was trained, wherever it is kept."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from diffstride.lab.data import images, recordings
from diffstride.lab.data.batches import AudioEvaluation, ImageBatches
from diffstride.lab.data.labelled_files import DataError
from diffstride.lab.data.spectrogram import LogMel
from diffstride.lab.inference.trained_model import TrainedModel, open_model
from diffstride.text import aligned

MOST_BYTES = 2**32  # of a file, which is read at once: what a WAV can hold


class Prediction(NamedTuple):
    """The classes that a file may have."""

    file: str
    task: str  # empty if there is but one
    classes: list[tuple[str, float]]  # names and probabilities, the most probable first


class Predictions(NamedTuple):
    """What was predicted, and what could not be."""

    predictions: list[Prediction]  # in the order of the files; for each file one for every task
    errors: list[str]  # what is wrong with the other files


def predict_files(
    path: str | Path,
    files: Sequence[str | Path],
    *,
    top: int = 1,
    resize: bool = False,
    best: bool = False,
) -> Predictions:
    """Classify files as the evaluation of a run does; those that can't be read are left out.

    Args:
        path: the folder of a run, a file or folder that :func:`export_run` wrote.
        files: images, or recordings of any length.
        top: how many classes to return, the most probable first.
        resize: whether images of another size than the network was trained on are scaled until
            they cover it, and their middle is taken; otherwise they are errors.
        best: for a run, the epoch that was best on the test data, instead of the last.

    Raises:
        ValueError: if there is no such network, or it can't be read.
    """
    if top < 1:
        raise ValueError(f"--top must be at least 1, got {top}")
    model = open_model(path, best)
    of_images = model.preparation.kind == "images"
    if resize and not of_images:
        raise ValueError(f"--resize is for images, and {path} is for audio")

    def read(file: str | Path) -> Any:
        try:
            data = _content(Path(file))
            if of_images:
                return model.preparation.pixels(str(file), data, resize)
            return recordings.to_samples(str(file), data)
        except DataError as error:
            return error

    # As many at once as fit whatever their size; of recordings, which may be long, a few.
    *_, height, width = model.preparation.size
    batch_size = max(1, min(256, 2**20 // (height * width)))
    at_once = batch_size if of_images else 32
    scores_of = _scores_of_images if of_images else _scores_of_recordings
    predictions, errors, tasks = [], [], model.preparation.classes
    with (
        torch.inference_mode(),
        ThreadPoolExecutor(os.cpu_count()) as threads,
        tqdm(None, "predicting", len(files), leave=False, delay=2, disable=None) as bar,
    ):
        for start in range(0, len(files), at_once):
            names = [str(file) for file in files[start : start + at_once]]
            contents = list(zip(names, threads.map(read, names), strict=True))
            errors += [str(data) for _, data in contents if isinstance(data, DataError)]
            readable = [(name, data) for name, data in contents if not isinstance(data, DataError)]
            inputs = [data for _, data in readable]
            scores = scores_of(inputs, model, batch_size) if readable else []
            for i, (name, _) in enumerate(readable):
                for (task, classes), y in zip(tasks.items(), scores, strict=True):
                    values, places = y[i].double().softmax(0).topk(min(top, len(classes)))
                    ranked = zip(places.tolist(), values.tolist(), strict=True)
                    named = [(classes[place], value) for place, value in ranked]
                    predictions.append(Prediction(name, task, named))
            bar.update(len(names))
    return Predictions(predictions, errors)


def table(predictions: Sequence[Prediction]) -> str:
    """Return predictions in columns: file, task if there are several, classes, probabilities."""
    rows = [["file", "task"]]
    for i in range(max((len(prediction.classes) for prediction in predictions), default=1)):
        rows[0] += [f"class {i + 1}" if i else "class", "probability"]
    for file, task, classes in predictions:
        cells = [cell for name, value in classes for cell in (name, f"{value:.4f}")]
        rows.append([file, task, *cells, *[""] * (len(rows[0]) - 2 - len(cells))])
    if not any(task for _, task, *_ in rows[1:]):
        rows = [[file, *cells] for file, _, *cells in rows]
    return "\n".join(aligned(rows))


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


def _scores_of_images(pixels: list[Tensor], model: TrainedModel, size: int) -> list[Tensor]:
    split = images.DecodedImages(torch.stack(pixels), torch.zeros(len(pixels)))
    mean, std = map(torch.tensor, (model.preparation.mean, model.preparation.std))
    ((batch, _),) = ImageBatches(split, size, mean=mean, std=std)
    return model.scores(batch)


def _scores_of_recordings(waves: list[Any], model: TrainedModel, size: int) -> list[Tensor]:
    """Return the mean score of the windows of each recording."""
    starts = np.cumsum([0, *map(len, waves)])
    split = recordings.Recordings(np.concatenate(waves), starts, torch.zeros(len(waves)))
    frontend = LogMel(model.preparation.mean[0], model.preparation.std[0])
    classes = model.preparation.classes.values()
    sums = [torch.zeros(len(waves), len(names), dtype=torch.float64) for names in classes]
    for batch in AudioEvaluation({"": split}, size):
        windows, recording = batch[""]
        for total, scores in zip(sums, model.scores(frontend(windows)), strict=True):
            total.index_add_(0, recording, scores.double())
    windows_of = torch.from_numpy(np.ceil(np.diff(starts) / recordings.WINDOW_LENGTH))
    return [total / windows_of[:, None] for total in sums]
