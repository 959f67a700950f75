"""The network of a run as a file or folder that needs the run no more."""

import json
from pathlib import Path

from diffstride import models
from diffstride.analysis.stride_table import stride_table
from diffstride.lab.inference.preprocessing import describe
from diffstride.lab.runs.run_folder import Run
from diffstride.lab.training.trained_run import load_model
from diffstride.models.pretrained import CONFIG, WEIGHTS
from diffstride.surgery.export import export_onnx


def export(folder: str | Path, path: str | Path | None = None, best: bool = False) -> list[str]:
    """Write the network of a run, with its classes and preprocessing, and say what was written.

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
    whole = target.suffix.lower() == ".onnx"
    if whole and target.is_dir():
        raise ValueError(f"{target} is a folder: give the name of a file in it")
    if not whole and target.suffix and not target.is_dir():
        raise ValueError(f"{target}: unknown format {target.suffix}: .onnx or a folder")
    if not whole and target.is_file():
        raise ValueError(f"{target} is a file already: a name without .onnx is that of a folder")
    facts = run.data
    size = tuple(facts["size"])
    model = load_model(run, best)
    described = describe(run.config.data, facts)
    if whole:
        export_onnx(model, target, size, metadata={k: json.dumps(v) for k, v in described.items()})
        written, how = [target], ", checked with onnxruntime"
    else:
        models.save_pretrained(model, target, described)
        written, how = [target / name for name in (CONFIG, WEIGHTS)], ""
    megabytes = sum(file.stat().st_size for file in written) / 1e6
    lines = [f"{target}: {megabytes:.2f} MB{how}"]
    if run.config.model.downsampling in ("diffstride", "spectral"):
        rows = stride_table(model, size).rows
        strides = (" × ".join(f"{stride:.2f}" for stride in row.strides) for row in rows)
        lines.append(f"strides {', '.join(strides)}")
    return lines
