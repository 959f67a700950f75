"""Run what of a table is not finished, and see how far it is."""

import json
import math
import os
import signal
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from diffstride.files import write
from diffstride.lab.runs.config import Config
from diffstride.lab.runs.config_file import read_config, write_config
from diffstride.lab.runs.documents import DamagedFile, RunError, read_json
from diffstride.lab.sweeps import engines, grids
from diffstride.lab.sweeps import paper_tables as tables
from diffstride.lab.sweeps.engines import Job, epochs_done, finished
from diffstride.lab.sweeps.paper_tables import PAPER, TABLES
from diffstride.lab.sweeps.plan import Plan, Planned, flat
from diffstride.lab.sweeps.progress import Watch

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
    "\n".join(f"  {name:22}  {told['title']}" for name, told in TABLES.items()),
    ", ".join(PAPER["tasks"]),
)

# Where a run is and where its data are cached makes no difference to what it learns.
APART = ("name", "out", "data.cache")
NEARLY = {"macs_budget": 1e-3}  # a budget is met about so well


class Options(NamedTuple):
    """Where and how runs are made."""

    engine: str = "local"
    jobs: int | None = None
    gpus: float | None = None
    address: str | None = None
    cores: int | None = None

    def check(self) -> None:
        """Raise a ValueError unless every number makes sense; the message names the option."""
        for name, least in (("jobs", 1), ("cores", 1), ("gpus", 0)):
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise ValueError(f"--{name} must be at least {least}, got {value}")
        others = ("address", "cores") if self.engine == "local" else ("jobs",)
        for name in others:
            if getattr(self, name) is not None:
                engine = "ray" if self.engine == "local" else "local"
                raise ValueError(f"--{name} is for --engine {engine}")
        if self.engine == "local" and (self.gpus or 0) > 1:
            raise ValueError(f"--gpus must be at most 1 with --engine local, got {self.gpus:g}")


def find(table: str, scale: str, seeds: int | None, words: Sequence[str]) -> Plan:
    """The plan of a table of the paper, or of a file."""
    path = Path(table).expanduser()
    if table not in TABLES and path.suffix == ".toml" and path.is_file():
        return grids.plan(path, seeds, words)
    return tables.plan(table, scale, seeds, words)


