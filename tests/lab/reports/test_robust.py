"""The section on changed examples, and the columns of tables, show what robust.csv says."""

import csv
import json

import pytest

from diffstride.lab.reports import page, robust
from diffstride.lab.reports.json_tables import run_document
from diffstride.lab.reports.sweep_reader import Sweep
from diffstride.lab.reports.tables import compare, write_tables
from diffstride.lab.runs.documents import DamagedFile
from diffstride.lab.runs.resolution import TEST_DATA
from diffstride.lab.runs.robust import (
    EVERY_CORRUPTION,
    EVERY_MOVE,
    MOVED,
    RESIZED,
    UNCHANGED,
    Row,
    read_robust,
    sentences,
    summary,
    write_robust,
)
from tests.lab.reports.folders import write_run, write_sweep


def measured(same=0.9, accuracy=0.6, data=TEST_DATA, weights="last"):
    """Rows as they are measured, with made-up numbers."""

    def row(change, along="", strength=0, unit="", accuracy=accuracy, same=same):
        band = (accuracy, accuracy - 0.01, accuracy + 0.01, same, same - 0.02, same + 0.02)
        return Row(change, along, strength, float(strength), unit, *band, 50, data, weights)

    rows = [row(UNCHANGED, accuracy=0.8, same=0.98)]
    rows += [row(MOVED, along, k, "pixels") for k in (1, 2, 3, 4) for along in ("height", "width")]
    for i, name in enumerate(("noise", "blur")):
        rows += [row(name, "", k, "pixels", accuracy=accuracy - i / 10) for k in range(1, 6)]
    rows += [row(RESIZED, "", 1, "times the size", accuracy=0.3)]
    return [*rows, row(EVERY_MOVE, "", 4, "pixels"), row(EVERY_CORRUPTION)]


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "robust.csv"
    write_robust(path, measured())
    assert read_robust(path) == measured()
    assert tuple(summary(measured())) == (0.9, 0.6)
    text = path.read_text()
    path.write_text(text.replace("0.8,", "many,", 1))
    with pytest.raises(DamagedFile, match=r"robust\.csv, line 2: column accuracy must be a number"):
        read_robust(path)
    path.write_text(text[: text.index(EVERY_MOVE)])
    with pytest.raises(DamagedFile, match=r"robust\.csv must have one line for every move"):
        read_robust(path)


@pytest.mark.parametrize(
    ("lost", "message"),
    [
        ("blur,,5", "a line for each strength of corruptions, in order"),
        ("noise,,2", "a line for each strength of corruptions, in order"),
        ("moved,height,3", "a line for each strength of moved, in order"),
        ("moved", "a line for each strength of moved, in order"),
        ("resized", "a line for resized"),
    ],
)
def test_a_file_that_lacks_lines_is_told(lost, message, tmp_path):
    write_run(tmp_path / "a")
    write_robust(path := tmp_path / "a/robust.csv", measured())
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.startswith(lost)))
    with pytest.raises(DamagedFile, match=rf"robust\.csv must have {message}"):
        page.write([tmp_path / "a"])


def test_in_words():
    assert sentences(measured()) == [
        "Moved by up to 4 pixels in every direction, 90.0 % (88.0 to 92.0) of the examples get the "
        "answer that they get unmoved",
        "Corrupted, the accuracy is 60.0 % (59.0 to 61.0), of 80.0 % as they are; least with blur: "
        "50.0 %",
        "The accuracy is 30.0 % at 1 times the size",
    ]


def test_a_run_has_two_figures_and_a_table(tmp_path):
    run = write_run(tmp_path / "a")
    assert "Moved and corrupted examples" not in page.render([run])
    write_robust(run / "robust.csv", measured(data="other <data>", weights="best"))
    html = page.render([run])
    assert "Moved and corrupted examples" in html
    assert all(sentence in html for sentence in sentences(measured()))
    assert 'aria-label="Accuracy on corrupted ones"' in html
    assert "moved by so many pixels" in html
    assert "other &lt;data&gt;, the epoch that was best on the test data" in html
    assert "<td>3 pixels</td><td>60.0 %</td><td>59.0 to 61.0 %</td><td>90.0 %</td>" in html


def test_runs_side_by_side_have_means_and_not_the_best(tmp_path):
    runs = [write_run(tmp_path / name) for name in "abc"]
    for run, same in zip(runs, (0.7, 0.9), strict=False):
        write_robust(run / "robust.csv", measured(same))
    html = page.render(runs)
    assert "Changed examples: mean ± sd over n runs" in html
    assert "Not on the test data" not in html
    head, *lines = compare(runs).splitlines()
    assert head.endswith("minutes  same when moved  corrupted")
    assert [line.split()[-4:] for line in lines[:2]] == [
        ["70.0", "%", "60.0", "%"],
        ["90.0", "%", "60.0", "%"],
    ]
    assert lines[2].endswith("–                –")
    assert "same when moved" not in compare(runs[2:])
    assert run_document(runs[0])["shift_consistency"] == 0.7
    assert run_document(runs[2])["shift_consistency"] is None


def test_the_table_of_a_sweep_has_means_over_seeds(tmp_path):
    folder = write_sweep(tmp_path / "sweep", [(2, 2), (2, 3)], {"ours": "diffstride"}, 2)
    text = write_tables(folder)
    assert "same when moved" not in text
    sweep = Sweep(folder)
    row, column = sweep.settings[0], sweep.columns[0]
    names = [e["name"] for e, run in sweep.begun() if (e["row"], e["column"]) == (row, column)]
    assert len(names) > 1
    shares = [0.5 + i / 10 for i in range(len(names))]
    for name, same in zip(names, shares, strict=True):
        write_robust(folder / name / "robust.csv", measured(same))
    text, mean = write_tables(folder), sum(shares) / len(shares)
    (line, *_) = [line for line in text.splitlines() if "same when moved" in line]
    assert line.split("moved")[1].split()[:2] == [f"{100 * mean:.1f}", "%"]
    with (folder / "table.csv").open() as file:
        cells = {(cell["row"], cell["column"]): cell for cell in csv.DictReader(file)}
    assert float(cells[row, column]["shift_consistency"]) == pytest.approx(100 * mean)
    assert {cell["shift_consistency"] for key, cell in cells.items() if key[0] != row} <= {
        "",
        cells[row, column]["shift_consistency"],  # of the mean over rows
    }
    html = page.render([folder])
    assert f"moved {100 * mean:.1f} % the same, corrupted 60.0 %" in html


def test_as_text_and_as_json():
    text = robust.as_text(measured())
    first = " ".join(text.splitlines()[1].split())
    assert first == "unchanged 80.0 % 79.0 to 81.0 % 98.0 % 96.0 to 100.0 %"
    assert all(sentence in text for sentence in sentences(measured()))
    found = json.loads(robust.as_json(measured()))
    assert (found["consistency"], found["corrupted"]) == (0.9, 0.6)
    assert found["rows"][0]["change"] == UNCHANGED
