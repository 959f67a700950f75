"""Where no test set is given, a part of each class is one: always the same, and whole groups."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from diffstride.lab.data import images
from diffstride.lab.data.labelled_files import AUDIO, IMAGE, DataError
from diffstride.lab.data.opening import open_files
from diffstride.lab.data.splitting import HoldOut, by_class, by_group, choose
from tests.lab.data import signal_trees
from tests.lab.data.example_files import encode_sound, grey_picture, tone, write_parquet
from tests.lab.data.signal_trees import SIGNALS, npy, write
from tests.lab.data.test_signals import load, values

LABELS = st.lists(st.integers(0, 4), min_size=1, max_size=60)
FRACTIONS = st.floats(0.01, 0.99)


@given(LABELS, FRACTIONS)
def test_every_class_is_split_near_the_fraction(labels, fraction):
    train, test = by_class(labels, fraction)
    assert sorted(train + test) == list(range(len(labels)))
    assert (train, test) == by_class(labels, fraction)
    for label in set(labels):
        number = labels.count(label)
        tested = sum(labels[i] == label for i in test)
        if number == 1:
            assert tested == 0
        else:
            assert 1 <= tested <= number - 1
            assert abs(tested - fraction * number) <= 1


@settings(max_examples=300)
@given(st.data(), LABELS, FRACTIONS)
def test_groups_are_in_one_set_and_classes_are_trained_on(data, labels, fraction):
    number = len(labels)
    groups = data.draw(st.lists(st.sampled_from("abcdefgh"), min_size=number, max_size=number))
    train, test = by_group(labels, groups, fraction)
    assert sorted(train + test) == list(range(number))
    assert not {groups[i] for i in train} & {groups[i] for i in test}
    assert {labels[i] for i in train} == set(labels)
    assert (train, test) == by_group(labels, groups, fraction)
    # What has a group without any class of its own can be tested on, and then is.
    for group in set(groups):
        inside = {x for x, g in zip(labels, groups, strict=True) if g == group}
        outside = {x for x, g in zip(labels, groups, strict=True) if g != group}
        if inside <= outside:
            assert test


@given(st.integers(2, 12), st.integers(1, 5), st.integers(2, 4), FRACTIONS)
def test_groups_that_are_alike_are_split_near_the_fraction(groups, each, classes, fraction):
    """As of speakers who all say every word as often."""
    labels = [c for _ in range(groups) for c in range(classes) for _ in range(each)]
    names = [g for g in range(groups) for _ in range(classes * each)]
    _, test = by_group(labels, names, fraction)
    tested = len({names[i] for i in test})
    nearest = min(max(round(fraction * groups), 1), groups - 1)
    assert abs(tested - fraction * groups) <= abs(nearest - fraction * groups) + 1e-6


def test_groups_of_different_sizes_stay_balanced():
    generator = np.random.default_rng(0)
    groups = generator.integers(0, 40, 2000) ** 2 // 40  # few large ones, many small ones
    labels = ((groups + generator.integers(0, 3, 2000)) % 5).tolist()
    _, test = by_group(labels, groups.tolist(), 0.25)
    assert len(test) == pytest.approx(500, abs=30)
    for label in range(5):
        tested = sum(labels[i] == label for i in test)
        assert tested == pytest.approx(0.25 * labels.count(label), abs=40)


def test_what_can_not_be_split_is_said(capsys):
    with pytest.raises(DataError, match=r"set can't be split .* every class has a single example"):
        HoldOut(0.5).split("set", [0, 1, 2], None)
    with pytest.raises(DataError, match=r"set can't be split .* 1 group of 'who' can't be in two"):
        HoldOut(0.5, group="who").split("set", [0, 0, 1, 1], ["a"] * 4)
    with pytest.raises(DataError, match=r"set can't be split .* 2 groups? of 'who'"):
        HoldOut(0.5, group="who").split("set", [0, 0, 1, 1], ["a", "a", "b", "b"])
    for missing in (math.nan, ["a"]):
        wanted = "set: example 1, counted from 0, must have a number or a word in 'who', got "
        with pytest.raises(DataError, match=wanted):
            HoldOut(0.5, group="who").split("set", [0, 0, 1, 1], ["a", missing, "b", "b"])
    assert capsys.readouterr().err == ""
    HoldOut(0.5).split("set", [0, 0, 1, 1, 2], None)
    assert "set: 1 of 3 classes are not tested: there is but one example" in capsys.readouterr().err


@given(st.integers(1, 200), st.integers(1, 200))
def test_a_part_is_always_the_same_and_in_order(number, limit):
    chosen = choose(number, limit)
    if limit >= number:
        assert chosen is None
    else:
        assert len(set(chosen)) == limit
        assert chosen == sorted(chosen) == choose(number, limit)
        assert 0 <= chosen[0]
        assert chosen[-1] < number


def sound_folders(folder, names):
    return write(folder, dict.fromkeys(names, encode_sound(tone(0.01))))


SPEAKERS = [f"{c}/{who}/{i}.wav" for c in ("no", "yes") for who in "pqrs" for i in range(3)]


@pytest.mark.parametrize(
    ("names", "group"),
    [
        (SPEAKERS, "folder"),
        ([f"train/{name}" for name in SPEAKERS], "folder"),
        (
            [f"{c}/{who}_{i}.wav" for c in ("no", "yes") for who in "pqrs" for i in range(3)],
            "prefix",
        ),
    ],
)
def test_folders_by_class_are_split_by_group(names, group, tmp_path):
    folder = sound_folders(tmp_path / "set", names)
    data = open_files(str(folder), AUDIO, test_fraction=0.25, group=group)
    assert data.classes == ("no", "yes")
    speakers = [
        {p.parent.name if group == "folder" else p.name[0] for p in split.paths}
        for split in (data.train, data.test)
    ]
    assert [len(s) for s in speakers] == [3, 1]
    assert not speakers[0] & speakers[1]
    assert data.test.labels.tolist() == [0] * 3 + [1] * 3
    assert (data.train.split, data.test.split) == ("train", "test")
    found = load(folder, test_fraction=0.25, group=group)
    assert (len(found.train), len(found.test)) == (18, 6)


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        (["a/0.wav", "b/0.wav"], {}, "neither parquet files nor .* --data.test_fraction"),
        (
            ["train/a/0.wav", "train/b/0.wav"],
            {},
            "neither parquet files nor .* --data.test_fraction",
        ),
        (
            ["train/a/0.wav", "train/b/0.wav", "test/a/0.wav"],
            {"test_fraction": 0.5},
            "set has a test set of its own: leave out --data.test_fraction",
        ),
        (
            ["train/a/0.wav", "train/b/0.wav", "more/0.wav"],
            {"test_fraction": 0.5},
            r"folder train with folders in it, and more beside it: give .*set/train if it is a set",
        ),
        (["a/0.wav", "a/1.wav"], {"test_fraction": 0.5}, "two classes or more, got a"),
        (["0.wav", "a/1.wav", "b/1.wav"], {"test_fraction": 0.5}, "0.wav must be in the folder of"),
        (
            ["a/0.wav", "b/x/0.wav"],
            {"test_fraction": 0.5, "group": "folder"},
            r"a/0.wav must be in a folder within its class for --data.group folder",
        ),
        (
            ["a/0.wav", "b/0.wav"],
            {"test_fraction": 0.5, "group": "prefix"},
            r"a/0.wav must be called GROUP_... for --data.group prefix",
        ),
        (
            ["a/0.wav", "b/0.wav"],
            {"test_fraction": 0.5, "group": "speaker"},
            "--data.group of files must be folder or prefix, got 'speaker'",
        ),
        (["a/0.wav", "b/0.wav"], {"test_fraction": 0.5}, "every class has a single example"),
    ],
)
def test_folders_that_can_not_be_split_are_named(names, options, message, tmp_path):
    folder = sound_folders(tmp_path / "set", names)
    with pytest.raises(DataError, match=message):
        open_files(str(folder), AUDIO, **options)


def test_images_are_split_in_folders_and_tables(tmp_path):
    pixel = grey_picture(0)
    names = [f"{c}/{i}.png" for c in "ab" for i in range(10)]
    folder = str(write(tmp_path / "set", dict.fromkeys(names, pixel)))
    data = images.load(folder, test_fraction=0.3)
    assert torch.bincount(data.test.labels).tolist() == [3, 3]
    pack = write_parquet(tmp_path / "pack", [(pixel, i % 2) for i in range(20)])
    with pytest.raises(DataError, match="pack has a test set of its own"):
        images.load(pack, test_fraction=0.3)
    (tmp_path / "pack" / "test-00000-of-00001.parquet").unlink()
    with pytest.raises(DataError, match=r"pack must have .* --data.test_fraction"):
        images.load(pack)
    data = images.load(pack, test_fraction=0.3)
    assert torch.bincount(data.test.labels).tolist() == [3, 3]
    assert images.load(f"{pack}/train-00000-of-00001.parquet", test_fraction=0.3).classes == (
        "cat",
        "dog",
    )
    with pytest.raises(DataError, match=r"the column 'who' of --data\.group, got img, label"):
        images.load(pack, test_fraction=0.3, group="who")


def whole(layout, folder):
    """A set of 12 signals, each with its number as its value, of two classes and six speakers."""
    who = [f"s{i // 2}" for i in range(12)]
    rows = [(np.full((1, 4), float(i + 1)), "ab"[i % 2]) for i in range(12)]
    if layout == "parquet":
        return signal_trees.parquet(folder, rows, ("data",), who=who)
    if layout == "npz":
        x, y = signal_trees.arrays(rows)
        folder.mkdir()
        np.savez(folder / "set.npz", X=x, y=y, who=np.array(who), group=np.array(who))
        return folder
    if layout == "npy":
        x, y = signal_trees.arrays(rows)
        return write(folder, {"x.npy": npy(x), "Y.npy": npy(y), "who.npy": npy(np.array(who))})
    lines = [f"{w},{signal_trees.line(*row)}" for w, row in zip(who, rows, strict=True)]
    return write(folder, {"all.csv": "\n".join(["who,a,b,c,d,label", *lines])})


def numbers(split):
    return {int(values(split, i)[0, 0]) - 1 for i in range(len(split))}


@pytest.mark.parametrize("layout", ["parquet", "npz", "npy", "csv"])
def test_signals_are_split_alike_whatever_the_limit(layout, tmp_path):
    folder = whole(layout, tmp_path / "set")
    with pytest.raises(DataError, match=r"--data\.test_fraction"):
        load(folder, label="label" if layout == "csv" else None)
    if layout != "csv":  # whose column of names has no numbers
        data = load(folder, test_fraction=0.34)
        assert torch.bincount(data.test.labels).tolist() == [2, 2]
    data = load(folder, test_fraction=0.34, group="who")
    tested = numbers(data.test)
    assert len(tested) == 4
    assert numbers(data.train) == set(range(12)) - tested
    assert {i // 2 for i in numbers(data.train)} & {i // 2 for i in tested} == set()
    few = load(folder, test_fraction=0.34, group="who", limit=3)
    assert (len(few.train), len(few.test)) == (3, 3)
    assert numbers(few.test) < tested
    assert numbers(few.train) < numbers(data.train)
    again = load(folder, test_fraction=0.34, group="who", limit=3)
    assert numbers(again.test) == numbers(few.test)
    with pytest.raises(DataError, match=r"'nobody' of --data.group"):
        load(folder, test_fraction=0.34, group="nobody")


def test_a_column_of_groups_is_not_taken_for_labels(tmp_path):
    rows = [f"p{i // 2},{i},{i},{'xy'[i % 2]}" for i in range(8)]
    folder = write(tmp_path / "set", {"all.csv": "\n".join(["who,a,b,kind", *rows])})
    data = load(folder, test_fraction=0.25, group="who")
    assert (data.classes, len(data.train), len(data.test)) == (("x", "y"), 6, 2)
    with pytest.raises(DataError, match="which column has labels is not clear"):
        load(folder, test_fraction=0.25)


@pytest.mark.parametrize("layout", ["npz", "csv", "tsv", "ts", "parquet", "class_folders"])
def test_a_test_set_that_is_there_is_not_replaced(layout, tmp_path):
    folder = getattr(signal_trees, layout)(tmp_path / "set")
    with pytest.raises(DataError, match=r"set.* has a test set of its own"):
        load(folder, test_fraction=0.5)


@pytest.mark.parametrize("layout", ["csv", "tsv", "ts"])
def test_a_single_table_is_split(layout, tmp_path):
    folder = getattr(signal_trees, layout)(tmp_path / "set")
    (test,) = (path for path in folder.iterdir() if "test" in path.name.lower())
    test.unlink()
    with pytest.raises(DataError, match=r"set has no test set: .* --data\.test_fraction"):
        load(folder)
    for path in (folder, *folder.glob(f"*.{layout}")):
        data = load(path, test_fraction=0.5)
        assert data.train.labels.tolist() == data.test.labels.tolist() == [1, 0]
    with pytest.raises(DataError, match=r"--data\.group"):
        load(folder, test_fraction=0.5, group="who")


def test_rows_are_named_by_their_place_in_the_file(tmp_path):
    rows = [*SIGNALS, *SIGNALS, (np.array([[np.nan, 1.0]]), "a")]
    folder = signal_trees.parquet(tmp_path / "set", rows, ("data",))
    with pytest.raises(DataError, match=r"^row 8 of the train set: sample 0"):
        load(folder, test_fraction=0.5)


@pytest.mark.parametrize("kind", [AUDIO, IMAGE])
def test_a_limit_holds_for_both_sets(kind, tmp_path):
    suffix, content = kind.suffixes[0], b""
    names = [f"{s}/{c}/{i}{suffix}" for s in ("train", "test") for c in "ab" for i in range(20)]
    folder = write(tmp_path / "set", dict.fromkeys(names, content))
    data = open_files(str(folder), kind, limit=10)
    for split in (data.train, data.test):
        assert len(split) == 10
        assert 2 < split.labels.sum() < 8  # from all over
    assert open_files(str(folder), kind, limit=10).test.paths == data.test.paths
    assert len(open_files(str(folder), kind, limit=100).test) == 40


def test_a_limit_holds_for_both_sets_of_digits():
    few, every = images.load_digits(limit=10), images.load_digits()
    assert (len(few.train), len(few.test)) == (10, 10)
    assert torch.equal(few.test.labels, every.test.labels[:10])
