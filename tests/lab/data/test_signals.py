"""Signals are read from every layout with their values, labels, rates, channels and lengths."""

import numpy as np
import pytest
import torch

from diffstride.lab.data import signals
from diffstride.lab.data.labelled_files import DataError
from diffstride.lab.data.signals import Signals, read_signal
from tests.lab.data import signal_trees
from tests.lab.data.example_files import encode_sound, tone
from tests.lab.data.signal_trees import EVEN, PAIRS, SIGNALS, npy, write


def load(folder, **options):
    return signals.load(str(folder), cache=folder.parent / "decoded", **options)


def values(split, i):
    """The samples (channels, samples) of one signal."""
    x, real = split.windows([(i, 0)], split.length(i))
    assert real.tolist() == [split.length(i)]
    return x[0].numpy()


def in_order(split, classes):
    """All signals with the names of their classes, in an order that does not depend on files."""
    found = [(values(split, i), classes[split.labels[i]]) for i in range(len(split))]
    return sorted(found, key=lambda row: (row[1], row[0].shape, row[0].tolist()))


def check(data, expected, names="ab"):
    rename = dict(zip("ab", names, strict=True))
    expected = [(x, rename[label]) for x, label in expected]
    expected = sorted(expected, key=lambda row: (row[1], row[0].shape, row[0].tolist()))
    assert data.classes == tuple(names)
    for split in (data.train, data.test):
        assert split.labels.dtype == torch.int64
        assert split.channels == len(expected[0][0])
        assert split.skipped == ()
        found = in_order(split, data.classes)
        assert [label for _, label in found] == [label for _, label in expected]
        for (x, _), (wanted, _) in zip(found, expected, strict=True):
            assert x.dtype == np.float32
            np.testing.assert_allclose(x, wanted, rtol=1e-6)


@pytest.mark.parametrize(
    ("layout", "rows", "names", "rate"),
    [
        ("class_folders", SIGNALS, "ab", 8_000),
        ("class_folders", PAIRS, "ab", 8_000),
        ("npy_class_folders", SIGNALS, "ab", None),
        ("npy_class_folders", PAIRS, "ab", None),
        ("parquet", SIGNALS, "ab", None),
        ("parquet", PAIRS, "ab", None),
        ("npz", EVEN, "ab", None),
        ("npy_folder", EVEN, "ab", None),
        ("csv", SIGNALS, "ab", None),
        ("tsv", SIGNALS, "12", None),
        ("ts", SIGNALS, "ab", None),
        ("ts", PAIRS, "ab", None),
    ],
)
def test_what_was_written_is_read(layout, rows, names, rate, tmp_path):
    folder = getattr(signal_trees, layout)(tmp_path / "set", rows)
    for _ in range(2):  # sound files are decoded, then from the cache
        data = load(folder)
        check(data, rows, names)
        assert data.train.rate == data.test.rate == rate
    given = load(folder, rate=4_000.0, resample=False)
    assert given.train.rate == (rate or 4_000.0)


def test_published_recordings_keep_their_waves(published):
    folder = published("speech_commands")
    for path in folder.rglob("*.wav"):
        path.write_bytes(encode_sound(tone(0.25)))
    data = load(folder)
    assert (data.train.rate, data.train.channels, data.train.length(0)) == (16_000, 1, 4_000)
    assert data.classes == ("bed", "no", "yes")
    with pytest.raises(DataError, match="layout speech_commands, and a test set of its own"):
        load(folder, test_fraction=0.2)


def test_sound_in_a_column_keeps_its_rate(tmp_path):
    import pyarrow
    import pyarrow.parquet

    (tmp_path / "set").mkdir()
    column = [{"bytes": encode_sound(x.T, 4_000), "path": None} for x, _ in SIGNALS]
    table = pyarrow.table({"audio": column, "label": [label for _, label in SIGNALS]})
    for split in ("train", "test"):
        pyarrow.parquet.write_table(table, tmp_path / "set" / f"{split}.parquet")
    data = load(tmp_path / "set")
    check(data, SIGNALS)
    assert data.train.rate == 4_000


@pytest.mark.parametrize("how", ["name", "only", "several"])
def test_a_column_of_lists_is_found(how, tmp_path):
    more = {} if how == "only" else {"other": [[1.0]] * len(SIGNALS)}
    folder = signal_trees.parquet(tmp_path / "set", **more)
    if how != "name":
        import pyarrow.parquet

        for path in folder.glob("*.parquet"):
            table = pyarrow.parquet.read_table(path)
            pyarrow.parquet.write_table(
                table.rename_columns(["current", *table.column_names[1:]]), path
            )
    if how == "several":
        with pytest.raises(DataError, match="several columns of lists of numbers: current, other"):
            load(folder)
    else:
        check(load(folder), SIGNALS)


