"""The table of timings that a run holds its budget in milliseconds by."""

from pathlib import Path

import torch

from diffstride.analysis.timings import Timings
from diffstride.lab.runs.config import Config
from diffstride.lab.runs.run_folder import Run
from diffstride.lab.training.learner import Learner


def timings_of(run: Run, config: Config, module: Learner) -> Timings | None:
    """Return the timings of a run, if it has a budget in milliseconds.

    A run that is resumed has them in its folder. One that begins is given a file, or measures its
    network on the device that it trains on.
    """
    if config.ms_budget is None:
        return None
    if run.timings_file.exists():
        return Timings.load(run.timings_file)
    if config.timings is not None:
        path = Path(config.timings).expanduser()
        if not path.is_file():
            raise ValueError(f"--timings: {config.timings} does not exist")
        return Timings.load(path)
    device = _device(config.trainer.accelerator)
    try:
        return Timings.measure(
            module.model.to(device),
            module.input_size,
            batch=config.data.batch_size,
            training=config.ms_of == "training",
        )
    finally:
        module.model.to("cpu")  # the trainer moves it where it wants it


def _device(accelerator: str) -> torch.device:
    """Return the device that Lightning takes for an accelerator."""
    if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        return torch.device("cuda")
    if accelerator in ("auto", "gpu", "mps") and torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")
