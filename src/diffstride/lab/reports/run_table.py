"""A table in which each run has a line."""

from collections.abc import Sequence
from pathlib import Path

from diffstride.lab.reports.formats import UNKNOWN, or_dash
from diffstride.lab.reports.run_reader import read_run
from diffstride.text import aligned, times

HEADER = ("run", "downsampling", "accuracy", "first strides", "cut-off", "M MACs", "minutes")


def compare(folders: Sequence[str | Path]) -> str:
    """A table of runs: accuracy after the last epoch, strides of the first layer, cost, time.

    A network for several tasks has its mean accuracy, and a line below for each task. The cut-offs
    are the highest frequencies that the first layer lets pass undamped: of spectrograms in Hz along
    time, and in cycles per channel along frequency. A folder that is no run is a ValueError.
    """
    return "\n".join(aligned([HEADER, *(line for folder in folders for line in _lines(folder))]))


def _lines(folder: str | Path) -> list[tuple[str, ...]]:
    try:
        run = read_run(Path(folder))
    except OSError as error:
        raise ValueError(f"{folder} is no run: {error}") from error
    if not (run.metrics and run.times):
        return [(run.name, run.downsampling, "no epoch yet", *[""] * 4)]
    with_units = run.first_layer if "axes" in run.data_facts else ()
    first = (
        run.name,
        run.downsampling,
        or_dash(run.last("test_accuracy"), ".1%"),
        times((stride.last for stride in run.first_layer), "{:.2f}") or UNKNOWN,
        times(map(run.cutoff, with_units), "{:.4g}") or UNKNOWN,
        or_dash(run.last("mmacs"), ".1f"),
        f"{run.minutes:.1f}",
    )
    tasks = run.task_accuracies.items()
    return [first, *((f"  {task}", "", f"{accuracy:.1%}", *[""] * 4) for task, accuracy in tasks)]
