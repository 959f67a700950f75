"""Labels of parquet files mean in every file what they mean in the first."""

import tracemalloc

import pytest

from diffstride.lab.data import images
from diffstride.lab.data.labelled_files import DataError
from tests.lab.data.example_files import grey_picture, write_parquet

GREY = grey_picture(0)


def rows(*labels):
    return [(GREY, label) for label in labels]


@pytest.mark.parametrize(
    ("train", "test", "classes", "names"),
    [
        (("cat", "dog"), ("dog", "cow", "ant"), ["ant", "cat", "cow", "dog"], "ant, cow"),
        ((0, 1), (1, 2), ["ant", "cat", "cow"], "cow"),
        ((0, 4), (0, 3), None, "3"),
        (range(0, 60, 2), range(59), None, r"1, 3, .*, 39, \.\.\."),
    ],
)
def test_classes_that_training_never_sees_are_named(train, test, classes, names, tmp_path):
    path = write_parquet(tmp_path / "pack", rows(*train), rows(*test), classes)
    message = f"pack: the test set has classes that the training set has no example of: {names}: "
    with pytest.raises(DataError, match=message):
        images.load(path)
    # A run that was trained on others knows its classes, and these are to test it.
    if classes is None:
        known = [str(n) for n in range(max(train) + 2)]
        assert images.load(path, classes=known).classes == tuple(known)


def test_a_class_may_go_untested(tmp_path):
    data = images.load(
        write_parquet(tmp_path / "pack", rows("a", "b", "c"), rows("c"), classes=None)
    )
    assert (data.classes, data.test.labels.tolist()) == (("a", "b", "c"), [2])


def labelled(path, names, labels):
    """A parquet file that says itself which class a number stands for."""
    import datasets

    datasets.disable_progress_bars()
    column = [{"bytes": GREY, "path": None} for _ in labels]
    kinds = {"image": datasets.Image(), "label": datasets.ClassLabel(names=names)}
    table = {"image": column, "label": labels}
    datasets.Dataset.from_dict(table, datasets.Features(kinds)).to_parquet(path)


@pytest.mark.parametrize("other", ["test", "train-2"])
def test_files_that_number_their_classes_differently_are_refused(other, tmp_path):
    for name in ("train-1", "train-2", "test"):
        labelled(tmp_path / f"{name}.parquet", ["cat", "dog"], [0, 1])
    assert images.load(str(tmp_path)).classes == ("cat", "dog")
    labelled(tmp_path / f"{other}.parquet", ["dog", "cat"], [0, 1])
    message = rf"train-1.parquet and .*{other}.parquet must have the same classes in the same order"
    with pytest.raises(DataError, match=message):
        images.load(str(tmp_path))


@pytest.mark.parametrize("largest", [10_000, 10**7, 10**12, 2**63 - 1])
def test_labels_far_beyond_the_number_of_examples_are_refused_at_once(largest, tmp_path):
    path = write_parquet(tmp_path / "pack", rows(0, 1, 2, largest), classes=None)
    message = (
        f"pack, row 3 of the train set: label {largest:,} would make {largest + 1:,} classes of 4 "
        f"examples, and 10,000 is the most"
    )
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=message):
            images.load(path)
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()


def test_labels_may_have_gaps(tmp_path):
    path = write_parquet(tmp_path / "pack", rows(0, 9_999), classes=None)
    assert len(images.load(path).classes) == 10_000


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ({"0": "cat", "1": "dog"}, r"classes.json must be a list of the names of classes"),
        (["cat", ["dog"]], r"classes.json must be a list of the names of classes"),
        (["cat", "dog", "cat"], "a name of its own for every class, got 'cat' twice"),
    ],
)
def test_lists_of_classes_that_can_not_be_used_are_refused(classes, message, tmp_path):
    with pytest.raises(DataError, match=message):
        images.load(write_parquet(tmp_path / "pack", rows(0, 1), classes=classes))


def test_a_list_of_classes_that_is_nested_without_end_can_not_be_read(tmp_path):
    path = write_parquet(tmp_path / "pack", rows(0, 1))
    (tmp_path / "pack" / "classes.json").write_text("[" * 100_000)
    with pytest.raises(DataError, match=r"classes.json can't be read"):
        images.load(path)


def test_parquet_files_may_be_links_and_in_linked_folders(tmp_path):
    path = write_parquet(tmp_path / "pack", rows(0, 1))
    for name in ("data", "linked"):
        (tmp_path / name).mkdir()
    (tmp_path / "pack" / "classes.json").rename(tmp_path / "linked" / "classes.json")
    (tmp_path / "linked" / "data").symlink_to(path)
    assert images.load(str(tmp_path / "linked")).classes == ("cat", "dog")
    for file in (tmp_path / "pack").glob("*.parquet"):
        (tmp_path / "data" / file.name).symlink_to(file)
    assert len(images.load(str(tmp_path / "data")).train) == 2


def test_two_sets_in_one_folder_are_not_taken_for_one(tmp_path):
    """As in a repository that has the same images with coarse and with fine labels."""
    (tmp_path / "set").mkdir()
    paths = [write_parquet(tmp_path / "set" / name, rows(0, 1)) for name in ("coarse", "fine")]
    message = (
        rf"set has parquet files of the train set in 2 folders: give one of {', '.join(paths)}"
    )
    with pytest.raises(DataError, match=message):
        images.load(str(tmp_path / "set"))
    assert len(images.load(paths[0]).train) == 2
