"""What a layer keeps for its backward pass, and the peak of whole training steps, in bytes.

    python -m benchmarks.memory [--quick]

Counted, not sampled. Of a layer: every tensor that autograd saves, each storage once, without the
input itself and without parameters, relative to the bytes of the layer's output. Of a network:
the most bytes that are alive at any time of a training step, every tensor that an operation makes
included, relative to the same network with a resize that costs nothing and keeps nothing in place
of each layer.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks import contenders, harness
from benchmarks.layer import SHAPES
from benchmarks.network import NETWORKS, inputs, network, training_step
from diffstride import DiffStride2d
from diffstride.lab.sweeps.step_cost import peak_bytes


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


class FreeResize(nn.Module):
    """The size that a layer makes, without its filter: nothing is kept for the backward pass."""

    def __init__(self, layer: DiffStride2d) -> None:
        super().__init__()
        self.output_size = layer.output_size

    def forward(self, x: Tensor) -> Tensor:
        return F.interpolate(x, self.output_size(x.shape[2:]))


def with_free_resizes(model: nn.Module) -> nn.Module:
    model = copy.deepcopy(model)
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, DiffStride2d):
                setattr(parent, name, FreeResize(child))
    return model


def peak_of_a_step(model: nn.Module, x: Tensor) -> int:
    step = training_step(model, x)
    step()  # makes gradients and momenta, which stay
    return peak_bytes(step, x.device)


def networks(options: Any) -> list[dict[str, Any]]:
    rows = []
    for name in NETWORKS:
        model, x = network(name), inputs(name, options.quick)
        ours, free = (peak_of_a_step(m, x) for m in (model, with_free_resizes(model)))
        shape = "×".join(map(str, x.shape))
        rows.append(
            {
                "network": name,
                "input": shape,
                "ours MiB": ours / 2**20,
                "free resize MiB": free / 2**20,
                "ours / free resize": ours / free,
            }
        )
    return rows


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
    print()
    note = "float32, S = 2, R = 4; peak bytes of a training step with SGD"
    harness.report("memory_networks", networks(options), options, note)


if __name__ == "__main__":
    main()
