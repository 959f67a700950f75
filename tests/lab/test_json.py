"""What commands print with --json is one document, and says what the text for people says."""

import json
from pathlib import Path

import pytest

from diffstride.lab.cli import main
from diffstride.lab.reports.tables import CSV_COLUMNS
from tests.lab.reports.folders import write_run, write_sweep

TINY = "--model.width 0.0625 --data.limit 64 --data.batch_size 32 --trainer.epochs 1".split()


@pytest.fixture(autouse=True)
def _there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("json")
    assert main(["train", "digits", *TINY, "--out", str(folder), "--name", "a"]) == 0
    return str(folder / "a")


def both(capsys, *words):
    """The lines for people, and the document for programs."""
    capsys.readouterr()
    assert main([*words]) == 0
    text = capsys.readouterr().out.splitlines()
    assert main([*words, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return text, json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


@pytest.mark.slow
def test_evaluate(run, capsys):
    lines, found = both(capsys, "evaluate", run)
    assert lines == [f"{name.replace('_', ' ')}  {value:.4f}" for name, value in found.items()]
    assert list(found) == ["test_loss", "test_accuracy", "test_top5"]


@pytest.mark.slow
def test_cost(run, capsys):
    (head, *lines, last), found = both(capsys, "cost", run)
    assert head.split() == ["layer", "kind", "size", "MACs", "share"]
    layers = found["layers"]
    assert sum(layer["macs"] for layer in layers) == found["macs"]
    assert sum(layer["activations"] for layer in layers) == found["activations"]
    assert sum(layer["share"] for layer in layers) == pytest.approx(1)
    assert found["input_size"] == [1, 32, 32]
    for line, layer in zip(lines, layers, strict=True):
        name, kind, *size, macs, share = line.split()
        assert (name, kind) == (layer["name"], layer["kind"])
        assert (macs, share) == (f"{layer['macs']:,}", f"{layer['share']:.1%}")
        sizes = [" × ".join(map(str, layer[key])) for key in ("input_size", "output_size")]
        assert " ".join(size) == (sizes[0] if sizes[0] == sizes[1] else " → ".join(sizes))
    (learned,) = {layer["kind"] for layer in layers if "downsample" in layer["name"]}
    assert learned == "DiffStride2d"
    assert last.startswith("one example of 1 × 32 × 32: ")
    assert main(["strides", run]) == 0  # which counts the same
    assert capsys.readouterr().out.strip().endswith(last.partition(": ")[2])
    metrics = Path(run, "metrics.csv").read_text().splitlines()
    mmacs = dict(zip(metrics[0].split(","), metrics[-1].split(","), strict=True))["mmacs"]
    assert float(mmacs) == found["macs"] / 1e6


def test_cost_of_what_is_no_run(capsys):
    assert main(["cost", "nowhere", "--json"]) == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("", "diffstride: nowhere has no run: it must have a config.yaml\n")


def test_a_table_of_runs(tmp_path, capsys):
    sound = {"sampling_rate": [100, 1], "axes": ["time", "frequency"], "size": [1, 32, 32]}
    write_run(tmp_path / "one", accuracy=0.8)
    write_run(tmp_path / "two", facts=sound, tasks=("words", "birds"))
    write_run(tmp_path / "new", done=0)
    lines, found = both(capsys, "table", "one", "two", "new")
    assert found["sweeps"] == []
    one, two, new = found["runs"]
    first = lines[1].split()
    accuracy = f"{100 * one['accuracy']:.1f}"
    assert (one["run"], one["downsampling"], accuracy, "%") == tuple(first[:4])
    assert " × ".join(f"{s:.2f}" for s in one["first_strides"]) in lines[1]
    assert first[-2:] == [f"{one['mmacs']:.1f}", f"{one['minutes']:.1f}"]
    cutoffs = zip(two["cutoffs"], two["units"], strict=True)
    assert " × ".join(f"{cutoff:.3g} {unit}" for cutoff, unit in cutoffs) in lines[2]
    for name in ("products", "maps_smaller"):
        assert " × ".join(f"{number:.2f}" for number in two[name]) in lines[2]
    tasks = [f"{name} {100 * value:.1f} %" for name, value in two["task_accuracies"].items()]
    assert tasks == [" ".join(line.split()) for line in lines[3:5]]
    assert (new["accuracy"], new["mmacs"], new["epochs"]) == (None, None, 0)
    assert "no epoch yet" in lines[-1]


def test_a_table_of_a_sweep(tmp_path, capsys):
    folder = tmp_path / "sweep"
    columns = {"strided": "strided", "diffstride": "diffstride"}
    write_sweep(folder, [(2.0, 3.0), (1.0, 2.0)], columns, seeds=2)
    lines, found = both(capsys, "table", "sweep")
    assert found["runs"] == []
    (sweep,) = found["sweeps"]
    assert (sweep["table"], sweep["seeds"], sweep["folder"]) == ("cats", [0, 1], "sweep")
    assert sweep["title"] == lines[0]
    assert sweep["notes"] == lines[-len(sweep["notes"]) :]
    cells = {(cell["row"], cell["column"]): cell for cell in sweep["cells"]}
    assert all(list(cell) == CSV_COLUMNS.split() for cell in sweep["cells"])
    for row in ("(2, 3)", "(1, 2)"):
        line = next(line for line in lines if line.startswith(row))
        for column in columns:
            cell = cells[row, column]
            assert f"{cell['mean']:.1f} ± {cell['sd']:.1f}" in line
    assert {path.name for path in folder.glob("table.*")} == {"table.csv", "table.md", "table.tex"}


def test_runs_and_sweeps_are_one_document(tmp_path, capsys):
    write_run(tmp_path / "one")
    write_sweep(tmp_path / "sweep", [(2.0, 3.0)], {"strided": "strided"}, seeds=1)
    _, found = both(capsys, "table", "one", "sweep")
    assert [run["run"] for run in found["runs"]] == ["one"]
    assert [sweep["table"] for sweep in found["sweeps"]] == ["cats"]


def test_a_table_that_fails_prints_no_half_document(tmp_path, capsys):
    write_run(tmp_path / "one")
    assert main(["table", "one", "nowhere", "--json"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("diffstride: nowhere is no run: ")
