"""How a network does on changed examples: robust.csv of a run, and what it says."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from diffstride.lab.runs.documents import (
    AT_LEAST_0,
    LAST_OR_BEST,
    SHARE,
    TEXT,
    WORD,
    Column,
    DamagedFile,
    read_rows,
    whole_numbers,
    write_rows,
)
from diffstride.text import short

MOST_MOVED = 4
"""By how many samples examples are moved at most."""
UNCHANGED, MOVED, RESIZED, RATE = "unchanged", "moved", "resized", "rate"
EVERY_MOVE, EVERY_CORRUPTION = "every move", "every corruption"
MEANS = (EVERY_MOVE, EVERY_CORRUPTION)
"""The rows that are means of others, with bands of their own."""
SAMPLES = {"images": "pixels", "audio": "frames", "signals": "samples"}
"""What the samples along an axis are called, by the kind of data."""
BLURRED = SAMPLES | {"audio": "frames and channels"}
"""The same of all axes together."""

COLUMNS: dict[str, Column] = {
    "change": WORD,
    "along": TEXT,
    "strength": whole_numbers(0, 1000),
    "amount": AT_LEAST_0,
    "unit": TEXT,
    "accuracy": SHARE,
    "low": SHARE,
    "high": SHARE,
    "same": SHARE,
    "same_low": SHARE,
    "same_high": SHARE,
    "examples": whole_numbers(1, 10**12),
    "data": WORD,
    "weights": LAST_OR_BEST,
}
"""The columns of robust.csv; ``along`` and ``unit`` may be empty."""
OPTIONAL = ("along", "unit")
SUMMARY_HEAD = ("same when moved", "corrupted")
"""How tables call the two numbers that stand for all rows: a share of answers, and an accuracy."""


class Row(NamedTuple):
    """How a network does on examples that were changed in one way.

    Bands are of 95 %, over the examples.
    """

    change: str
    along: str
    """The axes that examples are moved along; empty for other changes."""
    strength: int
    """How far it is moved, or from 1 to 5 how strong a corruption is; counts other changes."""
    amount: float
    """The same in a unit."""
    unit: str
    accuracy: float
    low: float
    high: float
    same: float
    """The share of examples that get the answer that they get unchanged."""
    same_low: float
    same_high: float
    examples: int
    data: str
    weights: str


class Summary(NamedTuple):
    """The two numbers that stand for all others."""

    consistency: float
    """The share of examples that get the same answer when moved: the mean over all moves."""
    corrupted: float
    """The accuracy on corrupted examples: the mean over all corruptions and strengths."""


def write_robust(path: Path, rows: Sequence[Row]) -> None:
    """Write robust.csv."""
    write_rows(path, [row._asdict() for row in rows])


def read_robust(path: Path) -> list[Row]:
    """Return what robust.csv says; a DamagedFile if a line is not what was written once."""
    required = [name for name in COLUMNS if name not in OPTIONAL]
    rows = []
    for cells in read_rows(path, *required, kinds=COLUMNS):
        values: dict[str, Any] = {name: COLUMNS[name][0](cells.get(name, "")) for name in COLUMNS}
        rows.append(Row(**values))
    for name in (UNCHANGED, *MEANS):
        if sum(row.change == name for row in rows) != 1:
            raise DamagedFile(f"{path} must have one line for {name}")
    for name, found in {MOVED: moves(rows), "corruptions": corruptions(rows)}.items():
        strengths = {tuple(row.strength for row in own) for own in found.values()}
        if len(strengths) != 1 or not all(s == tuple(range(1, len(s) + 1)) for s in strengths):
            raise DamagedFile(f"{path} must have a line for each strength of {name}, in order")
    if not any(row.change == RESIZED for row in rows):
        raise DamagedFile(f"{path} must have a line for {RESIZED}")
    return rows


def row_of(rows: Iterable[Row], change: str) -> Row:
    """Return the only row of a change: of none, or of a mean."""
    return next(row for row in rows if row.change == change)


def summary(rows: Sequence[Row]) -> Summary:
    """Return the two numbers that stand for all rows."""
    return Summary(row_of(rows, EVERY_MOVE).same, row_of(rows, EVERY_CORRUPTION).accuracy)


def corruptions(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Return the rows of each corruption, from the weakest to the strongest."""
    others = (UNCHANGED, MOVED, RESIZED, RATE, *MEANS)
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row.change not in others:
            found.setdefault(row.change, []).append(row)
    return found


def moves(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Return the rows of moves along each axis and along all, from the nearest to the farthest."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row.change == MOVED:
            found.setdefault(row.along, []).append(row)
    return found


def sentences(rows: Sequence[Row]) -> list[str]:
    """Return in words what was measured: of moves, of corruptions, of other sizes and rates."""
    whole, moved, worse = (row_of(rows, name) for name in (UNCHANGED, *MEANS))
    answers = f"{_band(moved.same, moved.same_low, moved.same_high)} of the examples"
    ways = list(moves(rows))
    where = "in every direction" if len(ways) > 1 else f"along {ways[0]}"
    far = f"up to {moved.strength} {moved.unit} {where}"
    said = [f"Moved by {far}, {answers} get the answer that they get unmoved"]
    means = {
        name: sum(row.accuracy for row in own) / len(own) for name, own in corruptions(rows).items()
    }
    least = min(means, key=lambda name: means[name])
    band = _band(worse.accuracy, worse.low, worse.high)
    accuracy = f"the accuracy is {band}, of {_percent(whole.accuracy)} as they are"
    said.append(f"Corrupted, {accuracy}; least with {least}: {_percent(means[least])}")
    for change in (RESIZED, RATE):
        if own := [row for row in rows if row.change == change]:
            accuracies = ", ".join(_percent(row.accuracy) for row in own)
            amounts = ", ".join(short(row.amount) for row in own)
            said.append(f"The accuracy is {accuracies} at {amounts} {own[0].unit}")
    return said


def how(row: Row) -> str:
    """Return how much examples were changed, in words.

    >>> blur = Row("blur", "", 2, 1.0, "pixels", *[0.5] * 6, 10, "digits", "last")
    >>> how(blur), how(blur._replace(amount=1.5))
    ('1 pixel', '1.5 pixels')
    """
    if row.change in (UNCHANGED, *MEANS):
        return ""
    is_one = row.amount == 1 and " " not in row.unit
    return f"{short(row.amount)} {row.unit.removesuffix('s') if is_one else row.unit}"


def _band(value: float, low: float, high: float) -> str:
    return f"{_percent(value)} ({100 * low:.1f} to {100 * high:.1f})"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
