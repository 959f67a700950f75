"""Published audio datasets are read by their own lists, and a wrong layout is named."""

import hashlib
import re

import pytest
import torch

from diffstride.lab.data import class_folders
from diffstride.lab.data.labelled_files import AUDIO, DataError
from diffstride.lab.data.opening import open_files
from diffstride.lab.data.published import LAYOUTS, SCENES, read_published, recognise
from tests.audio_trees import BIRDS, TREES, write


def held_out(item):
    return int.from_bytes(hashlib.sha256(item.encode()).digest(), "big") % 10 == 0


@pytest.fixture
def tree(tmp_path):
    def make(name, **options):
        folder = tmp_path / name
        TREES[name](folder, **options)
        return folder

    return make


def names(split, folder):
    return [path.relative_to(folder).as_posix() for path in split.paths]


def test_every_layout_is_tried():
    assert set(TREES) == set(LAYOUTS)


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_holds_for_every_layout(tree, name):
    folder = tree(name)
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
def test_layouts_are_recognised(tree, name):
    assert recognise(tree(name)) == name


def test_other_folders_are_not_recognised(tmp_path):
    assert recognise(tmp_path) is None
    assert recognise(tmp_path / "missing") is None
    write(tmp_path / "meta.csv", "filename\tscene_label\n")
    (tmp_path / "other.csv").write_bytes(b"\xff\x00itemid")
    assert recognise(tmp_path) is None


def test_scenes_follow_the_first_fold(tree):
    folder = tree("urban_scenes")
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


def test_scenes_of_a_test_list_without_labels_are_those_of_the_table(tree):
    folder = tree("urban_scenes")
    expected = read_published("urban_scenes", folder).test
    (folder / "evaluation_setup/fold1_evaluate.txt").unlink()
    found = read_published("urban_scenes", folder).test
    assert found.paths == expected.paths
    assert torch.equal(found.labels, expected.labels)


def test_a_part_of_the_scenes_has_the_classes_of_all(tree):
    folder = tree("urban_scenes")
    for path in (folder / "meta.csv", *(folder / "evaluation_setup").iterdir()):
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(line for line in lines if "filename" in line or "tram" in line))
    train, test, classes = read_published("urban_scenes", folder)
    assert classes == SCENES
    assert train.labels.tolist() == [9, 9]
    assert test.labels.tolist() == [9]


def test_birds_are_split_by_the_hash_of_their_id(tree):
    folder = tree("birds", number=500)
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


def test_birds_are_found_by_their_dataset_then_in_wav_then_anywhere(tree):
    folder = tree("birds")
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


def test_birds_may_be_linked_in(tree, tmp_path):
    folder = tree("birds")
    (folder / "BirdVox").rename(tmp_path / "elsewhere")
    (folder / "BirdVox").symlink_to(tmp_path / "elsewhere/wav")
    train, test, _ = read_published("birds", folder)
    assert {folder / f"BirdVox/{n}.wav" for n in range(1000, 1030)} < {*train.paths, *test.paths}


def test_birds_among_links_in_circles_are_found(tree, monkeypatch):
    """Each folder is linked into each: there are 10! ways through them, and one way back."""
    folder = tree("birds")
    monkeypatch.setattr(class_folders, "MOST_FOLDERS", 1000)
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


def test_birds_of_equal_id_in_two_sets_are_told_apart(tree):
    folder = tree("birds")
    write(folder / "extra.csv", BIRDS + "3,other,0\n")
    write(folder / "other/wav/3.wav")
    train, test, _ = read_published("birds", folder)
    third = [path for path in (*train.paths, *test.paths) if path.stem == "3"]
    assert {path.parts[-3] for path in third} == {"ff1010bird", "other"}


def test_notes_by_family(tree):
    folder = tree("nsynth")
    train, test, classes = read_published("nsynth", folder, None)
    assert len(classes) == 11
    assert (classes[0], classes[9], classes[10]) == ("bass", "synth_lead", "vocal")
    assert train.labels.tolist() == list(range(11))
    assert test.labels.tolist() == [2, 5, 7]
    assert names(test, folder)[0] == "nsynth-valid/audio/note_valid_002-062-100.wav"


def test_notes_by_pitch(tree):
    train, test, classes = read_published("nsynth", tree("nsynth"), "pitch")
    assert classes == tuple(str(n) for n in range(128))
    assert train.labels.tolist() == list(range(60, 71))
    assert test.labels.tolist() == [62, 65, 67]


def test_commands_are_trained_on_where_no_list_has_them(tree):
    folder = tree("speech_commands")
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


def test_commands_may_be_linked_in_and_what_systems_leave_behind_is_left_out(tree, tmp_path):
    folder = tree("speech_commands")
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


