"""How a graph that is being made knows the size that a stride makes, which it can't read itself.

Imported by compiled code alone: this loads the compiler.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

from diffstride.layers.diffstride import DiffStrideNd
from diffstride.layers.size_read import SizeRead
from diffstride.layers.undo import ToSize

STALE = (
    "a stride has changed since this graph was made, and sizes may be others now: call eval() on "
    "the model, and run the compiled model or export the model again"
)


def output_size(layer: DiffStrideNd, size: Sequence[int]) -> tuple[int, ...]:
    """Return the size that a layer makes, for a graph that is being made."""
    rule = layer.rule
    if layer.training and not torch.compiler.is_dynamo_compiling():
        raise RuntimeError("training mode can't be exported: call eval() on the model first")
    if not layer.training and (rule.output_size is not None or not rule.crop):
        # The size is the same whatever the stride, but that must be a number.
        finite = layer.differentiable_strides().isfinite().all()
        torch._assert_async(finite, "stride must be finite")
        return rule.size_after(size, ())
    if layer.training or not is_graph_whole():
        return projected_size(layer, size)  # type: ignore[no-any-return]
    # The stride is the one that was last read, and the graph checks that.
    known = last_read(layer)
    same = layer.differentiable_strides() == layer.stride.new_tensor(known)
    torch._assert_async(same.all(), STALE)
    return layer.size_after(size, known)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def projected_size(layer: DiffStrideNd, size: Sequence[int]) -> tuple[int, ...]:
    """Return the size that a layer makes; its stride is read on the host, outside of the graph."""
    return layer.size_after(size, layer.project())


def size_to_make(layer: ToSize) -> tuple[int, ...]:
    """Return the size that was noted for a layer, for a graph that is being made.

    A whole graph has both layers in it. In one of several, a number that is kept on a module would
    be a constant, and each size need another graph: what comes from outside is an argument.
    """
    return layer.size_to_make() if is_graph_whole() else _size_to_make(layer)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _size_to_make(layer: ToSize) -> tuple[int, ...]:
    return layer.size_to_make()


def note(read: SizeRead, size: tuple[int, ...]) -> None:
    """Remember a size that is read, for a graph that is being made; see ``size_to_make``."""
    # The compiler leaves what has no tensors to Python, and so may leave this.
    if torch.compiler.is_dynamo_compiling() and is_graph_whole():
        read.note_in_graph(size)
    else:
        _note(read, size)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _note(read: SizeRead, size: tuple[int, ...]) -> None:
    read.note_in_thread(size)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def is_graph_whole() -> bool:
    """Return whether the graph must not be left: with ``fullgraph=True``, or in an export."""
    from torch._dynamo.symbolic_convert import InstructionTranslator

    try:
        maker = InstructionTranslator.current_tx()
        return bool(maker.one_graph or getattr(maker, "error_on_graph_break", False))
    except (AttributeError, LookupError, RuntimeError):
        return True  # torch does not say: then the graph checks the stride, which is always right


def last_read(layer: DiffStrideNd) -> tuple[float, ...]:
    """Return the strides that were last read, or those of a parameter that torch.export hides."""
    known = layer._reading.parameter
    if torch.compiler.is_dynamo_compiling() or known is None:
        return layer._reading.strides  # dynamo makes a graph anew if they change
    # torch.export has put a tensor without values in the place of the parameter, and looks at
    # all that is done in this thread.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: layer.in_range(known.tolist())).result()
