"""Runs side by side, from the files in their folders."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HEADER = ("run", "downsampling", "accuracy", "first strides", "cut-off", "M MACs", "minutes")


def compare(folders: Sequence[str | Path]) -> str:
    """A line a run: accuracy after the last epoch, strides of the first site, cost.

    Of a network for several tasks the mean accuracy, and a line a task. Cut-offs are the highest
    frequencies that the first site lets pass whole: of spectrograms in Hz along time, and in cycles
    per channel along frequency.

    Raises:
        ValueError: for a folder that is no run, or one that has not finished an epoch.
    """
    lines: list[tuple[str, ...]] = [HEADER]
    for folder in map(Path, folders):
        lines += _lines(folder)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _lines(folder: Path) -> list[tuple[str, ...]]:
    import yaml

    try:
        config = yaml.safe_load((folder / "config.yaml").read_text())
        facts = json.loads((folder / "data.json").read_text())
        last = rows(folder / "metrics.csv")[-1]
        times = rows(folder / "times.csv")
    except (OSError, ValueError, IndexError) as error:
        raise ValueError(f"{folder} is no run with an epoch to show: {error}") from error
    strides = _first_strides(rows(folder / "strides.csv"))
    first = (
        folder.name,
        config["model"]["downsampling"],
        f"{float(last['test_accuracy']):.1%}",
        " × ".join(f"{s:.2f}" for s in strides) or "–",
        _cutoffs(strides, facts) or "–",
        f"{float(last['mmacs']):.1f}",
        f"{sum(float(row['seconds']) for row in times) / 60:.1f}",
    )
    tasks = [name for name in last if name.startswith("test_accuracy_")]
    return [
        first,
        *(
            (f"  {name.removeprefix('test_accuracy_')}", "", f"{float(last[name]):.1%}", *[""] * 4)
            for name in tasks
        ),
    ]


def _first_strides(strides: list[dict[str, str]]) -> list[float]:
    """Of the first site, at the end."""
    own = [row for row in strides if row["layer"] == strides[0]["layer"]]
    return [float(row["stride"]) for row in own if row["epoch"] == own[-1]["epoch"]]


def _cutoffs(strides: list[float], facts: dict[str, Any]) -> str:
    rates = facts.get("sampling_rate", ())
    found = [rate / (2 * stride) for rate, stride in zip(rates, strides, strict=False)]
    return " × ".join(f"{value:.4g}" for value in found)


def rows(path: Path) -> list[dict[str, str]]:
    """A CSV file as mappings from column to text."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
