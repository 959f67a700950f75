"""The command line says in a sentence what is missing, damaged or not allowed."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

import diffstride
from diffstride.lab.cli import main
from diffstride.lab.extras import EXTRAS
from diffstride.lab.runs.config import Config

pytestmark = pytest.mark.slow

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
COMMANDS = {
    "train": ["digits"],
    "search": ["digits"],
    "resume": ["runs/a"],
    "evaluate": ["runs/a"],
    "strides": ["runs/a"],
    "cost": ["runs/a"],
    "table": ["runs/a"],
    "sweep": ["cifar10"],
    "report": ["runs/a"],
    "export": ["runs/a"],
    "predict": ["runs/a", "a.png"],
}
BLOCK = """
import sys

class Without:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {blocked!r}:
            return self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path[:] = map(Without, sys.meta_path)
"""


@pytest.fixture(autouse=True)
def _there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def command(*words, blocked=()):
    """The command line in a process of its own, in which some modules are not installed."""
    Path("sitecustomize.py").write_text(BLOCK.format(blocked=set(blocked)))
    paths = [str(Path.cwd()), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(
        [sys.executable, "-m", "diffstride", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
    )


def write_run():
    """What commands look at before they need anything."""
    Path("runs/a").mkdir(parents=True)
    Path("runs/a/config.yaml").write_text("model: {downsampling: diffstride}\n")
    Path("runs/a/data.json").write_text("{}")


ALL = [module for modules in EXTRAS.values() for module in modules]


@pytest.mark.parametrize("name", COMMANDS)
def test_without_extras_a_command_names_the_one_it_needs(name):
    write_run()
    extra = "report" if name in ("table", "report") else "train"
    found = command(name, *COMMANDS[name], blocked=[m for m in ALL if m != "numpy"])
    assert found.returncode == 1
    assert re.fullmatch(
        rf"diffstride: `{name}` needs \w+: pip install 'diffstride\[{extra}\]'\n", found.stderr
    ), found.stderr


def test_every_module_of_every_extra_is_known():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {"pillow": "PIL", "scikit-learn": "sklearn", "pyyaml": "yaml"}
    for extra, modules in EXTRAS.items():
        packages = [
            re.match(r"[\w-]+", line).group() for line in project["optional-dependencies"][extra]
        ]
        found = {names.get(package, package) for package in packages} - {"diffstride"}
        assert found == set(modules), extra


def test_help_and_version_need_nothing():
    found = command("--version", blocked=[*ALL, "torch"])
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout == f"diffstride {diffstride.__version__}\n"
    advice = "it is not installed:\npip install 'diffstride[train]'\n"
    for blocked in ([*ALL, "torch"], ["tyro"]):
        found = command("--help", blocked=blocked)
        assert (found.returncode, found.stderr) == (0, "")
        assert found.stdout.startswith("Convolutional networks")
        assert found.stdout.endswith(advice)
    assert "pip install" not in command("--help").stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name, capsys):
    try:
        code = main([name, "--help"])
    except SystemExit as stop:
        code = stop.code
    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    assert out.startswith(f"usage: diffstride {name} ")
    assert main(["--help"]) == 0
    assert f"\n  diffstride {name} " in capsys.readouterr().out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
@pytest.mark.parametrize("delay", [0.0, 0.3, 1.5])
def test_who_stops_a_command_while_it_starts_gets_a_sentence(number, delay):
    """As soon as Python has started: before the libraries are there, and while they come."""
    Path("sitecustomize.py").write_text("import sys; print('started', flush=True)")
    paths = [str(Path.cwd()), *filter(None, [os.environ.get("PYTHONPATH")])]
    process = subprocess.Popen(
        [sys.executable, "-c", STARTED],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
    )
    assert process.stdout.readline() == "started\n"
    assert process.stdout.readline() == "watching\n"
    time.sleep(delay)
    process.send_signal(number)
    error = process.communicate(timeout=60)[1]
    assert process.returncode == 1
    assert error == INTERRUPTED


INTERRUPTED = "\ninterrupted: diffstride resume RUN goes on from the last epoch\n"


def test_who_stops_a_command_while_a_text_is_carried_out_gets_a_sentence():
    """As it happens in imports; Python remembers such an interruption, and ends by it."""
    Path("stopped.py").write_text(STARTED.replace("sys.exit(", STOPPED_IN_EXEC + "sys.exit("))
    found = subprocess.run(
        [sys.executable, "-m", "stopped"], capture_output=True, text=True, check=False, timeout=120
    )
    assert (found.returncode, found.stderr) == (1, INTERRUPTED)


STOPPED_IN_EXEC = """
import diffstride.lab.cli
interruption.raise_from_now_on()
diffstride.lab.cli.main = lambda: exec("import os; os.kill(os.getpid(), signal.SIGTERM)")
"""


@pytest.mark.parametrize("mercy", [0.5, 60])
def test_an_interruption_that_is_swallowed_ends_the_command_all_the_same(mercy):
    """As by libraries that catch whatever happens while they load: in time, or by the next one."""
    Path("stopped.py").write_text(STARTED.replace("sys.exit(", SWALLOWED + "sys.exit("))
    process = subprocess.Popen(
        [sys.executable, "-m", "stopped", str(mercy)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert [process.stdout.readline() for _ in range(2)] == ["watching\n", "swallowed\n"]
    if mercy > 1:
        process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=30)[1] == INTERRUPTED
    assert process.returncode == 1


SWALLOWED = """
import os, time
import diffstride.lab.cli
interruption.MERCY = float(MERCY)
interruption.raise_from_now_on()
def main():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    except BaseException:
        print("swallowed", flush=True)
    time.sleep(60)
