"""The table of a sweep says what its runs' files say, in the paper's layout."""

import csv
import json

import pytest

from diffstride.lab.cli import main
from diffstride.lab.reports.tables import write_tables


def run(
    folder,
    accuracy,
    *,
    epochs=2,
    told=2,
    mmacs=10.0,
    budget=None,
    strides=None,
    facts=None,
    **metrics,
):
    """A run of some epochs of those that it was told, whose last one is the accuracy."""
    folder.mkdir(parents=True)
    config = {
        "model": {"downsampling": "diffstride", "name": "resnet18", "width": 0.125},
        "data": {"path": "/somewhere/pack", "batch_size": 32},
        "macs_budget": budget,
        "trainer": {"epochs": told},
    }
    (folder / "config.yaml").write_text(json.dumps(config))
    (folder / "data.json").write_text(json.dumps(facts or {"train": 100, "test": 50}))
    columns = {"test_accuracy": accuracy, "mmacs": mmacs, "stride_penalty": 0.25, **metrics}
    lines = [",".join(["epoch", *columns])]
    for epoch in range(1, epochs + 1):
        values = columns.values() if epoch == epochs else [0.1] * len(columns)
        lines.append(",".join(map(str, [epoch, *values])))
    (folder / "metrics.csv").write_text("\n".join(lines) + "\n")
    (folder / "times.csv").write_text("epoch,step,seconds\n1,10,90\n2,20,5\n")
    if strides is not None:
        lines = ["epoch,step,layer,axis,stride,input_size,output_size"]
        for epoch, pair in enumerate(strides):
            for layer in "xy":
                lines += [f"{epoch},0,{layer},{a},{s},100,50" for a, s in enumerate(pair)]
        (folder / "strides.csv").write_text("\n".join(lines) + "\n")


def document(runs, rows, columns, paper=None, **more):
    entries = [
        {"name": name, "row": row, "column": column, "seed": int(name[-1]), **others}
        for name, row, column, others in runs
    ]
    return {
        "table": "toy",
        "title": "Toy & <co>",
        "scale": "small",
        "seeds": sorted({entry["seed"] for entry in entries}),
        "rows": rows,
        "columns": columns,
        "column_titles": {column: column.title() for column in columns},
        "runs": entries,
        "paper": paper or {},
        **more,
    }


@pytest.fixture
def folder(tmp_path):
    """Two settings, two methods, two seeds; one run half way and one that has not begun."""
    runs = [
        (f"{column}-{row}-s{seed}", f"({row})", column, {})
        for column in ("strided", "diffstride")
        for row in (2, 3)
        for seed in (0, 1)
    ]
    paper = {"(2)": {"strided": [91.4, 0.2]}, "Mean accuracy": {"strided": [87.7, 3.4]}}
    plan = document(runs, ["(2)", "(3)"], ["strided", "diffstride"], paper)
    (tmp_path / "sweep.json").write_text(json.dumps(plan))
    for i, name in enumerate(("strided-2-s0", "strided-2-s1", "strided-3-s0", "strided-3-s1")):
        run(tmp_path / name, 0.5 + i / 10, mmacs=8 + i, stride_penalty=0.0)
    run(tmp_path / "diffstride-2-s0", 0.9, budget=9.8)
    run(tmp_path / "diffstride-2-s1", 0.3, epochs=1)
    run(tmp_path / "diffstride-3-s0", 0.7, budget=8.0)
    return tmp_path


