"""Which folder may import which, and where things may live."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "diffstride"

# What each folder may import of ours, itself apart. A folder that is not listed fails the test:
# whoever adds one decides here what it stands on.
MAY_IMPORT = {
    "core": set(),
    "files": set(),
    "layers": {"core"},
    "tools": {"layers", "core"},
    "models": {"layers", "core"},
    "data": set(),
    "training": {"files", "tools", "layers", "core"},
    "experiments": {"files", "training", "data", "models", "tools", "layers", "core"},
    "reports": {"files"},
    # Files at the top of the package.
    "__init__": {"functional", "layers", "tools", "models"},
    "functional": {"core"},
    "extras": set(),
    "interruption": set(),
    "cli": {"experiments", "extras", "interruption", "reports", "tools"},
    "__main__": {"cli", "interruption"},
}

FILES = sorted(PACKAGE.rglob("*.py"))


def folder(path):
    relative = path.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


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
    parts = [name.split(".") for name in imports(path)]
    return {p[1] for p in parts if p[0] == "diffstride" and len(p) > 1}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path):
    here = folder(path)
    assert here in MAY_IMPORT, f"{here} is a new folder: say in MAY_IMPORT what it may import"
    assert ours(path) <= MAY_IMPORT[here] | {here}


@pytest.mark.parametrize(
    "path",
    [path for path in FILES if folder(path) in {"core", "layers", "tools"}],
    ids=lambda path: str(path.relative_to(PACKAGE)),
)
def test_the_library_needs_torch_alone(path):
    import sys

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
    assert all(len(path.relative_to(PACKAGE).parts) <= 2 for path in FILES), "two levels are enough"
