"""Audio datasets in the layout they are published in: a function and a row of ``LAYOUTS`` each."""

import csv
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from diffstride.lab.data.labelled_files import DataError, Examples, FileDataset, walk

SCENES = tuple(
    "airport bus metro metro_station park public_square shopping_mall street_pedestrian "
    "street_traffic tram".split()
)
SCENE_COLUMNS = ("filename", "scene_label", "identifier", "source_label")
BIRD_COLUMNS, BIRD_EXAMPLE = ("itemid", "datasetid", "hasbird"), "ff1010bird_metadata_2018.csv"
FAMILIES = "bass brass flute guitar keyboard mallet organ reed string synth_lead vocal".split()
NOTE_LABELS = {"instrument_family": FAMILIES, "pitch": [str(pitch) for pitch in range(128)]}

Listed: TypeAlias = tuple[object, Examples]  # where a set is listed, for messages; its examples


def _urban_scenes(folder: Path, label: str) -> FileDataset:
    """Read TUT Urban Acoustic Scenes 2018, the development set: 10 kinds of places in 6 cities.

    The split is the official first fold. Labels of its test set are in ``fold1_evaluate.txt``, or
    else in ``meta.csv`` for the files of ``fold1_test.txt``.
    """
    meta, setup = folder / "meta.csv", folder / "evaluation_setup"
    rows = _rows(meta, SCENE_COLUMNS, header=True)
    scenes = {name: _number(scene, SCENES, where) for where, (name, scene, *_) in rows}

    def listed(path: Path, columns: int = 2) -> Listed:
        examples = []
        for where, (name, *scene) in _rows(path, SCENE_COLUMNS[:columns]):
            if not scene and name not in scenes:
                raise DataError(f"{where}: {name} must be in {meta}, which has no such filename")
            number = _number(scene[0], SCENES, where) if scene else scenes[name]
            examples.append((folder / name, number))
        return path, examples

    train, labelled, unlabelled = (setup / f"fold1_{s}.txt" for s in ("train", "evaluate", "test"))
    # If both lists of the test set are missing, ask for the one with labels.
    has_labels = labelled.is_file() or not unlabelled.is_file()
    test = listed(labelled) if has_labels else listed(unlabelled, 1)
    return _dataset(listed(train), test, SCENES)


def _birds(folder: Path, label: str) -> FileDataset:
    """Read the development sets of DCASE 2018 bird audio detection, as many as there are.

    Labels are in all CSV files of the folder with the columns ``itemid,datasetid,hasbird``. The
    recording of an item is ``<itemid>.wav`` below a folder called like its dataset, or else in one
    called ``wav``, or else wherever it is.

    There is no official labelled test set. The paper counts 32,129 examples for training and 3,561
    for testing, a tenth. Here that tenth is the items for which sha256(itemid), the bytes as one
    big-endian number, modulo 10 is 0: always the same ones, whichever sets are there.
    """
    tables = _bird_tables(folder)
    if not tables:
        others = ", ".join(sorted(path.name for path in folder.glob("*.csv"))) or "none"
        wanted = f"a CSV file, such as {BIRD_EXAMPLE}, with the header {','.join(BIRD_COLUMNS)}"
        raise DataError(f"{folder} must have {wanted}; CSV files there: {others}")
    # One walk for tens of thousands of items; sets are often linked in from another disk.
    recordings: defaultdict[str, list[Path]] = defaultdict(list)
    for path in walk(folder):
        recordings[path.name].append(path)

    def recording(item: str, dataset: str) -> Path:
        def distance(path: Path) -> tuple[bool, bool, Path]:
            inside = path.relative_to(folder).parent
            return dataset not in inside.parts, inside.name != "wav", path

        expected = folder / dataset / "wav" / f"{item}.wav"
        return min(recordings.get(expected.name, [expected]), key=distance)

    splits: defaultdict[bool, list[tuple[Path, int]]] = defaultdict(list)
    for table in tables:
        for where, (item, dataset, bird) in _rows(table, BIRD_COLUMNS, header=True, delimiter=","):
            held_out = int(hashlib.sha256(item.encode()).hexdigest(), 16) % 10 == 0
            splits[held_out].append((recording(item, dataset), _number(bird, ("0", "1"), where)))
    source = ", ".join(map(str, tables))
    return _dataset((source, splits[False]), (source, splits[True]), ("no bird", "bird"))


def _bird_tables(folder: Path) -> list[Path]:
    """Return the CSV files of a folder whose header has the columns of bird labels."""

    def first_line(path: Path) -> str:
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            return file.readline(1000).strip()

    header = ",".join(BIRD_COLUMNS)
    return sorted(p for p in folder.glob("*.csv") if p.is_file() and first_line(p) == header)


def _nsynth(folder: Path, label: str) -> FileDataset:
    """Read NSynth: single notes, by the family of the instrument or by pitch (a MIDI number).

    The test set is the official validation set: its 12,678 notes are the number the paper gives.
    """
    classes = NOTE_LABELS[label]

    def listed(split: str) -> Listed:
        path = folder / f"nsynth-{split}" / "examples.json"
        try:
            notes = json.loads(_text(path, "a JSON object of notes"))
        except json.JSONDecodeError as error:
            raise DataError(f"{path} can't be read as JSON: {error}") from error
        if not isinstance(notes, dict):
            raise DataError(f"{path} must be a JSON object of notes, got {type(notes).__name__}")
        examples = []
        for name, note in notes.items():
            number = note.get(label) if isinstance(note, dict) else None
            if type(number) is not int or not 0 <= number < len(classes):
                wanted = f"{label} must be from 0 to {len(classes) - 1}"
                raise DataError(f"{path}, {name}: {wanted}, got {number!r}")
            examples.append((path.parent / "audio" / f"{name}.wav", number))
        return path, examples

    return _dataset(listed("train"), listed("valid"), classes)


