"""The documentation names functions that exist, figures that are drawn, figures that are true."""

import importlib
import json
import re
from pathlib import Path

import pytest

from docs import cost, differences, figures

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
    assert page.count("beads. Medians of 3 rounds on abacus, 2 threads, torch 9.9. A quick") == 7
    (tmp_path / "conv.json").unlink()
    with pytest.raises(
        SystemExit, match=r"conv.json does not exist: run python -m benchmarks.conv"
    ):
        cost.written(page, tmp_path)


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