@pytest.mark.parametrize("nested", ["fixed", "large", "Array2D"])
def test_lists_of_every_kind_are_read(nested, tmp_path):
    import datasets
    import pyarrow
    import pyarrow.parquet

    rows = [(x[:, :30], label) for x, label in PAIRS]
    labels = [label for _, label in rows]
    (tmp_path / "set").mkdir()
    cells = [x.tolist() for x, _ in rows]
    for split in ("train", "test"):
        path = tmp_path / "set" / f"{split}.parquet"
        if nested == "Array2D":
            datasets.disable_progress_bars()
            features = {
                "signal": datasets.Array2D((2, 30), "float32"),
                "label": datasets.Value("string"),
            }
            table = {"signal": cells, "label": labels}
            datasets.Dataset.from_dict(table, datasets.Features(features)).to_parquet(path)
            continue
        kinds = {
            "fixed": pyarrow.list_(pyarrow.list_(pyarrow.float64(), 30), 2),
            "large": pyarrow.large_list(pyarrow.large_list(pyarrow.float32())),
        }
        column = pyarrow.array(cells, kinds[nested])
        pyarrow.parquet.write_table(pyarrow.table({"signal": column, "label": labels}), path)
    check(load(tmp_path / "set"), rows)


def test_rates_are_what_files_say_or_what_they_are_brought_to(tmp_path):
    waves = [(tone(0.5, 8_000, 100.0)[None], label) for label in "aabb"]
    folder = signal_trees.class_folders(tmp_path / "set", waves)
    assert load(folder).train.rate == 8_000
    data = load(folder, rate=2_000.0)
    assert (data.train.rate, data.test.rate, data.train.length(0)) == (2_000, 2_000, 1_000)
    inner = slice(100, 900)  # without the edges, where a filter sees the end
    np.testing.assert_allclose(
        values(data.train, 0)[0, inner], tone(0.5, 2_000, 100.0)[inner], atol=2e-3
    )
    kept = load(folder, rate=2_000.0, resample=False)
    assert (kept.train.rate, kept.train.length(0)) == (8_000, 4_000)


def test_arrays_may_say_their_rate(tmp_path):
    folder = signal_trees.npz(tmp_path / "set", rate=100)
    check(load(folder), EVEN)
    assert load(folder).train.rate == 100
    assert load(folder / "set.npz", rate=50.0, resample=False).train.rate == 100
    halved = load(folder / "set.npz", rate=50.0)
    assert (halved.train.rate, halved.train.length(0)) == (50, 15)
    signal_trees.npz(tmp_path / "bad", rate=[1, 2])
    with pytest.raises(DataError, match=r"set.npz, rate must be one number of samples a second"):
        load(tmp_path / "bad")


def test_arrays_may_have_several_labels(tmp_path):
    x, y = signal_trees.arrays(EVEN)
    np.savez(tmp_path / "set.npz", x=x, y=y, Other=np.array([1, 2, 2, 1]))
    assert load(tmp_path / "set.npz", test_fraction=0.5).classes == ("a", "b")
    assert load(tmp_path / "set.npz", test_fraction=0.5, label="other").classes == ("1", "2")


