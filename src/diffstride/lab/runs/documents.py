"""The CSV, JSON and YAML files in the folder of a run: how they are written, and checked when read.

An error names the file, the line and, in a table, the column.
"""

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from diffstride.files import write

STRIDE_COLUMNS: dict[str, type] = {
    "epoch": int,
    "step": int,
    "layer": str,
    "axis": int,
    "stride": float,
    "input_size": int,
    "output_size": int,
}
"""What the columns of strides.csv hold. Other tables share some; all their others hold numbers."""
TYPE_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}
LARGEST_SIZE = 10_000_000
"""Of one axis, in samples."""
LIMITS = {
    "axis": (0, 2),
    "input_size": (1, LARGEST_SIZE),
    "output_size": (1, LARGEST_SIZE),
    "epoch": (0, 10**12),
    "step": (0, 10**12),
}
"""Of columns that hold whole numbers, both ends included."""

LONGEST_YAML = 1_000_000
"""Characters; what is written here has a few thousand."""
LONGEST_SCALAR = 3_000
"""Characters of one value; of more, YAML may make a number that takes forever to compute."""
DEEPEST = 20
TOO_DEEP = f"lists and mappings must be nested at most {DEEPEST} deep"


class RunError(ValueError):
    """Something is wrong with the folder of a run; the message says what."""


class DamagedFile(ValueError):
    """A file is not what was written once; the message says where."""


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as a CSV file, with the columns of the first row."""
    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    write(path, text.getvalue())


def write_json(path: Path, content: Mapping[str, Any], indent: int | None = 1) -> None:
    """Write a mapping as a JSON file."""
    write(path, json.dumps(content, indent=indent) + "\n")


def read_rows(path: Path, *columns: str, may_be_empty: bool = False) -> list[dict[str, str]]:
    """Return the rows of a CSV file as mappings from column to text.

    Args:
        path: the file.
        columns: that must be there, with something in every row, and numbers that are finite.
        may_be_empty: whether the file may hold nothing, as that of a network without strides.

    Raises:
        DamagedFile: if a column or a part of a row is missing, or a number is none.
        OSError: if there is no such file.
    """
    text = _text(path)
    if not text and may_be_empty:
        return []
    lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows = []
    try:
        header = next(lines, [])
        if missing := [name for name in columns if name not in header]:
            raise DamagedFile(f"{path}, line 1: there is no column {missing[0]}")
        if len(set(header)) < len(header):
            raise DamagedFile(f"{path}, line 1: two columns have the same name")
        for cells in lines:
            where = f"{path}, line {lines.line_num}"
            if len(cells) != len(header):
                raise DamagedFile(f"{where} has {len(cells)} cells, and line 1 has {len(header)}")
            rows.append(dict(zip(header, cells, strict=True)))
            for name, cell in rows[-1].items():
                if cell or name in columns:
                    _check_cell(cell, name, where, finite=name in columns)
    except csv.Error as error:
        raise DamagedFile(f"{path}, line {lines.line_num}: {error}") from error
    if not rows:
        raise DamagedFile(f"{path} has no rows")
    if not text.endswith("\n"):
        raise DamagedFile(f"{path}, line {lines.line_num} is cut off: no line break ends it")
    return rows


def read_json(path: Path, *names: str) -> dict[str, Any]:
    """Return the mapping in a JSON file, which must have these names.

    Raises:
        DamagedFile: if it is no mapping, or a name is missing.
        OSError: if there is no such file.
    """
    text = _text(path)
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise DamagedFile(f"{path}, line {error.lineno} is no JSON: {error.msg}") from error
    except ValueError as error:  # a number of thousands of digits
        raise DamagedFile(f"{path} is no JSON: {error}") from error
    except RecursionError as error:
        raise DamagedFile(f"{path}: {TOO_DEEP}") from error
    if _is_deep(content):
        raise DamagedFile(f"{path}: {TOO_DEEP}")
    return _mapping(path, content, names)


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file, with the errors of :func:`read_json`."""
    import yaml

    if path.stat().st_size > LONGEST_YAML:
        raise DamagedFile(f"{path} must have at most {LONGEST_YAML:,} characters")
    text = _text(path)
    try:
        _check_plain(text, path)
        return _mapping(path, yaml.safe_load(text))
    except DamagedFile:
        raise
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f", line {error.problem_mark.line + 1}"
        raise DamagedFile(f"{path}{line} is no YAML: {error.problem}") from error
    except (yaml.YAMLError, ValueError) as error:  # a date that is none, for one
        raise DamagedFile(f"{path} is no YAML: {str(error).splitlines()[0]}") from error


def _check_plain(text: str, path: Path) -> None:
    """Raise a DamagedFile for YAML that a few lines can make too large for memory, or too deep."""
    import yaml

    depth = 0
    for event in yaml.parse(text):
        where = f"{path}, line {event.start_mark.line + 1}"
        if getattr(event, "anchor", None) is not None:
            raise DamagedFile(
                f"{where}: {event.anchor!r} is an anchor or an alias: write out what it stands for"
            )
        if isinstance(event, yaml.ScalarEvent) and len(event.value) > LONGEST_SCALAR:
            raise DamagedFile(
                f"{where}: a value must have at most {LONGEST_SCALAR:,} characters, got "
                f"{len(event.value):,}: {short(event.value)}"
            )
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise DamagedFile(f"{where}: {TOO_DEEP}")


def _is_deep(found: Any) -> bool:
    level = [found]
    for _ in range(DEEPEST + 1):
        level = [
            child
            for value in level
            if isinstance(value, dict | list)
            for child in (value.values() if isinstance(value, dict) else value)
        ]
    return bool(level)


def _mapping(path: Path, content: Any, names: tuple[str, ...] = ()) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise DamagedFile(f"{path} must be a mapping of names to values, got {short(content)}")
    if missing := [name for name in names if name not in content]:
        raise DamagedFile(f"{path} must have {', '.join(names)}: there is no {missing[0]}")
    return content


def _text(path: Path) -> str:
    content = path.read_bytes()
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise DamagedFile(f"{path}, line {line} is not UTF-8: {error.reason}") from error
    if "\0" in text:
        line = text.partition("\0")[0].count("\n") + 1
        raise DamagedFile(f"{path}, line {line} has a NUL byte: the file was damaged")
    return text


def _check_cell(cell: str, column: str, where: str, finite: bool) -> None:
    """Raise a DamagedFile unless a cell holds what its column holds."""
    kind = STRIDE_COLUMNS.get(column, float)
    expected = TYPE_NAMES[kind]
    if column in LIMITS:
        expected += " from {:,} to {:,}".format(*LIMITS[column])
    elif column == "stride":
        expected += " above 0"
    if not _holds(cell, kind, column, finite):
        raise DamagedFile(f"{where}: column {column} must be {expected}, got {short(cell)}")


def _holds(cell: str, kind: type, column: str, finite: bool) -> bool:
    if kind is str:
        return bool(cell)
    try:
        number = kind(cell)
    except ValueError:
        return False
    if column in LIMITS:
        lowest, highest = LIMITS[column]
        return bool(lowest <= number <= highest)
    return (math.isfinite(number) or not finite) and (number > 0 or column != "stride")


def short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:36]} ..."
