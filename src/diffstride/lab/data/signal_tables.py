"""Signals in tables of text, a row each: CSV, the .tsv files of UCR, and .ts files."""

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from diffstride.lab.data.labelled_files import TEST_SPLITS, DataError
from diffstride.lab.data.signal_rows import Row
from diffstride.lab.data.ts_files import read_ts

TABLES = (".ts", ".tsv", ".csv")  # the first that a folder has is read
# Usual names of the column of labels, in small letters, the most usual first.
LABELS = ("label", "labels", "class", "target", "y", "fine_label")
NO_NAMES = ("", "Unnamed: 0")  # what pandas calls a column that counts rows
HOW = "settle it with --data.label first or --data.label last, or the name of a column in a header"


class Table(NamedTuple):
    """The cells of a file."""

    path: Path
    header: list[str]  # empty if there is none
    rows: list[tuple[int, list[str]]]  # the number of its line, and the cells of each row


def read_tables(
    path: Path, files: Sequence[Path], label: str | None, group: str | None
) -> tuple[list[Row], list[Row] | None, None]:
    """Return the rows of a training and a test set; which file is of which, their names say."""
    train, test = _sets(path, files)
    if files[0].suffix.lower() == ".ts":
        for option, value in (("label", label), ("group", group)):
            if value is not None:
                raise DataError(f"{path}: .ts files have no columns: leave out --data.{option}")
        both = [[row for file in chosen for row in read_ts(file)] for chosen in (train, test or [])]
        return both[0], both[1] if test else None, None
    tables = [[_read(file, label) for file in chosen] for chosen in (train, test or [])]
    usual = "first" if files[0].suffix.lower() == ".tsv" else None
    place = _label_place(tables[0], label, usual, group)
    train_rows = [row for table in tables[0] for row in _rows(table, label, place, group)]
    # A test set beside them is in no part that groups are kept together in, and may have none.
    test_rows = [
        row
        for table in tables[1]
        for row in _rows(table, label, place, group if group in table.header else None)
    ]
    return train_rows, test_rows if test else None, None


def _sets(path: Path, files: Sequence[Path]) -> tuple[list[Path], list[Path] | None]:
    """Return the files to train on, and those to test on if there are any, by their names."""
    if path in files:
        return list(files), None
    found: dict[str, list[Path]] = {"train": [], **{name: [] for name in TEST_SPLITS}}
    rest: dict[str, list[str]] = {}
    for file in files:
        words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", file.stem)
        small = [word.lower().removesuffix("ing") for word in words]
        named = {*small} & {*found}
        if len(named) > 1:
            raise DataError(f"{file} must have one of train and test in its name, got both")
        for name in named:
            found[name].append(file)
            # Several files may be parts with numbers, and must not be a set in two versions.
            if small != rest.setdefault(name, small):
                several = f"{found[name][0].name} and {file.name}"
                raise DataError(f"{path} has several {name} sets, {several}: give a folder of one")
    if len(files) == 1 and (found["train"] or not any(found.values())):
        return list(files), None
    if not found["train"]:
        got = ", ".join(file.name for file in files)
        raise DataError(f"{path} must have files with train and test in their names, got {got}")
    return found["train"], next((found[name] for name in TEST_SPLITS if found[name]), None)


def _read(path: Path, label: str | None) -> Table:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} can't be read as a table: it is no text in UTF-8") from error
    line = next((line for line in text.splitlines() if re.search(r"[\t;,]", line)), "")
    delimiter = next((mark for mark in "\t;," if mark in line), None)
    if delimiter is not None:
        reader = csv.reader(
            io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True
        )
        try:
            rows = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader]
        except csv.Error as error:
            raise DataError(f"{path}, line {reader.line_num}: {error}") from error
    else:
        rows = [(i, line.split()) for i, line in enumerate(text.splitlines(), 1)]
    rows = [(number, cells) for number, cells in rows if any(cells)]
    if not rows:
        raise DataError(f"{path} is empty: it must have a row for each signal")
    header: list[str] = []
    if _is_header(rows[0][1], [cells for _, cells in rows[1:]], label):
        header, rows = rows[0][1], rows[1:]
    if not rows:
        raise DataError(f"{path} has a header and nothing else: it must have a row for each signal")
    for number, cells in rows:
        if len(cells) < 2:
            wanted = "a label and a signal"
            raise DataError(f"{path}, line {number} must have {wanted}, got {cells[0]!r}")
    return Table(path, header, rows)


