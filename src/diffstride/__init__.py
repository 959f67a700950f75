"""Convolutional networks that learn their own strides."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diffstride import functional as functional
    from diffstride import models as models
    from diffstride.analysis.budget import Budget as Budget
    from diffstride.analysis.budget import fit_budget as fit_budget
    from diffstride.analysis.cost import cost as cost
    from diffstride.analysis.cost import soft_macs as soft_macs
    from diffstride.analysis.cost_model import CostModel as CostModel
    from diffstride.analysis.stride_table import stride_table as stride_table
    from diffstride.analysis.timings import Timings as Timings
    from diffstride.analysis.training import parameter_groups as parameter_groups
    from diffstride.analysis.training import stride_penalty as stride_penalty
    from diffstride.layers import AdaptiveStride1d as AdaptiveStride1d
    from diffstride.layers import AdaptiveStride2d as AdaptiveStride2d
    from diffstride.layers import AdaptiveStride3d as AdaptiveStride3d
    from diffstride.layers import BlurPool1d as BlurPool1d
    from diffstride.layers import BlurPool2d as BlurPool2d
    from diffstride.layers import BlurPool3d as BlurPool3d
    from diffstride.layers import DiffStride1d as DiffStride1d
    from diffstride.layers import DiffStride2d as DiffStride2d
    from diffstride.layers import DiffStride3d as DiffStride3d
    from diffstride.layers import DiffStrideConv1d as DiffStrideConv1d
    from diffstride.layers import DiffStrideConv2d as DiffStrideConv2d
    from diffstride.layers import DiffStrideConv3d as DiffStrideConv3d
    from diffstride.layers import DiffUpsample1d as DiffUpsample1d
    from diffstride.layers import DiffUpsample2d as DiffUpsample2d
    from diffstride.layers import DiffUpsample3d as DiffUpsample3d
    from diffstride.layers import FrequencyLowCut1d as FrequencyLowCut1d
    from diffstride.layers import FrequencyLowCut2d as FrequencyLowCut2d
    from diffstride.layers import FrequencyLowCut3d as FrequencyLowCut3d
    from diffstride.layers import LearnedResize1d as LearnedResize1d
    from diffstride.layers import LearnedResize2d as LearnedResize2d
    from diffstride.layers import LearnedResize3d as LearnedResize3d
    from diffstride.layers import MultiScale1d as MultiScale1d
    from diffstride.layers import MultiScale2d as MultiScale2d
    from diffstride.layers import MultiScale3d as MultiScale3d
    from diffstride.layers import PolyphaseSample1d as PolyphaseSample1d
    from diffstride.layers import PolyphaseSample2d as PolyphaseSample2d
    from diffstride.layers import PolyphaseSample3d as PolyphaseSample3d
    from diffstride.layers import ShapeAdaptor1d as ShapeAdaptor1d
    from diffstride.layers import ShapeAdaptor2d as ShapeAdaptor2d
    from diffstride.layers import ShapeAdaptor3d as ShapeAdaptor3d
    from diffstride.layers import SpectralPool1d as SpectralPool1d
    from diffstride.layers import SpectralPool2d as SpectralPool2d
    from diffstride.layers import SpectralPool3d as SpectralPool3d
    from diffstride.layers import SpectralUpsample1d as SpectralUpsample1d
    from diffstride.layers import SpectralUpsample2d as SpectralUpsample2d
    from diffstride.layers import SpectralUpsample3d as SpectralUpsample3d
    from diffstride.layers import StridePredictor as StridePredictor
    from diffstride.strides.levels import stride_plan as stride_plan
    from diffstride.strides.optimiser import StrideOptimizer as StrideOptimizer
    from diffstride.strides.plan import StridePlan as StridePlan
    from diffstride.strides.search import search as search
    from diffstride.surgery.convert import convert as convert
    from diffstride.surgery.export import export_onnx as export_onnx
    from diffstride.surgery.freeze import freeze as freeze

__version__ = "0.1.0"

_KINDS = (
    *("AdaptiveStride", "DiffStride", "DiffStrideConv", "DiffUpsample", "SpectralPool"),
    *("SpectralUpsample", "BlurPool", "FrequencyLowCut", "PolyphaseSample", "ShapeAdaptor"),
    *("LearnedResize", "MultiScale"),
)
_LAYERS = [f"{kind}{n}d" for kind in _KINDS for n in (1, 2, 3)]
# Where each public name lives: a module, and the name in it unless it is the module itself.
_HOMES: dict[str, tuple[str, str | None]] = {
    **{name: ("diffstride.layers", name) for name in _LAYERS},
    "Budget": ("diffstride.analysis.budget", "Budget"),
    "CostModel": ("diffstride.analysis.cost_model", "CostModel"),
    "StridePredictor": ("diffstride.layers", "StridePredictor"),
    "StrideOptimizer": ("diffstride.strides.optimiser", "StrideOptimizer"),
    "StridePlan": ("diffstride.strides.plan", "StridePlan"),
    "Timings": ("diffstride.analysis.timings", "Timings"),
    "convert": ("diffstride.surgery.convert", "convert"),
    "cost": ("diffstride.analysis.cost", "cost"),
    "export_onnx": ("diffstride.surgery.export", "export_onnx"),
    "fit_budget": ("diffstride.analysis.budget", "fit_budget"),
    "freeze": ("diffstride.surgery.freeze", "freeze"),
    "parameter_groups": ("diffstride.analysis.training", "parameter_groups"),
    "search": ("diffstride.strides.search", "search"),
    "soft_macs": ("diffstride.analysis.cost", "soft_macs"),
    "stride_plan": ("diffstride.strides.levels", "stride_plan"),
    "stride_penalty": ("diffstride.analysis.training", "stride_penalty"),
    "stride_table": ("diffstride.analysis.stride_table", "stride_table"),
    "functional": ("diffstride.functional", None),
    "models": ("diffstride.models", None),
}


__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that the command line answers without torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'diffstride' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    found = importlib.import_module(module)
    value = found if attribute is None else getattr(found, attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
