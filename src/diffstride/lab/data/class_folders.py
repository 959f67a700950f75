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
from diffstride.lab.data.task_splitting import Unsplit


def read_class_folders(
    folder: Path, files: Mapping[Path, str], kind: Kind, hold_out: HoldOut | None
) -> FileDataset | Unsplit:
    """Return the training and the test set of a folder, of which :func:`walk` gave the files.

    With ``hold_out``, return the set that it is to be set apart of. A file is of the class whose
    folder it is in, however deep; those of other kinds are left out.
    """
    test = next((name for name in TEST_SPLITS if (folder / name).is_dir()), "")
    if hold_out is not None:
        own_test = test if (folder / "train").is_dir() else ""
        if own_test and hold_out.test_fraction is not None:
            raise has_test_set(folder)
        return _whole(folder, files, kind, hold_out.group, own_test)
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


def _whole(
    folder: Path, files: Mapping[Path, str], kind: Kind, group: str | None, test: str
) -> Unsplit:
    """Return the files of a folder by class, or those in train, alone or beside a test set."""
    inside = defaultdict(set)  # what each folder has
    for path in files:
        if path.suffix.lower() in kind.suffixes and path.parent != folder:
            first, *rest = path.relative_to(folder).parts
            inside[first].add(rest[0] if rest[1:] else "")
    root = folder / "train" if test or [*inside] == ["train"] else folder
    if not test and len(inside) > 1 < len(inside.get("train", ())):
        others = ", ".join(sorted({*inside} - {"train"})[:5])
        wrong = f"{folder} has a folder train with folders in it, and {others} beside it"
        raise DataError(f"{wrong}: give {folder / 'train'} if it is a set, and no class")
    roots = {"train": root, **({test: folder / test} if test else {})}
    examples = _examples(roots, files, kind)["train"]
    classes = sorted({name for _, name in examples})
    if len(classes) < 2:
        wanted = f"a folder of {kind.name} files ({', '.join(kind.suffixes[:5])}, ...)"
        got = ", ".join(classes) or "none"
        raise DataError(f"{root} must have {wanted} for each of two classes or more, got {got}")
    labels = torch.tensor([classes.index(name) for _, name in examples])
    whole = FilePaths("train", labels, tuple(path for path, _ in examples))
    groups = groups_of(whole, root, group)
    real_paths = [files[path] for path in whole.paths]
    if groups is None and len({*real_paths}) < len(real_paths):  # links to a file beside it
        groups = real_paths
    return Unsplit(str(folder), whole, tuple(classes), groups)


def groups_of(files: FilePaths, root: Path, group: str | None) -> list[str] | None:
    """Return what each file must share its set with: those of its folder, or of its prefix."""
    return None if group is None else [_group(path, root, group) for path in files.paths]


def _group(path: Path, root: Path, group: str) -> str:
    _, *folders, name = path.relative_to(root).parts
    if group == "folder" and folders:
        return folders[0]
    prefix, line, _ = name.partition("_")
    if group == "prefix" and prefix and line:
        return prefix
    wanted = {"folder": "in a folder within its class", "prefix": "called GROUP_..."}
    if group in wanted:
        raise DataError(f"{path} must be {wanted[group]} for --data.group {group}")
    raise DataError(f"--data.group of files must be folder or prefix, got {group!r}")


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
