"""Folders of files by class, read through links."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from diffstride.lab.data.sources import TESTS, DataError, Kind, Opened, Paths

MOST_FOLDERS = 1_000_000
"""A walk through more of them goes round in links."""


def walk(folder: Path) -> dict[Path, str]:
    """All files below a folder, in order, each with the place it really is at.

    Links to folders are followed, but not back into a folder that the path has come through.
    Hidden files and folders are left out, and what macOS packs into archives. A link that leads
    nowhere counts as a file.

    Raises:
        DataError: if a folder can't be read, or there are more than a million.
    """
    found: dict[Path, str] = {}
    start = os.path.realpath(folder)
    waiting = [(folder, start, frozenset([start]))]
    seen = 0
    while waiting:
        here, real, through = waiting.pop()
        seen += 1
        if seen > MOST_FOLDERS:
            raise DataError(
                f"{folder} has more than {MOST_FOLDERS:,} folders: links in it lead in circles, "
                f"remove them"
            )
        for entry in _entries(here):
            path = here / entry.name
            link = entry.is_symlink()  # only then is the disk asked again: there may be millions
            place = os.path.realpath(path) if link else f"{real}{os.sep}{entry.name}"
            if not (path if link else entry).is_dir():
                found[path] = place
            elif place not in through:
                waiting.append((path, place, through | {place}))
    return dict(sorted(found.items(), key=lambda item: str(item[0])))


def _entries(folder: Path) -> list[Any]:
    try:
        with os.scandir(folder) as entries:
            return [e for e in entries if not e.name.startswith(".") and e.name != "__MACOSX"]
    except OSError as error:
        raise DataError(f"{folder} can't be read: {error.strerror}") from error


def by_class(folder: Path, files: Mapping[Path, str], kind: Kind) -> Opened:
    """Folders ``train`` and ``test`` with a folder of files for each class.

    A file is of the class whose folder it is in, however deep. The classes are those of both sets.

    Args:
        folder: with these folders.
        files: what a walk through it found.
        kind: of files; others are passed over.

    Raises:
        DataError: for a missing folder, a class without a file, a file beside the folders of
            classes, a link that leads nowhere, or a file that is linked into both sets or into
            two classes.
    """
    test = next((name for name in TESTS if (folder / name).is_dir()), "")
    train = folder / "train"
    below = [train / entry.name for entry in _entries(train)] if train.is_dir() else []
    known = {path.name for path in below if path.is_dir()}
    if len(known) < 2 or not test:
        raise DataError(
            f"{folder} has neither parquet files nor the folders train and test, with a folder of "
            f"{kind.name} files for each of two classes or more"
        )
    places: dict[str, tuple[Path, tuple[str, str]]] = {}
    found: dict[str, list[tuple[Path, str]]] = {"train": [], test: []}
    for path, place in files.items():
        split, *inside = path.relative_to(folder).parts
        if split not in found:
            continue
        if path.suffix.lower() not in kind.suffixes:
            _require_target(path)
            continue
        name, *deeper = inside
        if not deeper:
            raise DataError(f"{path} must be in the folder of a class, {path.parent / 'CLASS'}")
        first, use = places.setdefault(place, (path, (split, name)))
        if use != (split, name):
            raise DataError(
                f"{first} and {path} are one file: it can't be of two classes, nor both trained "
                f"on and tested on"
            )
        found[split].append((path, name))
    empty = sorted(known - {name for _, name in found["train"]})
    if empty or not found[test]:
        where = folder / "train" / empty[0] if empty else folder / test
        raise DataError(f"{where} has no {kind.name} file ({', '.join(kind.suffixes[:5])}, ...)")
    classes = sorted(known | {name for _, name in found[test]})
    numbers = {name: number for number, name in enumerate(classes)}
    train_set, test_set = (
        Paths(
            tuple(path for path, _ in files),
            split,
            torch.tensor([numbers[name] for _, name in files]),
        )
        for split, files in (("train", found["train"]), ("test", found[test]))
    )
    return Opened(train_set, test_set, tuple(classes))


def _require_target(path: Path) -> None:
    """Raise a DataError for what may have been the folder of a class on a disk that is away."""
    if not path.exists():
        raise DataError(f"{path} is a link to {path.readlink()}, which is not there")
