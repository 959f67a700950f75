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


KINDS = (
    *("AdaptiveStride", "DiffStride", "DiffStrideConv", "DiffUpsample"),
    *("MultiScale", "SpectralPool", "SpectralUpsample"),
    *("BlurPool", "FrequencyLowCut", "PolyphaseSample", "ShapeAdaptor", "LearnedResize"),
)
LAYERS = {f"{kind}{n}d" for kind in KINDS for n in "123"}
CLASSES = {"Budget", "CostModel", "StrideOptimizer", "StridePlan", "StridePredictor", "Timings"}
FUNCTIONS = {
    "convert",
    "cost",
    "export_onnx",
    "fit_budget",
    "freeze",
    "parameter_groups",
    "search",
    "soft_macs",
    "stride_penalty",
    "stride_plan",
    "stride_table",
}


def test_public_names():
    import diffstride

    assert set(diffstride.__all__) == LAYERS | CLASSES | FUNCTIONS | {"functional", "models"}
    assert set(diffstride.__all__) <= set(dir(diffstride))
    assert all(getattr(diffstride, name) is not None for name in diffstride.__all__)
    functions = {name for name in dir(diffstride.functional) if not name.startswith("_")}
    assert functions == {
        "diff_stride",
        "diff_stride_conv",
        "diff_upsample",
        "output_size",
        "padded",
        "spectral_pool",
        "spectral_resize",
        "window",
        *("blur_pool", "frequency_low_cut", "polyphase_sample"),
        *("shape_adaptor", "learned_resize"),
    }


def test_importing_everything_gives_every_public_name():
    names = {}
    exec("from diffstride import *", names)
    import diffstride

    expected = set(diffstride.__all__)
    assert {"DiffStride2d", "convert", "cost", "functional", "models"} <= expected <= set(names)
