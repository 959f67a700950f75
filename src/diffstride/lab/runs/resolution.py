"""How accurate a network is with less resolution: resolution.csv of a run, and what it says."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from diffstride.lab.runs.documents import (
    AT_LEAST_0,
    LARGEST_SIZE,
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

INPUT = "input"
"""The place of what goes into the network; others are "behind" a layer."""
TEST_DATA = "the test data of the run"
STEPS = 8
"""How many cut-offs are tried at each place along each axis."""
ENOUGH = 0.99
"""The share of the full accuracy that is enough."""

COLUMNS: dict[str, Column] = {
    "place": WORD,
    "axis": whole_numbers(0, 2),
    "name": WORD,
    "unit": WORD,
    "cutoff": (float, "a number above 0", lambda cutoff: cutoff > 0),
    "bins": whole_numbers(1, LARGEST_SIZE),
    "accuracy": SHARE,
    "low": SHARE,
    "high": SHARE,
    "kept": AT_LEAST_0,
    "kept_low": AT_LEAST_0,
    "kept_high": AT_LEAST_0,
    "examples": whole_numbers(1, 10**12),
    "data": WORD,
    "weights": LAST_OR_BEST,
    "learned": AT_LEAST_0,
    "task": TEXT,
}
"""The columns of resolution.csv; the last two may be empty."""
OPTIONAL = ("learned", "task")


class Step(NamedTuple):
    """The accuracy with frequencies up to a cut-off along one axis at one place.

    The first of a place and axis is the network as it is. Bands are of 95 %, over the examples.
    """

    place: str
    axis: int
    name: str
    """Of the axis."""
    unit: str
    cutoff: float
    bins: int
    """The cut-off in periods per axis."""
    accuracy: float
    low: float
    high: float
    kept: float
    """The share of the full accuracy."""
    kept_low: float
    kept_high: float
    examples: int
    data: str
    weights: str
    learned: float | None = None
    """Up to which frequency everything passes this layer and all before it; of the input, all."""
    task: str = ""


def write_resolution(path: Path, steps: Sequence[Step]) -> None:
    """Write resolution.csv."""
    rows = (step._asdict() for step in steps)
    write_rows(
        path, [row | {"learned": "" if row["learned"] is None else row["learned"]} for row in rows]
    )


def read_resolution(path: Path) -> list[Step]:
    """Return what resolution.csv says; a DamagedFile if a line is not what was written once."""
    required = [name for name in COLUMNS if name not in OPTIONAL]
    steps = []
    for row in read_rows(path, *required, kinds=COLUMNS):
        values: dict[str, Any] = {name: COLUMNS[name][0](row[name]) for name in required}
        learned = float(row["learned"]) if row.get("learned") else None
        steps.append(Step(**values, learned=learned, task=row.get("task", "")))
    for (place, axis), curve in curves(steps).items():
        bins = [step.bins for step in curve]
        if any(after >= before for before, after in itertools.pairwise(bins)):
            rule = "a cut-off below that of the line before it in each line"
            raise DamagedFile(f"{path} must have {rule} of {place}, axis {axis}, got bins {bins}")
    return steps


def curves(steps: Sequence[Step]) -> dict[tuple[str, int], list[Step]]:
    """Return the steps of each place and axis, from the network as it is downwards."""
    found: dict[tuple[str, int], list[Step]] = {}
    for step in steps:
        found.setdefault((step.place, step.axis), []).append(step)
    return found


def enough(curve: Sequence[Step]) -> Step:
    """Return the lowest step of a curve such that it and all above keep enough of the accuracy."""
    return [curve[0], *itertools.takewhile(lambda step: step.kept >= ENOUGH, curve[1:])][-1]


def sentences(steps: Sequence[Step]) -> list[str]:
    """Return in words how much resolution the task needs: at the input, and behind which layer.

    Each axis is judged by the curve of the input; where less is enough behind a layer, a second
    sentence names the layer behind which it is least.
    """
    found = curves(steps)
    at_input = {axis: curve for (place, axis), curve in found.items() if place == INPUT}
    first_layer: dict[int, float] = {}
    for (place, axis), curve in found.items():
        if place != INPUT and curve[0].learned is not None:
            first_layer.setdefault(axis, curve[0].learned)
    parts = [
        _verdict(curve, first_layer.get(axis)) for axis, curve in at_input.items() if len(curve) > 1
    ]
    if not parts:
        return ["There is no resolution to take away: the axes of the input are too short"]
    text = "; ".join(parts)
    said = [text[:1].upper() + text[1:]]
    deeper = list(_deeper(found, at_input))
    return [*said, f"Deeper in the network less is enough: {'; '.join(deeper)}"] if deeper else said


def _verdict(curve: Sequence[Step], passes: float | None) -> str:
    """Return what the curve of the input says of its axis, in words.

    ``passes`` is up to which frequency the first layer lets everything pass, if there is one: that
    the input need not have more is no news.
    """
    last = enough(curve)
    after = curve[curve.index(last) + 1 :]
    is_no_news = passes is not None and bool(after) and after[0].cutoff < passes <= last.cutoff
    if last is curve[0] or is_no_news:
        below = ""
        if passes is not None and last is not curve[0]:
            below = f" below the {short(passes)} {last.unit} that the first layer lets pass"
        chance = ", which may be chance" if after[0].kept_high >= ENOUGH else ""
        loss = f"up to {short(after[0].cutoff)} {last.unit} keeps {_kept(after[0])}{chance}"
        return f"{last.name} is not to be reduced{below} ({loss})"
    share = f"{ENOUGH:.0%}".replace("%", " %")
    return f"{_up_to(last)} is enough for {share} of the accuracy (keeps {_kept(last)})"


def _deeper(
    found: Mapping[tuple[str, int], Sequence[Step]], at_input: Mapping[int, Sequence[Step]]
) -> Iterator[str]:
    """Yield for each axis the layer behind which the least is enough, if less than at the input."""
    for axis, curve in at_input.items():
        behind = [c for (place, a), c in found.items() if place != INPUT and a == axis]
        reduced = [enough(c) for c in behind if enough(c) is not c[0]]
        least = min(reduced, key=lambda step: step.cutoff, default=curve[0])
        if least.cutoff < enough(curve).cutoff:
            yield f"{least.place}, {_up_to(least)} (keeps {_kept(least)})"


def _up_to(step: Step) -> str:
    return f"{step.name} up to {short(step.cutoff)} {step.unit}"


def _kept(step: Step) -> str:
    return f"{100 * step.kept:.1f} %, {100 * step.kept_low:.1f} to {100 * step.kept_high:.1f}"
