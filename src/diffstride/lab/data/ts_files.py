"""The .ts files of the UEA archive, of sktime and aeon.

After lines of comments (# or %) and of facts (@), each line behind ``@data`` is a signal: its
channels one after another, then its label, all with colons between; samples have commas between.
"""

from pathlib import Path
from typing import Any

import numpy as np

from diffstride.lab.data.labelled_files import DataError
from diffstride.lab.data.signal_rows import Row


def read_ts(path: Path) -> list[Row]:
    """Return the signals of a file, or raise a DataError that names it and the line."""
    facts: dict[str, list[str]] = {}
    rows = []
    # Comments are in any encoding; elsewhere, what can't be decoded is no number.
    lines = path.read_text(encoding="utf-8-sig", errors="replace").splitlines()
    for number, line in enumerate(map(str.strip, lines), 1):
        where = f"{path}, line {number}"
        if not line or line[0] in "#%":
            continue
        if "data" in facts:
            rows.append(_row(where, line, facts))
        elif not line.startswith("@"):
            raise DataError(f"{where}: before @data, lines must begin with @ or #, got {line[:40]}")
        else:
            name, *values = line[1:].split() or [""]
            facts[name.lower()] = values
            _check_fact(where, name.lower(), values)
    if not rows:
        wrong = "has no signals behind @data" if "data" in facts else "has no line @data"
        raise DataError(f"{path} {wrong}: it is cut off, or no .ts file")
    return rows


def _check_fact(where: str, name: str, values: list[str]) -> None:
    value = values[0].lower() if values else ""
    if name == "timestamps" and value == "true":
        raise DataError(f"{where}: times (time, value) are not supported, samples must be even")
    if name == "classlabel" and value == "false":
        raise DataError(f"{where}: @classLabel false: there are no labels to learn")
    if name == "targetlabel" and value == "true":
        raise DataError(f"{where}: @targetLabel: targets are numbers to predict, and no classes")


def _row(where: str, line: str, facts: dict[str, list[str]]) -> Row:
    if line.startswith("("):
        raise DataError(f"{where}: times (time, value) are not supported, samples must be even")
    *channels, label = line.split(":")
    label = label.strip()
    classes = facts.get("classlabel", [])[1:]
    if not channels or (classes and label not in classes and not _among(label, classes)):
        wanted = f"one of {', '.join(classes)}" if classes else "a label"
        raise DataError(f"{where} must end with a colon and {wanted}, got {label[:40]!r}")
    dimensions = facts.get("dimensions") or facts.get("dimension") or []
    if dimensions and dimensions != [str(len(channels))]:
        wanted = f"the {' '.join(dimensions)} channels of @dimensions"
        raise DataError(f"{where} must have {wanted}, got {len(channels)}")
    return Row(where, _values(where, channels), label)


def _among(label: str, classes: list[str]) -> bool:
    """Whether a label is one of the classes as a number, as 1.0 is of 1 and 2."""
    try:
        return float(label) in map(float, classes)
    except ValueError:
        return False


def _values(where: str, channels: list[str]) -> Any:
    """Return the numbers of a line, or a DataError for the one signal."""
    cells = [[cell.strip() for cell in channel.split(",")] for channel in channels]
    if any("?" in channel for channel in cells):
        return DataError(f"{where} has missing values (?)")
    if len({*map(len, cells)}) > 1:
        lengths = ", ".join(str(len(channel)) for channel in cells)
        return DataError(f"{where} must have as many samples in each channel, got {lengths}")
    try:
        return np.array(cells, dtype=np.float64)
    except ValueError as error:
        return DataError(f"{where}: a signal must have numbers: {error}")
