"""What a run has learned: its network, how good it is, its strides."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from diffstride.analysis.stride_table import StrideTable, stride_table
from diffstride.lab.runs.documents import RunError
from diffstride.lab.runs.run_folder import Run
from diffstride.lab.training.checkpoints import newest_checkpoint, read_checkpoint
from diffstride.lab.training.preparation import build_model, prepare


def read_weights(run: Run, best: bool) -> dict[str, Any]:
    """Return the weights of the last epoch of a run, or of its best one."""
    if not best:
        _, state = newest_checkpoint(run)
    else:
        state = read_checkpoint(run.best_file) if run.best_file.exists() else None
    if state is None:
        raise RunError(f"{run.folder} has no checkpoint yet: continue it with `diffstride resume`")
    weights: dict[str, Any] = state["state_dict"]
    return weights


def load_model(run: Run, best: bool = False) -> nn.Module:
    """Return the network of a run as it is after its last epoch, or was after its best one."""
    model = build_model(run.config.model, run.data)
    weights = read_weights(run, best).items()
    prefix = "model."
    own = {k.removeprefix(prefix): v for k, v in weights if k.startswith(prefix)}
    _load_weights(model, own, run)
    return model.eval()


def _load_weights(module: nn.Module, weights: dict[str, Any], run: Run) -> None:
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        reason = str(error).splitlines()[1].strip()
        raise RunError(
            f"{run.folder} has config.yaml and data.json of another network than its checkpoints: "
            f"{reason}"
        ) from error


def evaluate(
    folder: str | Path, data_path: str | None = None, best: bool = False
) -> dict[str, float]:
    """Return loss and accuracies of a run's network on its test data, or on others."""
    run = Run.open(folder)
    config = run.config
    if data_path is not None:
        if config.data.task:
            raise RunError(
                f"{folder} is of several tasks, and one --data.path is not enough: evaluate it "
                f"without"
            )
        config = replace(config, data=replace(config.data, path=data_path))
    weights = read_weights(run, best)
    prepared = prepare(config, run.data)
    module = prepared.module.eval()
    _load_weights(module, weights, run)
    with torch.inference_mode():
        module.on_validation_epoch_start()
        for i, batch in enumerate(prepared.test):
            module.validation_step(batch, i)
        module.on_validation_epoch_end()
    return module.means()


def learned_strides(folder: str | Path, best: bool = False) -> StrideTable:
    """Return the stride table of a run's network."""
    run = Run.open(folder)
    facts = run.data
    rate = facts.get("sampling_rate")
    return stride_table(load_model(run, best), tuple(facts["size"]), sampling_rate=rate)


def summary(folder: str | Path) -> list[str]:
    """Return lines on the last accuracy of a run, and on what it learned."""
    run = Run.open(folder)
    last = run.metrics("mmacs")[-1]
    lines = [f"test accuracy {float(last['test_accuracy']):.2%} after {last['epoch']} epochs"]
    if skipped := run.data.get("skipped"):
        lines.append(f"{len(skipped)} files could not be read and were left out: data.json")
    if run.config.model.downsampling not in ("diffstride", "spectral"):
        return [*lines, f"{float(last['mmacs']):.1f} M MACs, no strides to learn"]
    table = learned_strides(folder)
    lines.append(str(table))
    if cutoff := table.rows[0].cutoff:
        hertz, cycles = cutoff
        lines.append(
            f"the first layer passes up to {hertz:.1f} Hz along time and {cycles:.3f} cycles "
            f"per mel channel along frequency"
        )
    return lines
