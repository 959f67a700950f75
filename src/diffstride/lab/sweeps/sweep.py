"""Run what of a table is not finished, and see how far it is."""

import json
import math
import signal
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from diffstride.files import write
from diffstride.lab.runs.config import Config, flat, read_config, write_config
from diffstride.lab.runs.documents import DamagedFile, RunError, read_json
from diffstride.lab.runs.run_folder import Run
from diffstride.lab.sweeps import engines
from diffstride.lab.sweeps.grids import plan_grid
from diffstride.lab.sweeps.paper_tables import PAPER, TABLES, plan_table
from diffstride.lab.sweeps.plan import SweepPlan
from diffstride.lab.sweeps.progress import SweepProgress

DESCRIPTION = """All runs of a table, each in a process of its own.

What is finished is not repeated, what has a checkpoint is continued, what fails is tried once more
and told at the end: it may be interrupted and started again at any time. TABLE is

{}

or FILE.toml, a grid of your own:

  recipe = "digits"
  seeds = [0, 1]
  [settings]              # the same for all
  "trainer.epochs" = 3
  [grid]                  # every combination
  "model.downsampling" = ["strided", "diffstride"]
  "model.strides" = [[2, 2, 2], [3, 2, 3]]

Other options are those of `diffstride train`, for every run: --data.path, --trainer.epochs. Tables
of sound need --data.task NAME=PATH[:LABEL] for each task; the paper's are named
{}.""".format(
    "\n".join(f"  {name:22}  {table['title']}" for name, table in TABLES.items()),
    ", ".join(PAPER["tasks"]),
)

# Where a run is and where its data are cached makes no difference to what it learns.
APART = ("name", "out", "data.cache")
NEARLY = {"macs_budget": 1e-3}  # a budget is met about so well


def plan_sweep(table: str, scale: str, seeds: int | None, words: Sequence[str]) -> SweepPlan:
    """Return the plan of a sweep.

    Args:
        table: one of the paper's tables, or a TOML file with a grid.
        scale: ``"paper"`` for the recipe as it is, ``"small"`` for a machine without a GPU.
        seeds: how many, from 0; unless given, those in the file, or 3.
        words: other options of ``diffstride train``, for all runs.
    """
    path = Path(table).expanduser()
    if table not in TABLES and path.suffix == ".toml" and path.is_file():
        return plan_grid(path, seeds, words)
    return plan_table(table, scale, seeds, words)