def test_the_table_has_means_deviations_the_paper_and_the_price(folder, capsys):
    assert main(["table", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Toy & <co>: test accuracy in percent")
    assert lines[2:13] == [
        "               Strided      Diffstride",
        "(2)            55.0 ± 7.1   90.0 (n = 1)",
        "  paper        91.4 ± 0.2   –",
        "  M MACs       8.5          10",
        "  s per step   0.5          0.5",
        "(3)            75.0 ± 7.1   70.0 (n = 1)",
        "  M MACs       10.5         10",
        "  s per step   0.5          0.5",
        "Mean accuracy  65.0 ± 12.9  80.0 ± 14.1 (n = 2)",
        "  paper        87.7 ± 3.4   –",
        "  M MACs       9.5          10",
    ]
    assert lines[14] == "Max − min      20.0         20.0"
    assert lines[16] == (
        "Scale small, n = 2 (seeds 0, 1), data pack (100 examples to train on, 50 to test on), "
        "resnet18, width 0.125, batches of 32, epochs: 2."
    )
    assert lines[18:] == [
        "Budgets are above the cost of Strided where learnable strides can't cost as little: "
        "(2) 15%.",
        "Over their budgets by more than a twentieth, in M MACs: diffstride-3-s0 10 of 8.",
        "6 of 8 runs are finished; missing: diffstride-2-s1 (1 of 2 epochs), diffstride-3-s1.",
    ]


def test_the_paper_has_a_spread_where_it_has_every_row(folder):
    plan = json.loads((folder / "sweep.json").read_text())
    plan["paper"]["(3)"] = {"strided": [82.0, 0.6]}
    (folder / "sweep.json").write_text(json.dumps(plan))
    for path in (folder / "diffstride-3-s0").iterdir():
        path.unlink()
    lines = write_tables(folder).splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("Max − min"))
    assert [line.split()[-2:] for line in lines[at : at + 2]] == [["20.0", "–"], ["9.4", "–"]]


def test_the_same_is_written_as_csv_markdown_and_latex(folder):
    write_tables(folder)
    with (folder / "table.csv").open() as file:
        rows = {(row["row"], row["column"]): row for row in csv.DictReader(file)}
    assert len(rows) == 3 * 2
    cell = rows["(2)", "strided"]
    assert (cell["n"], cell["paper_mean"], cell["paper_sd"]) == ("2", "91.4", "0.2")
    assert float(cell["mean"]) == pytest.approx(55)
    assert float(cell["sd"]) == pytest.approx(50**0.5)
    assert (cell["mmacs"], cell["seconds_per_step"]) == ("8.5", "0.5")
    assert cell["penalty"] == ""  # of strides that are not learned, nobody has told it
    assert rows["(2)", "diffstride"]["penalty"] == "0.25"
    cell = rows["(3)", "diffstride"]
    assert (cell["n"], cell["sd"], cell["paper_mean"]) == ("1", "", "")
    page = (folder / "table.md").read_text()
    assert page.startswith("**Toy & &lt;co>: test")
    assert (
        "|  | Strided | Diffstride |\n|---|---:|---:|\n| (2) | 55.0 ± 7.1 | 90.0 (n = 1) |" in page
    )
    assert "| &emsp;paper | 91.4 ± 0.2 | – |" in page
    paper = (folder / "table.tex").read_text()
    assert r"(2) & 55.0 $\pm$ 7.1 & 90.0 (n = 1) \\" in paper
    assert r"\quad paper & 91.4 $\pm$ 0.2 & -- \\" in paper
    assert r"\caption{Toy \& <co>" in paper
    assert paper.count("{") == paper.count("}")


def test_a_network_for_several_tasks_has_a_row_for_each(tmp_path):
    tasks = {"Words": "test_accuracy_words", "Birds": "test_accuracy_birds"}
    runs = [
        ("single-words-s0", "Words", "diffstride", {}),
        ("multi-s0", "Mean accuracy", "multi_diffstride", {"tasks": tasks}),
    ]
    first = {"Words": {"strides": [[1.5, 0.1], [2, 0]], "cutoffs": [[33, 1], [0.25, 0]]}}
    columns = ["diffstride", "multi_diffstride"]
    plan = document(runs, ["Words", "Birds", "Mean accuracy"], columns, paper_first_strides=first)
    (tmp_path / "sweep.json").write_text(json.dumps(plan))
    facts = {"train": 9, "test": 9, "size": [1, 100, 100], "sampling_rate": [100, 1]}
    strides = [(2, 2), (2.5, 4)]
    run(tmp_path / "single-words-s0", 0.8, strides=strides, facts=facts)
    several = {"test_accuracy_words": 0.6, "test_accuracy_birds": 0.5}
    run(tmp_path / "multi-s0", 0.55, strides=strides, facts=facts, **several)
    lines = write_tables(tmp_path).splitlines()
    assert "Words          80.0        60.0" in lines
    assert "Birds          –           50.0" in lines
    assert "Mean accuracy  80.0        55.0 ± 7.1" in lines
    at = next(i for i, line in enumerate(lines) if line.startswith("Strides of the first layer"))
    assert [line.split() for line in lines[at + 2 : at + 6]] == [
        ["Words", "2.50", "4.00", "20.00", "0.1250"],
        "paper 1.50 ± 0.10 2.00 ± 0.00 33.00 ± 1.00 0.2500 ± 0.0000".split(),
        ["Birds", "–", "–", "–", "–"],
        ["Network", "for", "all", "tasks", "2.50", "4.00", "20.00", "0.1250"],
    ]


def test_methods_with_other_windows_are_named(tmp_path):
    runs = [("learned-s0", "(2)", "learned", {}), ("budget-s0", "(2)", "budget", {})]
    plan = document(runs, ["(2)"], ["learned", "budget"])
    (tmp_path / "sweep.json").write_text(json.dumps(plan))
    for name, *_ in runs:
        run(tmp_path / name, 0.5)
    assert "Windows differ" not in write_tables(tmp_path)
    path = tmp_path / "budget-s0" / "config.yaml"
    config = json.loads(path.read_text())
    config["model"] |= {"smoothness": 1.0, "convention": "symmetric"}
    path.write_text(json.dumps(config))
    assert (
        "Windows differ. Learned: R = 4, paper convention; Budget: R = 1, symmetric convention."
        in write_tables(tmp_path).splitlines()
    )


def test_top_5_has_a_table_of_its_own(tmp_path):
    paper = {"(2)": {"strided": [68.65, 0.26]}}
    top5 = {"(2)": {"strided": [88.5, 0.15]}}
    runs = [("strided-2-s0", "(2)", "strided", {})]
    plan = document(runs, ["(2)"], ["strided"], paper, paper_top5=top5)
    (tmp_path / "sweep.json").write_text(json.dumps(plan))
    run(tmp_path / "strided-2-s0", 0.5, test_top5=0.75)
    lines = write_tables(tmp_path).splitlines()
    assert lines[lines.index("Top-1") + 2 :][:2] == [
        "(2)           50.00",
        "  paper       68.65 ± 0.26",
    ]
    assert lines[lines.index("Top-5") + 2 :][:2] == [
        "(2)           75.00",
        "  paper       88.50 ± 0.15",
    ]


def test_the_regulariser_is_shown_where_it_is_varied(tmp_path):
    runs = [
        ("diffstride-lambda1-s0", "λ = 1", "diffstride", {}),
        ("strided-2-s0", "(2)", "strided", {"penalty": 0.75}),
    ]
    plan = document(runs, ["λ = 1", "(2)"], ["strided", "diffstride"])
    (tmp_path / "sweep.json").write_text(json.dumps(plan))
    for name, *_ in runs:
        run(tmp_path / name, 0.5)
    lines = write_tables(tmp_path).splitlines()
    assert [line.split() for line in lines if line.startswith("  J")] == [
        ["J", "–", "0.25"],
        ["J", "0.75", "–"],
    ]
    assert not any(line.startswith("Mean") for line in lines)  # of λ and strides it means nothing
    assert r"$\lambda$ = 1 &" in (tmp_path / "table.tex").read_text()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"sweep\.json, line 1 is no JSON"),
        ("[]", r"sweep\.json must be a mapping"),
        ('{"runs": [{"name": "a"}]}', r"sweep\.json must have table, title"),
        ('{"runs": [], "table": "x"}', "columns, runs: there is no title"),
    ],
)
def test_what_is_no_sweep_is_said(content, message, tmp_path):
    (tmp_path / "sweep.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        write_tables(tmp_path)


def test_costs_are_shown_relative_to_the_first_method(tmp_path):
    rows = ["Training: time per step", "Training: peak memory"]
    plan = document([], rows, ["strided", "spectral"], {rows[0]: {"spectral": [1.32]}})
    (tmp_path / "sweep.json").write_text(json.dumps({**plan, "table": "cost"}))
    with pytest.raises(ValueError, match=r"has no measured.json yet"):
        write_tables(tmp_path)
    values = {
        rows[0]: {"strided": 0.5, "spectral": 0.75},
        rows[1]: {"strided": 4e6, "spectral": 5e6},
    }
    told = {"conditions": "an abacus", "values": values}
    (tmp_path / "measured.json").write_text(json.dumps(told))
    assert write_tables(tmp_path).splitlines()[2:] == [
        "                         Strided  Spectral",
        "Training: time per step  1.00     1.50",
        "  paper                  –        1.32",
        "  ms                     500      750",
        "Training: peak memory    1.00     1.25",
        "  MB                     4        5",
        "",
        "Scale small: an abacus.",
    ]
    assert "Training: time per step,spectral,0.75,1.32" in (tmp_path / "table.csv").read_text()


def test_seconds_per_step_are_of_training_alone_where_runs_know_it(folder):
    said = "seconds per step are of the last epoch"
    assert f"{said}, its evaluation included." in write_tables(folder)
    timed = "epoch,step,seconds,step_seconds\n1,10,90,\n2,20,5,0.125\n"
    (folder / "diffstride-3-s0" / "times.csv").write_text(timed)
    assert f"{said}, without its evaluation, but for runs made before" in write_tables(folder)
    with (folder / "table.csv").open() as file:
        rows = {(row["row"], row["column"]): row for row in csv.DictReader(file)}
    assert rows["(3)", "diffstride"]["seconds_per_step"] == "0.125"
    assert rows["(2)", "strided"]["seconds_per_step"] == "0.5"
    for path in folder.glob("*/times.csv"):
        path.write_text(timed)
    assert f"{said}, without its evaluation." in write_tables(folder)
