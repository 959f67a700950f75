"""Runs side by side, from the files in their folders."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from diffstride.lab.runs.documents import DamagedFile, read_json, read_rows, read_yaml

HEADER = ("run", "downsampling", "accuracy", "first strides", "cut-off", "M MACs", "minutes")


def compare(folders: Sequence[str | Path]) -> str:
    """A line a run: accuracy after the last epoch, strides of the first site, cost, time.

    Of a network for several tasks the mean accuracy, and a line a task. Cut-offs are the highest
    frequencies that the first site lets pass whole: of spectrograms in Hz along time, and in cycles
    per channel along frequency.

    Raises:
        ValueError: for a folder that is no run.
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
    try:
        downsampling = method(read_yaml(folder / "config.yaml"), folder)
        facts = read_json(folder / "data.json")
    except OSError as error:
        raise ValueError(f"{folder} is no run: {error}") from error
    name = folder.resolve().name
    if not (folder / "times.csv").exists():
        return [(name, downsampling, "no epoch yet", *[""] * 4)]
    last = read_rows(folder / "metrics.csv", "test_accuracy", "mmacs")[-1]
    times = read_rows(folder / "times.csv", "seconds")
    strides = first_strides(read_strides(folder))
    first = (
        name,
        downsampling,
        f"{float(last['test_accuracy']):.1%}",
        " × ".join(f"{float(row['stride']):.2f}" for row in strides) or "–",
        " × ".join(f"{cutoff(row, facts):.4g}" for row in strides if "axes" in facts) or "–",
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


def first_strides(strides: list[dict[str, str]]) -> list[dict[str, str]]:
    """The rows of the first site at the end, one an axis."""
    own = [row for row in strides if row["layer"] == strides[0]["layer"]]
    return [row for row in own if row["epoch"] == own[-1]["epoch"]]


def cutoff(row: dict[str, str], facts: dict[str, Any]) -> float:
    """The highest frequency that a site lets pass whole along an axis, in the unit of the data."""
    axis = int(row["axis"])
    part = int(row["input_size"]) / facts["size"][1 + axis]  # what sites before it have left
    return float(part * facts["sampling_rate"][axis] / (2 * float(row["stride"])))


def method(config: dict[str, Any], folder: Path) -> str:
    """What the run of a config downsamples with.

    Raises:
        DamagedFile: if the config does not say.
    """
    told = config.get("model")
    if not isinstance(told, dict) or not isinstance(told.get("downsampling"), str):
        raise DamagedFile(f"{folder / 'config.yaml'} must have a model with a downsampling")
    return str(told["downsampling"])


def read_strides(folder: Path) -> list[dict[str, str]]:
    """The rows of strides.csv; none of a network without learnable strides."""
    columns = ("epoch", "layer", "axis", "stride")
    return read_rows(folder / "strides.csv", *columns, may_be_empty=True)
