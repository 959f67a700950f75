"""Numbers and tables as plain text."""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any


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


def times(values: Iterable[float], form: str = "{}", sign: str = " × ") -> str:
    """Join the numbers of several axes with a multiplication sign.

    >>> times((32, 24)), times((2.0, 1.5), "{:.2f}"), times((32, 24), sign="×")
    ('32 × 24', '2.00 × 1.50', '32×24')
    """
    return sign.join(form.format(value) for value in values)


def short(value: float) -> str:
    """Return a number with three digits, or with all digits before the point if they are more.

    >>> short(0.24481), short(12.0), short(22_050.0)
    ('0.245', '12', '22050')
    """
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:.0f}"


def three_digits(value: float) -> str:
    """Return a number with three digits, zeros at its end included.

    >>> three_digits(2.3), three_digits(0.0125), three_digits(0.00312)
    ('2.30', '0.0125', '0.00312')
    """
    return f"{value:#.3g}"


def csv_line(cells: Iterable[Any]) -> str:
    """Return cells as a line of a CSV table, without its end.

    >>> csv_line(["a, b", 1])
    '"a, b",1'
    """
    text = io.StringIO(newline="")
    csv.writer(text).writerow(cells)  # which quotes what ends its own lines, "\r\n"
    return text.getvalue()[:-2]


def one_line(text: str) -> str:
    """Return a text as a line of a table can have it: what can't be printed is written out.

    >>> print(one_line("a file\\nof two lines"))
    a file\\nof two lines
    """
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)
