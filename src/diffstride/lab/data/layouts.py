"""Audio datasets in the layout they are published in; nothing is decoded here.

A reader raises :class:`DataError` with the path and what was expected there for a missing list or
recording, a list that can't be read, an unknown class, a recording listed twice, or an empty split.
"""

import csv
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import torch

from diffstride.lab.data.folders import walk
from diffstride.lab.data.sources import DataError, Opened, Paths

SCENES = tuple(
    "airport bus metro metro_station park public_square shopping_mall street_pedestrian "
    "street_traffic tram".split()
)
SCENE_COLUMNS = ("filename", "scene_label", "identifier", "source_label")
BIRD_COLUMNS = ("itemid", "datasetid", "hasbird")
FAMILIES = tuple(
    "bass brass flute guitar keyboard mallet organ reed string synth_lead vocal".split()
)
NOTE_LABEL = "instrument_family"
NOTE_LABELS = {NOTE_LABEL: FAMILIES, "pitch": tuple(str(n) for n in range(128))}

Examples: TypeAlias = list[tuple[Path, int]]
"""Files and the class of each."""


def urban_scenes(folder: Path) -> Opened:
    """TUT Urban Acoustic Scenes 2018, the development set: 10 kinds of places in 6 cities.

    The split is the official first fold. Labels of its test set are in ``fold1_evaluate.txt``, or
    else in ``meta.csv`` for the files of ``fold1_test.txt``.
    """
    meta = folder / "meta.csv"
    scenes = {}
    for where, (name, scene, *_) in _rows(meta, SCENE_COLUMNS, header=True, delimiter="\t"):
        scenes[name] = _index(scene, SCENES, where)

    def labelled(listed: Path) -> Examples:
        rows = _rows(listed, SCENE_COLUMNS[:2], delimiter="\t")
        return [(folder / name, _index(scene, SCENES, where)) for where, (name, scene) in rows]

    train_list, evaluate_list, test_list = (
        folder / "evaluation_setup" / f"fold1_{name}.txt" for name in ("train", "evaluate", "test")
    )
    train = labelled(train_list)
    if evaluate_list.is_file() or not test_list.is_file():
        test_list = evaluate_list  # the one that an error should ask for
        test = labelled(test_list)
    else:
        test = []
        for where, (name,) in _rows(test_list, SCENE_COLUMNS[:1], delimiter="\t"):
            if name not in scenes:
                raise DataError(f"{where}: {name} must be in {meta}, which has no such filename")
            test.append((folder / name, scenes[name]))
    return _opened(_split("train", train, train_list), _split("test", test, test_list), SCENES)


def birds(folder: Path) -> Opened:
    """The development sets of DCASE 2018 bird audio detection, as many as there are.

    Labels are in all CSV files of the folder with the columns ``itemid,datasetid,hasbird``. The
    recording of an item is ``<itemid>.wav`` below a folder called like its dataset, or else in one
    called ``wav``, or else wherever it is.

    There is no official labelled test set. The paper counts 32,129 examples for training and 3,561
    for testing, a tenth. Here that tenth is the items for which sha256(itemid), the bytes as one
    big-endian number, modulo 10 is 0: always the same ones, whichever sets are there.
    """
    tables = _bird_tables(folder)
    if not tables:
        found = ", ".join(sorted(path.name for path in folder.glob("*.csv"))) or "none"
        raise DataError(
            f"{folder} must have a CSV file with the header {','.join(BIRD_COLUMNS)}, such as "
            f"ff1010bird_metadata_2018.csv; CSV files there: {found}"
        )
    # One walk for tens of thousands of items; sets are often linked in from another disk.
    recordings: defaultdict[str, list[Path]] = defaultdict(list)
    for path in walk(folder):
        if path.name.endswith(".wav"):
            recordings[path.name].append(path)

    def recording(item: str, dataset: str) -> Path:
        def distance(path: Path) -> tuple[bool, bool, Path]:
            inside = path.relative_to(folder).parent
            return dataset not in inside.parts, inside.name != "wav", path

        expected = folder / dataset / "wav" / f"{item}.wav"
        return min(recordings.get(expected.name, [expected]), key=distance)

    train: Examples = []
    test: Examples = []
    for table in tables:
        for where, (item, dataset, bird) in _rows(table, BIRD_COLUMNS, header=True):
            held_out = int(hashlib.sha256(item.encode()).hexdigest(), 16) % 10 == 0
            example = recording(item, dataset), _index(bird, ("0", "1"), where)
            (test if held_out else train).append(example)
    source = ", ".join(str(table) for table in tables)
    return _opened(
        _split("train", train, source), _split("test", test, source), ("no bird", "bird")
    )


def nsynth(folder: Path, label: str = NOTE_LABEL) -> Opened:
    """NSynth: single notes, by the family of the instrument or by pitch (a MIDI number).

    The test set is the official validation set: its 12,678 notes are the number the paper gives.
    """
    if label not in NOTE_LABELS:
        raise DataError(f"{folder}: the label must be {' or '.join(NOTE_LABELS)}, got {label!r}")
    classes = NOTE_LABELS[label]

    def split(name: str, official: str) -> Paths:
        listed = folder / f"nsynth-{official}" / "examples.json"
        notes = _labels(listed, label, len(classes))
        examples = [(listed.parent / "audio" / f"{note}.wav", i) for note, i in notes.items()]
        return _split(name, examples, listed)

    return _opened(split("train", "train"), split("test", "valid"), classes)


