"""Open a dataset wherever it is: folders by class, parquet files, a published layout, the hub."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from diffstride.lab.data.class_folders import groups_of, read_class_folders
from diffstride.lab.data.labelled_files import (
    DataError,
    FileDataset,
    FilePaths,
    FileSet,
    Kind,
    walk,
)
from diffstride.lab.data.published import LAYOUTS, read_published, recognise
from diffstride.lab.data.splitting import HoldOut, choose, has_test_set
from diffstride.lab.data.task_splitting import Unsplit, split_tasks


def open_files(
    path: str,
    kind: Kind,
    *,
    layout: str = "files",
    label: str | None = None,
    limit: int | None = None,
    classes: Sequence[str] | None = None,
    test_fraction: float | None = None,
    held_out: float | None = None,
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
        held_out: the part of each class of the training set that is returned instead of the test
            set, also always the same files.
        group: the column of what must not be in both sets; in folders by class ``"folder"``, the
            first one within that of the class, or ``"prefix"``, a file's name up to ``_``.

    Raises:
        DataError: for a missing folder, file, split or column, a label out of range, fewer than two
            classes, or one that only the test set has.
    """
    hold_out = HoldOut.of(test_fraction, held_out, group)
    tasks = {"": (path, label)}
    (dataset,) = open_tasks(
        tasks, kind, layout=layout, limit=limit, classes=classes, hold_out=hold_out
    ).values()
    return dataset


def open_tasks(
    tasks: Mapping[str, tuple[str, str | None]],
    kind: Kind,
    *,
    layout: str = "files",
    limit: int | None = None,
    classes: Sequence[str] | None = None,
    hold_out: HoldOut | None = None,
) -> dict[str, FileDataset]:
    """Return what :func:`open_files` does for each task, by the path and the label of each.

    What is tested on of one task is trained on for none: :func:`split_tasks`.
    """
    found = [_read(path, kind, layout, label, classes, hold_out) for path, label in tasks.values()]
    split = [data for data in found if isinstance(data, FileDataset)]
    unsplit = [data for data in found if isinstance(data, Unsplit)]
    if hold_out is not None:
        split = split_tasks(unsplit, hold_out)
    datasets = {}
    for (name, (path, _)), data in zip(tasks.items(), split, strict=True):
        require_trained(path, data.train.labels, data.test.labels, data.classes, classes)
        train, test = (_limited(files, limit) for files in (data.train, data.test))
        datasets[name] = FileDataset(train, test, data.classes)
    return datasets


def _read(
    path: str,
    kind: Kind,
    layout: str,
    label: str | None,
    classes: Sequence[str] | None,
    hold_out: HoldOut | None,
) -> FileDataset | Unsplit:
    """Return both sets, or with ``hold_out`` that of which a part is to be set apart."""
    folder = Path(path).expanduser()
    if layout == "auto":
        layout = recognise(folder) or "files"
    files = walk(folder) if folder.is_dir() and layout not in LAYOUTS else {}
    single = [folder] if folder.is_file() else []
    parquet = [file for file in (*files, *single) if file.suffix.lower() == ".parquet"]
    if layout in LAYOUTS:
        if hold_out is not None and hold_out.test_fraction is not None:
            raise has_test_set(path, f"the layout {layout}, and a test set")
        dataset = read_published(layout, folder, label)
        if hold_out is None:
            return dataset
        train = dataset.train
        assert isinstance(train, FilePaths)
        groups = groups_of(train, folder, hold_out.group)
        return Unsplit(path, train, dataset.classes, groups)
    if parquet or (not folder.exists() and re.fullmatch(r"[\w-]+(/[\w.-]+)?", path)):
        from diffstride.lab.data.tables import read_table  # `datasets` takes long to import

        return read_table(path, parquet, kind, label, classes, hold_out)
    if not folder.is_dir():
        wrong = "is no folder" if folder.exists() else "does not exist"
        raise DataError(f"{path} {wrong}: --data.path is a folder or a dataset on the hub")
    if label is not None:
        raise DataError(f"{path} is a folder by class, and has no column {label!r} of labels")
    return read_class_folders(folder, files, kind, hold_out)


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
