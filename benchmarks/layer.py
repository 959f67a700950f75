"""The layer against other ways to halve an image: times, forward and backward.

    python -m benchmarks.layer [--quick]

Training is forward, then backward to the input and, where there is one, to the stride. Eval is
forward alone without gradients. Figures are times relative to ours: 3 means three times slower. As
in the paper the window falls behind the cut-off, over R = 4 frequencies, and more samples stay than
others keep; a tight one falls before it, here over R = 1, and as many stay as of any pooling.
"G MACs/s" is how many multiply-accumulates our matrix products do in a second, in billions; in the
note stands how many one large product does, which is what they could reach at best.
"""

import itertools
import math
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks import contenders, harness
from diffstride import DiffStride2d
from diffstride.core.work import resampling_macs

SHAPES = [
    (64, 64, 32, 32),
    (64, 128, 24, 24),
    (64, 64, 64, 100),
    (16, 64, 112, 112),
    (8, 64, 224, 224),
]
RULES = [("paper", 4.0), ("tight", 1.0)]


def training(layer: Callable[[Tensor], Tensor], x: Tensor) -> Callable[[], None]:
    gradient = torch.randn_like(layer(x))
    parameters = [p for p in layer.parameters()] if isinstance(layer, torch.nn.Module) else []

    def step() -> None:
        x.grad = None
        for parameter in parameters:
            parameter.grad = None
        layer(x).backward(gradient)

    return step


def evaluation(layer: Callable[[Tensor], Tensor], x: Tensor) -> Callable[[], None]:
    def step() -> None:
        with torch.no_grad():
            layer(x)

    return step


def work(layer: DiffStride2d, shape: tuple[int, ...], mode: str) -> int:
    """Multiply-accumulates of a step: one matrix an axis, or there and back, and the same again."""
    size, kept = shape[2:], layer.output_size(shape[2:])
    one_way = resampling_macs(size, kept, None)
    back = resampling_macs(kept, kept, None)
    return math.prod(shape[:2]) * (one_way if mode == "eval" else 2 * (one_way + back))


def peak() -> float:
    """Billions of multiply-accumulates a second in one large product."""
    x = torch.randn(2048, 2048)
    (seconds,) = harness.interleaved({"product": lambda: x @ x}, 9).values()
    return 2048**3 / seconds / 1e9


def main() -> None:
    options = harness.arguments(__doc__)
    rows = []
    shapes = SHAPES[:2] if options.quick else SHAPES
    for (convention, smoothness), shape in itertools.product(RULES, shapes):
        x = torch.randn(shape, requires_grad=True)
        channels = shape[1]
        layers = {
            "diffstride": DiffStride2d(2.0, smoothness=smoothness, convention=convention),
            "textbook": contenders.TextbookFFT(2.0, smoothness, convention),
            "avg_pool": contenders.average_pool,
            "strided conv": contenders.strided_convolution(channels),
            "blur pool": contenders.BlurPool(channels),
            "interpolate": contenders.interpolate,
        }
        for mode, make in (("training", training), ("eval", evaluation)):
            if mode == "eval":
                layers["diffstride"].eval()
            times = harness.interleaved(
                {name: make(layer, x) for name, layer in layers.items()}, options.rounds
            )
            ours = times["diffstride"]
            row = {
                "window": f"{convention}, R = {smoothness:g}",
                "shape": "×".join(map(str, shape)),
            }
            row |= {"mode": mode, "ours ms": 1e3 * ours}
            row |= {name: t / ours for name, t in times.items() if name != "diffstride"}
            row["ours / avg_pool"] = ours / times["avg_pool"]
            row["G MACs/s"] = work(layers["diffstride"], shape, mode) / ours / 1e9
            rows.append(row)
    note = f"float32, S = 2; contenders: time / ours; a large product: {peak():.0f} G MACs/s"
    harness.report("layer", rows, options, note)


if __name__ == "__main__":
    main()
