"""Signals in arrays of numpy: one .npz file, or a folder of .npy files."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from diffstride.lab.data.labelled_files import DataError
from diffstride.lab.data.signal_files import read_array
from diffstride.lab.data.signal_rows import Row

SETS = (("x_train", "y_train", "x_test", "y_test"), ("x", "y", "", ""))
Arrays = Mapping[str, tuple[str, Callable[[], Any]]]  # by lower-case names: where, and how to read


def read_npz(
    path: Path, label: str | None, group: str | None
) -> tuple[list[Row], list[Row] | None, float | None]:
    """Return the rows of both sets, and the rate that the array ``rate`` says."""
    with path.open("rb") as file:  # opened here: numpy does not close what it can't read
        opened = read_array(str(path), lambda: np.load(file, allow_pickle=False))
        if isinstance(opened, np.ndarray):
            raise DataError(f"{path} must have several arrays with names, got one without")
        arrays = {
            name.lower(): (f"{path}, {name}", partial(opened.__getitem__, name))
            for name in opened.files
        }
        return _read(path, arrays, label, group)


def read_npy_folder(
    path: Path, files: Sequence[Path], label: str | None, group: str | None
) -> tuple[list[Row], list[Row] | None, float | None]:
    """Return the same of .npy files with the names of arrays."""
    arrays = {
        file.stem.lower(): (str(file), partial(np.load, file, allow_pickle=False)) for file in files
    }
    return _read(path, arrays, label, group)


def _read(
    path: Path, arrays: Arrays, label: str | None, group: str | None
) -> tuple[list[Row], list[Row] | None, float | None]:
    chosen = next((names for names in SETS if names[0] in arrays), None)
    missing = [] if chosen is None else [n for n in chosen[:2] if n not in arrays]
    if chosen is not None and {*chosen[2:]} & {*arrays}:
        missing += [name for name in chosen[2:] if name not in arrays]
    if chosen is None or missing:
        wanted = "x_train, y_train, x_test and y_test, or x and y"
        got = f"got {', '.join(arrays) or 'none'}"
        raise DataError(f"{path} must have the arrays {wanted}, {got}")
    if label is not None:  # other labels of the same signals
        if chosen[1] != "y" or label.lower() not in arrays:
            where = f"{path} has no array {label!r} of labels"
            raise DataError(f"{where}: leave --data.label out, labels are in {chosen[1]}")
        chosen = (chosen[0], label.lower(), "", "")

    def get(name: str) -> tuple[str, Any]:
        where, read = arrays[name]
        return where, read_array(where, read)

    rate = None
    if "rate" in arrays:
        where, value = get("rate")
        if value.size != 1 or value.dtype.kind not in "uif" or not 0 < value.item() < np.inf:
            raise DataError(f"{where} must be one number of samples a second, got {value}")
        rate = float(value.item())
    groups = None
    if group is not None:
        if group.lower() not in arrays:
            got = ", ".join(arrays)
            raise DataError(f"{path} must have the array {group!r} of --data.group, got {got}")
        groups = get(group.lower())
    train = _rows(*get(chosen[0]), *get(chosen[1]), groups)
    if chosen[2] not in arrays:
        return train, None, rate
    return train, _rows(*get(chosen[2]), *get(chosen[3]), None), rate


def _rows(x_name: str, x: Any, y_name: str, y: Any, groups: tuple[str, Any] | None) -> list[Row]:
    if x.ndim not in (2, 3) or x.dtype.kind not in "buif":
        wanted = "numbers (signals, samples) or (signals, channels, samples)"
        raise DataError(f"{x_name} must be {wanted}, got {x.dtype.name} of the shape {x.shape}")
    columns = [(y_name, y)] if groups is None else [(y_name, y), groups]
    lists = []
    for name, column in columns:
        flat = column[:, 0] if column.ndim == 2 and column.shape[1] == 1 else column
        if flat.ndim != 1 or len(flat) != len(x) or flat.dtype.kind not in "buifUS":
            wanted = f"one number or word for each of {len(x)} signals of {x_name}"
            got = f"{flat.dtype.name} of the shape {column.shape}"
            raise DataError(f"{name} must have {wanted}, got {got}")
        lists.append(read_array(name, flat.tolist))  # words may have bytes that are no letters
    names = [f"{x_name}[{i}]" for i in range(len(x))]
    return [Row(*row) for row in zip(names, x, *lists, strict=True)]
