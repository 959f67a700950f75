"""Classify files with a network that was trained, wherever it is kept; or restore images."""

import io
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import torch

from diffstride.lab.data.labelled_files import DataError
from diffstride.lab.inference import restoring
from diffstride.lab.inference.given_files import content, in_groups, list_files
from diffstride.lab.inference.readers import READERS
from diffstride.lab.inference.trained_model import TrainedModel, open_model
from diffstride.lab.runs.documents import json_text
from diffstride.lab.runs.waiting import progress_bar
from diffstride.text import aligned, csv_line, one_line


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

    The arguments are those of :func:`predict`, and so are the errors.
    """
    errors: list[str] = []
    found = list(predict(path, files, errors, top=top, resize=resize, best=best))
    return Predictions(found, errors)


def predict(
    path: str | Path,
    files: Sequence[str | Path],
    errors: list[str],
    *,
    top: int = 1,
    resize: bool = False,
    best: bool = False,
) -> Iterator[Prediction]:
    """Yield what files are, a few at a time: however many there are, they need no more memory.

    Args:
        path: the folder of a run, a file or folder that :func:`export_run` wrote.
        files: images, or recordings of any length; or folders, of which all such files are taken,
            also from folders in them, in order and without hidden ones.
        errors: a list, to which is added what is wrong with files that are left out.
        top: how many classes to return, the most probable first.
        resize: whether images of another size than the network was trained on are scaled until
            they cover it, and their middle is taken; otherwise they are errors.
        best: for a run, the epoch that was best on the test data, instead of the last.

    Raises:
        ValueError: if there is no such network, or it can't be read.
    """
    yield from _classes(open_model(path, best), files, errors, top, resize)


def _classes(
    model: TrainedModel,
    files: Sequence[str | Path],
    errors: list[str],
    top: int = 1,
    resize: bool = False,
) -> Iterator[Prediction]:
    if top < 1:
        raise ValueError(f"--top must be at least 1, got {top}")
    if model.preparation.noise is not None:
        raise ValueError(f"{model.where} restores images, and has no classes for them")
    reader = READERS[model.preparation.kind](model, resize)
    tasks = model.preparation.classes

    def attempt(file: Path) -> Any:
        try:
            return reader.read(str(file), content(file))
        except DataError as error:
            return error

    listed = list(list_files(map(Path, files), reader, errors))
    with (
        ThreadPoolExecutor(os.cpu_count()) as threads,
        progress_bar("predicting", len(listed)) as bar,
    ):
        for group in in_groups(listed, reader.at_once):
            contents = list(zip(group, threads.map(attempt, group), strict=True))
            errors += [str(data) for _, data in contents if isinstance(data, DataError)]
            readable = [(name, data) for name, data in contents if not isinstance(data, DataError)]
            with torch.inference_mode():
                scores = reader.scores([data for _, data in readable]) if readable else []
            for i, (file, _) in enumerate(readable):
                for (task, classes), y in zip(tasks.items(), scores, strict=True):
                    values, places = y[i].double().softmax(0).topk(min(top, len(classes)))
                    ranked = zip(places.tolist(), values.tolist(), strict=True)
                    named = [(classes[place], value) for place, value in ranked]
                    yield Prediction(str(file), task, named)
            bar.update(len(group))


def table(predictions: Iterable[Prediction]) -> Iterator[str]:
    """Yield predictions in columns: file, task if there are several, classes, probabilities."""
    rows = list(predictions)
    most = max((len(prediction.classes) for prediction in rows), default=0)
    lines = [_header(most, "class {}", "probability")]
    for file, task, classes in rows:
        cells = [cell for name, value in classes for cell in (one_line(name), f"{value:.4f}")]
        lines.append([one_line(file), task, *cells, *[""] * (2 * (most - len(classes)))])
    if not any(row.task for row in rows):
        lines = [[file, *cells] for file, _, *cells in lines]
    yield from aligned(lines) if rows else ()


def as_json(predictions: Iterable[Prediction]) -> Iterator[str]:
    """Yield the lines of a JSON list with an object for each prediction."""
    before = "["
    for file, task, classes in predictions:
        named = [{"class": name, "probability": value} for name, value in classes]
        found = {"file": file} | ({"task": task} if task else {}) | {"classes": named}
        yield before + json_text(found)
        before = ","
    yield "]" if before == "," else "[]"


def as_csv(predictions: Iterable[Prediction]) -> Iterator[str]:
    """Yield the lines of a CSV table: file, task (empty if there is one), classes in order.

    A task that has fewer classes than others has empty cells at the end.
    """
    first: list[Prediction] = []  # of one file, which has a prediction for every task
    rest = iter(predictions)
    for prediction in rest:
        first.append(prediction)
        if prediction.file != first[0].file:
            break
    most = max((len(prediction.classes) for prediction in first), default=1)
    yield csv_line(_header(most, "class_{}", "probability_{}"))
    for file, task, classes in chain(first, rest):
        cells = [cell for pair in classes for cell in pair]
        yield csv_line([file, task, *cells, *[""] * (2 * (most - len(classes)))])


def _header(most: int, name: str, probability: str) -> list[str]:
    """Return the heads of columns; the first class has no number."""
    later = (form.format(i) for i in range(2, most + 1) for form in (name, probability))
    return ["file", "task", "class", "probability", *later]


FORMS = {"table": table, "json": as_json, "csv": as_csv}
"""What makes lines of predictions, by name."""


USUAL = {"top": 1, "resize": False}
"""What options have that are not given."""


def print_predictions(
    form: str,
    path: str,
    files: Sequence[str],
    *,
    best: bool = False,
    out: str | None = None,
    **options: Any,
) -> int:
    """Print what files are, errors in the end and on stderr; return 1 if there are any, else 0.

    With a network that restores images, these are written into the folder ``out``, and it is
    printed where each one is.
    """
    errors: list[str] = []
    model = open_model(path, best)
    if model.preparation.noise is not None:
        given = [name for name, value in options.items() if value != USUAL[name]]
        if given:
            restores = f"{path} restores images of any size"
            raise ValueError(f"--{given[0]} is for networks that classify, and {restores}")
        lines = restoring.FORMS[form](restoring.restore(model, files, errors, out or restoring.OUT))
    elif out is not None:
        raise ValueError(f"--out is for networks that restore images, and {path} classifies")
    else:
        lines = FORMS[form](_classes(model, files, errors, **options))
    if isinstance(sys.stdout, io.TextIOWrapper):  # names of files need not be of any encoding
        sys.stdout.reconfigure(errors="surrogateescape")
    for line in lines:
        print(line)
    for error in errors:
        print(f"diffstride: {one_line(error)}", file=sys.stderr)
    return 1 if errors else 0
