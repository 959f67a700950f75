"""The CSV, JSON and YAML files of a run, checked when read: errors name file, line and column."""

import csv
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from diffstride.files import write

LARGEST_SIZE = 10_000_000  # of one axis, in samples
LONGEST_YAML = 1_000_000  # characters; what is written here has a few thousand
TOO_LONG = f"{{}} must have at most {LONGEST_YAML:,} characters"
LONGEST_SCALAR = 3_000
"""Characters of one value; of more, YAML may make a number that takes forever to compute."""
DEEPEST = 20
TOO_DEEP = f"lists and mappings must be nested at most {DEEPEST} deep"

Column: TypeAlias = tuple[Callable[[str], Any], str, Callable[[Any], bool]]
"""What reads a cell, what it must be in words, and which values it may have."""


def whole_numbers(least: int, most: int) -> Column:
    """Return a column of whole numbers within limits."""
    return int, f"a whole number from {least:,} to {most:,}", lambda n: least <= n <= most


NUMBERS: Column = float, "a number", lambda number: True
AT_LEAST_0: Column = float, "a number of at least 0", lambda number: number >= 0
SHARE: Column = float, "a number from 0 to 1", lambda share: 0 <= share <= 1
WORD: Column = str, "a word", bool
TEXT: Column = str, "a word", lambda word: True
LAST_OR_BEST: Column = str, "last or best", lambda word: word in ("last", "best")
"""Which weights of a run were measured."""
STRIDE_COLUMNS: dict[str, Column] = {
    "epoch": whole_numbers(0, 10**12),
    "step": whole_numbers(0, 10**12),
    "layer": (str, "a word", bool),
    "axis": whole_numbers(0, 2),
    "stride": (float, "a number above 0", lambda stride: stride > 0),
    "input_size": whole_numbers(1, LARGEST_SIZE),
    "output_size": whole_numbers(1, LARGEST_SIZE),
    # Those of older runs have none of these; and cells are empty where there is nothing to say.
    "cost_saved": NUMBERS,
    "loss_gradient": NUMBERS,
    "loss_gradient_error": AT_LEAST_0,
    "cutoff": AT_LEAST_0,
}
"""The columns of strides.csv. Other tables share some; all their others hold numbers."""
STEP_SECONDS = "step_seconds"
"""The column of times.csv with the mean time of a training step alone; older runs have none."""


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


def write_json(path: Path, content: Mapping[str, Any], **options: Any) -> None:
    """Write a mapping as a JSON file; the options are those of :func:`json.dumps`."""
    write(path, json.dumps(content, **{"indent": 1} | options) + "\n")


def yaml_text(path: Path, content: Mapping[str, Any]) -> str:
    """Return plain values as YAML; a DamagedFile if :func:`read_yaml` would not take it."""
    import yaml

    text: str = yaml.safe_dump(content, sort_keys=False)
    if len(text) > LONGEST_YAML:
        raise DamagedFile(TOO_LONG.format(path))
    _check_plain(text, path)
    return text


def json_text(content: Any, indent: int | None = None) -> str:
    """Return plain values as JSON that every program can read: what is no finite number is null.

    >>> json_text({"loss": float("nan"), "strides": (2.0, 1.5)})
    '{"loss": null, "strides": [2.0, 1.5]}'
    """
    return json.dumps(_finite(content), indent=indent, allow_nan=False)


