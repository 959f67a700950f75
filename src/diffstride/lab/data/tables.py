"""Datasets that are tables, in parquet files or on the Hugging Face hub."""

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets
import pyarrow.parquet
import torch

from diffstride.lab.data.labelled_files import TEST_SPLITS, DataError, FileDataset, Kind, TableFiles
from diffstride.lab.data.splitting import ADVICE, HoldOut, has_test_set
from diffstride.lab.data.task_splitting import Unsplit

LABEL_COLUMNS = ("label", "labels", "fine_label", "class")  # usual names of the column of labels
# The most classes that labels without names may have, or ten for each example if that is more.
MOST_CLASSES = 10_000


def read_table(
    path: str,
    parquet: Sequence[Path],
    kind: Kind,
    label: str | None,
    known_classes: Sequence[str] | None,
    hold_out: HoldOut | None = None,
) -> FileDataset | Unsplit:
    """Return the files and labels in parquet files, or without any in a dataset on the hub.

    With ``hold_out``, return the training set that it is to be set apart of; no test set is needed
    then, and there must be none if a part becomes one.
    """
    on_hub = f"{path} is no folder here, and as a dataset of the hub it"
    splits = _load_parquet(path, parquet, hold_out is not None) if parquet else _load(on_hub, path)
    tests = [splits[name] for name in TEST_SPLITS if name in splits]
    if "train" not in splits or not (tests or hold_out):
        wrong = f"{path} must have a train and a test split, got {', '.join(splits)}"
        raise DataError(f"{wrong}: {ADVICE}" if "train" in splits else wrong)
    if tests and hold_out and hold_out.test_fraction is not None:
        raise has_test_set(path)
    train = splits["train"]
    column, target = _columns(train, kind, label)
    # A split whose labels are kept secret, as that of ImageNet, is there to be passed over.
    test = next((split for split in tests if set(split[target][:]) != {-1}), (tests or [None])[0])
    folder = Path(path).expanduser()
    listed = (folder.parent if folder.is_file() else folder) / "classes.json"
    names = getattr(train.features[target], "names", None)
    if names is None and listed.is_file():
        try:
            names = json.loads(listed.read_text())
        except (ValueError, RecursionError) as error:
            raise DataError(f"{listed} can't be read: {error}") from error
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise DataError(f"{listed} must be a list of the names of classes, in their order")
    # Classes of a run may be called by numbers: then 1 is not the second, but that of this name.
    called = [] if names is not None else list(known_classes or ())
    by_name = bool(called) and all(re.fullmatch(r"-?\d+", name) for name in called)
    if names is None:
        names = _classes_of_labels(train[target][:], path, known_classes)
    classes = tuple(map(str, names))
    if len(classes) < 2:
        raise DataError(f"{path} must have at least 2 classes, got {len(classes)}")
    if len(set(classes)) < len(classes):
        twice = next(name for name in classes if classes.count(name) > 1)
        raise DataError(f"{path} must have a name of its own for every class, got {twice!r} twice")

    def labelled(split: str, dataset: Any) -> TableFiles:
        values = dataset[target][:]
        if not values:
            raise DataError(f"there is nothing to read in the {split} set")
        if not _of_numbers(dataset, column):
            dataset = dataset.cast_column(column, _feature(kind)(decode=False))
        numbers = {name: number for number, name in enumerate(classes)}
        labels = [
            numbers.get(str(value), -1) if by_name or isinstance(value, str) else value
            for value in values
        ]
        for row, number in enumerate(labels):
            if type(number) is not int or not 0 <= number < len(classes):
                ((name, _),) = TableFiles(split, torch.empty(0), dataset, column).read([row])
                wanted = f"from 0 to {len(classes) - 1}, or names of classes"
                wrong = f"{values[row]!r} in column {target}"
                raise DataError(f"{name}: labels must be {wanted}, got {wrong}")
        return TableFiles(split, torch.tensor(labels, dtype=torch.long), dataset, column)

    if hold_out is None:
        return FileDataset(labelled("train", train), labelled("test", test), classes)
    whole, groups = labelled("train", train), None
    if hold_out.group is not None:
        if hold_out.group not in train.features:
            wanted = f"the column {hold_out.group!r} of --data.group"
            raise DataError(f"{path} must have {wanted}, got {', '.join(train.features)}")
        groups = train[hold_out.group][:]
        if None in groups:
            row = f"row {groups.index(None)}"
            raise DataError(f"{path}, {row}: there is nothing in column {hold_out.group}")
    return Unsplit(path, whole, classes, groups)


