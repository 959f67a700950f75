"""Files that a command is given: found in folders, read as bytes, a few at a time."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from diffstride.lab.data.labelled_files import DataError, walk
from diffstride.lab.inference.readers import Reader

MOST_BYTES = 2**32  # of a file, which is read at once: what a WAV can hold
BYTES_AT_ONCE = 2**26  # of files that are in memory together, unless one alone has more


def list_files(paths: Iterable[Path], reader: Reader, errors: list[str]) -> Iterator[Path]:
    """Yield files as they are given, and of folders the files in them that a reader is for."""
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        try:
            found = [file for file in walk(path) if file.suffix.lower() in reader.suffixes]
            if not found:
                wanted = f"{reader.kind}: no file ends with {', '.join(reader.suffixes[:3])}"
                raise DataError(f"{path} is a folder without {wanted} or the like")
            yield from found
        except DataError as error:
            errors.append(str(error))


def in_groups(files: Sequence[Path], most: int) -> Iterator[list[Path]]:
    """Yield files in order, so many at once or fewer: together they must fit into memory."""
    group: list[Path] = []
    together = 0
    for file in files:
        size = file.stat().st_size if file.is_file() else 0
        if group and (len(group) == most or together + size > BYTES_AT_ONCE):
            yield group
            group, together = [], 0
        group.append(file)
        together += size
    if group:
        yield group


def content(path: Path) -> bytes:
    try:
        size = path.stat().st_size
        if not (path.is_file() or path.is_fifo()):  # a device may have no end
            raise DataError(f"{path} is no file")
        if size > MOST_BYTES:
            raise DataError(f"{path} has {size:,} bytes, and {MOST_BYTES:,} is the most")
        return path.read_bytes()
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist") from error
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror}") from error