diffstride.lab.cli.main = main
"""


# The command, that says when its first line has been carried out.
STARTED = """
import signal, sys
from diffstride import __main__
from diffstride.lab import interruption
catch_signals = interruption.catch_signals
def say_so():
    catch_signals()
    print("watching", flush=True)
interruption.catch_signals = say_so
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where tests run with &
MERCY = sys.argv[-1]
sys.argv = ["diffstride", "train", "digits"]
sys.exit(__main__.run())
"""


def floats(config=Config, prefix=""):
    """Every option that takes numbers which are not whole, by name."""
    default = config()
    for place in fields(config):
        if is_dataclass(getattr(default, place.name)):
            yield from floats(type(getattr(default, place.name)), f"{prefix}{place.name}.")
        elif "float" in str(place.type):
            yield f"{prefix}{place.name}"


@pytest.mark.parametrize("value", ["inf", "nan", "-inf"])
@pytest.mark.parametrize("option", list(floats()))
def test_what_is_no_number_is_refused_by_name(option, value, capsys):
    assert main(["train", "digits", f"--{option}", value]) == 1
    assert f"--{option} must be a finite number, got {value}" in capsys.readouterr().err
    assert not Path("runs").exists()


TINY = "--model.width 0.03125 --data.limit 64 --data.batch_size 32 --trainer.epochs 2".split()


@pytest.mark.parametrize("words", [["--optim.lr", "1e30"], ["--optim.name", "sgd"]])
@pytest.mark.parametrize("there", [False, True])
def test_what_explodes_at_once_leaves_no_run(words, there, capsys):
    if there:
        Path("runs/x").mkdir(parents=True)
        Path("runs/x/notes.txt").write_text("mine")
    rate = [] if "--optim.lr" in words else ["--optim.lr", "1e20"]
    words = ["train", "digits", *TINY, *words, *rate, "--name", "x"]
    assert main([*words, "--optim.schedule", "constant"]) == 1
    message = r"diffstride: .* became \w+ in epoch 1: try a smaller --optim.lr or .* no run is left"
    assert re.fullmatch(message, capsys.readouterr().err.strip())
    assert [str(path) for path in Path().rglob("*")] == (
        ["runs", "runs/x", "runs/x/notes.txt"] if there else []
    )


# One step, the last of its epoch: no loss of training comes after it.
LAST_STEP = "--data.batch_size 64 --trainer.epochs 1 --optim.schedule constant".split()


@pytest.mark.parametrize(
    "words",
    [
        ["--optim.lr", "1e36", "--optim.name", "sgd"],
        ["--optim.stride_lr", "1e38"],  # which Adam divides by a tenth at first
        ["--optim.lr", "1e39"],
        ["--optim.weight_decay", "1e39", "--optim.name", "sgd"],
    ],
    ids=" ".join,
)
def test_what_explodes_in_the_last_step_leaves_no_run(words, capsys):
    assert main(["train", "digits", *TINY, *LAST_STEP, *words, "--name", "x"]) == 1
    message = r"diffstride: .* became \w+ in epoch 1: try a smaller --optim.lr or .* no run is left"
    assert re.fullmatch(message, capsys.readouterr().err.strip())
    assert not list(Path().rglob("*"))


@pytest.mark.parametrize(
    "name", ["..", ".", "", "a/../../b", "/tmp/b", "a/b", "a\\b", "C:b", "a\nb", "a\0b", "\x1b[2J"]
)
def test_the_name_of_a_run_is_that_of_one_folder(name, capsys):
    assert main(["train", "digits", *TINY, "--name", name]) == 1
    assert "--name must be the name of one folder, without" in capsys.readouterr().err
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    "out", ["/tmp/elsewhere", "../up", "a/../../b", "~/x", "C:\\x", "\\\\h\\x"]
)
def test_a_file_does_not_say_where_to_write(out, tmp_path, capsys):
    (tmp_path / "here").mkdir()
    os.chdir(tmp_path / "here")
    Path("config.yaml").write_text(f"out: '{out}'\ndata: {{path: ./nowhere}}\n")
    assert main(["train", "config.yaml"]) == 1
    error = capsys.readouterr().err
    assert "config.yaml would write its run into " in error
    assert f"say so with --out {out}" in error
    assert main(["train", "config.yaml", "--out", out]) == 1
    assert "./nowhere does not exist" in capsys.readouterr().err  # the next thing that is wrong
    Path("config.yaml").write_text("out: in/here\ndata: {path: ./nowhere}\n")
    assert main(["train", "config.yaml"]) == 1
    assert "./nowhere does not exist" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["config.yaml", "here"]


RATES = [
    ("0.001", "30", [], "0.03"),
    ("0.1", "10.0", [], "1"),
    ("0.001", "30", ["--optim.stride_lr", "0.03"], None),
    ("0.001", "30", ["--optim.stride_lr=30"], None),
    ("0.001", "3", [], None),
    ("0.1", "null", [], None),
]


@pytest.mark.parametrize(("lr", "rate", "words", "same"), RATES)
def test_a_file_with_the_stride_lr_of_an_earlier_version_is_told(lr, rate, words, same, capsys):
    Path("old.yaml").write_text(
        f"optim: {{lr: {lr}, stride_lr: {rate}}}\ndata: {{path: ./nowhere}}\n"
    )
    assert main(["train", "old.yaml", *words]) == 1
    *said, last = capsys.readouterr().err.splitlines()
    assert "./nowhere does not exist" in last
    assert len(said) == (same is not None)
    if same is not None:
        begin = f"diffstride: old.yaml: stride_lr {float(rate):g} is taken for the learning rate of"
        assert said[0].startswith(begin)
        assert said[0].endswith(f"if this is one, {same} is the same")


def test_a_grid_with_the_stride_lr_of_an_earlier_version_is_told(capsys):
    said = "old.toml: stride_lr 30 is taken for the learning rate of strides"
    for grid, expected in (("[3.0, 10.0, 30.0]", "stride_lr 10 is"), ("[0.3, 3.0]", None)):
        Path("old.toml").write_text(f"[grid]\n'optim.stride_lr' = {grid}\n")
        assert main(["sweep", "old.toml", "--seeds", "1", "--dry_run"]) == 0
        error = capsys.readouterr().err
        assert error.count("\n") == (expected is not None)
        assert (expected or "") in error
    Path("old.toml").write_text("[settings]\n'optim.stride_lr' = 30\n")
    assert main(["sweep", "old.toml", "--seeds", "1", "--dry_run"]) == 0
    assert said in capsys.readouterr().err


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "a"
    words = ["--trainer.epochs", "1", "--name", "a", "--out", str(folder.parent)]
    assert main(["train", "digits", *TINY, *words]) == 0
    return folder


TABLES = {"metrics.csv": "test_accuracy", "strides.csv": "stride", "times.csv": "seconds"}
LINES = {
    "a number": (lambda text, column: _replaced(text, column, "many"), r", line 2: column {} must"),
    "nothing": (lambda text, column: _replaced(text, column, ""), r", line 2: column {} must be"),
    "no column": (lambda text, column: text.replace(column, "x", 1), r", line 1: there is no col"),
    "cut off": (lambda text, column: text[: text.index("\n") + 5], r", line 2"),
    "no end": (lambda text, column: text[:-1], r", line \d+ is cut off"),
    "a NUL": (lambda text, column: text[:-3] + "\0" + text[-2:], r", line \d+ has a NUL byte"),
    "encoding": (lambda text, column: text[:-3] + "\udcff" + text[-2:], r", line \d+ is not UTF-8"),
    "quotes": (lambda text, column: text.replace("\n", '\n"', 1), r", line \d+"),
    "header only": (lambda text, column: text[: text.index("\n") + 1], " has no rows"),
}


def _replaced(text, column, value):
    header, row, *rest = text.splitlines()
    cells = row.split(",")
    cells[header.split(",").index(column)] = value
    return "\n".join([header, ",".join(cells), *rest]) + "\n"


@pytest.mark.parametrize("damage", LINES)
@pytest.mark.parametrize("name", TABLES)
def test_damaged_tables_are_named_with_the_line(name, damage, whole, capsys):
    shutil.copytree(whole, "a")
    change, message = LINES[damage]
    path = Path("a", name)
    text = change(path.read_text(), TABLES[name])
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    for command in ("table", "report"):
        assert main([command, "a"]) == 1
        error = capsys.readouterr().err
        assert re.match(rf"diffstride: a/{name}{message.format(TABLES[name])}", error), error
        assert error.count("\n") == 1


@pytest.mark.parametrize("name", ["metrics.csv", "times.csv"])
def test_an_empty_table_is_named(name, whole, capsys):
    shutil.copytree(whole, "a")
    Path("a", name).write_text("")
    for command in ("table", "report"):
        assert main([command, "a"]) == 1
        assert f"a/{name}, line 1: there is no column" in capsys.readouterr().err


def test_a_run_that_goes_on_writes_damaged_tables_anew(whole):
    shutil.copytree(whole, "a")
    for name in TABLES:
        Path("a", name).write_bytes(b"\0\xff")
    assert main(["resume", "a"]) == 0
    for name in TABLES:
        assert Path("a", name).read_bytes() == Path(whole, name).read_bytes()


DOCUMENTS = {
    "half": (lambda text: text[: len(text) // 2], ""),
    "a NUL": (lambda text: text[:3] + "\0" + text[3:], r", line \d has a NUL byte"),
    "encoding": (lambda text: text + "\udcff", r", line \d+ is not UTF-8"),
    "empty": (lambda text: "", ""),
    "a list": (lambda text: "[1, 2]", " must be a mapping of names to values, got"),
    "junk": (lambda text: "{]", ", line 1 is no "),
    "tabs": (lambda text: "a:\n\t- b: [", ", line "),
}


@pytest.mark.parametrize("damage", DOCUMENTS)
@pytest.mark.parametrize(
    ("name", "commands"),
    [
        ("config.yaml", ("resume", "evaluate", "strides", "cost", "export", "table", "report")),
        ("data.json", ("resume", "evaluate", "strides", "cost", "export", "table", "report")),
    ],
)
def test_damaged_documents_are_named_with_the_line(name, commands, damage, whole, capsys):
    shutil.copytree(whole, "a")
    change, message = DOCUMENTS[damage]
    if (name, damage) == ("config.yaml", "half"):
        pytest.skip("half of a config is a config, with defaults for the rest")
    text = change(Path("a", name).read_text())
    Path("a", name).write_bytes(text.encode("utf-8", "surrogateescape"))
    for command in commands:
        assert main([command, "a"]) == 1, command
        error = capsys.readouterr().err
        assert re.match(rf"diffstride: a/{name}{message}", error), error
        assert error.count("\n") == 1


@pytest.mark.parametrize(
    "text",
    [
        '{"size": 3, "classes": [], "mean": [0], "std": [1]}',
        '{"size": ["x"], "classes": [], "mean": [0], "std": [1]}',
        '{"size": [1], "classes": 3, "mean": [0], "std": [1]}',
        '{"size": [1], "classes": []}',
    ],
)
def test_facts_of_another_kind_are_named(text, whole, capsys):
    shutil.copytree(whole, "a")
    Path("a/data.json").write_text(text)
    for command in ("resume", "evaluate", "strides", "cost", "export"):
        assert main([command, "a"]) == 1
        assert re.match(r"diffstride: a/data\.json.* must", capsys.readouterr().err)


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", "", '{"table": 1}', "\0", '{"runs": 3}', '{"runs": [3]}']
)
def test_a_damaged_plan_is_named(text, capsys):
    Path("sweep").mkdir()
    Path("sweep/sweep.json").write_text(text)
    for command in ("table", "report"):
        assert main([command, "sweep"]) == 1
        error = capsys.readouterr().err
        assert re.match(r"diffstride: sweep/sweep\.json", error), error
        assert error.count("\n") == 1
