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
        ((3, 3), "circular", 4.0),
        ((3, 3), "circular", 0.5),
        ((1, 1), "zeros", 4.0),
        ((1, 3), "zeros", 4.0),
        ((3, 1), "zeros", 4.0),
    ]
    sizes = (
        [(64, 128, 32)]
        if options.quick
        else [(64, 128, 32), (128, 256, 32), (64, 128, 24), (128, 256, 24)]
    )
    rows = []
    for inputs, outputs, n in sizes:
        for kernel, mode, smoothness in cases:
            x = torch.randn(32, inputs, n, n, requires_grad=True)
            padding = tuple(k // 2 for k in kernel)
            make = {"padding": padding, "padding_mode": mode, "smoothness": smoothness}
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
                    "R": smoothness,
                    "ours ms": 1e3 * ours,
                    "after": times["after"] / ours,
                    "strided": times["strided"] / ours,
                    "ours / after": ours / times["after"],
                    "ours / strided": ours / times["strided"],
                }
            )
    harness.report("conv", rows, options, "float32, S = 2, batch 32; contenders: time / ours")


if __name__ == "__main__":
    main()
