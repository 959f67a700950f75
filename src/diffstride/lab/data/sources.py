"""Labelled files of any kind, and how they are read; nothing is decoded here."""

import hashlib
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
    suffixes: tuple[str, ...]
    """What the names of such files end with, the usual ones first. Not all of these formats can be
    read here: a file that is left out because of its name would be missed by nobody."""


AUDIO = Kind(
    "audio",
    "Audio",
    ("audio", "file", "wav"),
    tuple(
        ".wav .flac .ogg .mp3 .aiff .aac .aif .aifc .amr .au .caf .m4a .oga .opus .rf64 .w64 .wave "
        ".wma".split()
    ),
)
IMAGE = Kind(
    "image",
    "Image",
    ("image", "img", "png", "jpg"),
    tuple(
        ".png .jpg .jpeg .webp .tiff .apng .arw .avif .avifs .blp .bmp .bw .cr2 .cr3 .cur .dcx "
        ".dds .dib .dng .eps .fit .fits .flc .fli .ftc .ftu .gbr .gif .heic .heif .icb .icns .ico "
        ".im .j2c .j2k .jfif .jp2 .jpc .jpe .jpf .jpx .jxl .mpo .msp .nef .orf .pbm .pcd .pcx "
        ".pfm .pgm .pnm .ppm .ps .psd .pxr .qoi .ras .rgb .rgba .rw2 .sgi .svg .tga .tif .vda "
        ".vst .wmf .xbm .xpm".split()
    ),
)


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


def require_seen(opened: Opened, path: str) -> None:
    """Raise a DataError for a class that is tested and never trained on: it can't be learned."""
    never = sorted(set(opened.test.labels.tolist()) - set(opened.train.labels.tolist()))
    if never:
        names = ", ".join(opened.classes[i] for i in never[:20]) + (", ..." if never[20:] else "")
        raise DataError(
            f"{path}: the test set has classes that the training set has no example of: {names}: "
            f"add examples of them to the training set, or remove them from the test set"
        )


def some(files: Files, limit: int) -> Files:
    """So many files, always the same ones, from all over: sorted by class they may be."""
    if limit >= len(files):
        return files
    order = torch.randperm(len(files), generator=torch.Generator().manual_seed(0))
    return files.select(sorted(order[:limit].tolist()))
