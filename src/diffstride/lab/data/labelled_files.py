"""Files with a class each, as they are before anything is decoded."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor


class DataError(ValueError):
    """Something is wrong with the data; the message says what and where."""


class Kind(NamedTuple):
    """What the files of a dataset hold."""

    name: str
    plural: str
    feature: str
    """The class of `datasets` that a column of such files has."""
    columns: tuple[str, ...]
    """Usual names of that column, for tables that do not say what a column holds."""
    suffixes: list[str]
    """How the names of such files end, the usual ones first. Not all of these formats can be
    decoded here: if they were not listed, such files would be left out and nobody would notice."""


AUDIO = Kind(
    "audio",
    "recordings",
    "Audio",
    ("audio", "file", "wav"),
    """.wav .flac .ogg .mp3 .aiff .aac .aif .aifc .amr .au .caf .m4a .oga .opus .rf64 .w64 .wave
    .wma""".split(),
)
IMAGE = Kind(
    "image",
    "images",
    "Image",
    ("image", "img", "png", "jpg"),
    """.png .jpg .jpeg .webp .tiff .apng .arw .avif .avifs .blp .bmp .bw .cr2 .cr3 .cur .dcx .dds
    .dib .dng .eps .fit .fits .flc .fli .ftc .ftu .gbr .gif .heic .heif .icb .icns .ico .im .j2c
    .j2k .jfif .jp2 .jpc .jpe .jpf .jpx .jxl .mpo .msp .nef .orf .pbm .pcd .pcx .pfm .pgm .pnm .ppm
    .ps .psd .pxr .qoi .ras .rgb .rgba .rw2 .sgi .svg .tga .tif .vda .vst .wmf .xbm .xpm""".split(),
)

TEST_SPLITS = ("test", "validation", "val")
"""Names that the set to test on may have; the first that exists is used."""


@dataclass(frozen=True)
class FilePaths:
    """A training or a test set of files by their paths, and the number of the class of each."""

    split: str
    labels: Tensor
    paths: tuple[Path, ...]

    @classmethod
    def from_examples(cls, split: str, examples: Iterable[tuple[Path, int]]) -> "FilePaths":
        """Return the set of these files and numbers of classes."""
        paths, labels = zip(*examples, strict=True)
        return cls(split, torch.tensor(labels), paths)

    @property
    def fingerprint(self) -> str:
        """A text that changes when the files do."""
        return _fingerprint(self.paths)

    def __len__(self) -> int:
        return len(self.labels)

    def read(self, chosen: Sequence[int]) -> list[tuple[str, bytes]]:
        """Return the name and content of each chosen file; a missing file has an empty content."""
        return [(str(self.paths[i]), _content(self.paths[i])) for i in chosen]

    def select(self, chosen: Sequence[int]) -> "FilePaths":
        """Return the set of the chosen files only."""
        paths = tuple(self.paths[i] for i in chosen)
        return FilePaths(self.split, self.labels[list(chosen)], paths)


@dataclass(frozen=True)
class TableFiles:
    """The same for a column of a Hugging Face dataset, whose cells have a path, bytes or both."""

    split: str
    labels: Tensor
    table: Any
    column: str

    @property
    def fingerprint(self) -> str:
        # Of files outside the table, the table's own fingerprint covers the paths only.
        cells = self.table.data.column(self.column).combine_chunks().flatten()
        paths = [Path(path) for path in cells[1].filter(cells[0].is_null()).to_pylist() if path]
        return f"{self.table._fingerprint} {_fingerprint(paths)}"

    def __len__(self) -> int:
        return len(self.labels)

    def read(self, chosen: Sequence[int]) -> list[tuple[str, bytes]]:
        files = []
        for row, cell in zip(chosen, self.table[chosen][self.column], strict=True):
            path, data = (cell["path"], cell["bytes"]) if cell else (None, None)
            if data is None:
                data = _content(Path(path)) if path else b""
            files.append((path or f"row {row} of the {self.split} set", data))
        return files

    def select(self, chosen: Sequence[int]) -> "TableFiles":
        labels, table = self.labels[list(chosen)], self.table.select(chosen)
        return TableFiles(self.split, labels, table, self.column)


LabelledFiles: TypeAlias = FilePaths | TableFiles


class FileDataset(NamedTuple):
    """A dataset before it is decoded."""

    train: LabelledFiles
    test: LabelledFiles
    classes: tuple[str, ...]


def _fingerprint(paths: Iterable[Path]) -> str:
    """Return a digest of the names, sizes and times of change of files."""
    digest = hashlib.sha256()
    for path in paths:
        status = path.stat() if path.exists() else None
        facts = (status.st_size, status.st_mtime_ns) if status else ()
        digest.update(repr((str(path), facts)).encode())
    return digest.hexdigest()


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""
