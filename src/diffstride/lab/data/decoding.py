"""Decode all files of a set on all cores; files that can't be read are errors, or left out."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tqdm import tqdm

from diffstride.lab.data.labelled_files import DataError, Kind, LabelledFiles

Decoded = TypeVar("Decoded")
AT_ONCE = 64
"""How many files are in memory together."""


def decode_all(
    files: LabelledFiles,
    decode: Callable[[str, bytes], Decoded],
    kind: Kind,
    doing: str,
    skipped: list[str] | None,
) -> Iterator[tuple[int, str, Decoded]]:
    """Yield the number, name and decoded content of each file in order, and show a progress bar.

    Raises:
        DataError: for a file that ``decode`` raises it for, unless there is a list ``skipped`` for
            the names of such files, and if no file can be read.
    """

    def attempt(file: tuple[str, bytes]) -> Decoded | DataError:
        try:
            return decode(*file)
        except DataError as error:
            return error

    done, text = 0, f"{doing} the {files.split} set"
    with (
        tqdm(None, text, len(files), leave=False, delay=2, disable=None) as bar,
        ThreadPoolExecutor(os.cpu_count()) as threads,
    ):
        for start in range(0, len(files), AT_ONCE):
            contents = files.read(range(start, min(start + AT_ONCE, len(files))))
            for i, result in enumerate(threads.map(attempt, contents), start):
                name, _ = contents[i - start]
                bar.update()
                if not isinstance(result, DataError):
                    yield i, name, result
                    done += 1
                elif skipped is None:
                    raise unreadable(result, kind) from result
                else:
                    skipped.append(name)
    if not done:
        raise DataError(f"there is nothing to read in the {files.split} set")


def unreadable(error: DataError, kind: Kind) -> DataError:
    """Return an error that also says what to do about a file that can't be read."""
    return DataError(
        f"{error}: remove it, or leave out such {kind.plural} with --data.skip_corrupt"
    )
