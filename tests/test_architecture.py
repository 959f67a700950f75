"""Which folder may import which, and where things may live."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "diffstride"

# What each folder may import of ours, itself apart. A folder that is not listed fails the test:
# whoever adds one decides here what it stands on.
# Plain functions without torch, which everything may use.
EVERYWHERE = {"files", "text"}
LIBRARY = {"core", "layers", "analysis", "surgery", "strides", "models"}
COMMAND_LINE = ("interruption", "extras", "arguments", "measurements")
MAY_IMPORT = {
    "files": set(),
    "text": set(),
    # The library: torch alone.
    "core": set(),
    "layers": {"core"},
    "analysis": {"core", "layers"},
    "surgery": {"core", "layers", "analysis"},
    "strides": {"core", "layers", "analysis", "surgery"},
    "models": {"core", "layers"},
    "__init__": {"functional", *LIBRARY},
    "functional": {"core"},
    # The laboratory: the extras.
    "lab.runs": set(),
    "lab.data": {"lab.runs"},
    "lab.training": {"lab.runs", "lab.data", *LIBRARY},
    "lab.inference": {"lab.runs", "lab.data", "lab.training", *LIBRARY},
    "lab.sweeps": {"lab.runs", "lab.training", *LIBRARY},
    "lab.search": {"lab.runs", "lab.training", "lab.sweeps", "layers", "analysis", "strides"},
    "lab.reports": {"lab.runs", "core"},  # of core, what does without torch
    "lab.interruption": set(),
    "lab.extras": set(),
    "lab.arguments": {"lab.runs"},
    "lab.measurements": {"lab.arguments", "lab.runs", "lab.training", "lab.reports"},
    "lab.cli": {
        f"lab.{name}"
        for name in (*"runs training inference sweeps search reports".split(), *COMMAND_LINE)
    },
    "lab.__init__": {"lab.training"},
    "__main__": {"lab.cli", "lab.interruption"},
}

FILES = sorted(PACKAGE.rglob("*.py"))


def folder(path):
    """The folder of a file, with dots; a file beside folders stands for itself."""
    *folders, _ = path.relative_to(PACKAGE).parts
    return ".".join(folders) if folders not in ([], ["lab"]) else ".".join([*folders, path.stem])


def imports(path):
    """Every module name a file imports, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide where things come from"
            assert all(alias.name != "*" for alias in node.names), f"{path}: import *"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def ours(path):
    """The folders of ours that a file imports."""
    names = [name.split(".")[1:] for name in imports(path) if name.startswith("diffstride.")]
    floors = [name[:2] if name[0] == "lab" else name[:1] for name in names]
    return {".".join(floor) for floor in floors} - {"lab", "__version__"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path):
    here = folder(path)
    assert here in MAY_IMPORT, f"{here} is a new folder: say in MAY_IMPORT what it may import"
    assert ours(path) <= MAY_IMPORT[here] | EVERYWHERE | {here}


def test_nothing_is_allowed_that_nobody_needs():
    """But for the library, which a folder may be given as a whole."""
    used = {here: set() for here in MAY_IMPORT}
    for path in FILES:
        used[folder(path)] |= ours(path)
    for here, allowed in MAY_IMPORT.items():
        as_a_whole = LIBRARY if allowed >= LIBRARY else set()
        assert allowed - as_a_whole <= used[here], here


@pytest.mark.parametrize(
    "path",
    [path for path in FILES if folder(path) in LIBRARY - {"models"}],
    ids=lambda path: str(path.relative_to(PACKAGE)),
)
def test_the_library_needs_torch_alone(path):
    roots = {name.partition(".")[0] for name in imports(path)}
    # Of the extra "export", and imported only by whoever exports.
    extra = {"onnx", "onnxruntime", "onnxscript"} if path.name == "export.py" else set()
    assert roots - set(sys.stdlib_module_names) <= {"torch", "diffstride"} | extra


def uses(path, *names):
    """Whether a file has an attribute or a name that is written like one of these."""
    return any(
        ast.unparse(node) in names
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute | ast.Name)
    )


def test_the_fft_is_called_in_one_place_each():
    callers = [
        path.name for path in FILES if uses(path, "torch.fft") or "torch.fft" in imports(path)
    ]
    assert callers == ["fft.py", "spectrogram.py"]  # of the layer, and of sound


def test_core_has_no_modules():
    core = [path for path in FILES if folder(path) == "core"]
    assert core
    assert not any(uses(path, "nn.Module", "torch.nn.Module") for path in core)


def test_no_drawers_for_odds_and_ends():
    assert not {path.stem for path in FILES} & {"utils", "helpers", "common", "misc"}
    levels = [
        len(path.relative_to(PACKAGE / "lab").parts)
        if "lab" in path.parts
        else len(path.relative_to(PACKAGE).parts)
        for path in FILES
    ]
    assert max(levels) <= 2, "two levels are enough on each floor"
    assert {path.name for path in FILES if len(path.read_text().splitlines()) > 300} == set()


def test_run_folders_and_reports_are_read_without_torch():
    modules = [
        ".".join(["diffstride", *path.relative_to(PACKAGE).with_suffix("").parts])
        for path in FILES
        if folder(path) in {"lab.runs", "lab.reports"} and path.stem != "__init__"
    ]
    code = f"import sys, {', '.join(modules)}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