def test_slow_recordings_are_read(tmp_path):
    folder = signal_trees.class_folders(tmp_path / "set", encode=lambda x: encode_sound(x.T, 128))
    check(load(folder), SIGNALS)
    assert load(folder, rate=256.0).train.length(0) == 60


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("1,2,3,cat\n4,5,6,dog\n", [[1, 2, 3], [4, 5, 6]]),
        ("cat,1,2,3\ndog,4,5,6\n", [[1, 2, 3], [4, 5, 6]]),
        ("1;2;3;cat\r\n4;5;6;dog\r\n", [[1, 2, 3], [4, 5, 6]]),
        ("1 2 3 cat\n4 5 6 dog\n", [[1, 2, 3], [4, 5, 6]]),
        ("\ufeffcat,1,2,3\n\ndog,4,5,6\n\n", [[1, 2, 3], [4, 5, 6]]),
        ("1,2,cat\n4,5,6,7,dog\n", [[1, 2], [4, 5, 6, 7]]),
        ("1,2,,cat\n4,5,6,dog\n", [[1, 2], [4, 5, 6]]),
        ("cat,1,2,NaN\ndog,4,5,\n", [[1, 2], [4, 5]]),
        ("a,b,c,kind\n1,2,3,cat\n4,5,6,dog\n", [[1, 2, 3], [4, 5, 6]]),
        ("0,1,2,label\n1,2,3,cat\n4,5,6,dog\n", [[1, 2, 3], [4, 5, 6]]),
        ("t0,Label,t1,t2\n1,cat,2,3\n4,dog,5,6\n", [[1, 2, 3], [4, 5, 6]]),
        ("label,t0,t1,t2\ncat,1,2\ndog,4,5,6\n", [[1, 2], [4, 5, 6]]),
        (",t0,t1\ncat,1,2\ndog,4,5\n", [[1, 2], [4, 5]]),  # rows that have names
        ('"\ncat",1,2\n"dog",4,5\n', [[1, 2], [4, 5]]),
        ('"cat", 1, "2"\n"dog", 4, 5\n', [[1, 2], [4, 5]]),
    ],
)
def test_tables_are_read_however_they_are_written(content, expected, tmp_path):
    folder = write(tmp_path / "set", {"Set_Train.csv": content, "Set-testing.csv": content})
    data = load(folder)
    assert data.classes == ("cat", "dog")
    assert data.train.labels.tolist() == [0, 1]
    assert [values(data.test, i)[0].tolist() for i in range(2)] == expected


@pytest.mark.parametrize(
    "content",
    [
        "1,2,3,y\n4,9,6,n\n1,2,3,y\n",  # words that headers have too
        "target,1,2,4\nother,2,3,5\ntarget,5,6,2\n",
        "N,1,2,4\n1,2,3,5\nN,5,6,2\n",  # a word above a number
        "N,1,2\n1,2,3,5\nN,5,6,2\n",
        "N,1,2,4\n1,2,3,5\n1,5,6,2\n",
        "up,1,2,3\ndown,3,2,1\nflat,1,1,1\n",  # a signal that counts
    ],
)
def test_a_row_is_not_taken_for_a_header(content, tmp_path):
    assert (
        len(load(write(tmp_path / "set", {"train.csv": content, "test.csv": content})).train) == 3
    )


def test_a_set_may_be_one_row(tmp_path):
    train = "up,1,2,3\ndown,3,2,1\n"
    folder = write(tmp_path / "set", {"train.csv": train, "test.csv": "up,1,2,3\n"})
    assert load(folder).test.labels.tolist() == [1]


@pytest.mark.parametrize(
    ("header", "labels"),
    [
        ("0,1,2,label", "cat dog"),
        ("1,2,3,y", "0 1"),
        ("0.0,0.5,1.0,kind", "0 1"),
        ("0,1,2,kind", "cat dog"),
        ("a,b,c,kind", "cat dog"),
        ("a,b,c,class", "0 1"),
    ],
)
def test_a_header_is_not_taken_for_a_row(header, labels, tmp_path):
    rows = [f"{i},{i * i},{7 - i},{labels.split()[i % 2]}" for i in range(4)]
    content = "\n".join([header, *rows])
    data = load(write(tmp_path / "set", {"train.csv": content, "test.csv": content}), label=None)
    assert data.classes == tuple(labels.split())
    assert data.train.samples[:3, 0].tolist() == [0, 0, 7]


@pytest.mark.parametrize(
    ("content", "label", "found"),
    [
        ("0,1,2.5\n1,3,4.5\n0,5,6.5\n1,8,7.5\n", None, [0, 1, 0, 1]),
        ("0,1,2,3\n1,3,4,4.5\n0,5,6,6.5\n1,8,7,7.5\n", None, [0, 1, 0, 1]),
        ("2.5,1,-1\n3.5,3,1\n4.5,5,1\n1.5,8,-1\n", None, [0, 1, 1, 0]),
        ("0,1,1\n1,3,0\n0,5,0\n1,8,1\n", "first", [0, 1, 0, 1]),
        ("0,1,1\n1,3,0\n0,5,0\n1,8,1\n", "last", [1, 0, 0, 1]),
        ("p,q,r\n0,1,1\n1,3,0\n0,5,0\n1,8,1\n", "r", [1, 0, 0, 1]),
        ("7.0,1,1\n10.0,3,0\n7,5,0\n10,8,1\n", "first", [0, 1, 0, 1]),
    ],
)
def test_the_column_of_labels_is_the_one_of_few_whole_numbers_or_the_given(
    content, label, found, tmp_path
):
    folder = write(tmp_path / "set", {"train.csv": content, "test.csv": content})
    assert load(folder, label=label).train.labels.tolist() == found


