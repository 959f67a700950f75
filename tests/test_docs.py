"""The documentation names functions that exist, figures that are drawn, figures that are true."""

import importlib
import json
import random
import re
from pathlib import Path

import pytest

from docs import cost, differences, figures, resolution, results

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
    rows = [{"table": "conv", "ratio": 9.87654, "other": 1.0}]
    (tmp_path / "conv.json").write_text(json.dumps({**record, "rows": rows}))
    (tmp_path / "layer.json").unlink()  # what was not measured again stays as it is
    again = cost.written(page, tmp_path)
    assert "| conv | 9.88 | 1 |" in again
    assert "| layer | 1.23 | – |" in again


def test_the_table_of_prices_has_every_window_once():
    readme = (ROOT / "README.md").read_text()
    windows = ("paper, R = 4", "tight, R = 1")
    rows = [
        {"network": n, "strides": f"{w}, {p}", "training step": 1.0 + i, "frozen": 0.5}
        for n in ("resnet18", "audio")
        for i, w in enumerate(windows)
        for p in ("after", "before")
    ]
    head, line, *body = cost.prices({"rows": rows}).splitlines()
    assert f"{head}\n{line}\n" in readme
    assert body == [
        "| paper, R = 4 | 1 | 1 | 0.5 | 0.5 | 1 | 1 | 0.5 | 0.5 |",
        "| tight, R = 1 | 2 | 2 | 0.5 | 0.5 | 2 | 2 | 0.5 | 0.5 |",
    ]


MEASURED = sorted(results.DATA.glob("*.csv"))
OTHERS = {  # by how the names of their files begin: the place of a table, and what makes it
    "signals": ("signals", results.on_signals),
    "held_out": ("held_out", results.held_out),
    "resolution": ("resolution", resolution.table),
    "early": ("early", resolution.early),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_tables_of_their_own_kind_say_what_was_measured(kind):
    assert set(OTHERS) == set(results.OTHERS)
    files = [path for path in MEASURED if path.stem.startswith(kind)]
    assert files
    if kind != "resolution":
        assert all(path.with_suffix(".toml").exists() for path in files)
    name, make = OTHERS[kind]
    pages = "\n".join(page.read_text() for page in results.PAGES)
    assert pages.count(f"<!-- {name} -->\n{make()}\n<!-- /{name} -->") == 1


def test_the_figure_of_resolution_has_a_line_for_each_task():
    assert all(len(ax.lines) == 4 for ax in resolution.draw().axes)  # and one at 99 %
    assert "(results/resolution.svg)" in (results.ROOT / "docs/audio.md").read_text()


@pytest.mark.parametrize(
    "path",
    [path for path in MEASURED if not path.stem.startswith(results.OTHERS)],
    ids=lambda path: path.stem,
)
def test_the_pages_say_what_was_measured(path):
    """Tables and figures are made of the runs beside them, which name a setting each."""
    pages, lines = "\n".join(page.read_text() for page in results.PAGES), results.rows(path)
    assert len({line["run"] for line in lines}) == len(lines) > 5
    compared = path.stem.partition("-")[0]
    if compared in results.COMPARISONS:
        name, made = compared, results.compared(compared)
        assert (results.DATA / f"{path.stem}.toml").exists()
    else:
        name, made = path.stem, results.TABLES.get(path.stem, results.table)(lines)
        for figure, draw in results.FIGURES[path.stem].items():
            assert f"(results/{figure}.svg)" in pages
            assert draw(lines).axes
    assert pages.count(f"<!-- {name} -->\n{made}\n<!-- /{name} -->") == 1


def test_the_figure_of_a_changing_smoothness_has_both_datasets():
    figure = results.draw_anneal()
    assert [ax.get_title() for ax in figure.axes[:2]] == ["digits", "Fashion-MNIST"]
    assert all(len(ax.lines) == 3 for ax in figure.axes)


def test_chance_alone_spreads_means():
    """By hand: the second seed is 4 better, and ±1 is left, squared and summed 4 with 1 freedom."""
    found = [[{"accuracy": a}, {"accuracy": b}] for a, b in (("50", "52"), ("60", "66"))]
    assert results.chance(found) == f"{1.128 * (4 / 2) ** 0.5:.1f}"
    equal = [[{"accuracy": a}, {"accuracy": b}] for a, b in (("50", "54"), ("60", "64"))]
    assert results.chance(equal) == "0.0"
    assert results.chance([runs[:1] for runs in found]) == "–"


def test_chance_alone_is_what_equal_settings_show():
    draw = random.Random(0)
    widths, told = [], []
    for _ in range(400):
        seeds = [draw.gauss(60, 5) for _ in range(3)]
        values = [[seed + draw.gauss(0, 1) for seed in seeds] for _ in range(6)]
        means = [sum(own) / 3 for own in values]
        widths.append(max(means) - min(means))
        found = [[{"accuracy": str(value)} for value in own] for own in values]
        told.append(float(results.chance(found)))
    assert sum(told) / 400 == pytest.approx(sum(widths) / 400, rel=0.05)


def test_finished_runs_of_a_sweep_are_collected(tmp_path):
    runs = [
        {"name": name, "row": "(2, 2)", "column": "diffstride", "seed": 0}
        for name in ("done", "begun", "planned")
    ]
    told = dict.fromkeys(("table", "title", "scale"), "")
    told |= {name: [] for name in ("seeds", "rows", "columns")}
    (tmp_path / "sweep.json").write_text(json.dumps({"runs": runs, **told}))
    for name, epochs in (("done", 2), ("begun", 1)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.yaml").write_text(
            "model:\n  downsampling: diffstride\ntrainer:\n  epochs: 2\n"
        )
        metrics = "".join(f"{i + 1},0.{i + 5},0.25,7.5\n" for i in range(epochs))
        (folder / "metrics.csv").write_text("epoch,test_accuracy,stride_penalty,mmacs\n" + metrics)
        (folder / "times.csv").write_text("epoch,step,seconds\n1,9,30\n2,18,60\n")
        strides = "epoch,layer,axis,stride\n1,a,0,2.5\n1,a,1,9\n2,a,0,1.5\n2,a,1,3.25\n"
        (folder / "strides.csv").write_text(strides)
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
