"""The documentation names functions that exist, figures that are drawn, figures that are true."""

import importlib
import json
import random
import re
import shlex
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from PIL import Image, ImageSequence

from diffstride.lab.cli import COMMANDS
from diffstride.lab.training.command_line import read_recipe
from docs import cost, differences, figures, learning, resolution, results, search, shifts
from tests.lab.reports.folders import write_sweep

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
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
    windows = ("paper, R = 4", "tight, R = 1")
    rows = [
        {"network": n, "strides": f"{w}, {p}", "training step": 1.0 + i, "frozen": 0.5}
        for n in ("resnet18", "audio")
        for i, w in enumerate(windows)
        for p in ("after", "before")
    ]
    head, line, *body = cost.prices({"rows": rows}).splitlines()
    assert f"{head}\n{line}\n" in README
    assert body == ["| paper, R = 4 | 1 | 0.5 | 1 | 0.5 |", "| tight, R = 1 | 2 | 0.5 | 2 | 0.5 |"]


def test_prices_are_those_of_the_page_of_costs():
    """Both are rounded, README more."""
    found = re.search(r"<!-- network -->\n(.*?)\n\n", cost.PAGE.read_text(), re.DOTALL)
    head, _, *lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in found[1].splitlines()
    ]
    rows = [dict(zip(head, line, strict=True)) for line in lines]
    rows = [{**row, **{use: float(row[use]) for use in cost.USES}} for row in rows]
    place = re.search(r"<!-- prices -->\n(.*?)\n<!-- /prices -->", README, re.DOTALL)[1]
    made = cost.prices({"rows": rows}).splitlines()
    assert len(made) == len(place.splitlines()) > 3
    for ours, theirs in zip(place.splitlines()[2:], made[2:], strict=True):
        name, *numbers = (cell.strip() for cell in ours.strip("|").split("|"))
        other, *exact = (cell.strip() for cell in theirs.strip("|").split("|"))
        assert name == other
        assert list(map(float, numbers)) == pytest.approx(list(map(float, exact)), rel=0.02)


def test_readme_is_short():
    assert len(README.splitlines()) < 120


def test_commands_of_readme_are_understood():
    lines = re.findall(r"^diffstride (\w+) (.*)$", README, re.MULTILINE)
    assert len(lines) > 4
    for command, rest in lines:
        assert command in COMMANDS
        if command in ("train", "search"):
            recipe, _ = read_recipe(command, shlex.split(rest, comments=True))
            assert recipe
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {"demo", "test"} <= set(re.findall(r"`make (\w+)`", README)) <= set(targets)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_modules_that_pages_run_exist(page):
    for name in re.findall(r"python -m ((?:docs|benchmarks)\.\w+)", page.read_text()):
        assert find_spec(name), name


def test_the_moving_picture_is_of_a_training(tmp_path):
    """A short one on few digits: two frames, from the same numbers each time."""
    first, last = moments = learning.train(epochs=1, every=2, number=2 * learning.BATCH)
    assert (first.step, last.step) == (0, 2)
    assert [size for found in moments for size in map(learning.size_of, found.maps)][:3] == [
        "32×32"
    ] * 3
    assert all(stride > 1 for axes in last.strides for stride in axes)
    assert last.macs < first.macs
    again = learning.train(epochs=1, every=2, number=2 * learning.BATCH)[-1]
    assert all(map(torch.equal, again.maps, last.maps))
    assert again._replace(maps=last.maps) == last
    learning.write(moments, tmp_path)
    drawn = {path.name for path in tmp_path.iterdir()}
    assert drawn == {"learning-light.gif", "learning-dark.gif", "learning.png"}
    for theme in learning.THEMES:
        with Image.open(tmp_path / f"learning-{theme}.gif") as picture:
            before, after = (frame.convert("RGB") for frame in ImageSequence.Iterator(picture))
        assert before.size == after.size
        assert before.tobytes() != after.tobytes()


