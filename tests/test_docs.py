"""The documentation names functions that exist, figures that are drawn, figures that are true."""

import importlib
import json
import re
from pathlib import Path

import pytest

from docs import cost, differences, figures, results

ROOT = Path(__file__).parents[1]
MATHS = (ROOT / "docs/maths.md").read_text()
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])


NAMES = sorted(set(re.findall(r"`((?:core|layers|tools)\.[\w.]+)`", MATHS)))


@pytest.mark.parametrize("name", NAMES)
def test_every_function_named_in_the_maths_exists(name):
    module, _, function = name.rpartition(".")
    assert getattr(importlib.import_module(f"diffstride.{module}"), function)


@pytest.mark.parametrize("table", [differences.effects, differences.consequences])
def test_the_tables_are_what_the_command_prints(table):
    assert "\n".join(table()) in MATHS


def test_every_figure_is_drawn_and_shown(tmp_path):
    figures.main(tmp_path)
    drawn = {path.name for path in tmp_path.iterdir()}
    assert drawn == set(re.findall(r"\(figures/([\w.]+)\)", MATHS))
    assert drawn == {path.name for path in (ROOT / "docs/figures").iterdir()} - {"cost.svg"}


def test_the_page_of_costs_is_written_from_what_was_measured(tmp_path):
    conditions = {"cpu": "abacus", "threads": 2, "torch": "9.9"}
    record = {"conditions": conditions, "quick": True, "rounds": 3, "note": "beads"}
    for name in cost.TABLES:
        rows = [{"table": name, "ratio": 1.23456, "other": float("nan")}]
        (tmp_path / f"{name}.json").write_text(json.dumps({**record, "rows": rows}))
    page = cost.written(cost.PAGE.read_text(), tmp_path)
    for name in cost.TABLES:
        assert f"| {name} | 1.23 | – |" in page
    assert page.count("beads. Medians of 3 rounds on abacus, 2 threads, torch 9.9. A quick") == len(
        cost.TABLES
    )
    (tmp_path / "conv.json").unlink()
    with pytest.raises(
        SystemExit, match=r"conv.json does not exist: run python -m benchmarks.conv"
    ):
        cost.written(page, tmp_path)


@pytest.mark.parametrize("path", sorted(results.DATA.glob("*.csv")), ids=lambda path: path.stem)
def test_the_page_of_results_says_what_was_measured(path):
    """Its table and its figure are made of the runs beside them, which name a setting each."""
    page, lines = results.PAGE.read_text(), results.rows(path)
    assert f"<!-- {path.stem} -->\n{results.table(lines)}\n<!-- /{path.stem} -->" in page
    assert f"(results/{path.stem}.svg)" in page
    assert len({line["run"] for line in lines}) == len(lines) > 10
    assert results.FIGURES[path.stem](lines).axes


def test_finished_runs_of_a_sweep_are_collected(tmp_path):
    runs = [
        {"name": name, "row": "(2, 2)", "column": "diffstride", "seed": 0}
        for name in ("done", "begun", "planned")
    ]
    (tmp_path / "sweep.json").write_text(json.dumps({"runs": runs}))
    for name, epochs in (("done", 2), ("begun", 1)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.yaml").write_text("trainer:\n  epochs: 2\n")
        metrics = "".join(f"{i + 1},0.{i + 5},0.25,7.5\n" for i in range(epochs))
        (folder / "metrics.csv").write_text("epoch,test_accuracy,stride_penalty,mmacs\n" + metrics)
        (folder / "times.csv").write_text("epoch,step,seconds\n1,9,30\n2,18,60\n")
        (folder / "strides.csv").write_text("epoch,stride\n1,2.5\n2,1.5\n2,3.25\n")
    (found,) = results.collect(tmp_path)
    assert found["run"] == "done"
    assert (found["accuracy"], found["mmacs"], found["J"]) == ("60.00", "7.500", "0.2500")
    assert (found["strides"], found["minutes"]) == ("1.50 3.25", "1.50")


def test_the_figure_of_costs_has_every_contender():
    times = {"diffstride": 2.0, "textbook": 8.0, "avg_pool": 1.0, "strided conv": 3.0}
    rows = [
        {"varied": varied, "value": value, **times}
        for varied in ("side", "channels", "batch")
        for value in (16, 32)
    ]
    figure = cost.draw({"rows": rows})
    for ax in figure.axes:
        assert {line.get_label() for line in ax.lines} == set(times)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_within_the_repository_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target
