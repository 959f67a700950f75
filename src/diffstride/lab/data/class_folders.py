"""Folders ``train`` and ``test`` with a folder of files for each class, read through links."""

import os
from collections.abc import Mapping
from pathlib import Path

from diffstride.lab.data.labelled_files import TEST_SPLITS, DataError, FileDataset, FilePaths, Kind

MOST_FOLDERS = 1_000_000
"""A walk through more folders goes round in links."""


def walk(folder: Path) -> dict[Path, str]:
    """Return all files below a folder, in order of their paths, each with its real path.

    Links to folders are followed, but not back into a folder that the path has come through.
    Hidden files and folders are left out, and what macOS packs into archives. A link that leads
    nowhere counts as a file. A folder that can't be read is a DataError.
    """
    files: dict[Path, str] = {}
    start = os.path.realpath(folder)
    waiting = [(folder, start, frozenset([start]))]
    visited = 0
    while waiting:
        here, real, through = waiting.pop()
        visited += 1
        if visited > MOST_FOLDERS:
            raise DataError(
                f"{folder} has more than {MOST_FOLDERS:,} folders: links in it lead in circles, "
                f"remove them"
            )
        try:
            with os.scandir(here) as scan:
                entries = [e for e in scan if not e.name.startswith(".") and e.name != "__MACOSX"]
        except OSError as error:
            raise DataError(f"{here} can't be read: {error.strerror}") from error
        for entry in entries:
            path = here / entry.name
            link = entry.is_symlink()  # only then is the disk asked again: there may be millions
            real_path = os.path.realpath(path) if link else f"{real}{os.sep}{entry.name}"
            if not (path if link else entry).is_dir():
                files[path] = real_path
            elif real_path not in through:
                waiting.append((path, real_path, through | {real_path}))
    return dict(sorted(files.items(), key=lambda item: str(item[0])))


def read_class_folders(folder: Path, files: Mapping[Path, str], kind: Kind) -> FileDataset:
    """Return the training and the test set of a folder, of which :func:`walk` gave the files.

    A file is of the class whose folder it is in, however deep; files of another kind are passed
    over. The classes are those of both sets. A DataError says if a folder is missing, a class has
    no file, a file is beside the folders of classes, a link leads nowhere, or a file is linked into
    both sets or into two classes.
    """
    test = next((name for name in TEST_SPLITS if (folder / name).is_dir()), "")
    trained = {path.name for path in (folder / "train").glob("[!.]*") if path.is_dir()}
    trained.discard("__MACOSX")
    if len(trained) < 2 or not test:
        raise DataError(
            f"{folder} has neither parquet files nor the folders train and test, with a folder of "
            f"{kind.name} files for each of two classes or more"
        )
    first_uses: dict[str, tuple[Path, tuple[str, str]]] = {}
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
        first, use = first_uses.setdefault(real_path, (path, (split, inside[0])))
        if use != (split, inside[0]):
            raise DataError(
                f"{first} and {path} are one file: it can't be of two classes, nor both trained "
                f"on and tested on"
            )
        examples[split].append((path, inside[0]))
    empty = sorted(trained - {name for _, name in examples["train"]})
    if empty or not examples[test]:
        where = folder / "train" / empty[0] if empty else folder / test
        raise DataError(f"{where} has no {kind.name} file ({', '.join(kind.suffixes[:5])}, ...)")
    classes = sorted(trained | {name for _, name in examples[test]})
    numbers = {name: number for number, name in enumerate(classes)}
    train_files, test_files = (
        FilePaths.from_examples(
            split, [(path, numbers[name]) for path, name in examples[folder_name]]
        )
        for split, folder_name in (("train", "train"), ("test", test))
    )
    return FileDataset(train_files, test_files, tuple(classes))
