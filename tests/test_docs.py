"""The documentation names functions that exist, figures that are drawn, figures that are true."""

import importlib
import re
from pathlib import Path

import pytest

from docs import differences, figures

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
    assert drawn == {path.name for path in (ROOT / "docs/figures").iterdir()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_within_the_repository_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target