def test_a_word_that_is_only_tested_is_refused(tree):
    folder = tree("speech_commands")
    assert open_files(str(folder), AUDIO, layout="auto").classes == ("bed", "no", "yes")
    for path in read_published("speech_commands", folder).train.paths:
        if path.parent.name in ("no", "yes"):
            path.unlink()
    with pytest.raises(DataError, match="classes that the training set has no example of: no, yes"):
        open_files(str(folder), AUDIO, layout="auto")


def test_lists_may_end_in_blank_lines_and_come_from_windows(tree):
    folder = tree("speech_commands")
    expected = read_published("speech_commands", folder).test.paths
    path = folder / "testing_list.txt"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n") + b"\r\n")
    assert read_published("speech_commands", folder).test.paths == expected


def without(path):
    return lambda folder: (folder / path).unlink()


def holding(path, text):
    return lambda folder: (folder / path).write_bytes(text.encode("latin-1"))


def adding(path, text):
    return lambda folder: write(folder / path, (folder / path).read_text() + text)


def without_all(pattern):
    def remove(folder):
        for path in folder.glob(pattern):
            path.unlink()

    return remove


FOLD = "evaluation_setup/fold1_"
META = "filename\tscene_label\tidentifier\tsource_label\n"
TRAM = "audio/tram-vienna-0-0-a.wav"
FF = "ff1010bird_metadata_2018.csv"
NOTES = "nsynth-valid/examples.json"
NOTE = '{"a": {"instrument_family": %s}}'


def both(*changes):
    return lambda folder: [change(folder) for change in changes]


