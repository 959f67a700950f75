"""Networks that were trained, wherever they are kept: in a run, an ONNX file or a folder."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from diffstride import models
from diffstride.lab.inference.preprocessing import Preparation, describe, read
from diffstride.lab.runs.run_folder import Run
from diffstride.models.pretrained import CONFIG, read_config

EXPECTED = "the folder of a run, an exported .onnx file, or a folder that `diffstride export` wrote"


class TrainedModel(NamedTuple):
    """A network that was trained, and how files are prepared for it."""

    where: str
    """What messages call it."""
    preparation: Preparation
    outputs: Callable[[Tensor], Any]
    """Makes the scores of inputs: a tensor, one by the name of each task, or a list of them."""

    def scores(self, x: Tensor) -> list[Tensor]:
        """Return the scores that each task gives to inputs.

        Raises:
            ValueError: if there are not as many as classes.
        """
        outputs, classes = self.outputs(x), self.preparation.classes
        if isinstance(outputs, dict):
            outputs = [outputs[task] for task in classes]
        scores = [outputs] if isinstance(outputs, Tensor) else list(outputs)
        numbers, expected = [y.shape[-1] for y in scores], [len(c) for c in classes.values()]
        if numbers != expected:
            raise ValueError(
                f"{self.where} has outputs for {numbers} classes, and names for {expected}"
            )
        return scores


def open_model(path: str | Path, best: bool = False) -> TrainedModel:
    """Return the network in a file or folder.

    Raises:
        ValueError: if there is none, or it can't be read; the message says what was expected.
    """
    where, place = str(path), Path(path).expanduser()
    if not place.exists():
        raise ValueError(f"{path} does not exist: it must be {EXPECTED}")
    if (place / "config.yaml").exists():
        from diffstride.lab.training.trained_run import load_model  # with all that training needs

        run = Run.open(place)
        preparation = read(describe(run.config.data, run.data), str(place / "data.json"))
        return TrainedModel(where, preparation, load_model(run, best))
    if best:
        raise ValueError(f"--best is for the folder of a run, and {path} is none")
    if (place / CONFIG).exists():
        preparation = read(read_config(place)["metadata"], where)
        return TrainedModel(where, preparation, models.from_pretrained(place))
    if place.is_dir():
        raise ValueError(f"{path} has neither config.yaml nor {CONFIG}: it must be {EXPECTED}")
    if place.suffix.lower() != ".onnx":
        raise ValueError(f"{path}: unknown format {place.suffix}: it must be {EXPECTED}")
    return _open_onnx(place)


def _open_onnx(path: Path) -> TrainedModel:
    try:
        import onnxruntime
    except ImportError as error:
        raise ImportError(
            f"reading ONNX needs {error.name}: pip install 'diffstride[export]'"
        ) from error
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors: its warnings are on how it computes
    try:
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{path} can't be read as ONNX: {reason}") from error
    texts = session.get_modelmeta().custom_metadata_map
    try:
        metadata = {k: json.loads(texts[k]) for k in ("classes", "preprocessing") if k in texts}
    except ValueError:  # the file of another program
        metadata = {}
    (name,) = (x.name for x in session.get_inputs())

    def outputs(x: Tensor) -> list[Tensor]:
        return [torch.from_numpy(y) for y in session.run(None, {name: x.numpy()})]

    return TrainedModel(str(path), read(metadata, str(path)), outputs)
