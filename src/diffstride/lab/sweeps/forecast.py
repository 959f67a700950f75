"""What a sweep will take, before anything is trained."""

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from diffstride.lab.runs.config import Config
from diffstride.lab.runs.run_folder import Run, read_facts
from diffstride.lab.runs.waiting import progress_bar
from diffstride.lab.sweeps.engines import usable_cores
from diffstride.lab.sweeps.plan import Cell, SweepPlan, effective
from diffstride.lab.sweeps.progress import duration
from diffstride.lab.sweeps.sweep import place
from diffstride.lab.sweeps.tables import TABLES, facts, table_entry
from diffstride.lab.training import recipes

RATE = 3e12
"""Multiply-accumulates a second in training: two fifths of the peak of a V100, the paper's GPU."""
DAY = 86_400  # seconds
LONGEST = 30.0  # seconds of timing networks; what comes later is told from the others
SPECTROGRAM = (1, 100, 64)  # of a second of sound
GIVE = "--examples N"
GIVE_SIZE = (
    f"give the size of one with --size, such as --size 3 32 32, and their number with {GIVE}"
)
CLASSES = 10  # where they are not known: heads are linear, and hardly change the cost


class Data(NamedTuple):
    """What a forecast needs to know of data: the size of an example, classes, how many examples."""

    size: tuple[int, ...]
    classes: Any
    examples: int | None


def dry_run(
    plan: SweepPlan,
    out: str | Path,
    size: Sequence[int] | None = None,
    examples: int | None = None,
) -> Iterator[str]:
    """Yield a line on every run, with how far it is, and lines on what all of them take.

    The size of an example and their number are for data of which nothing is known without reading
    them.
    """
    folder = Path(out).expanduser()
    placed = place(plan, folder)
    left: dict[str, int] = {}  # epochs, by the name of the run
    for own, shared in zip(plan.runs, placed, strict=True):
        run, epochs = Run(folder / shared.name), own.config.trainer.epochs
        if own.name != shared.name:
            yield f"{own.name}  the same as {shared.name}"
            continue
        done = run.is_finished(epochs)
        state = "finished" if done else f"{run.epochs_done} epochs" if run.epochs_done else "–"
        left[own.name] = 0 if done else max(1, epochs - run.epochs_done)
        yield f"{own.name}  {state}"
    yield forecast_line(plan) + _shared(placed)
    runs = [run for run in plan.runs if left.get(run.name)]
    if runs and not _has_gpu():
        yield "on this machine: " + _measured(
            [(run, left[run.name], known_data(run, plan, folder, size, examples)) for run in runs]
        )


def _shared(placed: Sequence[Cell]) -> str:
    number = len(placed) - len({run.name for run in placed})
    return f"; {number} of them are the same as others, and trained once" if number else ""


def forecast_line(plan: SweepPlan) -> str:
    """Return a line on the number of runs and, for a table of the paper, on what they take."""
    if plan.scale == "own" or not plan.runs:
        return f"{len(plan.runs)} runs"

    from diffstride.analysis.cost import cost
    from diffstride.lab.training.preparation import build_model

    entry = table_entry(plan.table, plan.scale, plan.config)
    data, trainer = plan.config.data, plan.config.trainer
    examples = min(entry.get("examples", math.inf), data.limit or math.inf)
    if trainer.steps is not None:
        examples = trainer.steps * data.batch_size
    # Networks for other tasks cost nearly the same.
    configs = {cell.config.model: cell.config for cell in reversed(plan.cells)}
    macs = {
        model: cost(build_model(model, facts(entry, config)), entry["size"]).macs
        for model, config in configs.items()
    }
    per_example = sum(macs[cell.config.model] for cell in plan.cells)
    # A step is three passes forward, at the strides that runs begin with.
    total = 3 * per_example * len(plan.seeds) * trainer.epochs * examples
    work = f"{total:.2g} multiply-accumulates in training: about {_long(total / RATE)} on a GPU"
    return f"{len(plan.runs)} runs, {work} that does {RATE / 1e12:g}·10¹² a second"


def _long(seconds: float) -> str:
    return duration(seconds) if seconds < 2 * DAY else f"{seconds / DAY:.0f} days"


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available() or torch.backends.mps.is_available()


def known_data(
    run: Cell,
    plan: SweepPlan,
    folder: Path,
    size: Sequence[int] | None = None,
    examples: int | None = None,
) -> Data | None:
    """Return what is known of the data of a run without reading them; None if that is not enough.

    What is given comes first, then what the run or another one on the same data has written down,
    then what is known of the data by their name.
    """
    config = run.config
    found = _written(run, plan, folder) or _by_name(config, plan)
    if size is not None:
        if not (2 <= len(size) <= 4 and all(n > 0 for n in size)):
            wanted = "channels and 1 to 3 sizes, such as 3 32 32"
            raise ValueError(f"--size must be {wanted}, got {' '.join(map(str, size))}")
        found = Data(tuple(size), range(CLASSES), found.examples if found else None)
    if examples is not None:
        if examples < 1:
            raise ValueError(f"--examples must be at least 1, got {examples}")
        found = found and found._replace(examples=examples)
    return found