# What is done to a good tree, the path the message must begin with, and what else it says.
WRONG = [
    ("urban_scenes", without("meta.csv"), "meta.csv", "4 columns .*not there"),
    ("urban_scenes", without(f"{FOLD}train.txt"), f"{FOLD}train.txt", "2 columns .*not there"),
    (
        "urban_scenes",
        both(without(f"{FOLD}evaluate.txt"), without(f"{FOLD}test.txt")),
        f"{FOLD}evaluate.txt",
        "not there",
    ),
    ("urban_scenes", holding("meta.csv", ""), "meta.csv, line 1", "header must have .*filename"),
    ("urban_scenes", holding("meta.csv", "a\tb\n"), "meta.csv, line 1", "got .'a', 'b'"),
    ("urban_scenes", adding("meta.csv", "a\ttram\n"), "meta.csv, line 32", "4 columns"),
    ("urban_scenes", adding("meta.csv", "a\tsea\tb\tc\n"), "meta.csv, line 32", "tram, got 'sea'"),
    ("urban_scenes", holding("meta.csv", META + "\xe9"), "meta.csv", "UTF-8"),
    ("urban_scenes", holding("meta.csv", META + '"'), "meta.csv", "can't be read as a table"),
    ("urban_scenes", adding(f"{FOLD}train.txt", "a.wav"), f"{FOLD}train.txt, line 21", "2 columns"),
    (
        "urban_scenes",
        adding(f"{FOLD}train.txt", "a\tsea"),
        f"{FOLD}train.txt, line 21",
        "got 'sea'",
    ),
    ("urban_scenes", adding(f"{FOLD}evaluate.txt", "\ttram"), f"{FOLD}evaluate.txt, line 11", "2"),
    (
        "urban_scenes",
        holding(f"{FOLD}train.txt", ""),
        f"{FOLD}train.txt",
        "the train set, got none",
    ),
    ("urban_scenes", holding(f"{FOLD}evaluate.txt", "\n"), f"{FOLD}evaluate.txt", "the test set"),
    ("urban_scenes", without(TRAM), TRAM, "fold1_evaluate.txt .*1 of 10 recordings"),
    ("urban_scenes", without_all("audio/*-barcelona-*"), "audio/airport-barcelona", "10 of 20"),
    ("urban_scenes", adding(f"{FOLD}train.txt", f"{TRAM}\ttram"), TRAM, "more than once"),
    (
        "urban_scenes",
        both(without(f"{FOLD}evaluate.txt"), adding(f"{FOLD}test.txt", "audio/a.wav")),
        f"{FOLD}test.txt, line 11",
        "audio/a.wav must be in .*meta.csv",
    ),
    ("birds", without_all("*.csv"), "", "itemid,datasetid,hasbird.*: none"),
    (
        "birds",
        both(without_all("*.csv"), lambda folder: write(folder / "a.csv", "itemid,hasbird\n")),
        "",
        "itemid,datasetid,hasbird.*: a.csv",
    ),
    ("birds", adding(FF, "7,ff1010bird\n"), f"{FF}, line 32", "3 columns"),
    ("birds", adding(FF, "7,ff1010bird,\n"), f"{FF}, line 32", "3 columns"),
    ("birds", adding(FF, "7,ff1010bird,2\n"), f"{FF}, line 32", "one of 0, 1, got '2'"),
    ("birds", adding(FF, "7,ff1010bird,0\n"), "ff1010bird/wav/7.wav", "more than once"),
    ("birds", adding(FF, "77,ff1010bird,0\n"), "ff1010bird/wav/77.wav", "1 of .*are missing"),
    ("birds", both(without_all("*.csv"), holding(FF, BIRDS)), FF, "the train set, got none"),
    ("birds", both(without_all("*.csv"), holding(FF, BIRDS + "0,a,0")), FF, "the test set"),
    ("nsynth", without(NOTES), NOTES, "JSON object .*not there"),
    ("nsynth", without("nsynth-train/examples.json"), "nsynth-train/examples.json", "not there"),
    ("nsynth", holding(NOTES, "{"), NOTES, "can't be read as JSON"),
    ("nsynth", holding(NOTES, "\xe9"), NOTES, "UTF-8"),
    ("nsynth", holding(NOTES, "[]"), NOTES, "object of notes, got list"),
    ("nsynth", holding(NOTES, "{}"), NOTES, "the test set, got none"),
    ("nsynth", holding(NOTES, '{"a": 3}'), f"{NOTES}, a", "from 0 to 10, got None"),
    ("nsynth", holding(NOTES, '{"a": {}}'), f"{NOTES}, a", "instrument_family .*got None"),
    *(
        ("nsynth", holding(NOTES, NOTE % value), f"{NOTES}, a", "from 0 to 10, got ")
        for value in ("11", "-1", "true", "1.0", '"bass"')
    ),
    ("nsynth", holding(NOTES, NOTE % "3"), "nsynth-valid/audio/a.wav", "examples.json .*1 of 1"),
    ("speech_commands", without("testing_list.txt"), "testing_list.txt", "not there"),
    ("speech_commands", without("validation_list.txt"), "validation_list.txt", "not there"),
    ("speech_commands", without_all("[by]e*/*.wav"), "", "at least 2 words, got no$"),
    ("speech_commands", without_all("*/*.wav"), "", "at least 2 words, got none"),
    (
        "speech_commands",
        adding("testing_list.txt", "sea/a.wav"),
        "testing_list.txt, line 7",
        "'sea'",
    ),
    ("speech_commands", adding("testing_list.txt", "a.wav"), "testing_list.txt, line 7", "got ''"),
    (
        "speech_commands",
        adding("testing_list.txt", "a\tb"),
        "testing_list.txt, line 7",
        "1 columns",
    ),
    ("speech_commands", adding("testing_list.txt", "no/a.wav\n"), "no/a.wav", "testing_.*1 of 7"),
    (
        "speech_commands",
        adding("validation_list.txt", "no/a.wav"),
        "no/a.wav",
        "validation_.*1 of 4",
    ),
    (
        "speech_commands",
        adding("testing_list.txt", "no/00000000_nohash_0.wav"),
        "no/00000000_nohash_0.wav",
        "more than once",
    ),
    ("speech_commands", holding("testing_list.txt", ""), "testing_list.txt", "the test set"),
    ("speech_commands", without_all("*/*[3-9]_nohash_0.wav"), "", "the train set, got none"),
]


@pytest.mark.parametrize(("name", "change", "path", "text"), WRONG)
def test_a_wrong_layout_is_named(tree, name, change, path, text):
    folder = tree(name)
    change(folder)
    with pytest.raises(DataError, match=f"^{re.escape(str(folder / path))}.*{text}"):
        read_published(name, folder, None)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_missing_folder_is_named(tmp_path, name):
    missing = tmp_path / "missing"
    with pytest.raises(DataError, match=f"^{re.escape(str(missing))}.* must "):
        read_published(name, missing, None)


@pytest.mark.parametrize("name", sorted(set(LAYOUTS) - {"nsynth"}))
def test_a_layout_may_have_one_kind_of_label(tree, name):
    folder = tree(name)
    with pytest.raises(DataError, match=f"^{re.escape(str(folder))} has one kind.*'pitch'"):
        read_published(name, folder, "pitch")


@pytest.mark.parametrize("label", ["velocity", ""])
def test_notes_have_two_kinds_of_label(tree, label):
    with pytest.raises(DataError, match=f"instrument_family or pitch, got '{label}'"):
        read_published("nsynth", tree("nsynth"), label)


def test_a_pitch_is_a_midi_number(tree):
    folder = tree("nsynth")
    (folder / NOTES).write_text('{"a": {"pitch": 128, "instrument_family": 0}}')
    with pytest.raises(DataError, match="a: pitch must be from 0 to 127, got 128"):
        read_published("nsynth", folder, "pitch")
