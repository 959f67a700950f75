"""What compiled code needs from outside of its graph.

Imported by such code alone: this loads the compiler.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from diffstride.layers.diffstride import DiffStrideNd


@torch.compiler.disable  # type: ignore[untyped-decorator]
def projected_size(layer: "DiffStrideNd", size: Sequence[int]) -> tuple[int, ...]:
    """Return the size that a layer makes; its stride is read on the host, as no graph can."""
    return layer.rule.size_after(size, layer.project())


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def is_graph_whole() -> bool:
    """Whether the graph that is being made must not be left: ``fullgraph=True``, or an export.

    Where torch does not say, as if it were so: then the graph itself checks what it can't read.
    """
    from torch._dynamo.symbolic_convert import InstructionTranslator

    try:
        maker = InstructionTranslator.current_tx()
        return bool(maker.one_graph or getattr(maker, "error_on_graph_break", False))
    except (AttributeError, LookupError, RuntimeError):
        return True
