"""A published audio dataset with something missing or wrong is named, and what was expected."""

import re

import pytest

from diffstride.lab.data.labelled_files import DataError
from diffstride.lab.data.published import LAYOUTS, read_published
from tests.lab.data.published_trees import BIRDS, write


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
def test_a_wrong_layout_is_named(published, name, change, path, text):
    folder = published(name)
    change(folder)
    with pytest.raises(DataError, match=f"^{re.escape(str(folder / path))}.*{text}"):
        read_published(name, folder, None)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_missing_folder_is_named(tmp_path, name):
    missing = tmp_path / "missing"
    with pytest.raises(DataError, match=f"^{re.escape(str(missing))}.* must "):
        read_published(name, missing, None)


@pytest.mark.parametrize("name", sorted(set(LAYOUTS) - {"nsynth"}))
def test_a_layout_may_have_one_kind_of_label(published, name):
    folder = published(name)
    with pytest.raises(DataError, match=f"^{re.escape(str(folder))} has one kind.*'pitch'"):
        read_published(name, folder, "pitch")


@pytest.mark.parametrize("label", ["velocity", ""])
def test_notes_have_two_kinds_of_label(published, label):
    with pytest.raises(DataError, match=f"instrument_family or pitch, got '{label}'"):
        read_published("nsynth", published("nsynth"), label)


def test_a_pitch_is_a_midi_number(published):
    folder = published("nsynth")
    (folder / NOTES).write_text('{"a": {"pitch": 128, "instrument_family": 0}}')
    with pytest.raises(DataError, match="a: pitch must be from 0 to 127, got 128"):
        read_published("nsynth", folder, "pitch")