def _speech_commands(folder: Path, label: str) -> FileDataset:
    """Read Speech Commands: spoken words, in a folder by word; 35 of them in version 0.02.

    Trained on is what is neither in ``testing_list.txt`` nor in ``validation_list.txt``. Folders
    that begin with ``_``, such as ``_background_noise_``, are no words.
    """
    recordings = [p for p in sorted(folder.glob("[!_.]*/[!.]*")) if p.suffix.lower() == ".wav"]
    words = sorted({path.parent.name for path in recordings})
    if len(words) < 2:
        wanted = "a folder of recordings (*.wav) for each of at least 2 words"
        raise DataError(f"{folder} must have {wanted}, got {', '.join(words) or 'none'}")

    def listed(name: str) -> Listed:
        return folder / name, [
            (folder / file, _number(file.rpartition("/")[0], words, where))
            for where, (file,) in _rows(folder / name, ("word/recording.wav",))
        ]

    test, validation = listed("testing_list.txt"), listed("validation_list.txt")
    _require_recordings(*validation)
    known = {path for path, _ in (*test[1], *validation[1])}
    train = [(path, words.index(path.parent.name)) for path in recordings if path not in known]
    return _dataset((folder, train), test, words)


class Layout(NamedTuple):
    """How a dataset is published."""

    looks_like: Callable[[Path], Any]  # says whether a folder has it, going by a few files
    read: Callable[[Path, str], FileDataset]  # reads a folder, with a kind of label
    labels: tuple[str, ...] = ("",)  # its kinds, the usual one first; a single kind has no name


LAYOUTS = {  # in the order in which they are recognised
    "urban_scenes": Layout(
        lambda folder: (folder / "meta.csv").is_file() and (folder / "evaluation_setup").is_dir(),
        _urban_scenes,
    ),
    "nsynth": Layout(lambda path: (path / "nsynth-train").is_dir(), _nsynth, tuple(NOTE_LABELS)),
    "speech_commands": Layout(lambda p: (p / "testing_list.txt").is_file(), _speech_commands),
    "birds": Layout(_bird_tables, _birds),
}


def recognise(folder: Path) -> str | None:
    """Return the name of the layout that a folder has, if it is one of these."""
    return next((name for name, layout in LAYOUTS.items() if layout.looks_like(folder)), None)


def read_published(name: str, folder: Path, label: str | None = None) -> FileDataset:
    """Return the files of a dataset in the layout of this name, by the usual or another label.

    A DataError names the path of what is missing or wrong, and what was expected there.
    """
    layout = LAYOUTS[name]
    if label is not None and layout.labels == ("",):
        raise DataError(f"{folder} has one kind of label: leave the label out, got {label!r}")
    if label is not None and label not in layout.labels:
        raise DataError(f"{folder}: the label must be {' or '.join(layout.labels)}, got {label!r}")
    return layout.read(folder, label or layout.labels[0])


def _dataset(train: Listed, test: Listed, classes: Sequence[str]) -> FileDataset:
    """Return a dataset, after checking that every recording is there, and listed once."""
    for split, (source, examples) in (("train", train), ("test", test)):
        if not examples:
            raise DataError(f"{source} must have examples for the {split} set, got none")
        _require_recordings(source, examples)
    # What is trained on and tested on makes every result wrong and nothing fail.
    times = Counter(path for path, _ in (*train[1], *test[1]))
    if again := [path for path, number in times.items() if number > 1]:
        wrong = f"is listed more than once ({len(again)} such files)"
        raise DataError(f"{again[0]} {wrong}: every recording must be in one split, once")
    return FileDataset.of(train[1], test[1], classes)


def _require_recordings(source: object, examples: Examples) -> None:
    if missing := [path for path, _ in examples if not path.is_file()]:
        wrong = f"{len(missing)} of {len(examples)} recordings are missing: unpack all of them"
        raise DataError(f"{missing[0]} is listed in {source} but not there; {wrong}")


def _rows(
    path: Path, columns: Sequence[str], *, header: bool = False, delimiter: str = "\t"
) -> Iterator[tuple[str, list[str]]]:
    """Yield where each row of a table is, for messages, and its cells, one for each column."""
    wanted = f"{len(columns)} columns ({', '.join(columns)})"
    lines = [line.rstrip() for line in _text(path, f"a table of {wanted}").split("\n")]
    try:
        rows = list(csv.reader(lines, delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise DataError(f"{path} can't be read as a table of {wanted}: {error}") from error
    if header and rows[0] != list(columns):
        raise DataError(f"{path}, line 1: the header must have {wanted}, got {rows[0]}")
    for number, row in enumerate(rows[header:], 1 + header):
        if row and (len(row) != len(columns) or not all(row)):
            raise DataError(f"{path}, line {number}: a row must have {wanted}, got {row}")
        if row:
            yield f"{path}, line {number}", row


def _text(path: Path, what: str) -> str:
    if not path.is_file():
        advice = "give the folder the dataset was unpacked in"
        raise DataError(f"{path} must be {what}, and is not there: {advice}")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} must be {what} in UTF-8, got other bytes: {error}") from error


def _number(name: str, names: Sequence[str], where: str) -> int:
    if name not in names:
        raise DataError(f"{where}: the class must be one of {', '.join(names)}, got {name!r}")
    return names.index(name)
