"""Classify files with a network that was trained, wherever it is kept."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from diffstride.lab.data.audio_decoding import to_samples
from diffstride.lab.data.batches import AudioEvaluation, ImageBatches
from diffstride.lab.data.images import DecodedImages
from diffstride.lab.data.labelled_files import DataError
from diffstride.lab.data.recordings import Recordings
from diffstride.lab.data.spectrogram import LogMel
from diffstride.lab.inference.load_trained import TrainedModel, open_model
from diffstride.text import aligned

MOST_BYTES = 2**32
"""Of a file, which is read at once: what a WAV can hold."""


class Prediction(NamedTuple):
    """The classes that a file may have."""

    file: str
    task: str
    """Empty if there is but one."""
    classes: list[tuple[str, float]]
    """Names and probabilities, the most probable first."""


class Predictions(NamedTuple):
    """What was predicted, and what could not be."""

    predictions: list[Prediction]
    """In the order of the files; for each file one for every task."""
    errors: list[str]
    """What is wrong with the other files."""


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
            return to_samples(str(file), data)
        except DataError as error:
            return error

    from tqdm import tqdm

    # As many at once as fit whatever their size; of recordings, which may be long, a few.
    at_once = _batch_size(model) if of_images else 32
    scores_of = _scores_of_images if of_images else _scores_of_recordings
    predictions, errors = [], []
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
            if readable:
                scores = scores_of([data for _, data in readable], model)
                for i, (name, _) in enumerate(readable):
                    tasks = zip(model.preparation.classes.items(), scores, strict=True)
                    predictions += [_ranked(name, task, y[i], top) for task, y in tasks]
            bar.update(len(names))
    return Predictions(predictions, errors)


def table(predictions: Sequence[Prediction]) -> str:
    """Return predictions in columns: file, task if there are several, classes, probabilities."""
    tasks = any(prediction.task for prediction in predictions)
    heading = ["file", *(["task"] if tasks else [])]
    for i in range(max((len(prediction.classes) for prediction in predictions), default=1)):
        heading += [f"class {i + 1}" if i else "class", "probability"]
    rows = [heading]
    for file, task, classes in predictions:
        cells = [cell for name, value in classes for cell in (name, f"{value:.4f}")]
        row = [file, *([task] if tasks else []), *cells]
        rows.append(row + [""] * (len(heading) - len(row)))
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


def _scores_of_images(pixels: list[Tensor], model: TrainedModel) -> list[Tensor]:
    split = DecodedImages(torch.stack(pixels), torch.zeros(len(pixels)))
    mean, std = map(torch.tensor, (model.preparation.mean, model.preparation.std))
    ((batch, _),) = ImageBatches(split, len(pixels), mean=mean, std=std)
    return model.scores(batch)


def _scores_of_recordings(waves: list[Any], model: TrainedModel) -> list[Tensor]:
    """Return the mean score of the windows of each recording."""
    starts = np.cumsum([0, *map(len, waves)])
    split = Recordings(np.concatenate(waves), starts, torch.zeros(len(waves)))
    frontend = LogMel(model.preparation.mean[0], model.preparation.std[0])
    owners, scores = [], []
    for batch in AudioEvaluation({"": split}, _batch_size(model)):
        windows, recording = batch[""]
        owners.append(recording)
        scores.append([task.double() for task in model.scores(frontend(windows))])
    owner = torch.cat(owners)
    by_task = [torch.cat(task) for task in zip(*scores, strict=True)]
    sums = [y.new_zeros(len(waves), y.shape[1]).index_add_(0, owner, y) for y in by_task]
    return [total / torch.bincount(owner)[:, None] for total in sums]


def _batch_size(model: TrainedModel) -> int:
    """Return how many inputs to score at once: fewer, if they are large."""
    _, height, width = model.preparation.size
    return max(1, min(256, 2**20 // (height * width)))


def _ranked(file: str, task: tuple[str, Sequence[str]], scores: Tensor, top: int) -> Prediction:
    """Return the most probable classes of a file for a task, of which all names are given."""
    name, classes = task
    values, places = scores.double().softmax(0).topk(min(top, len(classes)))
    ranked = zip(places.tolist(), values.tolist(), strict=True)
    return Prediction(file, name, [(classes[i], value) for i, value in ranked])
