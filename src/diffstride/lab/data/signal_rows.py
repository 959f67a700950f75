"""Signals of numbers in memory, before they are checked: rows of tables and of arrays."""

import re
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from diffstride.lab.data.labelled_files import DataError, TableFiles
from diffstride.lab.data.splitting import ADVICE, HoldOut, has_test_set

AT_ONCE = 1024  # how many cells of a table are taken together


class Row(NamedTuple):
    """A signal with its label, before anything is checked."""

    name: str  # where it is, for messages
    values: Any  # numbers, or the DataError that says why there are none
    label: Any  # a word or a number
    group: Hashable = None


@dataclass(frozen=True)
class SignalRows:
    """A training or a test set of signals, and the number of the class of each."""

    split: str
    labels: Tensor
    rows: tuple[Row, ...]
    rate: float | None  # samples a second, if the data say it

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, chosen: Sequence[int]) -> "SignalRows":
        """Return the set of the chosen signals only."""
        rows = tuple(self.rows[i] for i in chosen)
        return replace(self, labels=self.labels[list(chosen)], rows=rows)

    def signals(self) -> Iterator[tuple[str, Any]]:
        """Yield the name of each signal, and its numbers or what is wrong with them."""
        return ((row.name, row.values) for row in self.rows)


def cells(files: TableFiles) -> Iterator[tuple[str, Any]]:
    """Yield the same of a column of lists of numbers, or of lists for each channel."""
    table = files.table.with_format("arrow")
    for start in range(0, len(files), AT_ONCE):
        stop = min(start + AT_ONCE, len(files))
        column = table[start:stop].column(files.column).combine_chunks()
        for row, cell in enumerate(getattr(column, "storage", column), start):
            name = files.where(row)
            if not cell.is_valid:
                yield name, DataError(f"{name} has no signal")
                continue
            inside = cell.values
            if hasattr(inside, "offsets") or hasattr(inside.type, "list_size"):
                channels = [[] if c.values is None else _numbers(c.values) for c in inside]
                lengths = {len(channel) for channel in channels}
                wrong = f"{name} must have as many samples in each channel, got {sorted(lengths)}"
                yield name, DataError(wrong) if len(lengths) > 1 else np.array(channels)
            else:
                yield name, _numbers(inside)


def _numbers(values: Any) -> Any:
    return values.to_numpy(zero_copy_only=False)


def number_rows(
    path: str,
    train: Sequence[Row],
    test: Sequence[Row] | None,
    rate: float | None,
    hold_out: HoldOut | None,
    known: Sequence[str] | None,
) -> tuple[SignalRows, SignalRows, tuple[str, ...]]:
    """Return both sets with numbers for classes, and the names of these.

    Classes are the labels that there are: numbers in their order, then words in theirs. ``known``
    are those of a run that was trained; labels must be their names, or else their numbers. With
    ``hold_out``, the second set is a part of the first.
    """
    if test is None and hold_out is None:
        raise DataError(f"{path} has no test set: {ADVICE}")
    if hold_out is not None:
        if test is not None and hold_out.test_fraction is not None:
            raise has_test_set(path)
        test = None
    for split, rows in (("train", train), ("test", test)):
        if rows is not None and not rows:
            raise DataError(f"{path}: there is nothing to read in the {split} set")
    every = [*train, *(test or ())]
    names = [_class_name(row) for row in every]
    numbers = _known_numbers(known, every, names) if known else {}
    if not known:
        ordered = sorted(set(names), key=lambda name: (_number(name) is None, _number(name), name))
        numbers = {name: number for number, name in enumerate(ordered)}
        if len(numbers) < 2:
            raise DataError(f"{path} must have at least 2 classes, got {len(numbers)}")
    labels = torch.tensor([numbers[name] for name in names])
    whole = SignalRows("train", labels, tuple(every), rate)
    if hold_out is None:
        parts = (range(len(train)), range(len(train), len(every)))
        chosen = [list(part) for part in parts]
    else:
        groups = [row.group for row in every] if hold_out.group is not None else None
        chosen = list(hold_out.split(path, labels.tolist(), groups))
    trained, tested = (whole.select(part) for part in chosen)
    name = hold_out.split_name if hold_out else "test"
    return trained, replace(tested, split=name), tuple(known or numbers)


def _class_name(row: Row) -> str:
    """Return a label as the name of a class; a whole number without its point."""
    label = row.label.item() if isinstance(row.label, np.generic) else row.label
    text = label.decode(errors="replace") if isinstance(label, bytes) else str(label).strip()
    number = None if re.fullmatch(r"[+-]?0\d+", text) else _number(text)  # 07 is a name
    if number is not None and number != int(number):
        wanted = "words or whole numbers"
        raise DataError(f"{row.name}: labels must be {wanted}, got {text}: --data.label says where")
    if not text or text.lower() == "nan":
        raise DataError(f"{row.name} has no label")
    if "\ufffd" in text:  # words that differ would be one
        raise DataError(f"{row.name}: the label {text!r} has bytes that are no text in UTF-8")
    return text if number is None else str(int(number))


def _number(text: str) -> float | None:
    """Return the number that a label is; for Python 1_1 would be 11, and it is a name."""
    try:
        if re.fullmatch(r"[+-]?\d+", text):
            return int(text)  # all of its digits
        number = float(text)
        return number if np.isfinite(number) and "_" not in text else None
    except ValueError:
        return None


def _known_numbers(
    known: Sequence[str], rows: Sequence[Row], names: Sequence[str]
) -> dict[str, int]:
    """Return the numbers of known classes by the labels that stand for them.

    Where classes are called by numbers, these are names: 0 does not stand for the first of 1, 2, 3.
    """
    numbers = {name: number for number, name in enumerate(known)}
    counted = {str(number): number for number in range(len(known))}
    if all(_number(name) is None for name in known) and set(names) <= set(counted):
        return counted
    for row, name in zip(rows, names, strict=True):
        if name not in numbers:
            raise DataError(f"{row.name}: the label must be one of {', '.join(known)}, got {name}")
    return numbers
