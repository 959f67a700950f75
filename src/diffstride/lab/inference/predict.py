"""Classify files with a network that was trained, wherever it is kept."""

import csv
import io
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import torch

from diffstride.lab.data.labelled_files import DataError, walk
from diffstride.lab.inference.readers import READERS, Reader
from diffstride.lab.inference.trained_model import open_model
from diffstride.lab.runs.documents import json_text
from diffstride.lab.runs.waiting import progress_bar
from diffstride.text import aligned, one_line

MOST_BYTES = 2**32  # of a file, which is read at once: what a WAV can hold
BYTES_AT_ONCE = 2**26  # of files that are in memory together, unless one alone has more


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
    if top < 1:
        raise ValueError(f"--top must be at least 1, got {top}")
    model = open_model(path, best)
    reader = READERS[model.preparation.kind](model, resize)
    tasks = model.preparation.classes

    def attempt(file: Path) -> Any:
        try:
            return reader.read(str(file), _content(file))
        except DataError as error:
            return error

    listed = list(list_files(map(Path, files), reader, errors))
    with (
        ThreadPoolExecutor(os.cpu_count()) as threads,
        progress_bar("predicting", len(listed)) as bar,
    ):
        for group in _groups(listed, reader.at_once):
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


def list_files(paths: Iterable[Path], reader: Reader, errors: list[str]) -> Iterator[Path]:
    """Yield files as they are given, and of folders the files in them that a reader is for."""
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        try:
            found = [file for file in walk(path) if file.suffix.lower() in reader.suffixes]
            if not found:
                wanted = f"{reader.kind}: no file ends with {', '.join(reader.suffixes[:3])}"
                raise DataError(f"{path} is a folder without {wanted} or the like")
            yield from found
        except DataError as error:
            errors.append(str(error))


def _groups(files: Sequence[Path], most: int) -> Iterator[list[Path]]:
    """Yield files in order, so many at once or fewer: together they must fit into memory."""
    group: list[Path] = []
    together = 0
    for file in files:
        size = file.stat().st_size if file.is_file() else 0
        if group and (len(group) == most or together + size > BYTES_AT_ONCE):
            yield group
            group, together = [], 0
        group.append(file)
        together += size
    if group:
        yield group


def _content(path: Path) -> bytes:
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
        content = {"file": file} | ({"task": task} if task else {}) | {"classes": named}
        yield before + json_text(content)
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
    yield _csv_line(_header(most, "class_{}", "probability_{}"))
    for file, task, classes in chain(first, rest):
        cells = [cell for pair in classes for cell in pair]
        yield _csv_line([file, task, *cells, *[""] * (2 * (most - len(classes)))])


def _header(most: int, name: str, probability: str) -> list[str]:
    """Return the heads of columns; the first class has no number."""
    later = (form.format(i) for i in range(2, most + 1) for form in (name, probability))
    return ["file", "task", "class", "probability", *later]


def _csv_line(cells: Sequence[Any]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text).writerow(cells)  # which quotes what ends its own lines, "\r\n"
    return text.getvalue()[:-2]


FORMS = {"table": table, "json": as_json, "csv": as_csv}
"""What makes lines of predictions, by name."""


def print_predictions(form: str, path: str, files: Sequence[str], **options: Any) -> int:
    """Print what files are, errors in the end and on stderr; return 1 if there are any, else 0."""
    errors: list[str] = []
    if isinstance(sys.stdout, io.TextIOWrapper):  # names of files need not be of any encoding
        sys.stdout.reconfigure(errors="surrogateescape")
    for line in FORMS[form](predict(path, files, errors, **options)):
        print(line)
    for error in errors:
        print(f"diffstride: {one_line(error)}", file=sys.stderr)
    return 1 if errors else 0
