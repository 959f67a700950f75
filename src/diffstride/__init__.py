"""Convolutional networks that learn their own strides."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diffstride import functional as functional
    from diffstride import models as models
    from diffstride.layers import DiffStride1d as DiffStride1d
    from diffstride.layers import DiffStride2d as DiffStride2d
    from diffstride.layers import DiffStride3d as DiffStride3d
    from diffstride.layers import DiffStrideConv1d as DiffStrideConv1d
    from diffstride.layers import DiffStrideConv2d as DiffStrideConv2d
    from diffstride.layers import DiffStrideConv3d as DiffStrideConv3d
    from diffstride.layers import SpectralPool1d as SpectralPool1d
    from diffstride.layers import SpectralPool2d as SpectralPool2d
    from diffstride.layers import SpectralPool3d as SpectralPool3d
    from diffstride.tools import convert as convert
    from diffstride.tools import cost as cost
    from diffstride.tools import export_onnx as export_onnx
    from diffstride.tools import fit_budget as fit_budget
    from diffstride.tools import freeze as freeze
    from diffstride.tools import parameter_groups as parameter_groups
    from diffstride.tools import soft_macs as soft_macs
    from diffstride.tools import stride_penalty as stride_penalty
    from diffstride.tools import stride_table as stride_table

__version__ = "0.1.0"

_LAYERS = [
    f"{kind}{n}d" for kind in ("DiffStride", "DiffStrideConv", "SpectralPool") for n in (1, 2, 3)
]
_TOOLS = [
    "convert",
    "cost",
    "export_onnx",
    "fit_budget",
    "freeze",
    "parameter_groups",
    "soft_macs",
    "stride_penalty",
    "stride_table",
]
_HOMES = {
    **{name: ("diffstride.layers", name) for name in _LAYERS},
    **{name: ("diffstride.tools", name) for name in _TOOLS},
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