def sweep(plan: Plan, out: str | Path, options: Options) -> dict[str, str]:
    """Bring every run of a plan to its end; those that are there already are left alone.

    Returns:
        What went wrong, by run: the last line of its error.

    Raises:
        ValueError: if the folder has another sweep, or a run of other settings; nothing is changed.
    """
    options.check()
    folder = Path(out).expanduser().absolute()
    told = [
        replace(run, config=replace(run.config, name=run.name, out=str(out))) for run in plan.runs
    ]
    for run in told:
        run.config.check()
        check_same(folder / run.name, run.config)
        check_size(folder / run.name, plan.size)
    document = merged(folder, plan)
    if document is not None:
        write(folder / "sweep.json", json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    if not plan.runs:  # the table of costs
        from diffstride.lab.sweeps import measure

        measure.measure(plan, folder)
        return {}
    jobs = [
        job(run, folder)
        for run in told
        if not finished(folder / run.name, run.config.trainer.epochs)
    ]
    watch = Watch({run.name: run.config.trainer.epochs for run in told}, folder)
    failed: dict[str, str] = {}
    unseen = {run.name for run in told if plan.size is not None}
    with _ended_like_interrupted(), watch, closing(start(jobs, options)) as events:
        for event in events:
            if event is not None:
                name, error = event
                if error is not None:
                    failed[name] = error
                watch.ended(name, error)
            for name in [name for name in unseen if (folder / name / "data.json").exists()]:
                check_size(folder / name, plan.size)
                unseen.remove(name)
            watch.look()
    return failed


def start(jobs: list[Job], options: Options) -> Generator[engines.Event, None, None]:
    """Begin the jobs on the engine that is wanted.

    How many threads a run has does not depend on how many runs are left: a sweep that goes on after
    an interruption makes the same numbers.
    """
    if not jobs:
        return engines.local([], 1, 1)
    Path(jobs[0].log).parent.mkdir(parents=True, exist_ok=True)
    if options.engine == "ray":
        return engines.on_ray(jobs, options.cores or 1, options.gpus, options.address)
    known = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1
    devices = _devices() if options.gpus != 0 else []
    # Small networks use several cores badly: one a run, unless there are GPUs to feed.
    number = max(1, int(len(devices) / (options.gpus or 1))) if devices else cores
    number = options.jobs or number
    return engines.local(jobs, number, max(1, cores // number), devices)


def _devices() -> list[str]:
    import torch

    number = torch.cuda.device_count()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible.split(",")[:number] if visible else [str(i) for i in range(number)]


def job(run: Planned, folder: Path) -> Job:
    """What an engine needs to know of a run; its settings are in a file beside its log."""
    config = folder / "logs" / f"{run.name}.yaml"
    write_config(config, run.config)
    return Job(
        run.name,
        str(folder / run.name),
        str(config),
        str(folder / "logs" / f"{run.name}.log"),
        run.config.trainer.epochs,
        str(Path.cwd()),
    )


def check_same(folder: Path, config: Config) -> None:
    """Raise a ValueError if there is a run in a folder that has other settings than these.

    Where it is does not matter, nor how the path of the same data is written.
    """
    if not (folder / "config.yaml").exists():
        return
    found, wanted = flat(read_config(folder / "config.yaml")), flat(config)
    for name, value in wanted.items():
        if name not in APART and not _same(name, found[name], value):
            raise RunError(
                f"{folder} has {name} {found[name]!r} and this sweep {value!r}: remove the run, "
                f"choose another --out, or give --{name} what it has"
            )


def _same(name: str, one: Any, other: Any) -> bool:
    if name in NEARLY and one is not None and other is not None:
        return math.isclose(one, other, rel_tol=NEARLY[name])
    if name == "data.path" and one is not None and other is not None:
        return _place(one) == _place(other)
    if name == "data.task":
        return [_place(task) for task in one] == [_place(task) for task in other]
    return bool(one == other)


def _place(text: str) -> str:
    """Where a path leads, that of a task NAME=PATH:LABEL too; the name of a dataset stays."""
    name, sign, path = text.rpartition("=")
    path, colon, label = path.partition(":") if ":" in path else (path, "", "")
    where = Path(path).expanduser()
    return f"{name}{sign}{where.resolve() if where.exists() else path}{colon}{label}"


def merged(folder: Path, plan: Plan) -> dict[str, Any] | None:
    """What sweep.json should say; None if it says so. What it has of other seeds stays.

    Raises:
        ValueError: if it is of another table.
    """
    new = plan.document()
    path = folder / "sweep.json"
    if not path.exists():
        return new
    try:
        old = read_json(path, "table", "scale", "seeds", "rows", "columns", "column_titles", "runs")
    except DamagedFile as error:
        raise DamagedFile(f"{error}: remove it, and the same command writes it again") from error
    try:
        for name in ("table", "scale"):
            if old[name] != new[name]:
                raise ValueError(
                    f"{folder} has a sweep of {name} {old[name]!r}, not {new[name]!r}: choose "
                    f"another --out"
                )
        runs = {run["name"]: run for run in (*old["runs"], *new["runs"])}
        new["seeds"] = sorted({*old["seeds"], *new["seeds"]})
        for name in ("rows", "columns"):
            new[name] = list(dict.fromkeys((*old[name], *new[name])))
        new["column_titles"] = old["column_titles"] | new["column_titles"]
        new["runs"] = list(runs.values())
    except (LookupError, TypeError) as error:
        raise DamagedFile(
            f"{path} can't be read ({error!r}): remove it, and the same command writes it again"
        ) from error
    return None if old == json.loads(json.dumps(new)) else new


def check_size(folder: Path, size: Sequence[int] | None) -> None:
    """Raise a ValueError if a run has examples of another size than budgets were computed for."""
    try:
        found = read_json(folder / "data.json", "size")["size"]
    except FileNotFoundError:
        return
    if size is not None and list(size) != found:
        other = f", or --data.image_size {size[-1]}" if size[0] == found[0] else ""
        raise RunError(
            f"budgets of this table are for examples of {tuple(size)}, and {folder} has some of "
            f"{tuple(found)}: choose other data{other}"
        )


@contextmanager
def _ended_like_interrupted() -> Iterator[None]:
    """SIGTERM, as schedulers send it, stops the runs just as Ctrl-C does."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def states(plan: Plan, out: str | Path) -> Mapping[str, str]:
    """How far every run is, without starting any."""
    folder = Path(out).expanduser().absolute()
    found = {}
    for run in plan.runs:
        done = finished(folder / run.name, run.config.trainer.epochs)
        epochs = epochs_done(folder / run.name)
        found[run.name] = "finished" if done else f"{epochs} epochs" if epochs else "–"
    return found
