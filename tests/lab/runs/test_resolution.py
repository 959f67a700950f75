"""What resolution.csv says, in words; and that a damaged one says nothing."""

import pytest

from diffstride.lab.runs import resolution
from diffstride.lab.runs.documents import DamagedFile
from diffstride.lab.runs.resolution import Step, read_resolution, sentences, write_resolution


def curve(place, axis, kept, *, rate=100.0, size=100, unit="Hz", learned=None, bins=None):
    """Steps from half the size downwards, each of half the bins of the one before."""
    names = ("time", "frequency")
    bins = bins or [size // 2 ** (1 + i) for i in range(len(kept))]
    return [
        Step(
            *(place, axis, names[axis], unit, b * rate / size, b),
            *(0.8 * share, 0.8 * share - 0.05, 0.8 * share + 0.05),
            *(share, share - 0.004, share + 0.004, 200, "other data", "last", learned),
        )
        for b, share in zip(bins, kept, strict=True)
    ]


def test_the_lowest_cut_off_counts_of_which_all_higher_ones_are_enough():
    time = curve("input", 0, [1.0, 1.01, 0.991, 0.95, 0.995])
    (told,) = sentences(time)
    assert told == (
        "Time up to 12 Hz is enough for 99 % of the accuracy (keeps 99.1 %, 98.7 to 99.5)"
    )
    channels = curve("input", 1, [1.0, 0.9, 1.0], rate=1, size=64, unit="cycles per mel channel")
    (told,) = sentences([*time, *channels])
    end = "; frequency is not to be reduced (up to 0.25 cycles per mel channel keeps 90.0 %, "
    assert told.endswith(f"{end}89.6 to 90.4)")


def test_what_the_first_layer_takes_away_anyhow_is_no_news():
    steps = curve("input", 0, [1.0, 1.0, 0.9])
    layer = curve("behind a", 0, [1.0, 0.9], bins=[20, 12], learned=20.0)
    told = sentences([*steps, *layer])[0]
    below = "Time is not to be reduced below the 20 Hz that the first layer lets pass (up to 12 Hz"
    assert told.startswith(f"{below} keeps 90.0 %")
    layer = curve("behind a", 0, [1.0, 0.9], bins=[30, 12], learned=30.0)
    assert sentences([*steps, *layer])[0].startswith("Time up to 25 Hz is enough for 99 %")


def test_what_is_lost_above_what_the_first_layer_lets_pass_is_news():
    steps = curve("input", 0, [1.0, 1.0, 0.9], bins=[50, 40, 30])
    layer = curve("behind a", 0, [1.0, 0.9], bins=[20, 12], learned=20.0)
    assert sentences([*steps, *layer])[0].startswith("Time up to 40 Hz is enough for 99 %")


def test_what_may_be_chance_is_said_to_be():
    (told,) = sentences(curve("input", 0, [1.0, 0.987]))
    assert told.startswith("Time is not to be reduced (up to 25 Hz keeps 98.7 %, 98.3 to 99.1, wh")
    assert "which may be chance" in told


def test_a_second_sentence_names_the_layer_behind_which_less_is_enough():
    steps = curve("input", 0, [1.0, 1.0, 0.9])
    steps += curve("behind a", 0, [1.0, 0.999, 0.5], bins=[25, 13, 6])
    steps += curve("behind b", 0, [1.0, 1.0, 0.992], bins=[20, 8, 5])
    steps += curve("behind c", 0, [1.0], bins=[1])  # nothing was taken away here
    _, told = sentences(steps)
    start = "Deeper in the network less is enough: behind b, time up to 5 Hz (keeps 99.2 %"
    assert told.startswith(start)
    assert len(sentences(steps[:3] + curve("behind a", 0, [1.0, 0.5], bins=[25, 13]))) == 1


def test_axes_too_short_to_lose_anything():
    assert "too short" in sentences(curve("input", 0, [1.0], size=2))[0]


@pytest.fixture
def path(tmp_path):
    steps = curve("input", 0, [1.0, 0.995, 0.5], learned=12.5)
    write_resolution(tmp_path / "resolution.csv", steps + curve("behind x", 0, [1.0, 0.7]))
    return tmp_path / "resolution.csv"


def test_what_is_written_is_read(path):
    steps = read_resolution(path)
    assert [step.learned for step in steps] == [12.5] * 3 + [None] * 2
    write_resolution(path.with_name("again.csv"), steps)
    assert path.with_name("again.csv").read_bytes() == path.read_bytes()
    assert list(resolution.COLUMNS) == path.read_text().splitlines()[0].split(",")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("place,", "where,", "line 1: there is no column place"),
        ("input,0", "input,7", "line 2: column axis must be a whole number from 0 to 2, got '7'"),
        ("input,0,time,Hz,25.0,25", "input,0,time,Hz,25.0,60", r"got bins \[50, 60, 12\]"),
        ("0.796", "1.5", "line 3: column accuracy must be a number from 0 to 1, got '1.5'"),
        ("0.796", "nan", "line 3: column accuracy must be a number from 0 to 1, got 'nan'"),
        (",last,", ",first,", "line 2: column weights must be last or best, got 'first'"),
        ("Hz,50.0", "Hz,", "line 2: column cutoff must be a number above 0, got ''"),
        ("other data,last,12.5,\n", "other data\n", r"line 2 has \d+ cells, and line 1 has"),
    ],
)
def test_a_damaged_file_says_where(path, old, new, message):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(DamagedFile, match=rf"resolution\.csv.*{message}"):
        read_resolution(path)
