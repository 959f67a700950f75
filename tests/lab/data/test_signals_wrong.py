"""What is wrong with signals is said with the name of the file, and where in it."""

import numpy as np
import pytest

from diffstride.lab.data import signals
from diffstride.lab.data.labelled_files import DataError
from tests.lab.data import signal_trees
from tests.lab.data.example_files import encode_sound, tone
from tests.lab.data.signal_trees import EVEN, HEADER, PAIRS, SIGNALS, npy, write
from tests.lab.data.test_signals import in_order, load

TS = HEADER.format(channels=1, univariate="true")
ROWS = "1,2,3,a\n4,5,6,b\n"
OBJECTS = np.array([[1], [1, 2]], dtype=object)


def csv_of(train, **more):
    return {"train.csv": train, "test.csv": ROWS, **more}


def ts_of(train):
    return {"Set_TRAIN.ts": train, "Set_TEST.ts": TS + "1,2:a\n3,4:b\n"}


def npy_of(**arrays):
    x, y = signal_trees.arrays(EVEN)
    every = {"x_train": x[:, 0], "y_train": y, "x_test": x[:, 0], "y_test": y} | arrays
    return {f"{name}.npy": npy(a) for name, a in every.items() if a is not None}


WRONG = {
    "empty csv": (csv_of(""), "train.csv is empty"),
    "header only": (csv_of("t0,t1,label\n"), "train.csv has a header and nothing else"),
    "no text": (csv_of(b"\xff\xfe\x00"), "train.csv can't be read as a table: it is no text"),
    "nan inside": (csv_of("1,NaN,3,a\n4,5,6,b\n"), r"train.csv, line 1: sample 1, .*\(NaN\)"),
    "empty inside": (csv_of("1,2,3,a\n4,,6,b\n"), r"train.csv, line 2: sample 1, .*\(NaN\)"),
    "inf": (csv_of("1,2,3,a\n4,inf,6,b\n"), "train.csv, line 2: sample 1, .*no finite number"),
    "word inside": (csv_of("1,2,3,a\n4,x,6,b\n"), "train.csv, line 2: .* numbers, got 'x'"),
    "nothing but a label": (csv_of("1,2,3,a\nb\n"), "train.csv, line 2 must have a label and a"),
    "no samples": (csv_of(",,,a\n1,2,3,b\n"), "train.csv, line 1 has no samples"),
    "longer than its header": (
        csv_of("t0,t1,label\n1,2,3,a\n"),
        "train.csv, line 2 must have 3 cells as its header has, got 4",
    ),
    "shorter, label last": (
        csv_of("t0,t1,label\n1,a\n"),
        "train.csv, line 2 must have 3 cells as its header has, got 2",
    ),
    "no label": (
        dict.fromkeys(["train.csv", "test.csv"], "label,t0,t1\na,1,2\n,3,4\n"),
        "train.csv, line 3 has no label",
    ),
    "labels of another encoding": (
        npy_of(y_train=np.array([b"gr\xfcn", b"gr\xf6n", b"a", b"b"])),
        r"x_train.npy\[0\]: the label 'gr.n' has bytes that are no text in UTF-8",
    ),
    "ts of another encoding": (
        ts_of("@data\n1,2:gr\xfcn\n3,4:gr\xf6n\n".encode("latin-1")),
        "TRAIN.ts, line 2: the label 'gr.n' has bytes that are no text in UTF-8",
    ),
    "numbers of rows": (
        csv_of(",t0,t1,label\n0,1,2,a\n1,4,5,b\n"),
        "train.csv: the first column has no name, as one that counts rows",
    ),
    "numbers of rows and samples": (
        csv_of(",0,1,2,kind\n0,1,2,3,a\n1,4,5,6,b\n2,1,2,3,a\n3,4,5,6,b\n"),
        "train.csv: the first column has no name, as one that counts rows",
    ),
    "a comment": (
        csv_of("# by me\n1,2,3,a\n4,5,6,b\n"),
        "train.csv, line 1 must have a label and a signal, got '# by me'",
    ),
    "one class": ({"train.csv": "1,2,a\n3,4,a\n", "test.csv": "1,2,a\n"}, "at least 2 classes"),
    "fractions": (
        {"x_TRAIN.tsv": "0.5\t1\n2\t3\n", "x_TEST.tsv": "1\t2\n"},
        "x_TRAIN.tsv, line 1: labels must be words or whole numbers, got 0.5",
    ),
    "only to test": ({"test.csv": ROWS, "a.csv": ROWS}, "with train and test in their names, got"),
    "both names": ({"train_test.csv": ROWS}, "train_test.csv must have one of train and test"),
    "two versions": (
        {f"Set{eq}_{s}.csv": ROWS for eq in ("", "_eq") for s in ("TRAIN", "TEST")},
        r"several test sets, Set_TEST.csv and Set_eq_TEST.csv: give a folder of one",
    ),
    "no @data": (ts_of(TS.replace("@data\n", "")), "Set_TRAIN.ts has no line @data"),
    "cut off": (ts_of(TS), "Set_TRAIN.ts has no signals behind @data"),
    "values before @data": (ts_of("1,2:a\n" + TS), "Set_TRAIN.ts, line 1: before @data"),
    "missing": (ts_of(TS + "1,2:a\n1,?:b\n"), r"Set_TRAIN.ts, line 11 has missing values \(\?\)"),
    "timestamps": (ts_of(TS + "(0,1),(1,2):a\n"), "Set_TRAIN.ts, line 10: times .*not supported"),
    "says timestamps": (
        ts_of(TS.replace("Stamps false", "Stamps true")),
        "Set_TRAIN.ts, line 3: times .*not supported",
    ),
    "no label in ts": (ts_of(TS + "1,2:a\n1,2\n"), "Set_TRAIN.ts, line 11 must end with a colon"),
    "another class": (ts_of(TS + "1,2:c\n"), "Set_TRAIN.ts, line 10 must end with .*one of a, b"),
    "no classes": (ts_of(TS.replace("true a b", "false")), "Set_TRAIN.ts, line 8: @classLabel"),
    "channels": (ts_of(TS + "1,2:3,4:a\n"), "Set_TRAIN.ts, line 10 must have the 1 channels"),
    "ragged channels": (
        ts_of(TS.replace("@dimensions 1\n", "") + "1,2:3:a\n1:2:b\n"),
        "Set_TRAIN.ts, line 9 must have as many samples in each channel, got 2, 1",
    ),
    "words in ts": (
        ts_of(TS + "1,x:a\n1:b\n"),
        "Set_TRAIN.ts, line 10: a signal must have numbers",
    ),
    "objects": (npy_of(x_train=None), "must have the arrays x_train, y_train"),
    "no y": (npy_of(y_test=None), "must have the arrays x_train, y_train, x_test and y_test"),
    "too few labels": (npy_of(y_train=np.array(["a"])), "y_train.npy must have one number or"),
    "labels of two columns": (npy_of(y_train=np.zeros((4, 2))), "y_train.npy must have one number"),
    "labels of no letters": (
        npy_of() | {"y_train.npy": npy(np.array(list("abab"))).replace(b"a\0\0\0", b"\xff" * 4)},
        "y_train.npy can't be read as an array",
    ),
    "flat": (npy_of(x_train=np.zeros(4)), r"x_train.npy must be numbers \(signals, samples\)"),
    "words as signals": (npy_of(x_train=np.array([["a"]] * 4)), "x_train.npy must be numbers"),
    "nan in an array": (
        npy_of(x_train=np.array([[1.0, np.nan, 2]] + [[0, 0, 0]] * 3)),
        r"x_train.npy\[0\]: sample 1, counted from 0, is missing",
    ),
    "class folder of one class": (
        {"train/a/0.npy": npy([1]), "test/a/0.npy": npy([1])},
        "each of two classes or more",
    ),
    "different rates": (
        {
            f"{s}/{n}/0.wav": encode_sound(tone(0.1, r), r)
            for s in ("train", "test")
            for n, r in (("a", 8_000), ("b", 4_000))
        },
        r"train/a/0.wav has 8000 samples a second and .*train/b/0.wav 4000: .*--data\.rate",
    ),
    "different rates of sets": (
        {
            f"{s}/{n}/0.wav": encode_sound(tone(0.1, r), r)
            for s, r in (("train", 8_000), ("test", 4_000))
            for n in "ab"
        },
        r"train/a/0.wav has 8000 samples a second and .*test/a/0.wav 4000: .*--data\.rate",
    ),
    "different channels": (
        {
            f"{s}/{n}/0.wav": encode_sound(np.zeros((9, c)))
            for s in ("train", "test")
            for n, c in (("a", 1), ("b", 2))
        },
        r"train/a/0.wav has 1 channels and .*train/b/0.wav 2",
    ),
    "sound and arrays": (
        {
            f"{s}/{n}": c
            for s in ("train", "test")
            for n, c in (("a/0.wav", encode_sound(tone(0.1))), ("b/0.npy", npy([1])))
        },
        r"a/0.wav has 16000 samples a second and .*b/0.npy an unknown number of",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named(name, tmp_path):
    files, message = WRONG[name]
    with pytest.raises(DataError, match=message):
        load(write(tmp_path / "set", files))


def test_rates_that_differ_are_brought_to_one(tmp_path):
    folder = write(tmp_path / "set", WRONG["different rates"][0])
    data = load(folder, rate=4_000.0)
    assert [data.train.length(i) for i in range(2)] == [400, 400]


def test_a_signal_too_short_for_the_rate_is_named_or_left_out(tmp_path):
    x = np.full((4, 100), np.nan)
    x[:, :5], x[1:] = 1, 2
    sets = {"x_train": x, "y_train": [0, 0, 1, 1], "x_test": x[1:], "y_test": [0, 1, 1]}
    np.savez(tmp_path / "a.npz", rate=1000, **sets)
    with pytest.raises(DataError, match=r"x_train\[0\]: at 10 instead of 1000 .* has no samples"):
        load(tmp_path / "a.npz", rate=10.0)
    data = load(tmp_path / "a.npz", rate=10.0, skip_corrupt=True)
    assert data.train.labels.tolist() == [0, 1, 1]
    assert [data.train.length(i) for i in range(3)] == [1, 1, 1]


def test_axes_that_may_be_the_other_way_round_are_told(tmp_path, capsys):
    folder = signal_trees.npz(tmp_path / "set", [(x.T, label) for x, label in EVEN])
    assert load(folder).train.channels == 30
    told = "30 channels of 1 samples: if it is the other way round, swap the axes"
    assert told in capsys.readouterr().err
    load(signal_trees.npz(tmp_path / "right"))
    assert not capsys.readouterr().err


@pytest.mark.parametrize("where", ["x_train", "y_train"])
@pytest.mark.parametrize("packed", [False, True])
def test_python_objects_are_never_loaded(where, packed, tmp_path):
    x, y = signal_trees.arrays(EVEN)
    arrays = {"x_train": x, "y_train": y, "x_test": x, "y_test": y, where: OBJECTS}
    (tmp_path / "set").mkdir()
    if packed:
        np.savez(tmp_path / "set" / "a.npz", **arrays)
    else:
        for name, array in arrays.items():
            np.save(tmp_path / "set" / f"{name}.npy", array, allow_pickle=True)
    name = rf"a.npz, {where}" if packed else rf"{where}.npy"
    with pytest.raises(DataError, match=rf"{name} can't be read as an array .*Python objects"):
        load(tmp_path / "set")


@pytest.mark.parametrize("keep", [0, 10, 200, -30])
def test_arrays_that_were_cut_off_are_named(keep, tmp_path):
    folder = signal_trees.npz(tmp_path / "set")
    path = folder / "set.npz"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"set.npz.* can't be read as an array"):
        load(folder)


def test_a_folder_of_several_sets_is_not_taken_for_one(tmp_path):
    folder = signal_trees.npz(tmp_path / "set")
    (folder / "more.npz").write_bytes((folder / "set.npz").read_bytes())
    with pytest.raises(DataError, match=r"several .npz files, more.npz, set.npz: give one"):
        load(folder)
    with pytest.raises(DataError, match=r"one.npy has no labels: give the folder of X_train.npy"):
        load(write(tmp_path, {"one.npy": npy([1])}) / "one.npy")
    with pytest.raises(DataError, match="nowhere does not exist"):
        load(tmp_path / "nowhere")


@pytest.mark.parametrize("label", ["first", "y2"])
def test_layouts_without_columns_have_no_label_to_choose(label, tmp_path):
    for layout in ("npz", "ts", "class_folders"):
        with pytest.raises(DataError, match=r"has no array|no columns|no column"):
            load(getattr(signal_trees, layout)(tmp_path / layout), label=label)


@pytest.mark.parametrize("layout", ["csv", "ts", "npz", "parquet", "wav", "npy"])
def test_signals_that_can_not_be_read_are_left_out_if_wanted(layout, tmp_path):
    bad = np.array([[1, np.nan, 3]])
    if layout in ("wav", "npy"):
        writer = {"wav": "class_folders", "npy": "npy_class_folders"}[layout]
        folder = getattr(signal_trees, writer)(tmp_path / "set")
        write(folder, {f"train/a/bad.{layout}": npy(bad) if layout == "npy" else b"RIFF"})
        where, expected = rf"train/a/bad.{layout}", SIGNALS
    else:
        rows = [EVEN[0], (np.where(np.arange(30) == 7, np.nan, EVEN[1][0]), "a"), *EVEN[2:]]
        folder = getattr(signal_trees, layout)(tmp_path / "set", rows)
        where = {
            "csv": "train.csv, line 2",
            "ts": "Set_TRAIN.ts, line 11",
            "npz": r"set.npz, X_train[1]",
            "parquet": "row 1 of the train set",
        }[layout]
        expected = [EVEN[0], *EVEN[2:]]
    with pytest.raises(DataError) as raised:
        load(folder)
    assert where in str(raised.value)
    assert "--data.skip_corrupt" in str(raised.value)
    for _ in range(2):
        data = load(folder, skip_corrupt=True)
        assert len(data.train.skipped) == 1
        assert data.train.skipped[0].endswith(where)
        found = in_order(data.train, data.classes)
        assert sorted(x.shape for x, _ in found) == sorted(x.shape for x, _ in expected)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([[1.0], None], "row 1 of the train set has no signal"),
        ([[1.0], []], "row 1 of the train set has no samples"),
        ([[1.0], [1.0, None, 2.0]], "row 1 of the train set: sample 1, counted from 0, is missing"),
        ([[[1.0], [2.0]], [[1.0], [2.0, 3.0]]], "row 1 .* as many samples in each channel"),
        ([[[1.0], [2.0]], [[1.0]]], "row 0 of the train set has 2 channels and row 1 .* 1"),
        (["a", "b"], "must have a column of signals|can't be read as audio"),
    ],
)
def test_cells_without_a_signal_are_named(cells, message, tmp_path):
    import pyarrow
    import pyarrow.parquet

    (tmp_path / "set").mkdir()
    for split in ("train", "test"):
        table = pyarrow.table({"signal": cells, "label": ["a", "b"]})
        pyarrow.parquet.write_table(table, tmp_path / "set" / f"{split}.parquet")
    with pytest.raises(DataError, match=message):
        load(tmp_path / "set")


def test_nothing_is_kept_of_files_that_differ(tmp_path):
    folder = write(tmp_path / "set", WRONG["different channels"][0])
    with pytest.raises(DataError, match="all must have as many"):
        signals.load(str(folder), cache=tmp_path / "cache")
    assert not any((tmp_path / "cache").iterdir())


def test_a_cache_of_another_rate_is_not_taken(tmp_path):
    folder = signal_trees.class_folders(tmp_path / "set", PAIRS)
    lengths = [load(folder, rate=rate).train.length(0) for rate in (None, 4_000.0, 16_000.0, None)]
    assert lengths == [30, 15, 60, 30]
