"""Folders of files by class: those of a training and a test set, or one of both together."""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import torch

from diffstride.lab.data.labelled_files import (
    TEST_SPLITS,
    DataError,
    FileDataset,
    FilePaths,
    Kind,
)
from diffstride.lab.data.splitting import ADVICE, HoldOut, has_test_set


def read_class_folders(
    folder: Path, files: Mapping[Path, str], kind: Kind, hold_out: HoldOut | None
) -> FileDataset:
    """Return the training and the test set of a folder, of which :func:`walk` gave the files.

    A file is of the class whose folder it is in, however deep; those of other kinds are left out.
    """
    test = next((name for name in TEST_SPLITS if (folder / name).is_dir()), "")
    if hold_out is not None:
        if test and (folder / "train").is_dir():
            raise has_test_set(folder)
        return _split(folder, files, kind, hold_out)
    trained = {path.name for path in (folder / "train").glob("[!.]*") if path.is_dir()}
    trained.discard("__MACOSX")
    if len(trained) < 2 or not test:
        wanted = f"with a folder of {kind.name} files for each of two classes or more"
        neither = "has neither parquet files nor the folders train and test"
        raise DataError(f"{folder} {neither}, {wanted}; of folders by class, {ADVICE}")
    roots = {"train": folder / "train", test: folder / test}
    examples = _examples(roots, files, kind)
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


def _split(folder: Path, files: Mapping[Path, str], kind: Kind, hold_out: HoldOut) -> FileDataset:
    """Return two sets of the files of a folder by class, or of one whose only folder is train."""
    inside = defaultdict(set)  # what each folder has
    for path in files:
        if path.suffix.lower() in kind.suffixes and path.parent != folder:
            first, *rest = path.relative_to(folder).parts
            inside[first].add(rest[0] if rest[1:] else "")
    root = folder / "train" if [*inside] == ["train"] else folder
    if len(inside) > 1 < len(inside.get("train", ())):
        others = ", ".join(sorted({*inside} - {"train"})[:5])
        wrong = f"{folder} has a folder train with folders in it, and {others} beside it"
        raise DataError(f"{wrong}: give {folder / 'train'} if it is a set, and no class")
    examples = _examples({"train": root}, files, kind)["train"]
    classes = sorted({name for _, name in examples})
    if len(classes) < 2:
        wanted = f"a folder of {kind.name} files ({', '.join(kind.suffixes[:5])}, ...)"
        got = ", ".join(classes) or "none"
        raise DataError(f"{root} must have {wanted} for each of two classes or more, got {got}")
    labels = torch.tensor([classes.index(name) for _, name in examples])
    whole = FilePaths("train", labels, tuple(path for path, _ in examples))
    groups = None
    if hold_out.group is not None:
        groups = [_group(path, root, hold_out.group) for path in whole.paths]
    return hold_out.of_files(folder, whole, classes, groups)


def _group(path: Path, root: Path, group: str) -> str:
    """Return what a file must share its set with: those of the same folder, or the same prefix."""
    _, *folders, name = path.relative_to(root).parts
    if group == "folder" and folders:
        return folders[0]
    prefix, line, _ = name.partition("_")
    if group == "prefix" and prefix and line:
        return prefix
    wanted = {"folder": "in a folder within its class", "prefix": "called GROUP_..."}
    if group in wanted:
        raise DataError(f"{path} must be {wanted[group]} for --data.group {group}")
    raise DataError(f"--data.group of folders by class must be folder or prefix, got {group!r}")


def _examples(
    roots: Mapping[str, Path], files: Mapping[Path, str], kind: Kind
) -> Mapping[str, list[tuple[Path, str]]]:
    """Return the files of each set with the names of their classes."""
    first_uses: dict[str, tuple[Path, str, str]] = {}
    examples: defaultdict[str, list[tuple[Path, str]]] = defaultdict(list)
    for path, real_path in files.items():
        split = next((name for name, root in roots.items() if root in path.parents), None)
        if split is None:
            continue
        inside = path.relative_to(roots[split]).parts
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
    return examples
