"""How the cost grows, and whether the choice between matrices and FFT is the right one.

    python -m benchmarks.scaling [--quick]

First, training steps along one axis from 16 to 65,536 samples with 8 to 512 channels, batch as
large as keeps the input at 2 million numbers: times relative to the better path. Then training
steps on images, one of size, channels and batch growing at a time: milliseconds. The figure of it,
docs/figures/cost.svg, is drawn by `python -m docs.cost`.
"""

import argparse
from typing import Any

import torch

from benchmarks import contenders, harness
from benchmarks.layer import training
from diffstride import DiffStride1d, DiffStride2d

# Batch, channels, side: what is varied starts from here.
IMAGES = {"batch": 16, "channels": 64, "side": 64}


def growth(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Times in milliseconds of a training step, as one dimension of the images grows."""
    ranges = {
        "side": [16, 32, 64, 128, 256],
        "channels": [8, 32, 128, 512],
        "batch": [1, 4, 16, 64],
    }
    rows = []
    for varied, values in ranges.items():
        for value in values[:2] if options.quick else values:
            batch, channels, side = ({**IMAGES, varied: value}[name] for name in IMAGES)
            x = torch.randn(batch, channels, side, side, requires_grad=True)
            sides = {
                "diffstride": DiffStride2d(2.0),
                "textbook": contenders.TextbookFFT(2.0),
                "avg_pool": contenders.average_pool,
                "strided conv": contenders.strided_convolution(channels),
            }
            times = harness.interleaved(
                {name: training(layer, x) for name, layer in sides.items()},
                min(options.rounds, 9),
            )
            row = {"varied": varied, "value": value, "images": f"{batch}×{channels}×{side}²"}
            rows.append(row | {name: 1e3 * t for name, t in times.items()})
    return rows


def main() -> None:
    options = harness.arguments(__doc__)
    rows = []
    lengths = [16, 64, 128, 192, 256, 1024, 4096, 16_384, 65_536]
    channel_counts = [8, 64, 512]
    if options.quick:
        lengths, channel_counts = [64, 256, 1024], [64]
    for stride in (2.0, 8.0):
        for n in lengths:
            for channels in channel_counts:
                batch = max(1, 2**21 // (n * channels))
                if batch * n * channels > 2**23:
                    continue
                x = torch.randn(batch, channels, n, requires_grad=True)
                paths = ["auto", "fft"]
                # Beyond, the matrices alone would take gigabytes.
                if n <= 4096:
                    paths.append("operator")
                layers = {path: DiffStride1d(stride, path=path) for path in paths}
                times = harness.interleaved(
                    {path: training(layer, x) for path, layer in layers.items()}, options.rounds
                )
                best = min(times[path] for path in paths if path != "auto")
                rows.append(
                    {
                        "N": n,
                        "S": stride,
                        "channels": channels,
                        "batch": batch,
                        "best ms": 1e3 * best,
                        "auto": times["auto"] / best,
                        "operator": times.get("operator", float("nan")) / best,
                        "fft": times["fft"] / best,
                    }
                )
    harness.report("scaling", rows, options, "float32, R = 4; time / the better path's")
    print()
    note = "float32, S = 2, R = 4; ms a training step"
    harness.report("growth", growth(options), options, note)


if __name__ == "__main__":
    main()