def _finite(content: Any) -> Any:
    if isinstance(content, Mapping):
        return {str(name): _finite(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def read_rows(
    path: Path,
    *columns: str,
    may_be_empty: bool = False,
    kinds: Mapping[str, Column] = STRIDE_COLUMNS,
) -> list[dict[str, str]]:
    """Return the rows of a CSV file as mappings from column to text.

    Each of ``columns`` must be there, with something in every row, and with finite numbers. A file
    that holds nothing, as strides.csv of a network without strides, ``may_be_empty``. ``kinds``
    says what columns hold; others hold numbers. Raises a DamagedFile that says what is wrong, and
    an OSError if there is no such file.
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
                    kind = kinds.get(name, NUMBERS)
                    _check_cell(cell, name, kind, where, finite=name in columns)
    except csv.Error as error:
        raise DamagedFile(f"{path}, line {lines.line_num}: {error}") from error
    if not rows:
        raise DamagedFile(f"{path} has no rows")
    if not text.endswith("\n"):
        raise DamagedFile(f"{path}, line {lines.line_num} is cut off: no line break ends it")
    return rows


def read_json(path: Path, *names: str) -> dict[str, Any]:
    """Return the mapping in a JSON file; a DamagedFile if it is none, or lacks one of the names."""
    text = _text(path)
    try:
        content = json.loads(text)
        deep = isinstance(content, dict | list) and _depth(content) > DEEPEST
    except RecursionError:
        deep = True
    except ValueError as error:  # a number of thousands of digits has no line
        line = f", line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        problem = getattr(error, "msg", error)
        raise DamagedFile(f"{path}{line} is no JSON: {problem}") from error
    if deep:
        raise DamagedFile(f"{path}: {TOO_DEEP}")
    return _mapping(path, content, names)


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file, with the errors of :func:`read_json`."""
    import yaml

    if path.stat().st_size > LONGEST_YAML:
        raise DamagedFile(TOO_LONG.format(path))
    text = _text(path)
    try:
        _check_plain(text, path)
        return _mapping(path, yaml.safe_load(text))
    except DamagedFile:
        raise
    except (yaml.YAMLError, ValueError) as error:  # a date that is none is a ValueError
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f", line {mark.line + 1}"
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise DamagedFile(f"{path}{line} is no YAML: {problem}") from error


def _check_plain(text: str, path: Path) -> None:
    """Raise a DamagedFile for YAML that a few lines can make too large for memory, or too deep."""
    import yaml

    depth = 0
    for event in yaml.parse(text):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        problem = TOO_DEEP if depth > DEEPEST else ""
        if getattr(event, "anchor", None) is not None:
            problem = f"{event.anchor!r} is an anchor or an alias: write out what it stands for"
        elif isinstance(event, yaml.ScalarEvent) and len(event.value) > LONGEST_SCALAR:
            problem = f"a value must have at most {LONGEST_SCALAR:,} characters, got "
            problem += f"{len(event.value):,}: {short(event.value)}"
        if problem:
            raise DamagedFile(f"{path}, line {event.start_mark.line + 1}: {problem}")


def _depth(content: Any) -> int:
    inside = content.values() if isinstance(content, dict) else content
    return 1 + max((_depth(item) for item in inside if isinstance(item, dict | list)), default=0)


def _mapping(path: Path, content: Any, names: tuple[str, ...] = ()) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise DamagedFile(f"{path} must be a mapping of names to values, got {short(content)}")
    if missing := [name for name in names if name not in content]:
        raise DamagedFile(f"{path} must have {', '.join(names)}: there is no {missing[0]}")
    return content


def _text(path: Path) -> str:
    content = path.read_bytes()
    place, problem = content.find(b"\0"), "has a NUL byte: the file was damaged"
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        place, problem = error.start, f"is not UTF-8: {error.reason}"
    if place >= 0:
        line = content[:place].count(b"\n") + 1
        raise DamagedFile(f"{path}, line {line} {problem}")
    return text


def _check_cell(cell: str, column: str, kind: Column, where: str, finite: bool) -> None:
    """Raise a DamagedFile unless a cell holds what its column holds."""
    read, expected, allows = kind
    try:
        value = read(cell)
        right = allows(value) and (read is str or not finite or math.isfinite(value))
    except ValueError:
        right = False
    if not right:
        raise DamagedFile(f"{where}: column {column} must be {expected}, got {short(cell)}")


def short(value: Any) -> str:
    """Return a value as an error message shows it."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:36]} ..."
