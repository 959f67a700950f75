"""The network of a run as a file or folder that works without the run."""

import json
from pathlib import Path

from diffstride import models
from diffstride.analysis.stride_table import stride_table
from diffstride.lab.inference.preprocessing import describe
from diffstride.lab.runs.run_folder import Run
from diffstride.lab.training.trained_run import load_model
from diffstride.models.pretrained import CONFIG, WEIGHTS
from diffstride.surgery.export import export_onnx
from diffstride.text import times


def export_run(folder: str | Path, path: str | Path | None = None, best: bool = False) -> list[str]:
    """Write the network of a run, with its classes and preprocessing; return lines that say so.

    Args:
        folder: of the run.
        path: a file ``*.onnx`` or a folder, as :func:`diffstride.models.save_pretrained` writes it;
            ``model.onnx`` in the folder of the run unless given.
        best: the epoch that was best on the test data, instead of the last.

    Raises:
        ValueError: for another format, or a folder that has no run, or none with a checkpoint.
    """
    run = Run.open(folder)
    target = run.folder / "model.onnx" if path is None else Path(path).expanduser()
    as_onnx = target.suffix.lower() == ".onnx"
    if as_onnx and target.is_dir():
        raise ValueError(f"{target} is a folder: give the name of a file in it")
    if not as_onnx and target.suffix and not target.is_dir():
        raise ValueError(f"{target}: unknown format {target.suffix}: .onnx or a folder")
    if not as_onnx and target.is_file():
        raise ValueError(f"{target} is a file already: a name without .onnx is that of a folder")
    size = tuple(run.data["size"])
    model = load_model(run, best)
    metadata = describe(run.config.data, run.data)
    if as_onnx:
        export_onnx(model, target, size, metadata={k: json.dumps(v) for k, v in metadata.items()})
        files, checked = [target], ", checked with onnxruntime"
    else:
        models.save_pretrained(model, target, metadata)
        files, checked = [target / name for name in (CONFIG, WEIGHTS)], ""
    megabytes = sum(file.stat().st_size for file in files) / 1e6
    lines = [f"{target}: {megabytes:.2f} MB{checked}"]
    if run.config.model.downsampling in ("diffstride", "spectral"):
        rows = stride_table(model, size).rows
        lines.append(f"strides {', '.join(times(row.strides, '{:.2f}') for row in rows)}")
    return lines
