"""Whatever stands in the files of a run, a command tells the file and what was expected."""

import json
import re
import shutil
from pathlib import Path

import pytest

from diffstride.lab.cli import main

pytestmark = pytest.mark.slow

TINY = "--model.width 0.03125 --data.limit 64 --data.batch_size 32 --trainer.epochs 1".split()
LONG = "1" + "0" * 400


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "a"
    assert main(["train", "digits", *TINY, "--name", "a", "--out", str(folder.parent)]) == 0
    return folder


@pytest.fixture(autouse=True)
def _there(whole, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(whole, "a")


def refused(command, message, capsys):
    capsys.readouterr()
    assert main([command, "a"]) == 1, command
    error = capsys.readouterr().err
    assert re.match(f"diffstride: {message}", error), error
    assert error.count("\n") == 1, error


def replace_cell(name, line, column, value):
    path = Path("a", name)
    rows = [row.split(",") for row in path.read_text().splitlines()]
    rows[line - 1][rows[0].index(column)] = value
    path.write_text("".join(",".join(row) + "\n" for row in rows))


@pytest.mark.parametrize(
    ("name", "column", "value", "expected"),
    [
        ("strides.csv", "axis", "10", "a whole number from 0 to 2, got '10'"),
        ("strides.csv", "axis", "99999999", "a whole number from 0 to 2"),
        ("strides.csv", "axis", "-1", "a whole number from 0 to 2"),
        ("strides.csv", "input_size", "0", "a whole number from 1 to 10,000,000, got '0'"),
        ("strides.csv", "output_size", LONG, "a whole number from 1 to 10,000,000, got '10000"),
        ("strides.csv", "stride", "0", "a number above 0"),
        ("strides.csv", "stride", "nan", "a number above 0"),
        ("strides.csv", "epoch", LONG, "a whole number from 0 to 1,000,000,000,000"),
        ("strides.csv", "cost_saved", "much", "a number, got 'much'"),
        ("strides.csv", "loss_gradient", "1;2", "a number, got '1;2'"),
        ("strides.csv", "loss_gradient_error", "-1", "a number of at least 0, got '-1'"),
        ("times.csv", "seconds", "nan", "a number, got 'nan'"),
        ("times.csv", "seconds", "inf", "a number, got 'inf'"),
        ("times.csv", "step", LONG, "a whole number from 0 to"),
        ("metrics.csv", "epoch", LONG, "a whole number from 0 to"),
        ("metrics.csv", "epoch", "9" * 5000, "a whole number from 0 to"),
        ("metrics.csv", "test_accuracy", "nan", "a number, got 'nan'"),
    ],
)
def test_cells_that_can_not_be_are_named_with_their_line(name, column, value, expected, capsys):
    replace_cell(name, 2, column, value)
    for command in ("table", "report"):
        refused(command, f"a/{name}, line 2: column {column} must be {expected}", capsys)


@pytest.mark.parametrize("axis", ["0", "2"])
def test_axes_of_a_layer_are_those_of_the_data(axis, capsys):
    replace_cell("strides.csv", 3, "axis", axis)
    for command in ("table", "report"):
        refused(command, r"a/strides\.csv must have each of the axes \[0, 1\] of stages", capsys)


FACTS = [
    ({"axes": 5}, "axes must be a list of words, got 5"),
    ({"axes": ["time"], "sampling_rate": [1, 1]}, r"axes must be as many as size has after"),
    ({"axes": ["x", "y"], "sampling_rate": None}, r"must have sampling_rate where it has axes"),
    ({"axes": ["a", "b"], "sampling_rate": [1, 0]}, "sampling_rate must be a list of numbers abo"),
    ({"units": ["Hz", 5]}, "units must be a list of words"),
    ({"units": ["Hz"]}, r"units must be as many as size has after the channels"),
    ({"classes": {"a": 5}}, r"classes must be a list of names, or one for each task, got"),
    ({"classes": []}, r"classes must be a list of names"),
    ({"classes": [["x"]]}, r"classes must be a list of names"),
    ({"size": [1, 10**30, 10**30]}, r"size must be channels \(1 to 1,024\) and 1 to 3 sizes"),
    ({"size": [10**6, 32, 32]}, r"size must be channels"),
    ({"size": [1, 0, 32]}, r"size must be channels"),
    ({"mean": [10**400]}, "mean must be a list of numbers"),
    ({"train": [1]}, "train must be a whole number"),
    ({"skipped": 3}, "skipped must be a list"),
]


@pytest.mark.parametrize(("change", "message"), FACTS, ids=[message for _, message in FACTS])
def test_facts_on_the_data_are_of_their_kind(change, message, capsys):
    path = Path("a/data.json")
    facts = json.loads(path.read_text()) | change
    path.write_text(json.dumps({k: v for k, v in facts.items() if v is not None}))
    for command in ("strides", "table", "report"):
        refused(command, rf"a/data\.json:? {message}", capsys)


def test_facts_of_another_network_are_told(capsys):
    path = Path("a/data.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"classes": ["0", "1"]}))
    message = "a has config.yaml and data.json of another network than its checkpoints: size mism"
    refused("strides", message, capsys)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"images": ' + "[" * 900 + "]" * 900 + "}"])
def test_examples_that_are_nested_without_end_are_named(text, capsys):
    Path("a/examples.json").write_text(text)
    refused("report", r"a/examples\.json: lists and mappings must be nested at most 20", capsys)


def test_documents_with_nothing_and_endless_numbers_are_named(capsys):
    Path("a/environment.json").write_text("null")
    refused("report", r"a/environment\.json must be a mapping of names to values, got None", capsys)
    Path("a/environment.json").write_text('{"seed": ' + "9" * 5000 + "}")
    refused("report", r"a/environment\.json is no JSON: Exceeds the limit", capsys)


SETTINGS = [
    ("trainer: 5", "trainer must have settings of its own, got 5"),
    ("trainer: {epochs: x}", "trainer.epochs must be a whole number, got 'x'"),
    ("stride_penalty: [1]", r"stride_penalty must be a number, got \[1\]"),
    ("macs_budget: abc", "macs_budget must be a number, got 'abc'"),
    (f"macs_budget: {LONG}", "macs_budget must be a number, got 1000"),
    ("model: {downsampling: diffstride, smoothness: abc}", "model.smoothness must be a number"),
    ("model: {downsampling: diffstride, strides: 3}", "model.strides must be a list"),
    ("model: {downsampling: diffstride, strides: [x]}", "model.strides must be a"),
    ("data: {task: 5}", "data.task must be a list"),
]


@pytest.mark.parametrize(("text", "message"), SETTINGS, ids=[text[:40] for text, _ in SETTINGS])
def test_settings_are_of_their_kind(text, message, capsys):
    given = text if text.startswith("model") else f"model: {{downsampling: diffstride}}\n{text}"
    Path("a/config.yaml").write_text(given + "\n")
    for command in ("table", "report"):
        refused(command, rf"a/config\.yaml: {message}", capsys)
    refused("strides", r"a/config\.yaml can't be read as a config: .* must", capsys)


def test_names_of_settings_that_are_no_words_are_shown():
    with Path("a/config.yaml").open("a") as file:
        file.write("3: 4\n")
    assert main(["report", "a"]) == 0
