"""What a layer keeps for its backward pass, in bytes.

    python -m benchmarks.memory [--quick]

Counted, not sampled: every tensor that autograd saves, each storage once, without the input itself
and without parameters. Figures are relative to the bytes of the layer's output.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks import contenders, harness
from benchmarks.layer import SHAPES
from diffstride import DiffStride2d


def bytes_kept(layer: Callable[[Tensor], Tensor], x: Tensor) -> tuple[int, int]:
    """Bytes saved by autograd while ``layer`` runs, and bytes of its output."""
    storages: dict[int, int] = {}
    known = {x.untyped_storage().data_ptr()}
    if isinstance(layer, nn.Module):
        known |= {p.untyped_storage().data_ptr() for p in layer.parameters()}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        y = layer(x)
    return sum(storages.values()), y.nbytes


def main() -> None:
    options = harness.arguments(__doc__)
    rows = []
    for shape in SHAPES[:2] if options.quick else SHAPES:
        x = torch.randn(shape, requires_grad=True)
        ours, textbook = DiffStride2d(2.0), contenders.TextbookFFT(2.0)
        kept, output = bytes_kept(ours, x)
        kept_textbook, _ = bytes_kept(textbook, x)
        with torch.no_grad():
            kept_eval, _ = bytes_kept(ours.eval(), x)
        rows.append(
            {
                "shape": "×".join(map(str, shape)),
                "output MiB": output / 2**20,
                "ours / output": kept / output,
                "textbook / output": kept_textbook / output,
                "textbook / input": kept_textbook / x.nbytes,
                "ours in eval": kept_eval,
            }
        )
    harness.report("memory", rows, options, "float32, S = 2, R = 4; bytes kept for backward")


if __name__ == "__main__":
    main()
