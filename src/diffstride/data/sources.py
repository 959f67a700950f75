"""Labelled files of any kind: parquet, folders or the hub; nothing is decoded here."""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

TESTS = ("test", "validation", "val")
"""What the split to test on may be called; the first that is there is taken."""
LABEL_NAMES = ("label", "labels", "fine_label", "class")


class DataError(ValueError):
    """Something is wrong with the data; the message says what and where."""


class Kind(NamedTuple):
    """What the files hold."""

    name: str
    feature: str
    """The class of `datasets` that a column of them has."""
    columns: tuple[str, ...]
    """What their column may be called where nothing says what it holds."""


AUDIO = Kind("audio", "Audio", ("audio", "file", "wav"))
IMAGE = Kind("image", "Image", ("image", "img", "png", "jpg"))


class Files(Protocol):
    """A split of a dataset: files as they are, and the class of each."""

    @property
    def split(self) -> str: ...
    @property
    def labels(self) -> Tensor: ...
    @property
    def fingerprint(self) -> str:
        """Changes when the files do."""
        ...

    def __len__(self) -> int: ...
    def select(self, chosen: Sequence[int]) -> "Files": ...
    def read(self, chosen: Sequence[int]) -> list[tuple[str, bytes]]:
        """Names and contents, the latter empty for a file that is not there."""
        ...


@dataclass(frozen=True)
class Rows:
    """Files in a Hugging Face dataset."""

    dataset: Any
    column: str
    split: str
    labels: Tensor

    @property
    def fingerprint(self) -> str:
        # Of files that are elsewhere, a dataset knows no more than the paths.
        cells = self.dataset.data.column(self.column).combine_chunks().flatten()
        elsewhere = [Path(path) for path in cells[1].filter(cells[0].is_null()).to_pylist() if path]
        return f"{self.dataset._fingerprint} {_stamp(elsewhere)}"

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, chosen: Sequence[int]) -> "Rows":
        labels = self.labels[torch.tensor(chosen, dtype=torch.long)]
        return replace(self, dataset=self.dataset.select(chosen), labels=labels)

    def read(self, chosen: Sequence[int]) -> list[tuple[str, bytes]]:
        cells = self.dataset[chosen][self.column]
        return [self._content(i, cell) for i, cell in zip(chosen, cells, strict=True)]

    def _content(self, i: int, cell: dict[str, Any] | None) -> tuple[str, bytes]:
        cell = cell or {"path": None, "bytes": None}
        name = cell["path"] or f"row {i} of the {self.split} set"
        data = cell["bytes"]
        if data is None:
            data = _bytes(Path(cell["path"])) if cell["path"] else b""
        return name, data


@dataclass(frozen=True)
class Paths:
    """Files by their paths."""

    paths: tuple[Path, ...]
    split: str
    labels: Tensor

    @property
    def fingerprint(self) -> str:
        return _stamp(self.paths)

    def __len__(self) -> int:
        return len(self.paths)

    def select(self, chosen: Sequence[int]) -> "Paths":
        paths = tuple(self.paths[i] for i in chosen)
        labels = self.labels[torch.tensor(chosen, dtype=torch.long)]
        return replace(self, paths=paths, labels=labels)

    def read(self, chosen: Sequence[int]) -> list[tuple[str, bytes]]:
        return [(str(self.paths[i]), _bytes(self.paths[i])) for i in chosen]


def _stamp(paths: Sequence[Path]) -> str:
    """Of names, sizes and times of change."""
    digest = hashlib.sha256()
    for path in paths:
        found = path.stat() if path.exists() else None
        facts = (found.st_size, found.st_mtime_ns) if found else ()
        digest.update(repr((str(path), facts)).encode())
    return digest.hexdigest()


def _bytes(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


def each(files: Files, text: str) -> Iterator[tuple[str, bytes]]:
    """All names and contents in order, with a bar if that takes long and somebody looks."""
    from tqdm import tqdm

    at_once = 64
    with tqdm(None, text, len(files), leave=False, delay=2, disable=None) as bar:
        for start in range(0, len(files), at_once):
            for name_and_content in files.read(range(start, min(start + at_once, len(files)))):
                yield name_and_content
                bar.update()


class Opened(NamedTuple):
    train: Files
    test: Files
    classes: tuple[str, ...]


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
        classes: their names, where the data have only numbers.

    Raises:
        DataError: for a missing folder, split or column, a label out of range, or fewer than two
            classes.
    """
    train, tests = _open(path, kind)
    column, target = _columns(train, kind, label)
    # A split whose labels are kept secret, as that of ImageNet, is there to be passed over.
    test = next((t for t in tests if set(t[target][:]) != {-1}), tests[0])
    names = _classes(train.features[target], train[target][:], path, classes)
    opened = Opened(
        _files(train, column, target, "train", kind, names),
        _files(test, column, target, "test", kind, names),
        names,
    )
    return opened if limit is None else opened._replace(train=some(opened.train, limit))


def some(files: Files, limit: int) -> Files:
    """So many files, always the same ones, from all over: sorted by class they may be."""
    if limit >= len(files):
        return files
    order = torch.randperm(len(files), generator=torch.Generator().manual_seed(0))
    return files.select(sorted(order[:limit].tolist()))


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


def _open(path: str, kind: Kind) -> tuple[Any, list[Any]]:
    """The training set and what may serve as test set, the best first, as Hugging Face datasets."""
    import datasets

    datasets.disable_progress_bars()
    folder = Path(path).expanduser()
    if folder.is_dir():
        files = sorted(folder.glob("**/*.parquet"))
        if files:
            named = {
                split: [str(f) for f in files if f.name.startswith(split)]
                for split in ("train", *TESTS)
            }
            named = {split: found for split, found in named.items() if found}
            if "train" not in named or len(named) < 2:
                raise DataError(
                    f"{path} must have parquet files whose names begin with train and with test "
                    f"or validation, got {', '.join(f.name for f in files)}"
                )
            opened = _load(path, "parquet", data_files=named)
        else:
            parts = {name: folder / name for name in ("train", "test")}
            if not all(part.is_dir() for part in parts.values()):
                raise DataError(
                    f"{path} has neither parquet files nor the folders train and test, with a "
                    f"folder of images for each class"
                )
            opened = _load(path, "imagefolder", data_dir=str(folder))
    elif not folder.exists() and re.fullmatch(r"[\w-]+(/[\w.-]+)?", path):
        opened = _load(f"{path} is no folder here, and as a dataset of the hub it", path)
    else:
        wrong = "is no folder" if folder.exists() else "does not exist"
        raise DataError(f"{path} {wrong}: --data.path is a folder or a dataset on the hub")
    tests = [opened[name] for name in TESTS if name in opened]
    if "train" not in opened or not tests:
        raise DataError(f"{path} must have a train and a test split, got {', '.join(opened)}")
    return opened["train"], tests


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
        except ValueError as error:
            raise DataError(f"{listed} can't be read: {error}") from error
    if not isinstance(names, list):
        words = {label for label in labels if isinstance(label, str)}
        numbers = [label for label in labels if isinstance(label, int)]
        names = sorted(words) if words else otherwise or range(max(numbers, default=-1) + 1)
    classes = tuple(str(name) for name in names)
    if len(classes) < 2:
        raise DataError(f"{path} must have at least 2 classes, got {len(classes)}")
    return classes