def _load_parquet(path: str, files: Sequence[Path], whole: bool) -> Mapping[str, Any]:
    """Return the sets of a folder of parquet files, by the names that the files begin with.

    If ``whole``, there need be no test set.
    """
    names = ("train", *TEST_SPLITS)
    splits = {name: [file for file in files if file.name.startswith(name)] for name in names}
    if not any(splits.values()):  # without a word of sets, all are one
        splits["train"] = list(files)
    data_files = {name: list(map(str, chosen)) for name, chosen in splits.items() if chosen}
    if "train" not in data_files or (len(data_files) < 2 and not whole):
        wanted = "parquet files whose names begin with train and with test or validation"
        got = ", ".join(f.name for f in files)
        raise DataError(f"{path} must have {wanted}, got {got}: or {ADVICE}")
    for name, chosen in splits.items():
        folders = sorted({str(file.parent) for file in chosen})
        if len(folders) > 1:  # as in a repository of several datasets, or of several labellings
            where = f"{len(folders)} folders: give one of {', '.join(folders)}"
            raise DataError(f"{path} has parquet files of the {name} set in {where}")
    loaded = _load(path, "parquet", data_files=data_files)
    # Each file says which name a number stands for, and `datasets` takes the first one's word.
    first: dict[str, tuple[str, list[str]]] = {}
    for file in itertools.chain(*data_files.values()):
        features = datasets.Features.from_arrow_schema(pyarrow.parquet.read_schema(file))
        for column, feature in features.items():
            if isinstance(feature, datasets.ClassLabel):
                other, listed = first.setdefault(column, (file, feature.names))
                if listed != feature.names:
                    wanted = f"the same classes in the same order in column {column}"
                    wrong = f"{listed} and {feature.names}"
                    raise DataError(f"{other} and {file} must have {wanted}, got {wrong}")
    return loaded


def _load(subject: str, *arguments: str, **options: Any) -> Mapping[str, Any]:
    datasets.disable_progress_bars()
    try:
        loaded: Mapping[str, Any] = datasets.load_dataset(*arguments, **options)
        return loaded
    except Exception as error:
        # What went wrong is the first of a chain of errors that says little at its end.
        first: BaseException = error
        while before := first.__cause__ or first.__context__:
            first = before
        raise DataError(f"{subject} can't be read: {first}") from error


def _feature(kind: Kind) -> Any:
    """Return the class of columns of such files."""
    return datasets.Image if kind.name == "image" else datasets.Audio


def _of_numbers(dataset: Any, column: str) -> bool:
    """Whether a column has lists of numbers, or of lists of numbers."""
    inside = dataset.data.schema.field(column).type
    depth = 0
    while hasattr(inside := getattr(inside, "storage_type", inside), "value_field"):
        inside, depth = inside.value_type, depth + 1
    numeric = pyarrow.types.is_integer(inside) or pyarrow.types.is_floating(inside)
    return depth in (1, 2) and numeric


def _columns(dataset: Any, kind: Kind, label: str | None) -> tuple[str, str]:
    """Return the names of the column of files and of the column of labels."""
    features = dataset.features

    def candidates(wanted: type, usual: Sequence[str]) -> list[str]:
        typed = [name for name, column in features.items() if isinstance(column, wanted)]
        return typed + [name for name in usual if name in features]

    files = candidates(_feature(kind), kind.columns)
    if kind.name == "signal" and not files:
        files = [name for name in features if _of_numbers(dataset, name)]
        if len(files) > 1:
            wrong = f"several columns of lists of numbers: {', '.join(files)}"
            raise DataError(f"the data have {wrong}: call that of signals {kind.columns[0]!r}")
    labels = candidates(datasets.ClassLabel, LABEL_COLUMNS)
    if label is not None:
        labels = [label] if label in features else []
    if not files or not labels:
        what = (
            "signals, files or lists of numbers" if kind.name == "signal" else f"{kind.name} files"
        )
        wanted = f"a column of {what} ({', '.join(kind.columns)}) and "
        wanted += label or f"one of labels ({', '.join(LABEL_COLUMNS)})"
        raise DataError(f"the data must have {wanted}, got {', '.join(features)}")
    return files[0], labels[0]


def _classes_of_labels(
    labels: Sequence[Any], path: str, known_classes: Sequence[str] | None
) -> Sequence[str] | range:
    """Return the labels that are words, or else as many numbers as the largest label says."""
    words = {label for label in labels if isinstance(label, str)}
    if words or known_classes:
        return sorted(words) or known_classes or ()
    numbers = [label for label in labels if isinstance(label, int)]
    largest, most = max(numbers, default=-1), max(MOST_CLASSES, 10 * len(numbers))
    if largest >= most:
        where = f"row {numbers.index(largest)} of the train set: label {largest:,}"
        wrong = f"{largest + 1:,} classes of {len(numbers):,} examples, and {most:,} is the most"
        raise DataError(f"{path}, {where} would make {wrong}: count labels from 0, or give names")
    return range(largest + 1)
