"""Published audio datasets are read by their own lists, and a wrong layout is named."""

import hashlib
from typing import get_args, get_type_hints

import pytest
import torch

from diffstride.lab.data import labelled_files
from diffstride.lab.data.labelled_files import AUDIO, DataError
from diffstride.lab.data.opening import open_files
from diffstride.lab.data.published import LAYOUTS, SCENES, read_published, recognise
from diffstride.lab.runs.data_config import DataConfig
from tests.lab.data.published_trees import BIRDS, TREES, write


def held_out(item):
    return int.from_bytes(hashlib.sha256(item.encode()).digest(), "big") % 10 == 0


def names(split, folder):
    return [path.relative_to(folder).as_posix() for path in split.paths]


def test_every_layout_is_tried():
    assert set(TREES) == set(LAYOUTS)


def test_every_layout_can_be_chosen():
    choices = get_args(get_type_hints(DataConfig)["layout"])
    assert set(choices) == {"auto", "files", *LAYOUTS}


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_holds_for_every_layout(published, name):
    folder = published(name)
    train, test, classes = read_published(name, folder, None)
    assert (train.split, test.split) == ("train", "test")
    assert not set(train.paths) & set(test.paths)
    for split in (train, test):
        assert len(split) == len(split.paths) == len(set(split.paths)) == len(split.labels) > 0
        assert all(path.is_file() and folder in path.parents for path in split.paths)
        assert split.labels.dtype == torch.long
        assert 0 <= split.labels.min() and split.labels.max() < len(classes)
        assert split.read([0]) == [(str(split.paths[0]), b"")]


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_are_recognised(published, name):
    assert recognise(published(name)) == name


def test_other_folders_are_not_recognised(tmp_path):
    assert recognise(tmp_path) is None
    assert recognise(tmp_path / "missing") is None
    write(tmp_path / "meta.csv", "filename\tscene_label\n")
    (tmp_path / "other.csv").write_bytes(b"\xff\x00itemid")
    assert recognise(tmp_path) is None


def test_scenes_follow_the_first_fold(published):
    folder = published("urban_scenes")
    train, test, classes = read_published("urban_scenes", folder)
    assert classes == SCENES == tuple(sorted(SCENES))
    assert len(classes) == 10
    assert names(train, folder)[:2] == [
        f"audio/airport-{c}-0-0-a.wav" for c in ("barcelona", "helsinki")
    ]
    for split, listed in ((train, "train"), (test, "evaluate")):
        rows = (folder / f"evaluation_setup/fold1_{listed}.txt").read_text().splitlines()
        found = zip(names(split, folder), (classes[i] for i in split.labels), strict=True)
        assert [f"{name}\t{scene}" for name, scene in found] == rows


def test_scenes_of_a_test_list_without_labels_are_those_of_the_table(published):
    folder = published("urban_scenes")
    expected = read_published("urban_scenes", folder).test
    (folder / "evaluation_setup/fold1_evaluate.txt").unlink()
    found = read_published("urban_scenes", folder).test
    assert found.paths == expected.paths
    assert torch.equal(found.labels, expected.labels)


def test_a_part_of_the_scenes_has_the_classes_of_all(published):
    folder = published("urban_scenes")
    for path in (folder / "meta.csv", *(folder / "evaluation_setup").iterdir()):
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(line for line in lines if "filename" in line or "tram" in line))
    train, test, classes = read_published("urban_scenes", folder)
    assert classes == SCENES
    assert train.labels.tolist() == [9, 9]
    assert test.labels.tolist() == [9]


def test_birds_are_split_by_the_hash_of_their_id(published):
    folder = published("birds", number=500)
    train, test, classes = read_published("birds", folder)
    assert classes == ("no bird", "bird")
    assert len(train) + len(test) == 1000
    assert 70 < len(test) < 130
    for split, wanted in ((train, False), (test, True)):
        assert all(held_out(path.stem) is wanted for path in split.paths)
        assert split.labels.tolist() == [int(int(path.stem) % 3 == 0) for path in split.paths]
    ids = {path.stem for path in test.paths}
    (folder / "BirdVoxDCASE20k_csvpublic.csv").unlink()  # the rest stays where it is
    assert {path.stem for path in read_published("birds", folder).test.paths} == {
        i for i in ids if len(i) < 4
    }


def test_birds_are_found_by_their_dataset_then_in_wav_then_anywhere(published):
    folder = published("birds")
    for place in ("aaa/wav", "aaa/old"):
        write(folder / place / "3.wav")
    rows = "".join(f"{item},ff1010bird,1\n" for item in ("x", "y"))
    write(folder / "extra.csv", BIRDS + rows)
    write(folder / "comments.csv", "itemid,comment\n3,nice\n")
    for place in ("a/x", "b/wav/x", "c/y"):
        write(folder / f"{place}.wav")
    train, test, _ = read_published("birds", folder)
    found = {path.stem: path.relative_to(folder) for path in (*train.paths, *test.paths)}
    assert {stem: found[stem].as_posix() for stem in ("3", "x", "y")} == {
        "3": "ff1010bird/wav/3.wav",
        "x": "b/wav/x.wav",
        "y": "c/y.wav",
    }


