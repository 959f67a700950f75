"""Folders by class are read whole, through links too, and what is wrong with them is named."""

import os

import pytest

from diffstride.lab.data import images, labelled_files, recordings
from diffstride.lab.data.labelled_files import AUDIO, DataError
from diffstride.lab.data.opening import open_files
from tests.lab.data.example_files import grey_picture

PIXEL = grey_picture(0, (4, 4), "L")


class Tree:
    """A folder of files of one kind; {x} in a name is their usual suffix."""

    def __init__(self, root, kind):
        self.root, self.kind = root / "set", kind
        self.suffix = {"image": "png", "audio": "wav"}[kind]

    def name(self, name):
        return name.format(x=self.suffix)

    def write(self, *names, root=None):
        for name in names:
            path = (root or self.root) / self.name(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(PIXEL if self.kind == "image" else b"")  # sound is not opened here
        return self

    def link(self, name, target):
        path = self.root / self.name(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)
        return self

    def load(self, **options):
        if self.kind == "image":
            return images.load(str(self.root), **options)
        return open_files(str(self.root), AUDIO, layout="auto", **options)

    def open(self):
        """The classes, and of each its number of examples for training and for testing."""
        opened = self.load()
        counts = [
            [int((split.labels == i).sum()) for split in (opened.train, opened.test)]
            for i in range(len(opened.classes))
        ]
        return dict(zip(opened.classes, counts, strict=True))


@pytest.fixture(params=["image", "audio"])
def tree(request, tmp_path):
    return Tree(tmp_path, request.param)


PLAIN = ("train/a/0.{x}", "train/b/0.{x}", "train/b/1.{x}", "test/a/2.{x}", "test/b/2.{x}")


def test_a_file_is_of_the_class_whose_folder_it_is_in(tree):
    tree.write(*PLAIN, "train/a/deeper/and/deeper/3.{x}", "test/b/session 2/4.{x}")
    assert tree.open() == {"a": [2, 1], "b": [2, 2]}


def test_suffixes_may_be_in_capitals_and_what_systems_leave_behind_is_left_out(tree):
    tree.write(*PLAIN, f"train/a/3.{tree.suffix.upper()}")
    left_behind = ("train/a/._0.{x}", "train/.DS_Store", "train/a/Thumbs.db", "test/b/desktop.ini")
    tree.write(*left_behind, "train/.hidden/0.{x}", "train/__MACOSX/a/0.{x}", "train/notes.txt")
    assert tree.open() == {"a": [2, 1], "b": [2, 1]}


def test_a_set_without_a_test_folder_is_tested_on_the_one_for_validation(tree):
    tree.write("train/a/0.{x}", "train/b/0.{x}", "validation/a/1.{x}")
    assert tree.open() == {"a": [1, 1], "b": [1, 0]}


@pytest.mark.parametrize("linked", ["train", "test", "train/b", "train/b/0.{x}", "train/b/more"])
def test_links_are_read_like_what_they_lead_to(linked, tree, tmp_path):
    tree.write(*PLAIN, "train/b/more/5.{x}", "train/b/more/still/6.{x}")
    expected = tree.open()
    assert expected == {"a": [1, 1], "b": [4, 1]}
    path = tree.root / tree.name(linked)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert tree.open() == expected


def test_the_whole_set_may_be_a_link(tree, tmp_path):
    tree.write(*PLAIN)
    tree.root.rename(tmp_path / "elsewhere")
    tree.root.symlink_to("elsewhere")
    assert tree.open() == {"a": [1, 1], "b": [2, 1]}


@pytest.mark.parametrize("target", [".", "..", "../..", "../../train"])
def test_links_in_circles_end(target, tree):
    tree.write(*PLAIN).link("train/b/around", target).link("train/b/again", target)
    assert tree.open() == {"a": [1, 1], "b": [2, 1]}


def test_more_links_than_can_be_followed_are_refused(tree, monkeypatch):
    monkeypatch.setattr(labelled_files, "MOST_FOLDERS", 100)
    tree.write(*PLAIN)
    for i in range(6):  # each leads to all the others, which is hundreds of ways
        tree.write(f"train/b/{i}/0.{{x}}")
        for j in range(6):
            tree.link(f"train/b/{i}/to {j}", f"../{j}")
    with pytest.raises(DataError, match=r"set has more than 100 folders: .*circles, remove them"):
        tree.open()


def test_a_folder_that_must_not_be_read_is_named(tree, monkeypatch):
    tree.write(*PLAIN)
    scandir = os.scandir

    def forbidden(folder):
        if str(folder).endswith("train/b"):
            raise PermissionError(13, "Permission denied")
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", forbidden)  # root may read everything
    with pytest.raises(DataError, match=r"train/b can't be read: Permission denied"):
        tree.open()


LINKS_THAT_ARE_WRONG = [
    ("train/c", "/nowhere/c", r"train/c is a link to /nowhere/c, which is not there"),
    ("train/b/more", "more", r"train/b/more is a link to more, which is not there"),
    ("train/b/x.{x}", "../../test/b/2.{x}", r"test/b/2\.\w+ and .*train/b/x\.\w+ are one file"),
    ("test/a/more", "../../train/a", r"test/a/more/0\.\w+ and .*train/a/0\.\w+ are one file"),
    ("train/b/x.{x}", "../a/0.{x}", r"train/a/0\.\w+ and .*train/b/x\.\w+ are one file"),
    ("train/c", "b", r"train/b/0\.\w+ and .*train/c/0\.\w+ are one file: it can't be of two"),
]


@pytest.mark.parametrize(("name", "target", "message"), LINKS_THAT_ARE_WRONG)
def test_links_that_can_not_be_meant_are_named(name, target, message, tree):
    tree.write(*PLAIN).link(name, tree.name(target))
    with pytest.raises(DataError, match=message):
        tree.open()


def test_a_file_may_be_linked_into_its_class_again(tree):
    assert tree.write(*PLAIN).link("train/a/more.{x}", tree.name("0.{x}")).open()["a"] == [2, 1]


NEITHER = "set has neither parquet files nor the folders train and test"
WRONG = [
    (["notes.txt"], NEITHER),
    (["train/a/0.{x}", "test/a/0.{x}"], "each of two classes or more"),
    (["train/a/0.{x}", "train/b/0.{x}"], NEITHER),
    (["test/a/0.{x}", "test/b/0.{x}"], NEITHER),
    (["train/a/0.{x}", "train/b/0.txt", "test/a/0.{x}"], r"train/b has no \w+ file \(\.\w+, "),
    (["train/a/0.{x}", "train/b/0.{x}", "test/a/0.txt"], r"test has no \w+ file \(\.\w+, "),
    ([*PLAIN, "train/0.{x}"], r"train/0\.\w+ must be in the folder of a class, .*train/CLASS"),
    (
        [*PLAIN, "test/d/0.{x}", "test/c/0.{x}"],
        "set: the test set has classes that the training set has no example of: c, d: add",
    ),
]


@pytest.mark.parametrize(("names", "message"), WRONG)
def test_wrong_folders_are_named(names, message, tree):
    with pytest.raises(DataError, match=message):
        tree.write(*names).open()


@pytest.mark.parametrize(("kind", "name"), [("image", "photo.heic"), ("audio", "memo.m4a")])
def test_a_file_that_can_not_be_read_is_not_passed_over_for_its_name(kind, name, tmp_path):
    tree = Tree(tmp_path, kind).write(*PLAIN)
    (tree.root / "train" / "a" / name).write_bytes(b"of a format that is not known")
    with pytest.raises(DataError, match=rf"train/a/{name} can't be read as"):
        if kind == "image":
            tree.open()
        else:
            train = tree.load().train
            chosen = [i for i, (path, _) in enumerate(train.read(range(3))) if path.endswith(name)]
            recordings.load(train.select(chosen), tmp_path / "cache", "here")


def test_a_folder_by_class_has_no_column_of_labels(tree):
    tree.write(*PLAIN)
    with pytest.raises(DataError, match="set is a folder by class, and has no column 'pitch'"):
        tree.load(label="pitch")
