"""What a run has learned: its checkpoints, its network, how good it is, its strides."""

import io
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import TorchCheckpointIO
from torch import nn

from diffstride.analysis.stride_table import StrideTable, stride_table
from diffstride.files import seal, unseal, write
from diffstride.lab.data.labelled_files import DataError
from diffstride.lab.data.splitting import ADVICE
from diffstride.lab.runs.axes import Axis, data_axes
from diffstride.lab.runs.config import CUTTING, DENSE, OF_TORCH, Config
from diffstride.lab.runs.data_config import HELD_OUT
from diffstride.lab.runs.documents import RunError
from diffstride.lab.runs.resolution import TEST_DATA
from diffstride.lab.runs.run_folder import Run
from diffstride.lab.runs.scores import ACCURACY, NOISY
from diffstride.lab.training.learner import Learner
from diffstride.lab.training.preparation import Prepared, build_model, prepare
from diffstride.text import short


class SealedCheckpoints(TorchCheckpointIO):
    """Makes Lightning write checkpoints atomically with a digest, and refuse damaged ones."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        content = io.BytesIO()
        torch.save(checkpoint, content)
        write(Path(path), seal(content.getvalue()))

    def load_checkpoint(self, path: Any, *_: Any, **options: Any) -> dict[str, Any]:
        return read_checkpoint(Path(path))


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Return a checkpoint of which nothing is executed; a damaged one is a RunError."""
    try:
        content = unseal(path.read_bytes())
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        if not isinstance(state, dict) or "state_dict" not in state:
            raise ValueError("it is not a checkpoint of a run: it has no state_dict")
    except Exception as error:  # whatever it is, the checkpoint can't be used
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RunError(f"{path} can't be read ({first})") from error
    return state


def newest_checkpoint(run: Run) -> tuple[Path, dict[str, Any]] | tuple[None, None]:
    """Return the last checkpoint that can be read, and where it is; None if there are none yet.

    A line on stderr names each one that can't be read; if that is all of them, it is a RunError.
    """
    files = run.checkpoint_files()
    for path in files:
        try:
            return path, read_checkpoint(path)
        except RunError as error:
            print(f"{error}: trying the one before", file=sys.stderr, flush=True)
    if files:
        wrong = f"none of its {len(files)} checkpoints can be read, and nothing was changed"
        advice = "put back a copy of one, or train the run anew under another --name"
        raise RunError(f"{run.folder}: {wrong}: {advice}")
    return None, None


def load_model(run: Run, best: bool = False) -> nn.Module:
    """Return the network of a run as it is after its last epoch, or was after its best one."""
    weights, config = _read_weights(run, best)
    model, prefix = build_model(config.model, run.data), "model."
    network = {k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}
    _load_weights(model, network, run)
    return model.eval()


def _read_weights(run: Run, best: bool) -> tuple[dict[str, Any], Config]:
    """Return the weights of a run, and the settings of the epoch that they are of."""
    if not best:
        _, state = newest_checkpoint(run)
    else:
        state = read_checkpoint(run.best_file) if run.best_file.exists() else None
    if state is None:
        raise RunError(f"{run.folder} has no checkpoint yet: continue it with `diffstride resume`")
    config = run.config
    model = config.model.in_epoch(state.get("epoch", 0), config.trainer.epochs)
    return state["state_dict"], replace(config, model=model)


def _load_weights(module: nn.Module, weights: dict[str, Any], run: Run) -> None:
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        reason = str(error).splitlines()[1].strip()
        wrong = "has config.yaml and data.json of another network than its checkpoints"
        raise RunError(f"{run.folder} {wrong}: {reason}") from error


def evaluate(
    folder: str | Path, data_path: str | None = None, best: bool = False
) -> dict[str, float]:
    """Return loss and scores of a run's network on its test data, or on others.

    Other signals may have another sampling rate: the network is brought to it, which is said on
    stderr, and what it makes of them as it was trained is told beside it.
    """
    _, prepared = load_prepared(folder, data_path, best)
    module, ratio = prepared.module, prepared.ratio
    count_answers(module, prepared.test)
    if ratio == 1:
        return module.means()
    unchanged = {f"{name}_without": mean for name, mean in module.means().items()}
    module.model = module.model.at_rate(ratio)  # type: ignore[operator]
    now, then = ratio * prepared.facts["rate"], prepared.facts["rate"]
    rates = f"{now:g} samples a second, and the network was trained on {then:g}"
    stride = f"its first stride is {ratio:g} times as large"
    print(f"these signals have {rates}: {stride}", file=sys.stderr)
    count_answers(module, prepared.test)
    return module.means() | unchanged