def test_birds_may_be_linked_in(published, tmp_path):
    folder = published("birds")
    (folder / "BirdVox").rename(tmp_path / "elsewhere")
    (folder / "BirdVox").symlink_to(tmp_path / "elsewhere/wav")
    train, test, _ = read_published("birds", folder)
    assert {folder / f"BirdVox/{n}.wav" for n in range(1000, 1030)} < {*train.paths, *test.paths}


def test_birds_among_links_in_circles_are_found(published, monkeypatch):
    """Each folder is linked into each: there are 10! ways through them, and one way back."""
    folder = published("birds")
    monkeypatch.setattr(labelled_files, "MOST_FOLDERS", 1000)
    expected = read_published("birds", folder)
    places = [folder / f"{n}" for n in range(10)]
    for place in places:
        place.mkdir()
        (place / "up").symlink_to("..")
    assert read_published("birds", folder).train.paths == expected.train.paths
    for place in places:
        for other in places:
            (place / f"to {other.name}").symlink_to(other)
    with pytest.raises(DataError, match=r"birds has more than 1,000 folders: links in it lead in"):
        read_published("birds", folder)


def test_birds_of_equal_id_in_two_sets_are_told_apart(published):
    folder = published("birds")
    write(folder / "extra.csv", BIRDS + "3,other,0\n")
    write(folder / "other/wav/3.wav")
    train, test, _ = read_published("birds", folder)
    third = [path for path in (*train.paths, *test.paths) if path.stem == "3"]
    assert {path.parts[-3] for path in third} == {"ff1010bird", "other"}


def test_notes_by_family(published):
    folder = published("nsynth")
    train, test, classes = read_published("nsynth", folder, None)
    assert len(classes) == 11
    assert (classes[0], classes[9], classes[10]) == ("bass", "synth_lead", "vocal")
    assert train.labels.tolist() == list(range(11))
    assert test.labels.tolist() == [2, 5, 7]
    assert names(test, folder)[0] == "nsynth-valid/audio/note_valid_002-062-100.wav"


def test_notes_by_pitch(published):
    train, test, classes = read_published("nsynth", published("nsynth"), "pitch")
    assert classes == tuple(str(n) for n in range(128))
    assert train.labels.tolist() == list(range(60, 71))
    assert test.labels.tolist() == [62, 65, 67]


def test_commands_are_trained_on_where_no_list_has_them(published):
    folder = published("speech_commands")
    train, test, classes = read_published("speech_commands", folder)
    assert classes == ("bed", "no", "yes")
    tested, validated = (
        (folder / f"{name}_list.txt").read_text().split() for name in ("testing", "validation")
    )
    assert names(test, folder) == tested
    assert not {*tested, *validated} & set(names(train, folder))
    assert len(train) == 30 - len(tested) - len(validated)
    for split in (train, test):
        assert [classes[i] for i in split.labels] == [path.parent.name for path in split.paths]


def test_commands_may_be_linked_in_and_what_systems_leave_behind_is_left_out(published, tmp_path):
    folder = published("speech_commands")
    expected = read_published("speech_commands", folder)
    (folder / "yes").rename(tmp_path / "elsewhere")
    (folder / "yes").symlink_to(tmp_path / "elsewhere")
    write(folder / "no/._1.wav")
    write(folder / "no/.DS_Store")
    found = read_published("speech_commands", folder)
    assert found.classes == expected.classes
    assert (found.train.paths, found.test.paths) == (expected.train.paths, expected.test.paths)
    write(folder / "no/another.WAV")
    assert folder / "no/another.WAV" in read_published("speech_commands", folder).train.paths


def test_a_word_that_is_only_tested_is_refused(published):
    folder = published("speech_commands")
    assert open_files(str(folder), AUDIO, layout="auto").classes == ("bed", "no", "yes")
    for path in read_published("speech_commands", folder).train.paths:
        if path.parent.name in ("no", "yes"):
            path.unlink()
    with pytest.raises(DataError, match="classes that the training set has no example of: no, yes"):
        open_files(str(folder), AUDIO, layout="auto")


def test_lists_may_end_in_blank_lines_and_come_from_windows(published):
    folder = published("speech_commands")
    expected = read_published("speech_commands", folder).test.paths
    path = folder / "testing_list.txt"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n") + b"\r\n")
    assert read_published("speech_commands", folder).test.paths == expected
