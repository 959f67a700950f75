"""Audio datasets in the layouts they are published in, with files that are empty."""

import json

from diffstride.lab.data.published import SCENES

BIRDS = "itemid,datasetid,hasbird\n"
TABLES = {"ff1010bird_metadata_2018.csv": "ff1010bird", "BirdVoxDCASE20k_csvpublic.csv": "BirdVox"}


def write(path, content=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def scenes_tree(folder):
    """Of every scene one recording in each of three cities, the last of them for testing."""
    rows = {"train": "", "evaluate": "", "test": ""}
    meta = "filename\tscene_label\tidentifier\tsource_label\n"
    for scene in SCENES:
        for city in ("barcelona", "helsinki", "vienna"):
            name = f"audio/{scene}-{city}-0-0-a.wav"
            write(folder / name)
            meta += f"{name}\t{scene}\t{city}-0\ta\n"
            if city == "vienna":
                rows["evaluate"] += f"{name}\t{scene}\n"
                rows["test"] += f"{name}\n"
            else:
                rows["train"] += f"{name}\t{scene}\n"
    write(folder / "meta.csv", meta)
    for name, text in rows.items():
        write(folder / "evaluation_setup" / f"fold1_{name}.txt", text)


def birds_tree(folder, number=30):
    """Two sets, each in its folder; every third recording has a bird."""
    for i, (table, dataset) in enumerate(TABLES.items()):
        items = [str(1000 * i + n) for n in range(number)]
        rows = "".join(f"{item},{dataset},{int(int(item) % 3 == 0)}\n" for item in items)
        write(folder / table, BIRDS + rows)
        for item in items:
            write(folder / dataset / "wav" / f"{item}.wav")


def nsynth_tree(folder):
    """Eleven notes for training, three for validation and one that is not used."""
    for split, numbers in (("train", range(11)), ("valid", (2, 5, 7)), ("test", (0,))):
        notes = {}
        for n in numbers:
            name = f"note_{split}_{n:03}-{60 + n:03}-100"
            notes[name] = {"note_str": name, "instrument_family": n, "pitch": 60 + n}
            write(folder / f"nsynth-{split}" / "audio" / f"{name}.wav")
        write(folder / f"nsynth-{split}" / "examples.json", json.dumps(notes))


def commands_tree(folder):
    """Of each of three words ten recordings, two for testing and one for validation."""
    lists = {"testing": "", "validation": ""}
    for word in ("yes", "bed", "no"):
        for n in range(10):
            name = f"{word}/{n:08x}_nohash_0.wav"
            write(folder / name)
            if n < 3:
                lists["testing" if n < 2 else "validation"] += f"{name}\n"
    for name, text in lists.items():
        write(folder / f"{name}_list.txt", text)
    write(folder / "_background_noise_" / "pink_noise.wav")
    write(folder / "README.md")
    (folder / "empty").mkdir()


TREES = {
    "urban_scenes": scenes_tree,
    "birds": birds_tree,
    "nsynth": nsynth_tree,
    "speech_commands": commands_tree,
}
