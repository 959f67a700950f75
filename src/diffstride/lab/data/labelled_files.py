"""Files with a class each, before they are decoded; how they are listed, read and decoded."""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

import torch
from torch import Tensor

from diffstride.lab.runs.waiting import progress_bar

TEST_SPLITS = ("test", "validation", "val")  # names of the set to test on; the first is used
MOST_FOLDERS = 1_000_000  # a walk through more folders goes round in links
AT_ONCE = 64  # how many files are in memory together

Decoded = TypeVar("Decoded")


class DataError(ValueError):
    """Something is wrong with the data; the message says what and where."""


class Kind(NamedTuple):
    """What the files of a dataset hold."""

    name: str  # in capitals, the class of `datasets` that a column of such files has
    columns: tuple[str, ...]  # usual names of that column, for tables that do not say what it holds
    suffixes: list[str]  # how the names of such files end, the usual ones first


# Also formats that can't be decoded here: such files would be left out and nobody would notice.
SOUNDS = """.wav .flac .ogg .mp3 .aiff .aac .aif .aifc .amr .au .caf .m4a .oga .opus .rf64 .w64
    .wave .wma""".split()
PICTURES = """.png .jpg .jpeg .webp .tiff .apng .arw .avif .avifs .blp .bmp .bw .cr2 .cr3 .cur .dcx
    .dds .dib .dng .eps .fit .fits .flc .fli .ftc .ftu .gbr .gif .heic .heif .icb .icns .ico .im
    .j2c .j2k .jfif .jp2 .jpc .jpe .jpf .jpx .jxl .mpo .msp .nef .orf .pbm .pcd .pcx .pfm .pgm .pnm
    .ppm .ps .psd .pxr .qoi .ras .rgb .rgba .rw2 .sgi .svg .tga .tif .vda .vst .wmf .xbm
    .xpm""".split()
AUDIO = Kind("audio", ("audio", "file", "wav"), SOUNDS)
IMAGE = Kind("image", ("image", "img", "png", "jpg"), PICTURES)


@dataclass(frozen=True)
class FilePaths:
    """A training or a test set of files by their paths, and the number of the class of each."""

    split: str
    labels: Tensor
    paths: tuple[Path, ...]

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
    rows: tuple[int, ...] | None = None  # of the table it was chosen from; all unless given
    origin: str = ""  # the set that this table was, if another

    @property
    def fingerprint(self) -> str:
        # Of files outside the table, the table's own fingerprint covers the paths only.
        cells = self.table.data.column(self.column).combine_chunks().flatten()
        paths = [Path(path) for path in cells[1].filter(cells[0].is_null()).to_pylist() if path]
        return f"{self.table._fingerprint} {_fingerprint(paths)}"

    @property
    def of_lists(self) -> bool:
        """Whether cells are lists of numbers, and no files."""
        kind = self.table.data.schema.field(self.column).type
        return hasattr(getattr(kind, "storage_type", kind), "value_field")

    def __len__(self) -> int:
        return len(self.labels)

    def where(self, row: int) -> str:
        """Say where a row is in the data."""
        row = row if self.rows is None else self.rows[row]
        return f"row {row} of the {self.origin or self.split} set"

    def read(self, chosen: Sequence[int]) -> list[tuple[str, bytes]]:
        files = []
        for row, cell in zip(chosen, self.table[chosen][self.column], strict=True):
            path, data = (None, None)
            if isinstance(cell, dict):
                path, data = cell["path"], cell["bytes"]
            if data is None:
                data = _content(Path(path)) if path else b""
            files.append((path or self.where(row), data))
        return files

    def select(self, chosen: Sequence[int]) -> "TableFiles":
        labels, table = self.labels[list(chosen)], self.table.select(chosen)
        rows = tuple(i if self.rows is None else self.rows[i] for i in chosen)
        origin = self.origin or self.split
        return TableFiles(self.split, labels, table, self.column, rows, origin)


FileSet: TypeAlias = FilePaths | TableFiles
Examples: TypeAlias = Sequence[tuple[Path, int]]


class FileDataset(NamedTuple):
    """A training and a test set before they are decoded."""

    train: FileSet
    test: FileSet
    classes: tuple[str, ...]

    @classmethod
    def of(cls, train: Examples, test: Examples, classes: Sequence[str]) -> "FileDataset":
        """Return the dataset of these files, each with the number of its class."""

        def labelled(split: str, examples: Examples) -> FilePaths:
            paths, numbers = zip(*examples, strict=True)
            return FilePaths(split, torch.tensor(numbers), paths)

        return cls(labelled("train", train), labelled("test", test), tuple(classes))


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
            wrong = f"has more than {MOST_FOLDERS:,} folders: links in it lead in circles"
            raise DataError(f"{folder} {wrong}, remove them")
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


def decode_all(
    files: FileSet, decode: Callable[[str, bytes], Decoded], kind: Kind, skipped: list[str] | None
) -> Iterator[tuple[int, str, Decoded]]:
    """Yield the number, name and decoded content of each file in order, and show a progress bar.

    A file for which ``decode`` raises a DataError is an error, unless there is a list ``skipped``
    to which its name is added. If no file can be read, that is a DataError too.
    """

    def attempt(file: tuple[str, bytes]) -> Decoded | DataError:
        try:
            return decode(*file)
        except DataError as error:
            return error

    done, text = 0, f"reading the {files.split} set"
    with (
        progress_bar(text, len(files)) as bar,
        ThreadPoolExecutor(os.cpu_count()) as threads,
    ):
        for start in range(0, len(files), AT_ONCE):
            contents = files.read(range(start, min(start + AT_ONCE, len(files))))
            for i, result in enumerate(threads.map(attempt, contents)):
                name, _ = contents[i]
                bar.update()
                if not isinstance(result, DataError):
                    yield start + i, name, result
                    done += 1
                elif skipped is None:
                    raise unreadable(result, kind) from result
                else:
                    skipped.append(name)
    if not done:
        raise DataError(f"there is nothing to read in the {files.split} set")


def unreadable(error: DataError, kind: Kind) -> DataError:
    """Return an error that also says what to do about a file that can't be read."""
    advice = f"remove it, or leave out such {kind.name} files with --data.skip_corrupt"
    return DataError(f"{error}: {advice}")


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