def test_files_may_be_in_parts(tmp_path):
    parts = {f"train-{i}.csv": f"{i},{i},a\n{-i},{-i},b\n" for i in (1, 2)}
    data = load(write(tmp_path / "set", parts | {"test.csv": "1,2,a\n"}))
    assert data.train.labels.tolist() == [0, 1, 0, 1]
    assert data.train.samples[:, 0].tolist() == [1, 1, -1, -1, 2, 2, -2, -2]


def test_ts_files_of_the_archives_are_read(tmp_path):
    """With comments in any encoding, few facts, NaN for what is shorter, labels with a point."""
    text = (
        "%# of sktime\n# Jože\n@problemName Set\n@timeStamps False\n@CLASSLABEL true 1 2\n\n@data\n"
    )
    text += "1.5,2,NaN:1.0\n3,4,5:2\n"
    files = {f"Set_{split}.ts": text.encode("cp1252", "replace") for split in ("TRAIN", "TEST")}
    data = load(write(tmp_path / "set", files))
    assert (data.classes, data.train.labels.tolist()) == (("1", "2"), [0, 1])
    assert [values(data.train, i).tolist() for i in range(2)] == [[[1.5, 2]], [[3, 4, 5]]]


def test_a_dataset_of_the_hub_may_have_signals(tmp_path, monkeypatch):
    import datasets

    table = {"signal": [x[0].tolist() for x, _ in SIGNALS], "label": [i % 2 for i in range(4)]}
    features = datasets.Features(
        signal=datasets.Sequence(datasets.Value("float32")),
        label=datasets.ClassLabel(names=["b", "a"]),
    )
    whole = datasets.Dataset.from_dict(table, features)
    sets = {"train": whole, "test": whole}
    monkeypatch.setattr(datasets, "load_dataset", lambda name: sets)
    data = signals.load("owner/name")
    assert (data.classes, data.train.labels.tolist()) == (("b", "a"), [0, 1, 0, 1])
    np.testing.assert_array_equal(values(data.test, 2), SIGNALS[2][0])
    del sets["test"]
    with pytest.raises(DataError, match=r"owner/name must have a train and a test split.*fraction"):
        signals.load("owner/name")
    assert signals.load("owner/name", test_fraction=0.5).test.labels.tolist() in ([0, 1], [1, 0])


@pytest.mark.parametrize("content", ["0,1,1\n1,3,0\n0,5,0\n1,8,1\n", "0.5,1\n1.5,2\n2.5,3\n"])
def test_a_column_of_labels_that_is_not_clear_is_asked_for(content, tmp_path):
    folder = write(tmp_path / "set", {"train.csv": content, "test.csv": content})
    with pytest.raises(DataError, match=r"train.csv: which column has labels .*--data.label first"):
        load(folder)


def test_classes_are_in_the_order_of_numbers_then_words(tmp_path):
    y = ["b", "10", "9", "a", "010"]
    x = np.arange(10.0).reshape(5, 2)
    folder = write(
        tmp_path / "set",
        {
            f"{n}_{s}.npy": npy(v)
            for s in ("train", "test")
            for n, v in (("x", x), ("y", np.array(y)))
        },
    )
    data = load(folder)
    assert data.classes == ("9", "010", "10", "a", "b")
    assert data.train.labels.tolist() == [4, 2, 0, 3, 1]


def test_labels_that_differ_are_never_one_class(tmp_path):
    y = ["1_1", "11", str(10**16), str(10**16 + 1), "1.0", "1"]
    text = "".join(f"{label}\t{i}\n" for i, label in enumerate(y))
    data = load(write(tmp_path / "set", {"train.tsv": text, "test.tsv": text}))
    assert data.classes == ("1", "11", str(10**16), str(10**16 + 1), "1_1")
    assert data.train.labels.tolist() == [4, 1, 2, 3, 0, 0]


