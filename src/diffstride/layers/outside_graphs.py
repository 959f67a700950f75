"""What compiled code must leave its graph for. Imported by it alone: this loads the compiler."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from diffstride.layers.diffstride import DiffStrideNd


@torch.compiler.disable  # type: ignore[untyped-decorator]
def project(layer: "DiffStrideNd", size: Sequence[int]) -> tuple[int, ...]:
    """Read the layer's stride on the host, as no graph can."""
    return layer.project(size)
