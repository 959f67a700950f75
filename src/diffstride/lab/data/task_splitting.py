"""Files that are trained on and tested on, of one task or of several that share a network."""

import itertools
import os
from collections.abc import Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from diffstride.lab.data.labelled_files import DataError, FileDataset, FilePaths, FileSet
from diffstride.lab.data.splitting import HoldOut


class Unsplit(NamedTuple):
    """The training set of a task, before a part of it is set apart."""

    path: str
    files: FileSet
    classes: tuple[str, ...]
    groups: Sequence[Hashable] | None = None  # of each file, what it must share its set with

    def examples(self) -> list[Hashable]:
        """Return what tells each file from all others, also from those of other tasks."""
        if isinstance(self.files, FilePaths):
            return [os.path.realpath(path) for path in self.files.paths]
        table = os.path.realpath(Path(self.path).expanduser())
        return [f"row {row} of {table}" for row in range(len(self.files))]


def split_tasks(tasks: Sequence[Unsplit], hold_out: HoldOut) -> list[FileDataset]:
    """Return the two sets of each task.

    A network of several tasks has seen what it was trained on for any of them. So if tasks share
    recordings or groups, these are on one side for all tasks, split by :func:`by_group`.
    """
    sides = _together(tasks, hold_out) if len(tasks) > 1 else None
    if sides is None:
        sides = [hold_out.split(t.path, t.files.labels.tolist(), t.groups) for t in tasks]
    datasets = []
    for task, (train, test) in zip(tasks, sides, strict=True):
        tested = replace(task.files.select(test), split=hold_out.split_name)
        datasets.append(FileDataset(task.files.select(train), tested, task.classes))
    return datasets


def _together(
    tasks: Sequence[Unsplit], hold_out: HoldOut
) -> list[tuple[list[int], list[int]]] | None:
    """Return which files of each task are on which side, or None if tasks share nothing."""
    examples, keys = [], []
    for task in tasks:
        examples.append(task.examples())
        keys.append(examples[-1] if task.groups is None else task.groups)
        hold_out.check_groups(task.path, keys[-1])
    if not _overlap(examples) and not _overlap(keys):
        return None
    group_of: dict[Hashable, Hashable] = {}
    for example, key in zip(itertools.chain(*examples), itertools.chain(*keys), strict=True):
        if group_of.setdefault(example, key) != key:
            both = f"the groups {group_of[example]} and {key} of {hold_out.group!r}"
            raise DataError(f"{example} is in {both}: for all tasks it must be in one")
    labels, places, classes = [], [], 0
    for number, task in enumerate(tasks):
        labels += [classes + label for label in task.files.labels.tolist()]
        places += [(number, i) for i in range(len(task.files))]
        classes += len(task.classes)
    paths = ", ".join(dict.fromkeys(task.path for task in tasks))
    both_sides = hold_out.split(paths, labels, [*itertools.chain(*keys)])
    found = []
    for number, task in enumerate(tasks):
        train, test = ([places[i][1] for i in s if places[i][0] == number] for s in both_sides)
        if not test:
            wrong = "other tasks have its recordings or groups, and none is left to test on"
            raise DataError(f"{task.path} can't be split: {wrong}")
        found.append((train, test))
    return found


def _overlap(lists: Sequence[Sequence[Hashable]]) -> bool:
    """Whether something is in two lists.

    >>> _overlap(["aa", "b"]), _overlap(["ab", "b"])
    (False, True)
    """
    return sum(len({*some}) for some in lists) > len({*itertools.chain(*lists)})
