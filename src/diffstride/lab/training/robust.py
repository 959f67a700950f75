"""How a network does on examples that are moved, corrupted, or of another size or rate."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from diffstride.lab.data.corruptions import CORRUPTIONS
from diffstride.lab.runs.axes import Axis, data_axes
from diffstride.lab.runs.lock import locked
from diffstride.lab.runs.robust import (
    EVERY_CORRUPTION,
    EVERY_MOVE,
    MOST_MOVED,
    MOVED,
    UNCHANGED,
    Row,
    write_robust,
)
from diffstride.lab.runs.waiting import progress_bar
from diffstride.lab.training.changed_inputs import Change, changes, finishing, on_changed
from diffstride.lab.training.learner import Learner
from diffstride.lab.training.preparation import Prepared
from diffstride.lab.training.resampling import mean_scores, scores_of_each
from diffstride.lab.training.trained_run import load_classifier

OfEach: TypeAlias = dict[str, NDArray[Any]]
"""By task, a value of each test example."""


def measure(folder: str | Path, data_path: str | None = None, *, best: bool = False) -> list[Row]:
    """Measure how the network of a run does on changed test data, and write robust.csv.

    Args:
        folder: of the run.
        data_path: other data of the same classes, instead of the run's test data.
        best: the epoch that was best on the test data, instead of the last.
    """
    why = "--robust is for networks that classify: answers are compared"
    run, prepared, facts = load_classifier(folder, data_path, best, why)
    kind = run.config.data.kind
    with locked(run.folder):
        found = rows(prepared, kind, data_axes(run.data, kind), facts)
        write_robust(run.robust_file, found)
    return found


def rows(
    prepared: Prepared, kind: str, axes: Sequence[Axis], facts: Mapping[str, str]
) -> list[Row]:
    """Return how a classifier does on each change of the test data."""
    module, batches = prepared.module, prepared.test
    every = list(changes(kind, axes))
    table = Table(*answers(module, batches))
    with progress_bar("changed examples", len(every)) as bar:
        for change in every:
            with on_changed(module, change, finishing(prepared.facts, kind)) as works:
                if works:
                    table.add(change, *answers(module, batches))
            bar.update()
    return table.rows(facts)


def answers(module: Learner, batches: Iterable[Any]) -> tuple[OfEach, OfEach]:
    """Return which test examples a classifier gets right, and its answers, both by task."""
    right = dict(scores_of_each(module, batches))
    given = {name: torch.cat(parts).cpu().numpy() for name, parts in module.answers.items()}
    return right, given


class Table:
    """Sums up what a network answers to changed examples, row by row."""

    def __init__(self, right: OfEach, given: OfEach) -> None:
        self.right, self.given = right, given
        # By row: how many changes it has, and by task how many of them each example is right in,
        # and how many in which it has the same answer.
        self.sums: dict[tuple[Any, ...], tuple[int, OfEach]] = {}
        unchanged = Change(UNCHANGED, "", 0, 0.0, "", None)
        self.add(unchanged, right, given)

    def add(self, change: Change, right: OfEach, given: OfEach) -> None:
        """Count what was answered to one change, in its row and in the mean of its kind."""
        both = {
            task: np.stack([right[task], given[task] == self.given[task]]).astype(np.float64)
            for task in right
        }
        keys = [change.key]
        if change.name == MOVED:
            keys.append((EVERY_MOVE, "", MOST_MOVED, float(MOST_MOVED), change.unit))
        elif change.name in CORRUPTIONS:
            keys.append((EVERY_CORRUPTION, "", 0, 0.0, ""))
        for key in keys:
            number, sums = self.sums.get(key, (0, {}))
            added = {task: sums.get(task, 0) + values for task, values in both.items()}
            self.sums[key] = number + 1, added

    def rows(self, facts: Mapping[str, str]) -> list[Row]:
        """Return the means of all rows, with bands of 95 % over examples that are drawn again.

        Of several tasks, the mean. The means over moves and over corruptions come last.
        """
        means = [
            {task: values[i] / number for task, values in sums.items()}
            for number, sums in self.sums.values()
            for i in range(2)
        ]
        values, drawn = mean_scores(means)
        low, high = np.percentile(drawn, (2.5, 97.5), axis=0)
        shares = np.stack([values, low, high], 1).clip(0, 1).reshape(-1, 6)
        examples = sum(map(len, self.right.values()))
        found = [
            Row._make((*key, *map(float, numbers), examples, facts["data"], facts["weights"]))
            for key, numbers in zip(self.sums, shares, strict=True)
        ]
        return sorted(found, key=lambda row: row.change in (EVERY_MOVE, EVERY_CORRUPTION))
