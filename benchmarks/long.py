"""A long axis as it is used: learnable, frozen, and in a file that onnxruntime runs.

    python -m benchmarks.long [--quick]

8 signals of 16 channels, or as many maps with one long axis, in eval mode, S = 4 and R = 4. Frozen
layers do a long axis by FFT, as learnable ones do; a file has no FFT, and does it by products of
small matrices. One size has an odd length to come out, and one is a prime number itself.
"""

import logging
import tempfile
from pathlib import Path

import torch

from benchmarks import harness
from diffstride import DiffStride1d, DiffStride2d, export_onnx, freeze

CASES = (
    ((16000,), 4.0),
    ((64, 1000), 4.0),
    ((1000,), 4.0),
    ((8192,), 4.0),
    ((16000,), 4.003),
    ((16001,), 4.0),
    ((44100,), 4.0),
)


def main() -> None:
    options = harness.arguments(__doc__)
    import onnxruntime

    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = options.threads
    rows = []
    for size, stride in CASES[:2] if options.quick else CASES:
        torch.manual_seed(0)
        layer = (DiffStride1d(stride) if len(size) == 1 else DiffStride2d(stride)).eval()
        x = torch.randn(8, 16, *size)
        frozen = freeze(layer, x.shape[1:])
        with tempfile.TemporaryDirectory() as folder:
            path = export_onnx(layer, Path(folder) / "layer.onnx", x.shape[1:])
            megabytes = path.stat().st_size / 1e6
            session = onnxruntime.InferenceSession(
                path, settings, providers=["CPUExecutionProvider"]
            )
        fed = {"input": x.numpy()}
        with torch.inference_mode():
            expected = layer(x)
            off = (torch.from_numpy(session.run(None, fed)[0]) - expected).abs().max()
            times = harness.interleaved(
                {
                    "unfrozen": lambda layer=layer, x=x: layer(x),
                    "frozen": lambda frozen=frozen, x=x: frozen(x),
                    "file": lambda session=session, fed=fed: session.run(None, fed),
                },
                options.rounds,
            )
        rows.append(
            {
                "size": "×".join(map(str, size)),
                "to": "×".join(map(str, expected.shape[2:])),
                **{f"{side} ms": 1e3 * seconds for side, seconds in times.items()},
                "frozen / unfrozen": times["frozen"] / times["unfrozen"],
                "file / unfrozen": times["file"] / times["unfrozen"],
                "file MB": megabytes,
                "difference": float(off / expected.abs().max()),
            }
        )
    harness.report("long", rows, options, "float32, eval, 8×16 maps, R = 4")


if __name__ == "__main__":
    main()
