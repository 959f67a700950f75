"""Numbers and tables as plain text."""

from collections.abc import Iterable, Sequence


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Lay out rows of cells in columns, two blanks apart.

    >>> aligned([("run", "accuracy"), ("first", "98 %")])
    ['run    accuracy', 'first  98 %']
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def times(values: Iterable[float], form: str = "{}") -> str:
    """Join the numbers of several axes with a multiplication sign.

    >>> times((32, 24)), times((2.0, 1.5), "{:.2f}")
    ('32 × 24', '2.00 × 1.50')
    """
    return " × ".join(form.format(value) for value in values)
