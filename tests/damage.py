"""What disks, networks and people do to files: damage of every kind, at random places."""

import random

BLOCK = 4096


def _bits(content, moments, number):
    changed = bytearray(content)
    for _ in range(number):
        changed[moments.randrange(len(changed))] ^= 1 << moments.randrange(8)
    return bytes(changed)


def _place(content, moments):
    length = min(BLOCK, max(1, len(content) // 4))
    start = moments.randrange(len(content) - length + 1)
    return start, start + length


def _block(content, moments, make):
    start, end = _place(content, moments)
    return content[:start] + make(end - start) + content[end:]


def _swapped(content, moments):
    middle = len(content) // 2
    (a, b), (c, d) = _place(content[:middle], moments), _place(content[middle:], moments)
    c, d = c + middle, c + middle + (b - a)
    return content[:a] + content[c:d] + content[b:c] + content[a:b] + content[d:]


KINDS = {
    "one bit": lambda content, moments: _bits(content, moments, 1),
    "several bits": lambda content, moments: _bits(content, moments, moments.randint(2, 50)),
    "a block of zeros": lambda content, moments: _block(content, moments, bytes),
    "a block of junk": lambda content, moments: _block(content, moments, moments.randbytes),
    "a block lost": lambda content, moments: _block(content, moments, lambda length: b""),
    "cut off": lambda content, moments: content[: moments.randrange(len(content))],
    "junk behind": lambda content, moments: content + moments.randbytes(moments.randint(1, 9999)),
    "blocks swapped": _swapped,
    "twice": lambda content, moments: content + content,
    "the last bytes": lambda content, moments: content[:-1] + bytes([content[-1] ^ 1]),
    "empty": lambda content, moments: b"",
    "junk": lambda content, moments: moments.randbytes(len(content)),
}


def damages(content, number, kinds=tuple(KINDS)):
    """So many damaged versions of a content, each with its kind, the same ones every time."""
    moments = random.Random(0)
    found = 0
    while found < number:
        kind = kinds[found % len(kinds)]
        changed = KINDS[kind](content, moments)
        if changed != content:  # zeros may have been zeros before
            found += 1
            yield kind, changed
