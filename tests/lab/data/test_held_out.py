"""A part of the training set is held out: always the same, and nothing is on both sides."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from diffstride.lab.data import images
from diffstride.lab.data.labelled_files import AUDIO, DataError, FilePaths
from diffstride.lab.data.opening import open_files, open_tasks
from diffstride.lab.data.splitting import HoldOut
from diffstride.lab.data.task_splitting import Unsplit, split_tasks
from tests.lab.data import published_trees, signal_trees
from tests.lab.data.example_files import encode_sound, grey_picture, tone
from tests.lab.data.signal_trees import npy, write
from tests.lab.data.test_signals import load, values

FRACTIONS = st.floats(0.01, 0.99)
EXAMPLES = st.lists(st.tuples(st.integers(0, 3), st.sampled_from("pqrstu")), max_size=50)


def split_or_none(hold_out, labels, groups):
    try:
        return hold_out.split("set", labels, groups)
    except DataError:
        return None


@given(EXAMPLES, FRACTIONS, st.none() | FRACTIONS, st.booleans())
def test_nothing_is_on_two_sides(examples, held_out, test_fraction, grouped):
    labels, names = [x for x, _ in examples], [x for _, x in examples]
    groups, group = (names, "who") if grouped else (None, None)
    hold_out = HoldOut(test_fraction, held_out, group)
    found = split_or_none(hold_out, labels, groups)
    assume(found is not None)
    train, held = found
    assert hold_out.split("set", labels, groups) == found
    first = HoldOut(test_fraction, group=group)
    tested = [] if test_fraction is None else first.split("set", labels, groups)[1]
    assert held
    assert sorted([*train, *held, *tested]) == list(range(len(examples)))  # each once
    if grouped:
        sides = [{names[i] for i in side} for side in (train, held, tested)]
        assert sum(map(len, sides)) == len(set(names))
    assert {labels[i] for i in held} <= {labels[i] for i in train}


RECORDINGS = st.lists(st.integers(0, 15), unique=True, min_size=1)


@given(st.lists(RECORDINGS, min_size=2, max_size=3), FRACTIONS, st.booleans(), st.data())
def test_what_is_held_out_of_one_task_is_trained_on_for_none(chosen, fraction, grouped, data):
    tasks = []
    for number, recordings in enumerate(chosen):
        size = len(recordings)
        labels = data.draw(st.lists(st.integers(0, 1), min_size=size, max_size=size))
        files = FilePaths("train", torch.tensor(labels), tuple(Path(f"/{i}") for i in recordings))
        groups = [i % 5 for i in recordings] if grouped else None
        tasks.append(Unsplit(f"task {number}", files, ("no", "yes"), groups))
    try:
        found = split_tasks(tasks, HoldOut(held_out=fraction, group="who" if grouped else None))
    except DataError:
        assume(False)
    train, held = (
        {int(path.name) for dataset in found for path in getattr(dataset, side).paths}
        for side in ("train", "test")
    )
    assert not train & held
    if grouped:
        assert not {i % 5 for i in train} & {i % 5 for i in held}
    for dataset, recordings in zip(found, chosen, strict=True):
        assert len(dataset.test) > 0
        assert len(dataset.train) + len(dataset.test) == len(recordings)


def test_a_recording_is_in_one_group_for_all_tasks():
    files = FilePaths("train", torch.tensor([0, 1]), (Path("/a"), Path("/b")))
    tasks = [Unsplit("one", files, ("no", "yes"), groups) for groups in (["x", "y"], ["x", "z"])]
    with pytest.raises(DataError, match=r"^/b is in the groups y and z of 'who'"):
        split_tasks(tasks, HoldOut(held_out=0.5, group="who"))


def paths(files):
    return {str(path) for path in files.paths}


@pytest.mark.parametrize("layout", published_trees.TREES)
def test_published_layouts(layout, tmp_path):
    published_trees.TREES[layout](tmp_path)
    every = open_files(str(tmp_path), AUDIO, layout=layout)
    if layout == "nsynth":  # of which each class has one note here
        with pytest.raises(DataError, match="every class has a single example"):
            open_files(str(tmp_path), AUDIO, layout=layout, held_out=0.3)
        return
    data = open_files(str(tmp_path), AUDIO, layout=layout, held_out=0.3)
    assert paths(data.train) | paths(data.test) == paths(every.train)
    assert len(data.train) + len(data.test) == len(every.train)
    assert data.classes == every.classes
    assert (data.train.split, data.test.split) == ("train", "held-out")
    with pytest.raises(DataError, match=r"has the layout .* a test set of its own: leave out"):
        open_files(str(tmp_path), AUDIO, layout=layout, held_out=0.3, test_fraction=0.3)


def test_speakers_of_commands_are_held_out(tmp_path):
    published_trees.commands_tree(tmp_path)
    data = open_files(str(tmp_path), AUDIO, layout="auto", held_out=0.3, group="prefix")
    speakers = [{p.name.partition("_")[0] for p in s.paths} for s in (data.train, data.test)]
    assert (len(speakers[0]), len(speakers[1])) == (5, 2)
    assert not speakers[0] & speakers[1]
    with pytest.raises(DataError, match=r"--data\.group of files must be folder or prefix"):
        open_files(str(tmp_path), AUDIO, layout="auto", held_out=0.3, group="speaker")


NAMES = [f"{c}/{who}/{i}.wav" for c in ("no", "yes") for who in "pqrs" for i in range(3)]


@pytest.mark.parametrize("test", ["", "test", "val"])
def test_folders_by_class_with_and_without_a_test_set(test, tmp_path):
    trees = [f"train/{name}" for name in NAMES] + [f"{test}/{name}" for name in NAMES if test]
    folder = write(tmp_path / "set", dict.fromkeys(trees, b""))
    data = open_files(str(folder), AUDIO, held_out=0.25, group="folder")
    assert paths(data.train) | paths(data.test) == {str(folder / "train" / name) for name in NAMES}
    speakers = [{p.parent.name for p in s.paths} for s in (data.train, data.test)]
    assert (len(speakers[0]), len(speakers[1])) == (3, 1)
    assert not speakers[0] & speakers[1]
    limited = open_files(str(folder), AUDIO, held_out=0.25, group="folder", limit=4)
    assert (len(limited.train), len(limited.test)) == (4, 4)
    assert paths(limited.test) < paths(data.test)
    if not test:
        both = open_files(str(folder), AUDIO, held_out=0.3, test_fraction=0.25, group="folder")
        tested = open_files(str(folder), AUDIO, test_fraction=0.25, group="folder")
        assert paths(both.train) | paths(both.test) == paths(tested.train)
        assert not paths(both.train) & paths(both.test)


@given(st.integers(1, 99))
def test_a_file_and_links_to_it_are_on_one_side(percent):
    with TemporaryDirectory() as place:
        names = [f"{c}/{i}.wav" for c in ("no", "yes") for i in range(4)]
        folder = write(Path(place) / "set", dict.fromkeys(names, b""))
        for name in names:
            (folder / name).with_suffix(".link.wav").symlink_to(folder / name)
        for option in ("held_out", "test_fraction"):
            data = open_files(str(folder), AUDIO, **{option: percent / 100})
            sides = [{os.path.realpath(p) for p in s.paths} for s in (data.train, data.test)]
            assert len(data.train) + len(data.test) == 16
            assert not sides[0] & sides[1]


def test_tasks_of_the_same_recordings_are_split_alike(tmp_path):
    """The second task has them in other folders, by links."""
    names = [f"{c}/{i:02}.wav" for c in ("no", "yes") for i in range(8)]
    one = write(tmp_path / "one", {name: encode_sound(tone(0.01)) for name in names})
    for i, name in enumerate(names):
        link = tmp_path / "two" / "xyz"[i % 3] / f"{i}.wav"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(one / name)
    tasks = {"a": (str(one), None), "b": (str(tmp_path / "two"), None)}
    for hold_out in (HoldOut(held_out=0.25), HoldOut(0.25), HoldOut(0.25, 0.25)):
        found = open_tasks(tasks, AUDIO, hold_out=hold_out)
        real = [
            [{os.path.realpath(p) for p in s.paths} for s in (data.train, data.test)]
            for data in found.values()
        ]
        assert real[0] == real[1]
        assert not real[0][0] & real[0][1]
        assert len(real[0][1]) in (3, 4, 5)
        assert torch.bincount(found["a"].test.labels).min() > 0
        assert torch.bincount(found["b"].test.labels, minlength=3).min() > 0


def test_tasks_that_share_nothing_are_split_by_class(tmp_path):
    for name in ("one", "two"):
        write(tmp_path / name, {f"{c}/{i}.wav": b"" for c in "ab" for i in range(8)})
    tasks = {name: (str(tmp_path / name), None) for name in ("one", "two")}
    found = open_tasks(tasks, AUDIO, hold_out=HoldOut(held_out=0.25))
    for name, (path, _) in tasks.items():
        alone = open_files(path, AUDIO, held_out=0.25)
        assert torch.bincount(alone.test.labels).tolist() == [2, 2]
        assert paths(found[name].test) == paths(alone.test)


def picture_pack(folder, layout):
    """Twenty images to train on and ten to test on, each of a grey of its own."""
    import pyarrow
    import pyarrow.parquet

    greys = {"train": range(20), "test": range(100, 110)}
    if layout == "folders":
        return write(
            folder,
            {f"{s}/{'ab'[i % 2]}/{i}.png": grey_picture(i) for s, n in greys.items() for i in n},
        )
    folder.mkdir()
    for split, grey in greys.items():
        column = [{"bytes": grey_picture(i), "path": None} for i in grey]
        labels, who = [i % 2 for i in grey], [i // 4 for i in grey]
        table = pyarrow.table({"image": column, "label": labels, "who": who})
        pyarrow.parquet.write_table(table, folder / f"{split}.parquet")
    return folder


def greys(split):
    pixels = split.take(torch.arange(len(split)))
    return pixels[:, 0, 0, 0].tolist()


@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize("layout", ["folders", "parquet"])
def test_images(layout, encoded, tmp_path):
    folder = str(picture_pack(tmp_path / "set", layout))
    options = {"encoded": encoded, "image_size": 6}
    data = images.load(folder, held_out=0.3, **options)
    assert sorted(greys(data.train) + greys(data.test)) == list(range(20))
    assert torch.bincount(data.test.labels).tolist() == [3, 3]
    assert greys(images.load(folder, held_out=0.3, **options).test) == greys(data.test)
    if layout == "parquet":
        data = images.load(folder, held_out=0.3, group="who", **options)
        sides = [{grey // 4 for grey in greys(split)} for split in (data.train, data.test)]
        assert sides[0] | sides[1] == set(range(5))
        assert not sides[0] & sides[1]


def test_digits():
    every, data = images.load_digits(), images.load_digits(held_out=0.2)
    rows = [{x.numpy().tobytes() for x in s.images} for s in (every.train, data.train, data.test)]
    assert rows[1] | rows[2] == rows[0]
    assert len(data.train) + len(data.test) == len(every.train)
    share = torch.bincount(data.test.labels) / torch.bincount(every.train.labels)
    assert share.tolist() == pytest.approx([0.2] * 10, abs=0.01)
    few = images.load_digits(10, 0.2)
    assert (len(few.train), len(few.test)) == (10, 10)
    assert torch.equal(few.test.images, data.test.images[:10])


def signal_pack(folder, layout):
    """Twelve signals of six speakers to train on, four to test on, each of a value of its own."""
    sets = {"train": range(1, 13), "test": range(101, 105)}
    rows = {
        split: [(np.full((1, 4), float(i)), "ab"[i % 2]) for i in numbers]
        for split, numbers in sets.items()
    }
    who = [f"s{i // 2}" for i in range(12)]
    if layout == "npz":
        (x, y), (u, v) = map(signal_trees.arrays, rows.values())
        folder.mkdir()
        np.savez(folder / "set.npz", x_train=x, y_train=y, x_test=u, y_test=v, who=np.array(who))
        return folder
    if layout == "npy":
        (x, y), (u, v) = map(signal_trees.arrays, rows.values())
        arrays = {"x_train": x, "y_train": y, "x_test": u, "y_test": v, "who": np.array(who)}
        return write(folder, {f"{name}.npy": npy(array) for name, array in arrays.items()})
    if layout == "csv":
        lines = [f"{w},{signal_trees.line(*r)}" for w, r in zip(who, rows["train"], strict=True)]
        train = "\n".join(["who,a,b,c,d,label", *lines])
        test = "\n".join(["a,b,c,d,label", *(signal_trees.line(*r) for r in rows["test"])])
        return write(folder, {"train.csv": train, "test.csv": test})
    if layout == "class_folders":
        names = {"train": [f"{w}_" for w in who], "test": [""] * 4}
        files = {
            f"{split}/{label}/{names[split][i]}{i}.npy": npy(x)
            for split in rows
            for i, (x, label) in enumerate(rows[split])
        }
        return write(folder, files)
    for split in rows:
        getattr(signal_trees, layout)(folder.parent / split, rows[split])
    folder.mkdir()
    for split in rows:
        (file,) = (p for p in (folder.parent / split).iterdir() if split in p.name.lower())
        file.rename(folder / file.name)
    return folder


def numbers(split):
    return [int(values(split, i)[0, 0]) for i in range(len(split))]


LAYOUTS = {"npz": "who", "npy": "who", "csv": "who", "class_folders": "prefix"}


@pytest.mark.parametrize("layout", [*LAYOUTS, "tsv", "ts", "parquet"])
def test_signals(layout, tmp_path):
    folder = signal_pack(tmp_path / "set", layout)
    group = LAYOUTS.get(layout)
    for chosen in {group, None if layout != "csv" else group}:  # whose column is no sample
        data = load(folder, held_out=0.34, group=chosen)
        assert sorted(numbers(data.train) + numbers(data.test)) == list(range(1, 13))
        assert torch.bincount(data.test.labels).tolist() == [2, 2]
        assert numbers(load(folder, held_out=0.34, group=chosen).test) == numbers(data.test)
        if chosen:
            sides = [{(i - 1) // 2 for i in numbers(s)} for s in (data.train, data.test)]
            assert not sides[0] & sides[1]
    if group:
        with pytest.raises(DataError, match=r"--data\.group"):
            load(folder, held_out=0.34, group="nobody")
    if layout != "csv":
        assert sorted(numbers(load(folder).test)) == list(range(101, 105))
        with pytest.raises(DataError, match="has a test set of its own"):
            load(folder, held_out=0.34, test_fraction=0.2)


def test_a_test_part_and_a_held_out_part_of_signals(tmp_path):
    x, y = np.arange(40.0).reshape(20, 2) + 1, np.array(list("ab") * 10)
    np.savez(tmp_path / "set.npz", x=x, y=y)
    path = tmp_path / "set.npz"
    tested = load(path, test_fraction=0.2)
    both = load(path, test_fraction=0.2, held_out=0.25)
    assert sorted(numbers(both.train) + numbers(both.test)) == sorted(numbers(tested.train))
    assert torch.bincount(both.test.labels).tolist() == [2, 2]
    alone = load(path, held_out=0.25)
    assert len(alone.train) + len(alone.test) == 20
