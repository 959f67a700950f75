"""Labelled signals of one axis, of any rate, length and number of channels."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from diffstride.lab.data.decoded_cache import Coding, load_decoded, require_alike
from diffstride.lab.data.labelled_files import DataError, TableFiles
from diffstride.lab.data.opening import open_files, require_trained
from diffstride.lab.data.signal_files import SIGNAL, check_signal, decode_signal
from diffstride.lab.data.signal_rows import SignalRows, cells, number_rows
from diffstride.lab.data.signal_sources import find_rows
from diffstride.lab.data.sound_files import resample as to_rate
from diffstride.lab.data.splitting import HoldOut, choose


@dataclass(frozen=True)
class Signals:
    """The samples of all signals of a set one after another, and the class of each."""

    samples: Any  # (samples, channels) of 32 bits, in memory or in a file that is mapped into it
    starts: Any  # where each signal starts, and where the last one ends
    labels: Tensor
    rate: float | None = None  # samples a second, if that is known
    skipped: tuple[str, ...] = ()  # names of signals that could not be read and were left out

    @classmethod
    def of(
        cls,
        signals: Sequence[Any],
        labels: Tensor,
        rate: float | None = None,
        skipped: Sequence[str] = (),
    ) -> "Signals":
        """Return the set of these signals (channels, samples)."""
        arrays = [np.asarray(signal, dtype=np.float32).T for signal in signals]
        starts = np.cumsum([0, *map(len, arrays)])
        return cls(np.concatenate(arrays), starts, labels, rate, tuple(skipped))

    @property
    def channels(self) -> int:
        """How many channels each signal has."""
        return int(self.samples.shape[1])

    def __len__(self) -> int:
        return len(self.labels)

    def length(self, signal: int) -> int:
        """Return the number of samples of a signal."""
        return int(self.starts[signal + 1] - self.starts[signal])

    def windows(self, places: list[tuple[int, int]], length: int) -> tuple[Tensor, Tensor]:
        """Return windows of so many samples, and how many samples of each are real.

        Each begins at a (signal, first sample). They are (batch, channels, length), with zeros
        behind the end of a signal.

        >>> signals = Signals.of([[[1, 2, 3]], [[4, 5]]], torch.tensor([0, 1]))
        >>> signals.windows([(0, 1), (1, 0)], 3)
        (tensor([[[2., 3., 0.]],
        <BLANKLINE>
                [[4., 5., 0.]]]), tensor([2, 2]))
        """
        windows = np.zeros((len(places), self.channels, length), dtype=np.float32)
        real = []
        for window, (signal, first) in zip(windows, places, strict=True):
            start = self.starts[signal] + first
            samples = self.samples[start : min(start + length, self.starts[signal + 1])]
            window[:, : len(samples)] = samples.T
            real.append(len(samples))
        return torch.from_numpy(windows), torch.tensor(real, dtype=torch.long)


class SignalDataset(NamedTuple):
    train: Signals
    test: Signals
    classes: tuple[str, ...]


def load(
    path: str,
    *,
    label: str | None = None,
    rate: float | None = None,
    resample: bool = True,
    limit: int | None = None,
    skip_corrupt: bool = False,
    classes: Sequence[str] | None = None,
    cache: str | Path = "~/.cache/diffstride",
    test_fraction: float | None = None,
    held_out: float | None = None,
    group: str | None = None,
) -> SignalDataset:
    """Open a training and a test set of signals.

    Args:
        path: what :func:`open_files` takes, with files of sound or of arrays, or a column of lists
            of numbers; or a file or folder of arrays or tables (:func:`find_rows`).
        label: the column of labels; of tables without a header, ``"first"`` or ``"last"``.
        rate: samples a second, of data that do not say it.
        resample: whether data that say another rate are brought to this one.
        limit: how many signals to take at most of either set, always the same ones.
        skip_corrupt: leave out signals that can't be read, and say which.
        classes: their names, where the data have only numbers: those of a run that was trained.
        cache: the folder in which decoded files are kept.
        test_fraction, held_out, group: as in :func:`open_files`.

    Raises:
        DataError: what is wrong with the data, and where.
    """
    hold_out = HoldOut.of(test_fraction, held_out, group)
    folder = Path(path).expanduser()
    found = find_rows(folder, label, hold_out)
    splits: list[Any]
    if found is None:
        *splits, names = open_files(
            path,
            SIGNAL,
            layout="auto",
            label=label,
            limit=limit,
            classes=classes,
            test_fraction=test_fraction,
            held_out=held_out,
            group=group,
        )
    else:
        *splits, names = number_rows(path, *found, hold_out, classes)
        require_trained(path, splits[0].labels, splits[1].labels, names, classes)
        for i, rows in enumerate(splits):
            chosen = choose(len(rows), limit)
            splits[i] = rows if chosen is None else rows.select(chosen)

    def read(split: Any) -> Signals:
        if isinstance(split, SignalRows):
            return _collect(split.signals(), split, split.rate or rate, wanted, skip_corrupt)
        if isinstance(split, TableFiles) and split.of_lists:
            return _collect(cells(split), split, rate, wanted, skip_corrupt)
        key = f"\nsignals {rate} {resample}"
        coding = Coding(SIGNAL, lambda *file: _decode(file, rate, wanted), np.float32, key)
        decoded = load_decoded(split, cache, path, coding, skip_corrupt=skip_corrupt)
        return Signals(*decoded)

    wanted = rate if resample else None
    train, test = map(read, splits)
    train_name, test_name = (
        split.rows[0].name if isinstance(split, SignalRows) else split.read([0])[0][0]
        for split in splits
    )
    require_alike((train_name, train.rate, train.channels), (test_name, test.rate, test.channels))
    longest = int(np.diff(train.starts).max())
    if train.channels > longest:
        shape = f"{train.channels:,} channels of {longest:,} samples"
        print(f"{path}: {shape}: if it is the other way round, swap the axes", file=sys.stderr)
    return SignalDataset(train, test, names)


def read_signal(name: str, data: bytes) -> tuple[Tensor, float | None]:
    """Return the signal (channels, samples) of one file, and its samples a second if it says them.

    The file is sound, an array of numpy, or text with the numbers of one signal. A DataError says
    what is wrong with it.
    """
    samples, rate = decode_signal(name, data)
    return torch.from_numpy(np.ascontiguousarray(samples.T)), rate


def _decode(
    file: tuple[str, bytes], rate: float | None, wanted: float | None
) -> tuple[Any, float | None]:
    samples, own_rate = decode_signal(*file, wanted)
    return samples, own_rate or rate


def _collect(
    signals: Iterable[tuple[str, Any]],
    split: SignalRows | TableFiles,
    rate: float | None,
    wanted: float | None,
    skip_corrupt: bool,
) -> Signals:
    """Check numbers one signal after another, and bring them from their rate to the wanted one."""
    kept, arrays, skipped = [], [], []
    first: tuple[str, float | None, int] | None = None
    final = rate if rate is None or wanted is None else wanted
    for i, (name, values) in enumerate(signals):
        try:
            if isinstance(values, DataError):
                raise values
            samples = to_rate(check_signal(name, values), rate or 1, final or 1)
        except ValueError as error:
            if not skip_corrupt:
                wrong = error if isinstance(error, DataError) else f"{name}: {error}"
                advice = "correct it, or leave out such signals with --data.skip_corrupt"
                raise DataError(f"{wrong}: {advice}") from error
            skipped.append(name)
            continue
        first = first or (name, rate, samples.shape[1])
        require_alike(first, (name, rate, samples.shape[1]))
        arrays.append(samples.T)
        kept.append(i)
    if not arrays:
        raise DataError(f"there is nothing to read in the {split.split} set")
    return Signals.of(arrays, split.labels[kept], final, skipped)
