"""Matrices or FFT for one axis: is the automatic choice close to the better of the two?

    python -m benchmarks.scaling [--quick]

Training steps along one axis from 16 to 65,536 samples with 8 to 512 channels, batch as large as
keeps the input at 2 million numbers. Figures are times relative to the better path.
"""

import torch

from benchmarks import harness
from benchmarks.layer import training
from diffstride import DiffStride1d


def main() -> None:
    options = harness.arguments(__doc__)
    rows = []
    lengths = [16, 64, 256, 1024, 4096, 16_384, 65_536]
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


if __name__ == "__main__":
    main()
