"""Importing the library loads torch alone; `python -m benchmarks.import_time` has the time."""

import subprocess
import sys


def python(code):
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    return result.stdout.strip()


def test_import_loads_nothing_but_torch_and_the_standard_library():
    code = """
import sys, torch
before = {name.partition(".")[0] for name in sys.modules}
import diffstride
loaded = {name.partition(".")[0] for name in sys.modules}
print(sorted(loaded - before - set(sys.stdlib_module_names)))
print(sorted(loaded & {"lightning", "datasets", "sklearn", "matplotlib", "rich"}))
"""
    assert python(code).splitlines() == ["['diffstride']", "[]"]


def test_public_names():
    import diffstride

    public = {name for name in dir(diffstride) if not name.startswith("_")}
    assert public >= {
        "DiffStride1d",
        "DiffStride2d",
        "DiffStride3d",
        "SpectralPool1d",
        "SpectralPool2d",
        "SpectralPool3d",
        "functional",
        "parameter_groups",
    }
    for name in ("diff_stride", "spectral_pool", "window", "output_size"):
        assert callable(getattr(diffstride.functional, name))


def test_importing_everything_gives_every_public_name():
    names = {}
    exec("from diffstride import *", names)
    import diffstride

    expected = set(diffstride.__all__)
    assert {"DiffStride2d", "convert", "cost", "functional", "models"} <= expected <= set(names)
