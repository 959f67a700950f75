"""Which examples are set apart to be tested on, and which are taken of too many.

Both are always the same ones: chosen with a seed of their own, not with that of a run.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from diffstride.lab.data.labelled_files import DataError

SEED = 0
ADVICE = "test on a part of them with --data.test_fraction, such as 0.2"
PASSES = 5  # the most times that groups are looked through for one that is better elsewhere


@dataclass(frozen=True)
class HoldOut:
    """The wish to set examples apart, one part or both, and what must not be on two sides."""

    test_fraction: float | None = None
    """The part that is a test set, of data that have none."""
    held_out: float | None = None
    """The part of the training set that is tested on instead of the test set."""
    group: str | None = None

    @classmethod
    def of(
        cls, test_fraction: float | None, held_out: float | None, group: str | None
    ) -> "HoldOut | None":
        """Return the wish, or None if there is nothing to set apart."""
        if test_fraction is None and held_out is None:
            return None
        return cls(test_fraction, held_out, group)

    @property
    def split_name(self) -> str:
        """What the set is called that is tested on."""
        return "test" if self.held_out is None else "held-out"

    def split(
        self, path: object, labels: Sequence[int], groups: Sequence[Hashable] | None
    ) -> tuple[list[int], list[int]]:
        """Return the numbers of the examples to train on and to test on.

        With both parts, examples of the first, the test set, are in neither. Without groups, each
        class is split by itself. Groups stay together: :func:`by_group`. Classes of a single
        example or group are trained on and not tested, which is said; if that leaves nothing to
        test on, it is a DataError.
        """
        train, test = list(range(len(labels))), list[int]()
        for fraction in (self.test_fraction, self.held_out):
            if fraction is not None:
                inside = None if groups is None else [groups[i] for i in train]
                kept, apart = self._split(path, [labels[i] for i in train], inside, fraction)
                train, test = [train[i] for i in kept], [train[i] for i in apart]
        return train, test

    def check_groups(self, path: object, groups: Sequence[Any]) -> None:
        """Raise a DataError if an example is in no group."""
        for i, group in enumerate(groups):
            if group != group or not isinstance(group, Hashable):  # NaN would be no group
                wanted = f"a number or a word in {self.group!r}"
                wrong = f"example {i}, counted from 0, must have {wanted}, got {group}"
                raise DataError(f"{path}: {wrong}")

    def _split(
        self,
        path: object,
        labels: Sequence[int],
        groups: Sequence[Hashable] | None,
        fraction: float,
    ) -> tuple[list[int], list[int]]:
        if groups is None:
            train, test = by_class(labels, fraction)
        else:
            self.check_groups(path, groups)
            train, test = by_group(labels, groups, fraction)
        what = "example" if self.group is None else f"group of {self.group!r}"
        if not test:
            reason = f"every class has a single {what}"
            if groups is not None:
                number = len(set(groups))
                reason = f"{number} {what} can't be in two sets that both have its classes"
            raise DataError(f"{path} can't be split into what is trained and tested on: {reason}")
        untested = len(set(labels)) - len({labels[i] for i in test})
        if untested:
            wrong = f"{untested} of {len(set(labels))} classes are not tested"
            print(f"{path}: {wrong}: there is but one {what} to spare of each", file=sys.stderr)
        return train, test


def has_test_set(path: object, where: str = "a test set") -> DataError:
    """Return the error for a part to test on where there is a test set."""
    wrong = f"{path} has {where} of its own"
    instead = "give --data.held_out to test on a part of the training set"
    return DataError(f"{wrong}: leave out --data.test_fraction, or {instead}")


def choose(number: int, limit: int | None) -> list[int] | None:
    """Return at most ``limit`` of so many examples, or None for all.

    They are from all over the set, which may be sorted by class.
    """
    if limit is None or limit >= number:
        return None
    return sorted(_order(number)[:limit])


def by_class(labels: Sequence[int], fraction: float) -> tuple[list[int], list[int]]:
    """Split each class at random; of two examples or more, one at least is in each set.

    >>> by_class([0, 0, 0, 0, 1, 1, 2], 0.25)[1]
    [0, 4]
    """
    members: defaultdict[int, list[int]] = defaultdict(list)
    for i in _order(len(labels)):
        members[labels[i]].append(i)
    test: set[int] = set()
    for examples in members.values():
        if len(examples) > 1:
            number = round(fraction * len(examples))
            test.update(examples[: min(max(number, 1), len(examples) - 1)])
    return [i for i in range(len(labels)) if i not in test], sorted(test)


def by_group(
    labels: Sequence[int], groups: Sequence[Hashable], fraction: float
) -> tuple[list[int], list[int]]:
    """Split whole groups, so that the parts of classes and of all are near the fraction.

    This is greedy: from the largest group to the smallest, each is tested on if that brings the
    parts nearer; then single groups change sides while that helps. A class keeps a group to train
    on, and gets one to test on if another has it.
    """
    counts: defaultdict[Hashable, Counter[int]] = defaultdict(Counter)
    for label, group in zip(labels, groups, strict=True):
        counts[group][label] += 1
    # The class -1 stands for all of them together.
    for group, inside in counts.items():
        counts[group] = Counter({**inside, -1: inside.total()})
    total: Counter[int] = Counter()
    for inside in counts.values():
        total.update(inside)
    tested: Counter[int] = Counter()
    chosen: set[Hashable] = set()

    def worse(group: Hashable) -> float:
        """How much further from the fraction the parts are if a group changes sides."""
        sign = -1 if group in chosen else 1
        change = 0.0
        for label, number in counts[group].items():
            off = tested[label] - fraction * total[label]
            change += ((off + sign * number) ** 2 - off**2) / total[label]
        return change

    def may_move(group: Hashable) -> bool:
        """Whether every class is still trained on, and still tested on, if a group moves."""
        inside = counts[group].items()
        if group in chosen:
            return all(tested[label] > number for label, number in inside)
        return all(tested[label] + number < total[label] for label, number in inside)

    def move(group: Hashable) -> None:
        sign = -1 if group in chosen else 1
        chosen.symmetric_difference_update([group])
        for label, number in counts[group].items():
            tested[label] += sign * number

    names = list(counts)
    shuffled = [names[i] for i in _order(len(names))]
    order = sorted(shuffled, key=lambda group: -counts[group][-1])
    having: defaultdict[int, list[Hashable]] = defaultdict(list)
    for group in order:
        for label in counts[group]:
            having[label].append(group)
        if may_move(group) and worse(group) < 0:
            move(group)
    for label, number in sorted(total.items(), key=lambda item: item[1]):
        movable = [g for g in having[label] if may_move(g)] if not tested[label] else []
        if number and movable:
            move(min(movable, key=worse))
    for _ in range(PASSES):
        better = [g for g in order if may_move(g) and worse(g) < -1e-9]
        for group in better:
            if may_move(group) and worse(group) < -1e-9:
                move(group)
        if not better:
            break
    sides: tuple[list[int], list[int]] = ([], [])
    for i, group in enumerate(groups):
        sides[group in chosen].append(i)
    return sides


def _order(number: int) -> list[int]:
    generator = torch.Generator().manual_seed(SEED)
    order: list[int] = torch.randperm(number, generator=generator).tolist()
    return order