def load_prepared(
    folder: str | Path, data_path: str | None = None, best: bool = False
) -> tuple[Run, Prepared]:
    """Return a run with its network as it was trained, and its test data, or others.

    What was held out of its training set is its test data, which is said on stderr. Other signals
    keep their sampling rate.
    """
    run = Run.open(folder)
    weights, config = _read_weights(run, best)  # before the data, which take longer
    if data_path is not None:
        if config.data.task:
            wrong = "is of several tasks, and one --data.path is not enough"
            raise RunError(f"{folder} {wrong}: evaluate it without")
        # They have a test set of their own: nothing of it is set apart.
        other = replace(config.data, path=data_path, test_fraction=None, held_out=None, group=None)
        config = replace(config, data=other)
    try:
        prepared = prepare(config, run.data, at_own_rate=data_path is not None)
    except DataError as error:
        if data_path is None or ADVICE not in str(error):
            raise
        wanted = "a training and a test set, as for `train`; the latter is evaluated on"
        raise DataError(f"{data_path} must have {wanted}") from error
    _load_weights(prepared.module, weights, run)
    if config.data.held_out is not None:
        part = f"{HELD_OUT} (--data.held_out {config.data.held_out:g})"
        print(f"{folder} is judged on {part}, not on a test set", file=sys.stderr)
    return run, prepared


def load_classifier(
    folder: str | Path, data_path: str | None, best: bool, why: str
) -> tuple[Run, Prepared, dict[str, str]]:
    """Return a run as :func:`load_prepared` does, and which data and weights of it are measured.

    ``why`` says in an error what needs a network that classifies, and signals of its own rate.
    """
    if (score := Run.open(folder).score) != ACCURACY:
        raise RunError(f"{why}, and {folder} is judged by {score.title}")
    run, prepared = load_prepared(folder, data_path, best)
    if prepared.ratio != 1:
        wanted = f"{prepared.facts['rate']:g} samples a second, as the data that it was trained on"
        given = f"{data_path} with {prepared.ratio:g} times as many"
        raise RunError(f"{folder} is measured on signals of {wanted}, got {given}")
    own = TEST_DATA if run.config.data.held_out is None else HELD_OUT
    return run, prepared, {"data": data_path or own, "weights": "best" if best else "last"}


def count_answers(module: Learner, batches: Iterable[Any]) -> None:
    """Let a network count how good its answers are on test data."""
    module.eval()
    with torch.inference_mode():
        module.on_validation_epoch_start()
        for i, batch in enumerate(batches):
            module.validation_step(batch, i)
        module.on_validation_epoch_end()


def learned_strides(folder: str | Path, best: bool = False) -> StrideTable:
    """Return the stride table of a run's network; a RunError if its layers have no such strides."""
    run = Run.open(folder)
    if run.config.model.downsampling in OF_TORCH:
        wrong = f"has downsampling {run.config.model.downsampling!r}, and no strides to learn"
        raise RunError(f"{folder} {wrong}: those of its config.yaml, or of the textbook, stay")
    axes, size = data_axes(run.data, run.config.data.kind), tuple(run.data["size"])
    rates, units = [axis.rate for axis in axes], [axis.unit for axis in axes]
    return stride_table(load_model(run, best), size, sampling_rate=rates, units=units)


def summary(folder: str | Path) -> list[str]:
    """Return lines on the last score of a run, and on what it learned."""
    run = Run.open(folder)
    last, score = run.metrics("mmacs")[-1], run.score
    on = f"test {score.title}"
    if run.config.data.held_out is not None:
        on = f"{score.title} on {HELD_OUT}"
    lines = [f"{on} {score.text(float(last[score.column]))} after {last['epoch']} epochs"]
    if noisy := last.get(f"test_{NOISY}_{score.name}"):
        lines[0] += f", of images that had {score.text(float(noisy))} with their noise"
    if skipped := run.data.get("skipped"):
        lines.append(f"{len(skipped)} files could not be read and were left out: data.json")
    if run.config.model.downsampling in OF_TORCH:
        return [*lines, f"{float(last['mmacs']):.1f} M MACs, no strides to learn"]
    table = learned_strides(folder)
    lines.append(str(table))
    if run.config.model.name in DENSE:
        lines.append("what layers do not let pass, skips carry past them")
    elif run.config.model.downsampling in CUTTING:
        lines.append(_what_passes(table, data_axes(run.data, run.config.data.kind)))
    return lines


def _what_passes(table: StrideTable, axes: Sequence[Axis]) -> str:
    """Return in words up to which frequency all layers together let pass, along each axis."""
    lowest = zip(table.rows[-1].cutoff, axes, strict=True)
    parts = [f"up to {short(cutoff)} {axis.unit} along {axis.name}" for cutoff, axis in lowest]
    return f"all layers together let pass {' and '.join(parts)}"
