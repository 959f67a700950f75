"""Convolution with a learnable stride: its order against the plain one, and against a fixed stride.

    python -m benchmarks.conv [--quick]

Forward and backward to everything. "after" is convolution, then downsampling; "strided" is
``nn.Conv2d(stride=2)``. Figures are times relative to ours.
"""

import torch
from torch import nn

from benchmarks import harness
from benchmarks.layer import training
from diffstride import DiffStrideConv2d


def main() -> None:
    options = harness.arguments(__doc__)
    cases = [
        ((3, 3), "zeros", "tight", 1.0),
        ((1, 1), "zeros", "tight", 1.0),
        ((1, 3), "zeros", "tight", 1.0),
        ((3, 1), "zeros", "tight", 1.0),
        ((3, 3), "circular", "tight", 1.0),
        ((3, 3), "zeros", "paper", 4.0),
        ((1, 1), "zeros", "paper", 4.0),
        ((3, 3), "circular", "paper", 4.0),
    ]
    stem = ((7, 7), "zeros", "tight", 1.0)
    sizes = [(64, 128, 32, cases)]
    if not options.quick:
        sizes += [(128, 256, 24, cases), (3, 64, 224, [stem])]
    rows = []
    for inputs, outputs, n, some in sizes:
        for kernel, mode, convention, smoothness in some:
            x = torch.randn(32 if n < 100 else 8, inputs, n, n, requires_grad=True)
            padding = tuple(k // 2 for k in kernel)
            make = {"padding": padding, "padding_mode": mode}
            make |= {"smoothness": smoothness, "convention": convention}
            layers = {
                "ours": DiffStrideConv2d(inputs, outputs, kernel, 2.0, **make),
                "after": DiffStrideConv2d(inputs, outputs, kernel, 2.0, order="after", **make),
                "strided": nn.Conv2d(
                    inputs, outputs, kernel, 2, padding=padding, padding_mode=mode
                ),
            }
            times = harness.interleaved(
                {name: training(layer, x) for name, layer in layers.items()}, options.rounds
            )
            ours = times["ours"]
            rows.append(
                {
                    "channels": f"{inputs}→{outputs}",
                    "size": f"{n}×{n}",
                    "kernel": "×".join(map(str, kernel)),
                    "padding": mode,
                    "window": f"{convention}, R = {smoothness:g}",
                    "ours ms": 1e3 * ours,
                    "after": times["after"] / ours,
                    "strided": times["strided"] / ours,
                    "ours / after": ours / times["after"],
                    "ours / strided": ours / times["strided"],
                }
            )
    note = "float32, S = 2, batch 32 (8 at 224×224); contenders: time / ours"
    harness.report("conv", rows, options, note)


if __name__ == "__main__":
    main()
