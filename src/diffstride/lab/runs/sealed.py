"""Content with its own digest behind it, so that damage is noticed before anything is read."""

import hashlib

MARK = b"\nsha256 "
LENGTH = len(MARK) + hashlib.sha256().digest_size * 2 + 1


def seal(content: bytes) -> bytes:
    """Content, and behind it a line with its SHA-256.

    What reads zip files, ``torch.load`` for one, does not mind that line.

    >>> seal(b"weights")[-20:]
    b'848cf1a13eafdf33b2c\\n'
    """
    return content + _line(content)


def unseal(sealed: bytes) -> bytes:
    """The content that :func:`seal` was given.

    Raises:
        ValueError: unless every byte is as it was.

    >>> unseal(seal(b"weights"))
    b'weights'
    """
    content, line = sealed[:-LENGTH], sealed[-LENGTH:]
    if len(line) < LENGTH or not line.startswith(MARK):
        raise ValueError(
            "it does not end with its digest: it was cut off or changed, or an earlier version of "
            "diffstride wrote it"
        )
    if line != _line(content):
        raise ValueError("it is not what its digest was made of: the file was damaged")
    return content


def _line(content: bytes) -> bytes:
    return MARK + hashlib.sha256(content).hexdigest().encode() + b"\n"
