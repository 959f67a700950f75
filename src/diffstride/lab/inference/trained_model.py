"""Networks that were trained: opened wherever they are kept, and exported to work without a run."""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from diffstride import models
from diffstride.analysis.stride_table import stride_table
from diffstride.lab.data import images, pictures, spectrogram
from diffstride.lab.data.labelled_files import DataError
from diffstride.lab.data.recordings import WINDOW_LENGTH
from diffstride.lab.runs.config import OF_TORCH
from diffstride.lab.runs.data_config import DataConfig
from diffstride.lab.runs.run_folder import Run
from diffstride.models.pretrained import CONFIG, WEIGHTS, read_config
from diffstride.surgery.export import export_onnx
from diffstride.text import times

EXPECTED = "the folder of a run, an exported .onnx file, or a folder that `diffstride export` wrote"
RESTORED = "(input - output) * std + mean"
"""What a network that takes noise away says of its outputs: how they make an image."""
_CONSTANTS = ("RATE", "HOP", "WINDOW", "FFT", "CHANNELS", "LOWEST", "HIGHEST", "FLOOR")


class Preparation(NamedTuple):
    """How files become inputs of a network, and what its outputs are called."""

    kind: str  # images, audio or signals
    classes: Mapping[str, tuple[str, ...]]  # in the order of outputs; a single task has no name
    size: tuple[int, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    margin: float | None = (
        None  # how much of the size a picture is scaled to cover; None: not scaled
    )
    rate: float | None = None  # of signals: samples a second, if they said it
    each: bool = False  # of signals: whether each is normalised by itself
    noise: float | None = (
        None  # that was learned to be taken away, if the network does not classify
    )

    def pixels(self, name: str, data: bytes, resize: bool) -> Tensor:
        """Return the image in a file as bytes (channels, height, width), or raise a DataError."""
        channels, height, width = self.size
        picture = pictures.open_picture(name, data).convert("L" if channels == 1 else "RGB")
        margin = self.margin
        if margin is None and picture.size != (width, height):
            if not resize:
                wrong = f"is {picture.height}×{picture.width}, and the network was trained on "
                advice = "--resize scales it, and takes its middle"
                raise DataError(f"{name} {wrong}{height}×{width}: {advice}")
            margin = 1.0
        if margin is not None:
            picture = pictures.middle(name, picture, (height, width), margin)
        return pictures.to_pixels(picture)


class TrainedModel(NamedTuple):
    """A network that was trained, and how files are prepared for it."""

    where: str  # what messages call it
    preparation: Preparation
    outputs: Callable[..., Any]  # makes scores: a tensor, one by the name of each task, a list
    is_fixed: bool = False  # whether inputs must have the size of the preparation

    def scores(self, x: Tensor, lengths: Tensor | None = None) -> list[Tensor]:
        """Return the scores that each task gives to inputs; as many as it has classes.

        Of signals, ``lengths`` says how many samples of each are real.
        """
        classes = self.preparation.classes
        outputs = self.outputs(x) if lengths is None else self.outputs(x, lengths)
        if isinstance(outputs, dict):
            outputs = [outputs[task] for task in classes]
        scores = [outputs] if isinstance(outputs, Tensor) else list(outputs)
        numbers, expected = [y.shape[-1] for y in scores], [len(c) for c in classes.values()]
        if numbers != expected:
            wrong = f"has outputs for {numbers} classes, and names for {expected}"
            raise ValueError(f"{self.where} {wrong}")
        return scores


def open_model(path: str | Path, best: bool = False) -> TrainedModel:
    """Return the network in a file or folder, or raise a ValueError that says what was expected."""
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
        advice = "pip install 'diffstride[export]'"
        raise ImportError(f"reading ONNX needs {error.name}: {advice}") from error
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

    return TrainedModel(str(path), read(metadata, str(path)), outputs, is_fixed=True)


def describe(config: DataConfig, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an exported network says about its data, of which data.json has the facts."""
    preprocessing = {"kind": config.kind, **{name: facts[name] for name in ("size", "mean", "std")}}
    if config.kind == "signals":
        preprocessing |= {name: facts[name] for name in ("rate", "normalise")}
    elif config.kind == "audio":
        seconds = WINDOW_LENGTH / spectrogram.RATE
        preprocessing |= {"seconds": seconds, "spectrogram": constants()}
    elif config.noise is not None:  # of images of any size
        preprocessing |= {"resize": None, "noise": config.noise, "restored": RESTORED}
    elif config.path is None or config.image_size is None:
        preprocessing["resize"] = None
    else:
        margin = images.MARGIN if config.inception_crop else 1.0
        preprocessing["resize"] = {"margin": margin, "interpolation": "bicubic"}
    classes = facts["classes"] if config.noise is None else []
    return {"classes": classes, "preprocessing": preprocessing}


def constants() -> dict[str, float]:
    """Return the constants of the spectrograms that this version makes."""
    return {name.lower(): getattr(spectrogram, name) for name in _CONSTANTS}


def read(metadata: Mapping[str, Any], where: str) -> Preparation:
    """Return what :func:`describe` said; a ValueError calls the network ``where``."""
    try:
        classes, described = metadata["classes"], metadata["preprocessing"]
        tasks = classes if isinstance(classes, Mapping) else {"": classes}
        kind, size = described["kind"], tuple(map(int, described["size"]))
        channels, *spatial = size
        mean, std = (tuple(map(float, described[name])) for name in ("mean", "std"))
        margin = float(described["resize"]["margin"]) if described.get("resize") else None
        rate, each = described.get("rate"), described.get("normalise") == "each"
        noise = described.get("noise")
        usable = {
            "kind": kind in ("images", "audio", "signals"),
            "size": (channels > 0 if kind == "signals" else channels in (1, 3))
            and len(spatial) == (1 if kind == "signals" else 2)
            and min(spatial) > 0
            and math.prod(spatial) <= pictures.MOST_PIXELS,
            "mean": len(mean) in (1, channels) and all(map(math.isfinite, mean)),
            "std": len(std) in (1, channels) and all(0 < value < math.inf for value in std),
            "resize": margin is None or 1 <= margin <= 10,
            "rate": rate is None or 0 < float(rate) < math.inf,
            "noise": noise is None or (kind == "images" and 0 < float(noise) <= 1),
        }
        for name, right in usable.items():
            if not right:
                raise ValueError(f"{name} {described[name]!r}")
        names = {task: tuple(map(str, labels)) for task, labels in tasks.items()}
        preparation = Preparation(kind, names, size, mean, std, margin, rate, each, noise)
        made_with = described["spectrogram"] if preparation.kind == "audio" else constants()
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        wrong = f"does not say its classes and how files are prepared for it ({error})"
        raise ValueError(f"{where} {wrong}: use what `diffstride export` wrote") from error
    if made_with != constants():
        wrong = f"spectrograms with {made_with}, and those made here have {constants()}"
        raise ValueError(f"{where} was trained on {wrong}")
    return preparation


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
    from diffstride.lab.training.trained_run import load_model

    run = Run.open(folder)
    target = run.folder / "model.onnx" if path is None else Path(path).expanduser()
    as_onnx = target.suffix.lower() == ".onnx"
    if as_onnx and target.is_dir():
        raise ValueError(f"{target} is a folder: give the name of a file in it")
    if not as_onnx and target.suffix and not target.is_dir():
        raise ValueError(f"{target}: unknown format {target.suffix}: .onnx or a folder")
    if not as_onnx and target.is_file():
        raise ValueError(f"{target} is a file already: a name without .onnx is that of a folder")
    size, model = tuple(run.data["size"]), load_model(run, best)
    metadata = describe(run.config.data, run.data)
    if as_onnx:
        export_onnx(model, target, size, metadata={k: json.dumps(v) for k, v in metadata.items()})
        files, checked = [target], ", checked with onnxruntime"
    else:
        models.save_pretrained(model, target, metadata)
        files, checked = [target / name for name in (CONFIG, WEIGHTS)], ""
    megabytes = sum(file.stat().st_size for file in files) / 1e6
    lines = [f"{target}: {megabytes:.2f} MB{checked}"]
    if run.config.model.downsampling not in OF_TORCH:
        rows = stride_table(model, size).rows
        lines.append(f"strides {', '.join(times(row.strides, '{:.2f}') for row in rows)}")
    return lines
