"""Files are written so that they are there whole or not at all."""

import csv
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def write(path: Path, content: str | bytes) -> None:
    """Write a file so that it is there whole or not at all, whatever happens meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)  # of a disk that is full, for one


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows as CSV, with the columns of the first."""
    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    write(path, text.getvalue())


def remove_parts(folder: Path, pid: int) -> None:
    """Remove what a process that was killed while it wrote has left in a folder."""
    for part in folder.rglob(f".*.{pid}.part"):
        part.unlink(missing_ok=True)
