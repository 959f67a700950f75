"""The metrics of a run, and what it is judged by; also of trainings that name these as they like.

In trainings of one's own everyone names metrics otherwise. Those on the data that a training is
judged on become ``test_``, as in a run of ours, and :attr:`Metrics.tested` says which data they are
of.
"""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from diffstride.lab.runs.config_file import RECORDED
from diffstride.lab.runs.documents import read_rows
from diffstride.lab.runs.scores import ACCURACY, PSNR, Score, score_of

Rows = list[dict[str, float]]

TESTED = {
    "test": "Test",
    "val": "Validation",
    "valid": "Validation",
    "validation": "Validation",
    "eval": "Evaluation",
    "dev": "Development",
    "": "Logged",
    "train": "Training",
}
"""How names of metrics begin, by the data they are of, and what these are called. A training is
judged on the first of them that it has metrics of."""
FILLED = ("epoch", "step", "stride_penalty", "mmacs", "lr", "learning_rate", "grad_norm")
"""What is no measure of how good a network is."""
ACCURACIES = ("accuracy", "acc", "top1", "balanced_accuracy")
LOWER = ("loss", "error", "perplexity", "mse", "rmse", "mae", "wer", "cer", "fid", "nll")
"""The last words of measures that are the better the lower they are."""
MOST_OTHERS = 12


class Metrics(NamedTuple):
    """The metrics of a training, and how to read them."""

    rows: Rows
    score: Score
    tested: str
    """On which data the columns are that begin with ``test_``, as a heading begins."""
    others: dict[str, list[tuple[int, str]]]
    """What else was measured: of each figure its lines, with the dash and the column."""


def metrics_of(folder: Path, config: Mapping[str, Any]) -> Metrics:
    """Return the metrics in the folder of a run with these settings; none if there are none yet."""
    path, data = folder / "metrics.csv", config["data"]
    if config.get(RECORDED):
        return named_otherwise(numbers(path, "epoch"), str(config.get("judged_by")))
    score = score_of(data.get("noise"))
    tested = "Held-out" if data.get("held_out") else "Test"
    return Metrics(numbers(path, "epoch", score.column), score, tested, {})


def numbers(path: Path, *columns: str) -> Rows:
    """Return the rows of a table, of what is a finite number; none if there is no such file."""
    return [
        {name: float(cell) for name, cell in row.items() if cell and math.isfinite(float(cell))}
        for row in (read_rows(path, *columns) if path.is_file() else ())
    ]


def named_otherwise(rows: Rows, judged_by: str = "") -> Metrics:
    """Return the metrics in these rows of metrics.csv, of which any but the epoch may be missing.

    >>> found = named_otherwise([{"epoch": 1, "train_loss": 0.5, "val_acc": 0.75, "val_loss": 0.6}])
    >>> found.tested, found.score.column, found.score.text(found.rows[0]["test_acc"])
    ('Validation', 'test_acc', '75.00 %')
    """
    columns = list(dict.fromkeys(name for row in rows for name in row if name not in FILLED))
    parts = {name: _split(name) for name in columns}
    given = parts.get(judged_by)
    there = {split for split, _ in parts.values()}
    split = given[0] if given else next((split for split in TESTED if split in there), "")
    measures = [measure for part, measure in parts.values() if part == split]
    measure = given[1] if given else _first(measures)
    values = [row[name] for row in rows for name in row if parts.get(name) == (split, measure)]
    # What is of other data again may be called as what the training is judged on is here.
    prefixes = {"train": "train_", split: "test_"}
    names = {
        name: prefixes[part] + what if part in prefixes else f"other {name}"
        for name, (part, what) in parts.items()
    }
    renamed = [{names.get(name, name): value for name, value in row.items()} for row in rows]
    shown = {f"test_{measure}", f"train_{measure}", "test_loss", "train_loss"}
    others: dict[str, list[tuple[int, str]]] = {}
    for name in [*columns, "lr", "learning_rate"]:
        column = names.get(name, name)
        title = parts[name][1] if name in names and parts[name][0] in prefixes else name
        if column not in shown and any(column in row for row in renamed):
            others.setdefault(title, []).append((int(column.startswith("train_")), column))
    first = dict(list(others.items())[:MOST_OTHERS])
    return Metrics(renamed, score_named(measure, values), TESTED[split], first)


def _split(name: str) -> tuple[str, str]:
    """Return what data a metric is of, and what it measures."""
    found = re.fullmatch(rf"({'|'.join(filter(None, TESTED))}|training)[_/](.+)", name)
    if found is None:
        return "", name
    return found[1].replace("training", "train"), found[2]


def _first(measures: Sequence[str]) -> str:
    """Return what a training is judged by: an accuracy, or what was measured first but a loss."""
    for name in (*ACCURACIES, *(name for name in measures if "loss" not in name)):
        if name in measures:
            return name
    return measures[0] if measures else "loss"


def score_named(name: str, values: Sequence[float]) -> Score:
    """Return how a measure is written, by its name and the values that it had.

    >>> score_named("accuracy", [0.5]).text(0.5), score_named("acc", [50.0]).text(50.0)
    ('50.00 %', '50.00 %')
    >>> score_named("val_f1", [0.5]).text(0.5)
    '0.5000'
    """
    last = re.split(r"[_/ ]", name.lower())[-1]
    if name in ACCURACIES:
        title = "accuracy" if name == "acc" else name.replace("_", " ")
        accuracy = ACCURACY._replace(name=name, title=title)
        in_percent = any(value > 1 for value in values)
        return accuracy._replace(factor=1.0, most=100.0) if in_percent else accuracy
    if last == "psnr":
        return PSNR._replace(name=name)
    title = name.replace("_", " ")
    return Score(name, title, 1.0, "", title, "", 4, 3, lower_is_better=last in LOWER)