def _is_header(first: list[str], others: Sequence[list[str]], label: str | None) -> bool:
    """Whether the first row has names of columns: a signal has one word at most, its label.

    Names are above numbers, or among them is that of labels; no other row has them. If a row has
    but one word, it is a header only if the rest counts samples or seconds of the longest signal;
    and, above words, only if these are few and the rest counts from 0 or 1.
    """
    if label is not None and label in first:
        return True
    words = [i for i, cell in enumerate(first) if _is_word(cell)]
    if any(row[i : i + 1] == [first[i]] for row in others for i in words):
        return False
    # The first name is empty where a column without one counts rows.
    counts = [float(x or "nan") for i, x in enumerate(first) if not _is_word(x) and (x or i)]
    steps = np.diff(counts)
    even = len(words) == len(first) or (len(steps) > 0 and np.allclose(steps, steps[0] or np.nan))
    above = any(others[0][i : i + 1] and not _is_word(others[0][i]) for i in words if others)
    named = any(first[i].lower() in LABELS for i in words)
    even = even and (len(words) > 1 or all(len(row) <= len(first) for row in others))
    below = [row[i] for row in others for i in words[:1] if i < len(row)]
    numbered = steps.size > 1 and counts[0] in (0, 1) and bool(np.all(steps == 1))
    named = named or (numbered and 0 < len({*below}) <= len(below) / 2)
    return bool((above and len(words) > 1) or (even and (above or named)))


def _is_word(cell: str) -> bool:
    try:
        float(cell or "nan")
        return "_" in cell  # which Python passes over
    except ValueError:
        return True


def _label_place(
    tables: Sequence[Table], label: str | None, usual: str | None, group: str | None
) -> str:
    """Return whether labels are first or last, where no header says which column has them."""
    if label in ("first", "last"):
        return label
    if label is not None or all(_named(table, label) is not None for table in tables):
        return ""
    if usual is not None:
        return usual
    kinds = {}
    for place, index in (("first", 0), ("last", -1)):
        column = [cells[index] for table in tables for _, cells in table.rows]
        words = any(map(_is_word, column))
        whole = not words and all(re.fullmatch(r"[+-]?\d+(\.0*)?", cell) for cell in column)
        few = 2 <= len({*column}) <= len(column) / 2
        kinds[place] = 2 if words and all(column) else 1 if whole and few else 0
        if group is not None and tables[0].header[index : index + 1 or None] == [group]:
            kinds[place] = -1
    if kinds["first"] == kinds["last"]:
        both = {0: "neither has", 1: "both have", 2: "both have"}[kinds["first"]]
        found = f"of the first and the last column, {both} words or few whole numbers"
        raise DataError(f"{tables[0].path}: which column has labels is not clear, {found}: {HOW}")
    return max(kinds, key=lambda place: kinds[place])


def _named(table: Table, label: str | None) -> int | None:
    """Return which column a header says has the labels."""
    if label is not None:
        return table.header.index(label) if label in table.header else None
    names = [cell.lower() for cell in table.header]
    return next((names.index(name) for name in LABELS if name in names), None)


def _rows(table: Table, label: str | None, place: str, group: str | None) -> list[Row]:
    columns, path = table.header, table.path
    index = _named(table, label)
    if index is None and not place:
        got = f"got {', '.join(columns)}" if columns else "and there is no header"
        raise DataError(f"{path} must have the column {label or 'label'!r} of labels, {got}: {HOW}")
    if index is None:
        index = 0 if place == "first" else len(columns) - 1
    special = {index}
    if group is not None:
        if group not in columns:
            got = f"got {', '.join(columns)}" if columns else "and there is no header"
            raise DataError(f"{path} must have the column {group!r} of --data.group, {got}")
        special.add(columns.index(group))
    if columns and columns[0] in NO_NAMES and 0 not in special:
        wrong = "the first column has no name, as one that counts rows and is no sample"
        raise DataError(f"{path}: {wrong}: name it if it is one, or leave it out")
    # Cells may be missing only at the end of the values.
    may_be_short = max(special) < len(special)
    rows = []
    for number, cells in table.rows:
        where = f"{path}, line {number}"
        short = len(cells) < len(columns)
        if columns and (len(cells) > len(columns) or (short and not may_be_short)):
            wanted = f"{len(columns)} cells as its header has"
            raise DataError(f"{where} must have {wanted}, got {len(cells)}")
        own = {i % len(cells) for i in special}
        values = _values(where, [cell for i, cell in enumerate(cells) if i not in own])
        key = cells[columns.index(group)] if group is not None else None
        if group is not None and not key:
            raise DataError(f"{where}: there is nothing in column {group}")
        rows.append(Row(where, values, cells[index], key))
    return rows


def _values(where: str, cells: Sequence[str]) -> Any:
    """Return cells as numbers, with NaN for empty ones, or a DataError."""
    try:
        return np.array([cell or "nan" for cell in cells], dtype=np.float64)
    except ValueError:
        wrong = next((cell for cell in cells if _is_word(cell)), "")
        return DataError(f"{where}: a signal must have numbers, got {wrong!r}")