def run_sweep(plan: SweepPlan, out: str | Path, options: engines.Options) -> Mapping[str, str]:
    """Bring every run of a plan to its end, and return the reasons of those that failed, by name.

    Runs that are finished already are left alone.

    Raises:
        ValueError: if the folder has another sweep, or a run of other settings; nothing is changed.
    """
    options.check()
    folder = Path(out).expanduser().absolute()
    configs = {run.name: replace(run.config, name=run.name, out=str(out)) for run in plan.runs}
    for name, config in configs.items():
        config.check()
        check_same(folder / name, config)
        check_size(folder / name, plan.size)
    document = merged(folder, plan)
    if document is not None:
        write(folder / "sweep.json", json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    if not configs:  # the table of costs
        from diffstride.lab.sweeps.measure import measure_costs

        measure_costs(plan, folder)
        return {}
    epochs = {name: config.trainer.epochs for name, config in configs.items()}
    jobs = []
    for name, config in configs.items():
        if not Run(folder / name).is_finished(epochs[name]):
            config_file = folder / "logs" / f"{name}.yaml"
            write_config(config_file, config)
            jobs.append(engines.Job(folder / name, config_file, epochs[name], Path.cwd()))
    progress = SweepProgress(epochs, folder)
    unseen = set() if plan.size is None else set(epochs)
    with ExitStack() as stack:
        # SIGTERM, which schedulers send, stops the runs just as Ctrl-C does.
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        stack.callback(signal.signal, signal.SIGTERM, before)
        stack.enter_context(progress.shown())
        for event in stack.enter_context(closing(engines.start(jobs, options))):
            if event is not None:
                progress.ended(*event)
            for name in [name for name in unseen if (folder / name / "data.json").exists()]:
                check_size(folder / name, plan.size)
                unseen.remove(name)
    return progress.failed


def states(plan: SweepPlan, out: str | Path) -> Mapping[str, str]:
    """Return how far every run is, without starting any."""
    folder = Path(out).expanduser().absolute()
    texts = {}
    for run in plan.runs:
        done = Run(folder / run.name).is_finished(run.config.trainer.epochs)
        epochs = Run(folder / run.name).epochs_done
        texts[run.name] = "finished" if done else f"{epochs} epochs" if epochs else "–"
    return texts


def check_same(folder: Path, config: Config) -> None:
    """Raise a ValueError if a folder has a run with other settings than these.

    The place of the run does not matter, nor how the path of the same data is written.
    """
    if not (folder / "config.yaml").exists():
        return
    existing = flat(read_config(folder / "config.yaml"))
    for name, value in flat(config).items():
        if name not in APART and not same_setting(name, existing[name], value):
            raise RunError(
                f"{folder} has {name} {existing[name]!r} and this sweep {value!r}: remove the run, "
                f"choose another --out, or give --{name} what it has"
            )


def same_setting(name: str, one: Any, other: Any) -> bool:
    """Return whether two values of a setting mean the same to a run."""
    if name == "data.task":
        return [_resolved(task) for task in one] == [_resolved(task) for task in other]
    if one is not None and other is not None:
        if name in NEARLY:
            return math.isclose(one, other, rel_tol=NEARLY[name])
        if name == "data.path":
            return _resolved(one) == _resolved(other)
    return bool(one == other)


def _resolved(text: str) -> str:
    """Return a path, or a task NAME=PATH:LABEL, in full; the name of a dataset stays as it is."""
    name, sign, path = text.rpartition("=")
    path, colon, label = path.partition(":")
    place = Path(path).expanduser()
    return f"{name}{sign}{place.resolve() if place.exists() else path}{colon}{label}"


def merged(folder: Path, plan: SweepPlan) -> dict[str, Any] | None:
    """Return what sweep.json should say, other seeds in it included; None if it says so already.

    Raises:
        ValueError: if it is of another table.
    """
    new = plan.document()
    path = folder / "sweep.json"
    if not path.exists():
        return new
    try:
        old = read_json(path, "table", "scale", "seeds", "rows", "columns", "column_titles", "runs")
        both = {
            "seeds": sorted({*old["seeds"], *new["seeds"]}),
            "rows": list(dict.fromkeys((*old["rows"], *new["rows"]))),
            "columns": list(dict.fromkeys((*old["columns"], *new["columns"]))),
            "column_titles": old["column_titles"] | new["column_titles"],
            "runs": list({run["name"]: run for run in (*old["runs"], *new["runs"])}.values()),
        }
    except (DamagedFile, LookupError, TypeError) as error:
        damage = error if isinstance(error, DamagedFile) else f"{path} can't be read ({error!r})"
        advice = "remove it, and the same command writes it again"
        raise DamagedFile(f"{damage}: {advice}") from error
    for name in ("table", "scale"):
        if old[name] != new[name]:
            raise ValueError(
                f"{folder} has a sweep of {name} {old[name]!r}, not {new[name]!r}: choose another "
                f"--out"
            )
    return None if old == json.loads(json.dumps(new | both)) else new | both


def check_size(folder: Path, size: Sequence[int] | None) -> None:
    """Raise a ValueError if a run has examples of another size than budgets were computed for."""
    try:
        run_size = read_json(folder / "data.json", "size")["size"]
    except FileNotFoundError:
        return
    if size is not None and list(size) != run_size:
        other = f", or --data.image_size {size[-1]}" if size[0] == run_size[0] else ""
        raise RunError(
            f"budgets of this table are for examples of {tuple(size)}, and {folder} has some of "
            f"{tuple(run_size)}: choose other data{other}"
        )