def test_the_moving_picture_is_small_and_told_as_it_was_drawn():
    found = json.loads((learning.FOLDER / "learning.json").read_text())
    assert f"<!-- learning -->\n{learning.caption(found)}\n<!-- /learning -->" in README
    for theme in learning.THEMES:
        path = learning.FOLDER / f"learning-{theme}.gif"
        assert path.stat().st_size < 1.5e6
        with Image.open(path) as picture:
            assert picture.n_frames == 1 + -(-found["steps"] // learning.EVERY)


MEASURED = sorted(results.DATA.glob("*.csv"))
OTHERS = {  # by how the names of their files begin: the place of a table, and what makes it
    "signals": ("signals", results.on_signals),
    "held_out": ("held_out", results.held_out),
    "resolution": ("resolution", resolution.table),
    "early": ("early", resolution.early),
    "search": ("search", results.searches),
    "rates": ("rates", results.learning_rates),
    "shifts": ("shifts", shifts.tables),
    **{kind: (kind, partial(results.listed, name)) for kind, name in results.LISTS.items()},
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


def test_ways_to_downsample_are_in_the_order_of_what_stays_the_same():
    shares = {name: "50" for name in shifts.HEAD}
    lines = [
        shares | {"column": way, "same": same}
        for way, same in [("blur", "95"), ("strided", "80"), ("blur", "97"), ("strided", "99")]
    ]
    assert [*shifts.in_order(lines)] == ["strided", "blur"]  # by the mean, and not the best
    *_, first, second = shifts.table(lines).splitlines()
    assert first.startswith("| strided | 50.0 | 50.0 ± 0.0 | 89.5 ± 13.4 |")
    assert second.startswith("| blur | 50.0 | 50.0 ± 0.0 | 96.0 ± 1.4 |")


def test_ways_of_learning_strides_are_shown_as_they_were_measured():
    page = (results.ROOT / "docs/results.md").read_text()
    assert f"<!-- estimators -->\n{results.estimators()}\n<!-- /estimators -->" in page


def test_lengths_of_trials_are_shown_as_they_were_measured():
    page = (results.ROOT / "docs/results.md").read_text()
    assert f"<!-- trial_length -->\n{results.trial_length()}\n<!-- /trial_length -->" in page


def test_searches_at_several_costs_are_shown_once_they_were_measured():
    page = (results.ROOT / "docs/results.md").read_text()
    made = results.search_budgets()
    assert f"<!-- search_budgets -->\n{made}\n<!-- /search_budgets -->" in page
    assert bool(made) == (results.DATA / "search_budgets.svg").exists()


def study(accuracies, mmacs=("8.000",)):
    """A study of runs by row, column and seed, with costs in turn."""
    lines = [
        {"run": f"{column}-{row}-{seed}", "row": row, "column": column, "seed": str(seed)}
        | {"accuracy": str(value), "mmacs": mmacs[i % len(mmacs)], "minutes": "3"}
        | {"accuracies": "7.1 8.2" if column == "trials" else "5.0 6.0 7.0 8.0"}
        for i, ((row, column, seed), value) in enumerate(accuracies.items())
    ]
    return search.Study("task", lines, 8.0)


STUDY = study(
    {
        ("a", "fixed", 0): 50.0,
        ("b", "fixed", 0): 40.0,
        ("a", "fixed", 1): 54.0,
        ("b", "fixed", 1): 44.0,
        ("a", "gradient", 0): 51.0,
        ("b", "gradient", 0): 40.0,
        ("best of the trials", "fixed", 0): 53.0,
        ("best of the trials", "fixed", 1): 55.0,
        ("a", "search", 0): 53.0,
        ("b", "search", 0): 51.0,
        ("a", "search", 1): 55.0,
        ("b", "search", 1): 53.0,
        ("trial 1", "trials", 0): 9.0,
        ("random 1", "held_out", 0): 47.0,
        ("best of the trials, another seed", "fixed", 100): 50.0,
        ("best of 8 random", "fixed", 1): 49.0,
        ("best of 2 random", "fixed", 1): 48.0,
    },
    ("8.000", "7.920"),
)


def test_the_tables_of_a_search_are_what_one_finds_by_hand():
    """Runs are missing: of learned strides a seed, of what was chosen at random another."""
    began, found, better, learned = (
        make([STUDY]).splitlines()
        for make in (
            search.of_beginnings,
            search.of_searches,
            search.differences,
            search.of_learned,
        )
    )
    assert began[2] == "| task | 52.0, 42.0 | 47.0 | 10.0 | 54.0, 52.0 | 53.0 | 2.0 | +2.0 |"
    assert found[0].endswith("| the same, another seed | best of 2 random | best of 8 random |")
    assert found[2] == "| task | 52.0 | 54.0 ± 1.4 | 50.0 | 48.0 | 49.0 |"
    # 52 − 45 and 54 − 49: 6 ± 12.706 · √2 / √2
    assert better[2] == "| task | +6.0 (−6.7 to +18.7) | – | – |"
    assert len(better) == 3
    assert learned[2:] == ["| task | a | 51.0 | −1.0 |", "| task | b | 40.0 | −2.0 |"]
    assert search.note([STUDY]) == (
        "17 runs, seeds 0, 1, 0.8 hours of one core. All networks cost what their budget says to "
        "1.0 %. A search took as long as 2.5 trainings, before the last one."
    )


def test_differences_over_all_tasks_are_those_of_all_pairs():
    last = search.differences([STUDY, STUDY]).splitlines()[-1]
    # 7, 5, 7, 5: 6 ± 3.182 · √(4 / 3) / 2; and of one pair in each study, twice the same
    assert last.startswith("| all | **+6.0 (+4.2 to +7.8)**, better in 4 of 4 |")
    # 54 − 49, twice
    assert "**+5.0 (+5.0 to +5.0)**, better in 2 of 2" in last


def test_a_study_of_which_little_is_there_is_told_all_the_same():
    begun = study({("a", "fixed", 0): 50.0})
    assert "| task | 50.0 | 50.0 | 0.0 | – | – | – | – |" in search.tables({"pitch": begun})
    assert "| task | 50.0 | – | – |" in search.tables({"pitch": begun})
    assert search.draw({"pitch": begun, "fsdd": STUDY}).axes
    assert search.tables({}) == search.budget_tables({}) == ""


def test_searches_at_several_costs_are_told_by_cost():
    budgets = {"pitch": [STUDY._replace(mmacs=4.0), STUDY]}
    *_, half, whole, _, figure = search.budget_tables(budgets).splitlines()
    assert half == "| task | 4 | 52.0 ± 2.8 | 54.0 ± 1.4 |"
    assert whole == "| task | 8 | 52.0 ± 2.8 | 54.0 ± 1.4 |"
    assert "(results/search_budgets.svg)" in figure
    (ax,) = search.draw_budgets(budgets).axes
    assert [text.get_text() for text in ax.get_xticklabels()] == ["4", "8"]


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
    assert results.name_of(tmp_path) == tmp_path.name
    # Strides that are fixed are those of the settings; a grid or a study has its own name.
    (tmp_path / "sweep.json").write_text(
        json.dumps({"runs": runs, **told, "table": "search-x", "scale": "own"})
    )
    done = tmp_path / "done"
    (done / "strides.csv").write_text("")
    settings = (done / "config.yaml").read_text().replace("diffstride", "spectral")
    strides = "\n  strides:\n  - 1.98\n  - 1.0\ntrainer"
    (done / "config.yaml").write_text(settings.replace("\ntrainer", strides))
    (found,) = results.collect(tmp_path)
    assert (found["strides"], found["cutoffs"]) == ("1.98 1", "")
    assert results.name_of(tmp_path) == "search-x"


def test_runs_that_take_noise_away_are_collected_by_psnr(tmp_path):
    columns = {"strided": "strided", "diffstride": "diffstride"}
    folder = write_sweep(tmp_path / "s", [(2.0, 3.0), (3.0, 2.0)], columns, 2, noise=0.1)
    lines = results.collect(folder)
    assert (lines[0]["psnr"], lines[0]["psnrs"].split()[-1]) == ("15.00", "15.00")
    assert not {"accuracy", "accuracies"} & set(lines[0])
    found = results.table(lines).splitlines()
    assert found[2].startswith("| (2, 3) | 15.15 ± 0.21 (")
    assert found[4] == "| max − min of means | 0.60 | 0.60 |"
    assert found[5] == "| by chance alone | 0.00 | 0.00 |"  # seeds are as far apart everywhere


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
    text = page.read_text()
    pictures = re.findall(r'<(?:img|source)\b[^>]* (?:src|srcset)="([^"]+)"', text)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) + pictures:
        if "://" not in target:
            assert (page.parent / target).exists(), target
