"""Open a dataset wherever it is: folders by class, parquet files, a published layout, the hub."""

import re
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from diffstride.lab.data.class_folders import read_class_folders
from diffstride.lab.data.labelled_files import DataError, FileDataset, FileSet, Kind, walk
from diffstride.lab.data.published import LAYOUTS, read_published, recognise
from diffstride.lab.data.splitting import HoldOut, choose, has_test_set


def open_files(
    path: str,
    kind: Kind,
    *,
    layout: str = "files",
    label: str | None = None,
    limit: int | None = None,
    classes: Sequence[str] | None = None,
    test_fraction: float | None = None,
    group: str | None = None,
) -> FileDataset:
    """Return the files of a training and a test set, and the names of their classes.

    Args:
        path: a folder of parquet files, a folder with ``train`` and ``test`` (or ``validation``)
            folders of files by class, a published dataset, or the name of one on the hub. With
            ``test_fraction`` also a parquet file, or a folder of files by class.
        kind: what the files hold.
        layout: a name in ``LAYOUTS``, ``"auto"`` to recognise it, or ``"files"`` for any other.
        label: the column of labels; without it, the one that holds classes, or is called so.
        limit: how many files of either set to take at most, always the same ones.
        classes: their names, where the data have only numbers: those of a run that was trained.
        test_fraction: the part of each class to test on, where no test set is given: always the
            same files.
        group: the column of what must not be in both sets; in folders by class ``"folder"``, the
            first one within that of the class, or ``"prefix"``, a file's name up to ``_``.

    Raises:
        DataError: for a missing folder, file, split or column, a label out of range, fewer than two
            classes, or one that only the test set has.
    """
    hold_out = None if test_fraction is None else HoldOut(test_fraction, group)
    folder = Path(path).expanduser()
    if layout == "auto":
        layout = recognise(folder) or "files"
    files = walk(folder) if folder.is_dir() and layout not in LAYOUTS else {}
    single = [folder] if folder.is_file() else []
    parquet = [file for file in (*files, *single) if file.suffix.lower() == ".parquet"]
    if layout in LAYOUTS:
        if hold_out is not None:
            raise has_test_set(path, f"the layout {layout}, and a test set")
        dataset = read_published(layout, folder, label)
    elif parquet or (not folder.exists() and re.fullmatch(r"[\w-]+(/[\w.-]+)?", path)):
        from diffstride.lab.data.tables import read_table  # `datasets` takes long to import

        dataset = read_table(path, parquet, kind, label, classes, hold_out)
    elif not folder.is_dir():
        wrong = "is no folder" if folder.exists() else "does not exist"
        raise DataError(f"{path} {wrong}: --data.path is a folder or a dataset on the hub")
    elif label is not None:
        raise DataError(f"{path} is a folder by class, and has no column {label!r} of labels")
    else:
        dataset = read_class_folders(folder, files, kind, hold_out)
    require_trained(path, dataset.train.labels, dataset.test.labels, dataset.classes, classes)
    return dataset._replace(
        train=_limited(dataset.train, limit), test=_limited(dataset.test, limit)
    )


def require_trained(
    path: str, train: Tensor, test: Tensor, names: Sequence[str], known: Sequence[str] | None
) -> None:
    """Raise a DataError if labels to test on are never trained on.

    With known classes, the data are for a run that was trained on others.
    """
    never = sorted(set(test.tolist()) - set(train.tolist()))
    if never and known is None:
        listed = ", ".join(names[i] for i in never[:20]) + (", ..." if never[20:] else "")
        wrong = f"the test set has classes that the training set has no example of: {listed}"
        raise DataError(f"{path}: {wrong}: add examples to the training set, or remove the classes")


def _limited(files: FileSet, limit: int | None) -> FileSet:
    chosen = choose(len(files), limit)
    return files if chosen is None else files.select(chosen)
