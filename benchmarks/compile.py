"""torch.compile: how many graphs while strides move, and whether compiled eval is faster.

python -m benchmarks.compile [--quick]
"""

import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

from benchmarks import harness
from benchmarks.layer import evaluation
from diffstride import DiffStride2d


def graphs_over(strides: list[float]) -> int:
    """How many graphs one layer in training makes while its stride takes these values."""
    counter = CompileCounterWithBackend("inductor")
    layer = DiffStride2d(2.0)
    compiled = torch.compile(layer, backend=counter)
    x = torch.randn(2, 3, 32, 32)
    for stride in strides:
        with torch.no_grad():
            layer.stride.fill_(stride)
        compiled(x).sum().backward()
    return int(counter.frame_count)


def main() -> None:
    options = harness.arguments(__doc__)
    count = 5 if options.quick else 20
    graphs = graphs_over([1.0 + 0.2 * i for i in range(count)])
    rows = []
    for shape in [(16, 64, 32, 32)] if options.quick else [(16, 64, 32, 32), (16, 64, 112, 112)]:
        block = nn.Sequential(
            nn.Conv2d(shape[1], shape[1], 3, padding=1), nn.ReLU(), DiffStride2d(2.0)
        ).eval()
        x = torch.randn(shape)
        times = harness.interleaved(
            {
                "eager": evaluation(block, x),
                "compiled": evaluation(torch.compile(block, fullgraph=True), x),
            },
            options.rounds,
        )
        rows.append(
            {
                "shape": "×".join(map(str, shape)),
                "eager ms": 1e3 * times["eager"],
                "compiled / eager": times["compiled"] / times["eager"],
                f"graphs over {count} strides": graphs,
            }
        )
    harness.report(
        "compile", rows, options, "float32, R = 4; convolution, ReLU, DiffStride in eval"
    )


if __name__ == "__main__":
    main()
