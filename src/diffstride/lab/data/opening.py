"""Open a dataset wherever it is: folders by class, parquet files, a published layout, the hub."""

import re
from collections.abc import Sequence
from pathlib import Path

import torch

from diffstride.lab.data.class_folders import read_class_folders, walk
from diffstride.lab.data.labelled_files import DataError, FileDataset, Kind
from diffstride.lab.data.published import LAYOUTS, read_published, recognise


def open_files(
    path: str,
    kind: Kind,
    *,
    layout: str = "files",
    label: str | None = None,
    limit: int | None = None,
    classes: Sequence[str] | None = None,
) -> FileDataset:
    """Return the files of a training and a test set, and the names of their classes.

    Args:
        path: a folder of parquet files, a folder with ``train`` and ``test`` folders of files by
            class, a published dataset, or the name of a dataset on the Hugging Face hub. A dataset
            that has no test but a validation set is tested on that.
        kind: what the files hold.
        layout: how the dataset was published: a name in ``LAYOUTS``, ``"auto"`` to recognise it, or
            ``"files"`` for any other dataset.
        label: the column of labels; without it, the one that holds classes, or is called so.
        limit: how many files for training to take at most, always the same ones.
        classes: their names, where the data have only numbers: those of a run that was trained.

    Raises:
        DataError: for a missing folder, file, split or column, a label out of range, fewer than two
            classes, or one that only the test set has.
    """
    folder = Path(path).expanduser()
    if layout == "auto":
        layout = recognise(folder) or "files"
    published = layout in LAYOUTS
    files = walk(folder) if folder.is_dir() and not published else {}
    parquet = [file for file in files if file.suffix.lower() == ".parquet"]
    if published:
        dataset = read_published(layout, folder, label)
    elif parquet or (not folder.exists() and re.fullmatch(r"[\w-]+(/[\w.-]+)?", path)):
        from diffstride.lab.data.tables import read_table  # `datasets` takes long to import

        dataset = read_table(path, parquet, kind, label, classes)
    elif not folder.is_dir():
        wrong = "is no folder" if folder.exists() else "does not exist"
        raise DataError(f"{path} {wrong}: --data.path is a folder or a dataset on the hub")
    elif label is not None:
        raise DataError(f"{path} is a folder by class, and has no column {label!r} of labels")
    else:
        dataset = read_class_folders(folder, files, kind)
    if classes is None:  # otherwise these data are for a run that has seen its classes elsewhere
        _require_trained_classes(dataset, path)
    if limit is None or limit >= len(dataset.train):
        return dataset
    # From all over the set: it may be sorted by class.
    order = torch.randperm(len(dataset.train), generator=torch.Generator().manual_seed(0))
    return dataset._replace(train=dataset.train.select(sorted(order[:limit].tolist())))


def _require_trained_classes(dataset: FileDataset, path: str) -> None:
    """Raise a DataError for a class that is tested and never trained on: it can't be learned."""
    never = sorted(set(dataset.test.labels.tolist()) - set(dataset.train.labels.tolist()))
    if never:
        names = ", ".join(dataset.classes[i] for i in never[:20]) + (", ..." if never[20:] else "")
        raise DataError(
            f"{path}: the test set has classes that the training set has no example of: {names}: "
            f"add examples of them to the training set, or remove them from the test set"
        )