def test_known_classes_are_numbered_as_they_were(tmp_path):
    folder = signal_trees.csv(tmp_path / "set")
    data = load(folder, classes=["b", "c", "a"])
    assert (data.classes, data.train.labels.tolist()) == (("b", "c", "a"), [0, 2, 0, 2])
    with pytest.raises(DataError, match=r"train.csv, line 1: the label must be one of x, y, got b"):
        load(folder, classes=["x", "y"])
    numbers = signal_trees.tsv(tmp_path / "numbers")
    assert load(numbers, classes=["x", "y", "z"]).train.labels.tolist() == [2, 1, 2, 1]
    # Labels 1 and 2 are not the second and third of classes that are called by numbers.
    with pytest.raises(DataError, match=r"line 2: the label must be one of 2, 3, 4, got 1"):
        load(numbers, classes=["2", "3", "4"])
    pack = signal_trees.parquet(tmp_path / "pack", label=[2, 1, 2, 1])
    assert load(pack, classes=["x", "y", "z"]).train.labels.tolist() == [2, 1, 2, 1]
    assert load(pack, classes=["1", "2", "3"]).train.labels.tolist() == [1, 0, 1, 0]
    with pytest.raises(DataError, match=r"row 1 of the train set: labels must be .*got 1 in"):
        load(pack, classes=["2", "3", "4"])


@pytest.mark.parametrize(
    ("name", "content", "expected", "rate"),
    [
        (
            "a.wav",
            encode_sound(np.array([[0.5, 0.25], [0, -0.5]]), 500),
            [[0.5, 0], [0.25, -0.5]],
            500,
        ),
        ("a.npy", npy([1, 2, 3]), [[1, 2, 3]], None),
        ("a", npy([[1.5, 2], [3, 4]]), [[1.5, 2], [3, 4]], None),
        ("a.csv", b"1,2,3\n", [[1, 2, 3]], None),
        ("a.txt", b"1\n2\n3\n", [[1, 2, 3]], None),
        ("a.csv", b"1,2,3\n4,5,6\n", [[1, 2, 3], [4, 5, 6]], None),
        ("a.tsv", b"1\t2\t\n", [[1, 2]], None),
    ],
)
def test_one_signal_is_read_from_its_file(name, content, expected, rate):
    signal, found_rate = read_signal(name, content)
    assert (signal.tolist(), found_rate) == (expected, rate)
    assert signal.dtype == torch.float32


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.wav", b"", "a.wav can't be read as audio"),
        ("a.bin", b"what is this", "a.bin can't be read as audio"),
        ("a.npy", b"", r"a.npy can't be read as an array \(no such file, or it is empty\)"),
        ("a.npy", npy([1, 2, 3])[:-4], "a.npy can't be read as an array"),
        ("a.npy", npy([1, 2, 3])[:40], "a.npy can't be read as an array"),
        ("a.npy", npy([1, 2, 3]).replace(b"}", b"{"), "a.npy can't be read as an array"),
        ("a.npy", npy(np.zeros((2, 3, 4))), r"a.npy must be a row of samples.*\(2, 3, 4\)"),
        ("a.npy", npy(np.array(["x"])), "a.npy must have numbers, got str"),
        ("a.npy", npy(np.array([1j])), "a.npy must have numbers, got complex128"),
        ("a.npy", npy([1, np.nan, 3]), r"a.npy: sample 1, counted from 0, is missing \(NaN\)"),
        ("a.npy", npy([1, 1e300]), "a.npy: sample 1, counted from 0, is no finite number of 32"),
        ("a.npy", npy([np.nan]), "a.npy has no samples"),
        ("a.csv", b"", "a.csv has no samples"),
        ("a.csv", b"1,2,cat", "a.csv, line 1: it must have the numbers of one signal"),
        ("a.csv", b"\xff\xfe1", "a.csv can't be read as numbers: it is no text in UTF-8"),
        ("a.csv", b"1,2\n3,4\n5,6\n", "a.csv must have a row for each channel.*got 3 rows of 2"),
        ("a.csv", b"1,2\n3,4,5\n", "a.csv must have a row of as many numbers for each channel"),
    ],
)
def test_a_file_that_has_no_signal_is_named(name, content, message):
    with pytest.raises(DataError, match=message):
        read_signal(name, content)


def test_windows_end_with_zeros():
    split = Signals.of([np.arange(6.0).reshape(2, 3), np.ones((2, 1))], torch.tensor([0, 1]))
    assert (len(split), split.channels, split.length(0), split.length(1)) == (2, 2, 3, 1)
    x, real = split.windows([(0, 1), (1, 0), (0, 0)], 2)
    assert x.tolist() == [[[1, 2], [4, 5]], [[1, 0], [1, 0]], [[0, 1], [3, 4]]]
    assert real.tolist() == [2, 1, 2]
    x, real = split.windows([], 2)
    assert (x.shape, real.shape) == ((0, 2, 2), (0,))
