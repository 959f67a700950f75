"""Where signals of numbers are: a file or folder of arrays or of tables."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from diffstride.lab.data.labelled_files import DataError, walk
from diffstride.lab.data.published import recognise
from diffstride.lab.data.signal_arrays import read_npy_folder, read_npz
from diffstride.lab.data.signal_files import SIGNAL
from diffstride.lab.data.signal_rows import Row
from diffstride.lab.data.signal_tables import TABLES, read_tables
from diffstride.lab.data.splitting import HoldOut

Found: TypeAlias = tuple[Sequence[Row], Sequence[Row] | None, float | None]


def find_rows(path: Path, label: str | None, hold_out: HoldOut | None) -> Found | None:
    """Return the rows of a training and a test set, if there is one, and the rate they say.

    There are none if the path is no file of arrays or of a table, nor a folder that has such files
    itself and no folders of sound files or arrays.
    """
    group = hold_out.group if hold_out else None
    if path.is_file():
        suffix = path.suffix.lower()
        if suffix == ".npy":
            wanted = "the folder of X_train.npy, y_train.npy, X_test.npy and y_test.npy"
            raise DataError(f"{path} has no labels: give {wanted}, or an .npz file")
        if suffix == ".npz":
            return read_npz(path, label, group)
        return read_tables(path, [path], label, group) if suffix in TABLES else None
    if not path.is_dir() or recognise(path):
        return None
    files = [file for file in sorted(path.iterdir()) if file.is_file() and file.name[0] != "."]
    by_suffix = {
        suffix: [file for file in files if file.suffix.lower() == suffix]
        for suffix in (".npz", ".npy", *TABLES)
    }
    if not any(by_suffix.values()):
        return None
    for file in walk(path):
        in_folder = file.suffix.lower() in SIGNAL.suffixes and file.parent != path
        if in_folder or file.suffix.lower() == ".parquet":
            return None
    if len(by_suffix[".npz"]) > 1:
        names = ", ".join(file.name for file in by_suffix[".npz"])
        raise DataError(f"{path} has several .npz files, {names}: give one of them")
    if by_suffix[".npz"]:
        return read_npz(by_suffix[".npz"][0], label, group)
    if by_suffix[".npy"]:
        return read_npy_folder(path, by_suffix[".npy"], label, group)
    suffix = next(suffix for suffix in TABLES if by_suffix[suffix])
    return read_tables(path, by_suffix[suffix], label, group)
