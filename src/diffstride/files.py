"""Write files atomically: a reader finds the old file or the new one, never half of one.

Sealed content has its digest behind it, so that damage is noticed before anything is read.
"""

import hashlib
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SEAL = b"\nsha256 "
SEAL_LENGTH = len(SEAL) + hashlib.sha256().digest_size * 2 + 1


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


def remove_unfinished(folder: Path, pid: int) -> None:
    """Remove the unfinished files that a killed process has left in a folder and below it."""
    for part in folder.rglob(f".*.{pid}.part"):
        part.unlink(missing_ok=True)


def seal(content: bytes) -> bytes:
    """Return content with a line behind it that has its SHA-256.

    What reads zip files, ``torch.load`` for one, does not mind that line.

    >>> seal(b"weights")[-20:]
    b'848cf1a13eafdf33b2c\\n'
    """
    return content + _digest_line(content)


def unseal(sealed: bytes) -> bytes:
    """Return the content that :func:`seal` was given.

    Raises:
        ValueError: unless every byte is as it was.

    >>> unseal(seal(b"weights"))
    b'weights'
    """
    content, line = sealed[:-SEAL_LENGTH], sealed[-SEAL_LENGTH:]
    if len(line) < SEAL_LENGTH or not line.startswith(SEAL):
        reason = "it was cut off or changed, or an earlier version of diffstride wrote it"
        raise ValueError(f"it does not end with its digest: {reason}")
    if line != _digest_line(content):
        raise ValueError("it is not what its digest was made of: the file was damaged")
    return content


def _digest_line(content: bytes) -> bytes:
    return SEAL + hashlib.sha256(content).hexdigest().encode() + b"\n"
