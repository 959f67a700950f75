"""A network that was trained, wherever it is kept: in a run, an ONNX file or a folder."""

import json
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from diffstride import models
from diffstride.lab.inference.preprocessing import Preparation, describe, read
from diffstride.lab.runs.run_folder import Run
from diffstride.models.pretrained import read_config

Score = Callable[[Tensor], list[Tensor]]
"""From inputs to the scores of each task."""
MODEL = "the folder of a run, an exported .onnx file, or a folder that `diffstride export` wrote"


def open_model(path: str | Path, best: bool = False) -> tuple[Preparation, Score]:
    """A network that was trained, and how files are prepared for it.

    Raises:
        ValueError: if there is none, or it can't be read; the message says what was expected.
    """
    place = Path(path).expanduser()
    if not place.exists():
        raise ValueError(f"{path} does not exist: it must be {MODEL}")
    if place.is_dir() and (place / "config.yaml").exists():
        return _open_run(place, best)
    if best:
        raise ValueError(f"--best is for the folder of a run, and {path} is none")
    if place.is_dir() and (place / "config.json").exists():
        preparation = read(read_config(place)["metadata"], str(path))
        return preparation, _of_network(models.from_pretrained(place), preparation, str(path))
    if place.is_dir():
        raise ValueError(f"{path} has neither config.yaml nor config.json: it must be {MODEL}")
    if place.suffix.lower() != ".onnx":
        raise ValueError(f"{path}: unknown format {place.suffix}: it must be {MODEL}")
    return _open_onnx(place)


def _open_run(folder: Path, best: bool) -> tuple[Preparation, Score]:
    from diffstride.lab.training.trained_run import load_model  # with all that training needs

    run = Run.open(folder)
    preparation = read(describe(run.config.data, run.data), str(folder / "data.json"))
    return preparation, _of_network(load_model(run, best), preparation, str(folder))


def _open_onnx(path: Path) -> tuple[Preparation, Score]:
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
    props = session.get_modelmeta().custom_metadata_map
    try:
        metadata = {k: json.loads(props[k]) for k in ("classes", "preprocessing") if k in props}
    except ValueError:  # of somebody else
        metadata = {}
    preparation = read(metadata, str(path))
    (name,) = (x.name for x in session.get_inputs())

    def score(x: Tensor) -> list[Tensor]:
        return [torch.from_numpy(y) for y in session.run(None, {name: x.numpy()})]

    return preparation, _checked(score, preparation, str(path))


def _of_network(model: nn.Module, preparation: Preparation, where: str) -> Score:
    def score(x: Tensor) -> list[Tensor]:
        found = model(x)
        return [found[task] for task in preparation.classes] if isinstance(found, dict) else [found]

    return _checked(score, preparation, where)


def _checked(score: Score, preparation: Preparation, where: str) -> Score:
    """Scores, if there are as many as classes."""
    expected = [len(names) for names in preparation.classes.values()]

    def checked(x: Tensor) -> list[Tensor]:
        scores = score(x)
        numbers = [y.shape[-1] for y in scores]
        if numbers != expected:
            raise ValueError(f"{where} has outputs for {numbers} classes, and names for {expected}")
        return scores

    return checked
