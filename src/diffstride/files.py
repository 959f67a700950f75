"""Write files atomically: a reader finds the old file or the new one, never half of one."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a path to write to; when the block ends without an error, it becomes ``path``.

    What was written is on the disk before it gets its name. The folder is made if it is not there.
    After an error nothing is left, and a file that was there stays as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.{os.getpid()}.part")
    try:
        yield part
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)  # a full disk leaves one, for example


def write(path: Path, content: str | bytes) -> None:
    """Write text or bytes to a file atomically."""
    with replacing(path) as part:
        part.write_bytes(content.encode() if isinstance(content, str) else content)


def remove_parts(folder: Path, pid: int) -> None:
    """Remove the unfinished files that a killed process has left in a folder and below it."""
    for part in folder.rglob(f".*.{pid}.part"):
        part.unlink(missing_ok=True)