def _written(run: Cell, plan: SweepPlan, folder: Path) -> Data | None:
    """Return what data.json of a run says, or of one on the same data."""
    for other in (run, *plan.runs):
        path = folder / other.name / "data.json"
        if other.config.data == run.config.data and path.is_file():
            told = read_facts(path, "size", "classes", "train")
            counts = told["train"]
            # Of several tasks, the largest says how long an epoch is.
            several = isinstance(counts, dict)
            number = max(counts.values()) * len(counts) if several else counts
            return Data(tuple(told["size"]), told["classes"], number)
    return None


def _by_name(config: Config, plan: SweepPlan) -> Data | None:
    """Return what is known of the data that a config names: their examples may not be counted."""
    data = config.data
    if data.kind == "images" and data.path is None:
        from diffstride.lab.training.preparation import prepare

        recipe = "digits" if data.noise is None else "denoise"
        small = replace(config, model=recipes.RECIPES[recipe].config.model, macs_budget=None)
        known = prepare(replace(small, spend=False)).facts
        return Data(tuple(known["size"]), known["classes"], known["train"])
    if (entry := _entry(config, plan)) is None:
        return None
    known = facts(entry, config)
    number = min(entry.get("examples", math.inf), data.limit or math.inf)
    return Data(tuple(known["size"]), known["classes"], int(number) if number < math.inf else None)


def _entry(config: Config, plan: SweepPlan) -> dict[str, Any] | None:
    """Return what a table of the paper, or the config itself, says of the data."""
    if plan.scale != "own":
        return table_entry(plan.table, plan.scale, config)
    for table, told in TABLES.items():
        same = recipes.RECIPES[told["recipe"]].config.data.path == config.data.path
        if same and config.data.kind == "images" and not told.get("settings"):
            return table_entry(table, "paper", config)
    if config.data.kind == "audio":
        return {"size": SPECTROGRAM, "classes": 0 if config.data.task else CLASSES}
    side = config.data.patch or config.data.image_size
    if config.data.kind == "images" and side is not None:
        return {"size": (3, side, side), "classes": CLASSES}
    return None


def _measured(runs: Sequence[tuple[Cell, int, Data | None]]) -> str:
    """Return what so many epochs of runs on such data take, from a step of each network."""
    networks: dict[Any, tuple[Config, Data]] = {}
    steps: Counter[Any] = Counter()
    for run, epochs, data in runs:
        if data is None:
            return f"how long {run.name} takes can't be told without reading its data: {GIVE_SIZE}"
        number = run.config.trainer.steps
        if number is None:
            if data.examples is None:
                wrong = f"how long {run.name} takes depends on how many examples there are"
                return f"{wrong}: say so with {GIVE}"
            number = max(1, data.examples // run.config.data.batch_size)
        key = _network(run.config), data.size
        networks.setdefault(key, (run.config, data))
        steps[key] += epochs * number
    seconds, timed = _step_times(networks)
    total = sum(number * seconds[key] for key, number in steps.items())
    cores = usable_cores()
    together = f", {_long(total / cores)} on its {cores} cores" if cores > 1 else ""
    how = f"{timed} of {len(networks)} networks timed with random inputs"
    return f"about {_long(total)} of one core{together} ({how}; testing comes on top)"


def _network(config: Config) -> Config:
    """Return a config without what makes no difference to the time of a step."""
    plain, same = effective(config), Config()
    optim = replace(same.optim, name=plain.optim.name)
    data = replace(same.data, batch_size=plain.data.batch_size)
    kept = replace(plain, seed=0, stride_penalty=0.0, trainer=same.trainer)
    return replace(kept, optim=optim, data=data)


def _step_times(networks: Mapping[Any, tuple[Config, Data]]) -> tuple[dict[Any, float], int]:
    """Return the seconds of a step of each network, and of how many of them it was timed.

    Of those for which there is no time, it is told by their multiply-accumulates.
    """
    from diffstride.lab.sweeps import step_cost

    seconds: dict[Any, float] = {}
    end = time.monotonic() + LONGEST
    with progress_bar("timing networks", len(networks)) as bar:
        for key, (config, data) in networks.items():
            if not seconds or time.monotonic() < end:
                seconds[key] = step_cost.step_seconds(config, data._asdict())
            bar.update()
    timed = len(seconds)
    if timed < len(networks):
        macs = {
            key: config.data.batch_size * step_cost.example_macs(config, data._asdict())
            for key, (config, data) in networks.items()
        }
        rate = sum(seconds.values()) / sum(macs[key] for key in seconds)
        seconds |= {key: rate * macs[key] for key in networks if key not in seconds}
    return seconds, timed
