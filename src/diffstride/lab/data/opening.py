"""Open a dataset wherever it is: folders by class, parquet files, a published layout, the hub."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from diffstride.lab.data.labelled_files import TEST_SPLITS, DataError, FileDataset, Kind, walk
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
        path: a folder of parquet files, a folder with ``train`` and ``test`` (or ``validation``)
            folders of files by class, a published dataset, or the name of one on the hub.
        kind: what the files hold.
        layout: a name in ``LAYOUTS``, ``"auto"`` to recognise it, or ``"files"`` for any other.
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
    files = walk(folder) if folder.is_dir() and layout not in LAYOUTS else {}
    parquet = [file for file in files if file.suffix.lower() == ".parquet"]
    if layout in LAYOUTS:
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
        dataset = _read_class_folders(folder, files, kind)
    never = sorted(set(dataset.test.labels.tolist()) - set(dataset.train.labels.tolist()))
    # With classes, these data are for a run that was trained on others.
    if never and classes is None:
        names = ", ".join(dataset.classes[i] for i in never[:20]) + (", ..." if never[20:] else "")
        wrong = f"the test set has classes that the training set has no example of: {names}"
        raise DataError(f"{path}: {wrong}: add examples to the training set, or remove the classes")
    if limit is None or limit >= len(dataset.train):
        return dataset
    # From all over the set: it may be sorted by class.
    order = torch.randperm(len(dataset.train), generator=torch.Generator().manual_seed(0))
    return dataset._replace(train=dataset.train.select(sorted(order[:limit].tolist())))


def _read_class_folders(folder: Path, files: Mapping[Path, str], kind: Kind) -> FileDataset:
    """Return the training and the test set of a folder, of which :func:`walk` gave the files.

    A file is of the class whose folder it is in, however deep; those of other kinds are left out.
    """
    test = next((name for name in TEST_SPLITS if (folder / name).is_dir()), "")
    trained = {path.name for path in (folder / "train").glob("[!.]*") if path.is_dir()}
    trained.discard("__MACOSX")
    if len(trained) < 2 or not test:
        wanted = f"with a folder of {kind.name} files for each of two classes or more"
        neither = "has neither parquet files nor the folders train and test"
        raise DataError(f"{folder} {neither}, {wanted}")
    first_uses: dict[str, tuple[Path, str, str]] = {}
    examples: dict[str, list[tuple[Path, str]]] = {"train": [], test: []}
    for path, real_path in files.items():
        split, *inside = path.relative_to(folder).parts
        if split not in examples:
            continue
        if path.suffix.lower() not in kind.suffixes:
            if not path.exists():  # it may have been the folder of a class on a disk that is away
                raise DataError(f"{path} is a link to {path.readlink()}, which is not there")
            continue
        if len(inside) < 2:
            raise DataError(f"{path} must be in the folder of a class, {path.parent / 'CLASS'}")
        first, *use = first_uses.setdefault(real_path, (path, split, inside[0]))
        if use != [split, inside[0]]:
            wrong = "it can't be of two classes, nor both trained on and tested on"
            raise DataError(f"{first} and {path} are one file: {wrong}")
        examples[split].append((path, inside[0]))
    empty = sorted(trained - {name for _, name in examples["train"]})
    if empty or not examples[test]:
        where = folder / "train" / empty[0] if empty else folder / test
        raise DataError(f"{where} has no {kind.name} file ({', '.join(kind.suffixes[:5])}, ...)")
    classes = sorted(trained | {name for _, name in examples[test]})
    numbers = {name: number for number, name in enumerate(classes)}
    train, tested = (
        [(path, numbers[name]) for path, name in examples[split]] for split in ("train", test)
    )
    return FileDataset.of(train, tested, classes)