def speech_commands(folder: Path) -> Opened:
    """Speech Commands: one spoken word each, in a folder by word; 35 of them in version 0.02.

    Trained on is what is neither in ``testing_list.txt`` nor in ``validation_list.txt``. Folders
    that begin with ``_``, such as ``_background_noise_``, are no words.
    """
    found = sorted(folder.glob("[!_.]*/[!.]*"))
    recordings = [path for path in found if path.suffix.lower() == ".wav"]
    words = tuple(sorted({path.parent.name for path in recordings}))
    if len(words) < 2:
        raise DataError(
            f"{folder} must have a folder of recordings (*.wav) for each of at least 2 words, "
            f"got {', '.join(words) or 'none'}"
        )

    def listed(path: Path) -> Examples:
        examples = []
        for where, (name,) in _rows(path, ("word/recording.wav",), delimiter="\t"):
            examples.append((folder / name, _index(name.rpartition("/")[0], words, where)))
        return examples

    test_list, validation_list = folder / "testing_list.txt", folder / "validation_list.txt"
    test, validation = listed(test_list), listed(validation_list)
    _require_recordings([path for path, _ in validation], validation_list)
    known = {path for path, _ in (*test, *validation)}
    train = [(path, words.index(path.parent.name)) for path in recordings if path not in known]
    return _opened(_split("train", train, folder), _split("test", test, test_list), words)


Layout: TypeAlias = Callable[[Path, str | None], Opened]
"""Reads a folder, with the kind of label that is wanted or None for the usual one."""


def _one_label(read: Callable[[Path], Opened]) -> Layout:
    def checked(folder: Path, label: str | None) -> Opened:
        if label is not None:
            raise DataError(f"{folder} has one kind of label: leave the label out, got {label!r}")
        return read(folder)

    return checked


LAYOUTS: dict[str, Layout] = {
    "urban_scenes": _one_label(urban_scenes),
    "birds": _one_label(birds),
    "nsynth": lambda folder, label: nsynth(folder, NOTE_LABEL if label is None else label),
    "speech_commands": _one_label(speech_commands),
}


def recognise(folder: Path) -> str | None:
    """The name of the layout that a folder looks like, going by a few of its files."""
    if (folder / "meta.csv").is_file() and (folder / "evaluation_setup").is_dir():
        return "urban_scenes"
    if (folder / "nsynth-train").is_dir():
        return "nsynth"
    if (folder / "testing_list.txt").is_file():
        return "speech_commands"
    return "birds" if _bird_tables(folder) else None


def _bird_tables(folder: Path) -> list[Path]:
    def first_line(path: Path) -> str:
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            return file.readline(1000).strip()

    header = ",".join(BIRD_COLUMNS)
    return sorted(p for p in folder.glob("*.csv") if p.is_file() and first_line(p) == header)


def _rows(
    path: Path, columns: Sequence[str], *, header: bool = False, delimiter: str = ","
) -> Iterator[tuple[str, list[str]]]:
    """Where each row of a table is, for messages, and its cells, as many as there are columns."""
    wanted = f"{len(columns)} columns ({', '.join(columns)})"
    lines = [line.rstrip() for line in _text(path, f"a table of {wanted}").split("\n")]
    try:
        rows = list(csv.reader(lines, delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise DataError(f"{path} can't be read as a table of {wanted}: {error}") from error
    if header and rows[0] != list(columns):
        raise DataError(f"{path}, line 1: the header must have {wanted}, got {rows[0]}")
    for number, row in enumerate(rows[header:], 1 + header):
        where = f"{path}, line {number}"
        if row and (len(row) != len(columns) or not all(row)):
            raise DataError(f"{where}: a row must have {wanted}, got {row}")
        if row:
            yield where, row


def _labels(path: Path, label: str, classes: int) -> dict[str, int]:
    """The class of each note in a list of NSynth."""
    try:
        notes = json.loads(_text(path, "a JSON object of notes"))
    except json.JSONDecodeError as error:
        raise DataError(f"{path} can't be read as JSON: {error}") from error
    if not isinstance(notes, dict):
        raise DataError(f"{path} must be a JSON object of notes, got {type(notes).__name__}")
    labels = {}
    for name, note in notes.items():
        index = note.get(label) if isinstance(note, dict) else None
        if type(index) is not int or not 0 <= index < classes:
            raise DataError(
                f"{path}, {name}: {label} must be from 0 to {classes - 1}, got {index!r}"
            )
        labels[name] = index
    return labels


def _text(path: Path, what: str) -> str:
    if not path.is_file():
        raise DataError(
            f"{path} must be {what}, and is not there: give the folder the dataset was unpacked in"
        )
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} must be {what} in UTF-8, got other bytes: {error}") from error


def _index(name: str, names: Sequence[str], where: str) -> int:
    if name not in names:
        raise DataError(f"{where}: the class must be one of {', '.join(names)}, got {name!r}")
    return names.index(name)


def _split(name: str, examples: Examples, source: object) -> Paths:
    paths = tuple(path for path, _ in examples)
    if not paths:
        raise DataError(f"{source} must have examples for the {name} set, got none")
    _require_recordings(paths, source)
    return Paths(paths, name, torch.tensor([index for _, index in examples], dtype=torch.long))


def _opened(train: Paths, test: Paths, classes: tuple[str, ...]) -> Opened:
    # What is trained on and tested on makes every result wrong and nothing fail.
    times = Counter((*train.paths, *test.paths))
    again = [path for path, number in times.items() if number > 1]
    if again:
        raise DataError(
            f"{again[0]} is listed more than once ({len(again)} such files): every recording must "
            f"be in one split, once"
        )
    return Opened(train, test, classes)


def _require_recordings(paths: Sequence[Path], source: object) -> None:
    missing = [path for path in paths if not path.is_file()]
    if missing:
        raise DataError(
            f"{missing[0]} is listed in {source} but not there; {len(missing)} of {len(paths)} "
            f"recordings are missing: unpack all parts of the dataset"
        )
