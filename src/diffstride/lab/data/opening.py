"""Labelled files wherever they are: in folders by class, in parquet files or on the hub."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from diffstride.lab.data.folders import by_class, walk
from diffstride.lab.data.sources import (
    LABEL_NAMES,
    TESTS,
    DataError,
    Files,
    Kind,
    Opened,
    Rows,
    require_seen,
    some,
)

SPLITS = ("train", *TESTS)
MOST_CLASSES = 10_000
"""Of labels that are bare numbers; of many examples, ten times their number."""


def open_files(
    path: str,
    kind: Kind,
    *,
    label: str | None = None,
    limit: int | None = None,
    classes: Sequence[str] | None = None,
) -> Opened:
    """The files of a training and a test set, and the names of their classes.

    Args:
        path: a folder of parquet files, a folder with ``train`` and ``test`` folders of files by
            class, or the name of a dataset on the Hugging Face hub. One that has no test but a
            validation split is tested on that.
        kind: of files.
        label: the column of labels; without it, the one that holds classes, or is called so.
        limit: how many files there are at most for training.
        classes: their names, where the data have only numbers: those of a run that was trained.

    Raises:
        DataError: for a missing folder, split or column, a label out of range, fewer than two
            classes, or one that only the test set has.
    """
    folder = Path(path).expanduser()
    files = walk(folder) if folder.is_dir() else {}
    packed = [file for file in files if file.suffix.lower() == ".parquet"]
    if folder.is_dir() and not packed:
        if label is not None:
            raise DataError(f"{path} is a folder by class, and has no column {label!r} of labels")
        opened = by_class(folder, files, kind)
    else:
        opened = _from_table(path, packed, kind, label, classes)
    if classes is None:  # otherwise these data are for a run that has seen its classes elsewhere
        require_seen(opened, path)
    return opened if limit is None else opened._replace(train=some(opened.train, limit))


def _from_table(
    path: str, packed: Sequence[Path], kind: Kind, label: str | None, known: Sequence[str] | None
) -> Opened:
    train, tests = _open(path, packed)
    column, target = _columns(train, kind, label)
    # A split whose labels are kept secret, as that of ImageNet, is there to be passed over.
    test = next((t for t in tests if set(t[target][:]) != {-1}), tests[0])
    names = _classes(train.features[target], train[target][:], path, known)
    return Opened(
        _files(train, column, target, "train", kind, names),
        _files(test, column, target, "test", kind, names),
        names,
    )


def _files(
    dataset: Any, column: str, target: str, split: str, kind: Kind, classes: tuple[str, ...]
) -> Files:
    import datasets

    found = dataset[target][:]
    if not found:
        raise DataError(f"there is nothing to read in the {split} set")
    dataset = dataset.cast_column(column, getattr(datasets, kind.feature)(decode=False))
    numbers = {name: i for i, name in enumerate(classes)}
    labels = [numbers.get(x, -1) if isinstance(x, str) else x for x in found]
    wrong = [
        i
        for i, x in enumerate(labels)
        if not isinstance(x, int) or isinstance(x, bool) or not 0 <= x < len(classes)
    ]
    if wrong:
        unlabelled = Rows(dataset, column, split, torch.empty(0))
        ((name, _),) = unlabelled.read(wrong[:1])
        raise DataError(
            f"{name}: labels must be from 0 to {len(classes) - 1}, or names of classes, got "
            f"{found[wrong[0]]!r} in column {target}"
        )
    return Rows(dataset, column, split, torch.tensor(labels, dtype=torch.long))


def _open(path: str, packed: Sequence[Path]) -> tuple[Any, list[Any]]:
    """The training set and what may serve as test set, the best first, as Hugging Face datasets."""
    import datasets

    datasets.disable_progress_bars()
    exists = Path(path).expanduser().exists()
    if packed:
        splits = {split: [f for f in packed if f.name.startswith(split)] for split in SPLITS}
        named = {split: [str(f) for f in found] for split, found in splits.items() if found}
        if "train" not in named or len(named) < 2:
            raise DataError(
                f"{path} must have parquet files whose names begin with train and with test "
                f"or validation, got {', '.join(f.name for f in packed)}"
            )
        for split, found in splits.items():
            places = sorted({str(file.parent) for file in found})
            if len(places) > 1:  # as in a repository of several datasets, or of several labellings
                raise DataError(
                    f"{path} has parquet files of the {split} set in {len(places)} folders: give "
                    f"one of {', '.join(places)}"
                )
        opened = _load(path, "parquet", data_files=named)
        _require_one_order([file for files in named.values() for file in files])
    elif not exists and re.fullmatch(r"[\w-]+(/[\w.-]+)?", path):
        opened = _load(f"{path} is no folder here, and as a dataset of the hub it", path)
    else:
        wrong = "is no folder" if exists else "does not exist"
        raise DataError(f"{path} {wrong}: --data.path is a folder or a dataset on the hub")
    tests = [opened[name] for name in TESTS if name in opened]
    if "train" not in opened or not tests:
        raise DataError(f"{path} must have a train and a test split, got {', '.join(opened)}")
    return opened["train"], tests


def _require_one_order(files: Sequence[str]) -> None:
    """Raise a DataError if parquet files number the same classes differently.

    Each file says in its own metadata which name a number stands for, and `datasets` takes what
    the first one says for all.
    """
    import datasets
    import pyarrow.parquet

    first: dict[str, tuple[str, list[str]]] = {}
    for file in files:
        features = datasets.Features.from_arrow_schema(pyarrow.parquet.read_schema(file))
        for column, feature in features.items():
            if isinstance(feature, datasets.ClassLabel):
                other, names = first.setdefault(column, (file, feature.names))
                if names != feature.names:
                    raise DataError(
                        f"{other} and {file} must have the same classes in the same order in "
                        f"column {column}, got {names} and {feature.names}"
                    )


def _load(what: str, *arguments: str, **options: Any) -> Any:
    import datasets

    try:
        return datasets.load_dataset(*arguments, **options)
    except Exception as error:
        # What went wrong is the first of a chain of errors that says little at its end.
        first: BaseException = error
        while first.__cause__ or first.__context__:
            first = first.__cause__ or first.__context__ or first
        raise DataError(f"{what} can't be read: {first}") from error


def _columns(dataset: Any, kind: Kind, label: str | None) -> tuple[str, str]:
    import datasets

    features = dataset.features
    feature = getattr(datasets, kind.feature)
    found = [name for name, f in features.items() if isinstance(f, feature)]
    found += [name for name in kind.columns if name in features]
    labels = [name for name, f in features.items() if isinstance(f, datasets.ClassLabel)]
    labels += [name for name in LABEL_NAMES if name in features]
    if label is not None:
        labels = [label] if label in features else []
    if not found or not labels:
        wanted = label or f"one of labels ({', '.join(LABEL_NAMES)})"
        raise DataError(
            f"the data must have a column of {kind.name} files ({', '.join(kind.columns)}) and "
            f"{wanted}, got {', '.join(features)}"
        )
    return found[0], labels[0]


def _classes(
    feature: Any, labels: Sequence[Any], path: str, otherwise: Sequence[str] | None
) -> tuple[str, ...]:
    """The names of the classes: from the data, from classes.json beside it, or just numbers."""
    names = getattr(feature, "names", None)
    listed = Path(path).expanduser() / "classes.json"
    if names is None and listed.is_file():
        try:
            names = json.loads(listed.read_text())
        except (ValueError, RecursionError) as error:
            raise DataError(f"{listed} can't be read: {error}") from error
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise DataError(f"{listed} must be a list of the names of classes, in their order")
    if names is None:
        words = {label for label in labels if isinstance(label, str)}
        numbers = [label for label in labels if isinstance(label, int)]
        names = sorted(words) if words else otherwise or _counted(numbers, path)
    classes = tuple(str(name) for name in names)
    if len(classes) < 2:
        raise DataError(f"{path} must have at least 2 classes, got {len(classes)}")
    if len(set(classes)) < len(classes):
        twice = next(name for name in classes if classes.count(name) > 1)
        raise DataError(f"{path} must have a name of its own for every class, got {twice!r} twice")
    return classes


def _counted(labels: Sequence[int], path: str) -> range:
    """As many classes as the largest label says."""
    largest = max(labels, default=-1)
    most = max(MOST_CLASSES, 10 * len(labels))
    if largest >= most:
        raise DataError(
            f"{path}, row {labels.index(largest)} of the train set: label {largest:,} would make "
            f"{largest + 1:,} classes of {len(labels):,} examples, and {most:,} is the most: count "
            f"labels from 0, or give names"
        )
    return range(largest + 1)
