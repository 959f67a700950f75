"""The report says where computation would be spent next, as far as the files of runs tell."""

import pytest

from diffstride.lab.reports import trade_offs
from diffstride.lab.reports.chapters import collect
from diffstride.lab.reports.page import render
from diffstride.lab.reports.run_reader import RunRecord
from tests.lab.reports.folders import write_run, write_sweep

# What is saved in per cent, and the gradient of the loss with its error.
CELLS = {
    (0, 0): "0.5,0.2,0.05",
    (0, 1): "0.25,0.4,0.01",
    (1, 0): "0.1,0.3,0.4",  # the most for its cost, if it were not chance
    (1, 1): "0.2,-0.1,0.02",
}


def section(*folders):
    (chapter,) = collect(folders)
    return trade_offs.what_strides_buy(chapter)


def test_rows_are_what_a_per_cent_does_the_best_bargain_first(tmp_path):
    made = section(write_run(tmp_path / "a", trade_offs=CELLS))
    (table,) = made.blocks
    # A hundredth of the gradient, in thousandths; then divided by what is saved.
    assert table["rows"] == [
        ["stages.1.down", "height", "4.00", "0.10", "+3.0 ± 4.0", "+30 ± 40"],
        ["stages.0.down", "width", "1.55", "0.25", "+4.00 ± 0.10", "+16.00 ± 0.40"],
        ["stages.0.down", "height", "1.50", "0.50", "+2.00 ± 0.50", "+4.0 ± 1.0"],
        ["stages.1.down", "width", "4.05", "0.20", "−1.00 ± 0.20", "−5.0 ± 1.0"],
    ]
    best = "Make the stride of stages.0.down (width) smaller first: it has the most benefit"
    assert made.text.startswith(best)
    assert "penalties included" in made.text


@pytest.mark.parametrize(
    ("change", "advice"),
    [
        ({k: "0.5,0.2,0.11" for k in CELLS}, "What strides add to the loss is within twice its"),
        ({k: "0.5,0.2," for k in CELLS}, "What strides add to the loss is within twice its"),
        ({k: "0.5,0.2,0.1" for k in CELLS}, "What strides add to the loss is within twice its"),
        ({k: "0.0,0.2,0.01" for k in CELLS}, "What strides add to the loss is within twice its"),
        (
            {k: "0.5,-0.2,0.01" for k in CELLS} | {(1, 0): "0.5,-0.3,0.01"},
            "No smaller stride is known to lower the loss, a larger one is: make the stride of "
            "stages.1.down (height) larger first",
        ),
    ],
)
def test_advice_is_given_where_it_is_more_than_chance(tmp_path, change, advice):
    assert section(write_run(tmp_path / "a", trade_offs=change)).text.startswith(advice)


def test_axes_that_share_a_stride_have_one_row(tmp_path):
    cells = {(0, 0): "0.5,0.2,0.05", (0, 1): ",,", (1, 0): "0.25,0.4,0.01", (1, 1): ",,"}
    made = section(write_run(tmp_path / "a", trade_offs=cells))
    (table,) = made.blocks
    assert [row[:2] for row in table["rows"]] == [
        ["stages.1.down", "all"],
        ["stages.0.down", "all"],
    ]
    assert "the stride of stages.1.down (all axes) smaller first" in made.text


def test_seeds_of_a_cell_are_averaged(tmp_path):
    sweep = write_sweep(tmp_path / "s", [(2.0, 3.0)], {"b": "diffstride"}, 4, trade_offs=CELLS)
    (table,) = section(sweep).blocks
    # Four independent runs that say the same: half the error.
    assert table["rows"][1][3:] == ["0.25", "+4.000 ± 0.050", "+16.00 ± 0.20"]


def test_each_of_several_runs_has_its_table_and_many_are_folded(tmp_path):
    runs = [write_run(tmp_path / name, trade_offs=CELLS) for name in "abcd"]
    made = section(*runs[:2])
    assert made.text == trade_offs.EXPLANATION
    assert [block["caption"][:14] for block in made.blocks] == ["a: make the st", "b: make the st"]
    assert not any(block["folded"] for block in made.blocks)
    assert all(block["folded"] for block in section(*runs).blocks)


def test_older_runs_and_those_that_have_just_begun_have_no_such_section(tmp_path):
    old = write_run(tmp_path / "old")
    begun = write_run(tmp_path / "begun", done=0, trade_offs=CELLS)
    fixed = write_run(tmp_path / "fixed", trade_offs={k: "0.5,," for k in CELLS})
    none = write_run(tmp_path / "none", downsampling="strided")
    for folder in (old, begun, fixed, none):
        assert "What a per cent of stride buys" not in render([folder]), folder.name
    both = render([old, write_run(tmp_path / "new", trade_offs=CELLS)])
    assert both.count("stages.0.down (width) smaller first") == 1


def test_the_reader_gives_what_the_file_has(tmp_path):
    cells = CELLS | {(0, 0): "0.5,nan,0.1", (0, 1): "0.5,1e308,1e308", (1, 0): "1e-300,2.0,"}
    run = write_run(tmp_path / "a", trade_offs=cells)
    first, second, third, _ = RunRecord(run).strides
    assert first[4:7] == (0.5, None, 0.1)
    assert second[4:7] == (0.5, 1e308, 1e308)
    assert third[4:7] == (1e-300, 2.0, None)
    assert "inf" in render([run])  # whatever it is, the page is made
    old = RunRecord(write_run(tmp_path / "old")).strides[0]
    assert old[4:8] == (None,) * 4
