"""Run what of a table is not finished, and see how far it is."""

import json
import signal
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from diffstride.lab.runs.config import Config
from diffstride.lab.runs.config_file import flat, read_config, write_config
from diffstride.lab.runs.documents import DamagedFile, RunError, read_json, write_json
from diffstride.lab.runs.same_settings import differing
from diffstride.lab.runs.scores import score_of
from diffstride.lab.sweeps import engines
from diffstride.lab.sweeps.plan import Cell, SweepPlan
from diffstride.lab.sweeps.progress import SweepProgress, log_file
from diffstride.lab.sweeps.tables import PAPER, TABLES, plan_grid, plan_table

DESCRIPTION = """All runs of a table, each in a process of its own.

You may interrupt it and start it again at any time: finished runs are not repeated, and those with
a checkpoint are continued. A run that fails is tried once more, and named at the end. Cells whose
settings come to the same are trained once and shown in all their places. TABLE is

{}
  search                  Searches from five beginnings, and strides at random, on digits

or FILE.toml, a study like this last one (with [beginnings], each of which says what part every
stride has in what is downsampled; random = N for strides at random) or a grid of your own:

  recipe = "digits"
  seeds = [0, 1]
  [settings]              # the same for all
  "trainer.epochs" = 3
  [grid]                  # every combination
  "model.downsampling" = ["strided", "diffstride"]
  "model.strides" = [[2, 2, 2], [3, 2, 3]]
  [[variants]]            # settings that go together; the title is their row
  title = "wide"
  "model.width" = 1.5
  "model.placement" = "before"

Other options are those of `diffstride train`, for every run: --data.path, --trainer.epochs. Tables
of sound need --data.task NAME=PATH[:LABEL] for each task; the paper's are named
{}.""".format(
    "\n".join(f"  {name:22}  {table['title']}" for name, table in TABLES.items()),
    ", ".join(PAPER["tasks"]),
)

SCALE = "of the paper's tables: for a machine without a GPU, or as in the paper; small unless given"
DRY_RUN = "train nothing: say which runs there are, how far they are, and how long they will take"
SIZE = "for --dry_run, of data it does not know: the size of an example, such as 3 32 32"


def parser() -> ArgumentParser:
    """Return what reads the command line of `diffstride sweep`."""
    made = ArgumentParser(
        "diffstride sweep",
        usage="diffstride sweep TABLE [options]",
        description=DESCRIPTION,
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    options: dict[str, dict[str, Any]] = {
        "--seeds": dict(type=int, metavar="N", help="runs of a cell; 3 or those of the file"),
        "--scale": dict(choices=("small", "paper"), default="small", help=SCALE),
        "--out": dict(metavar="FOLDER", help="of the sweep; runs/TABLE-SCALE unless given"),
        **engines.ARGUMENTS,
        "--dry_run": dict(action="store_true", help=DRY_RUN),
        "--size": dict(type=int, nargs="+", metavar="N", help=SIZE),
        "--examples": dict(type=int, metavar="N", help="for --dry_run: examples to train on"),
    }
    made.add_argument("table", metavar="TABLE", help="one of the above, or a TOML file")
    for name, told in options.items():
        made.add_argument(name, **told)
    return made


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

    If the folder has another sweep, or a run of other settings, it is a ValueError and nothing is
    changed.
    """
    options.check()
    folder = Path(out).expanduser().absolute()
    placed = place(plan, folder)
    configs = {run.name: replace(run.config, name=run.name, out=str(out)) for run in plan.runs}
    configs = {run.name: configs[run.name] for run in placed}
    check_all(configs, folder)
    for name in configs:
        check_size(folder / name, plan.size)
    document = merged(folder, plan, placed)
    if document is not None:
        write_json(folder / "sweep.json", document, ensure_ascii=False)
    if not configs:  # the table of costs
        from diffstride.lab.sweeps.step_cost import measure_costs

        measure_costs(plan, folder)
        return {}
    unseen = set() if plan.size is None else set(configs)

    def look() -> None:
        for name in [name for name in unseen if (folder / name / "data.json").exists()]:
            check_size(folder / name, plan.size)
            unseen.remove(name)

    return train_all(configs, folder, options, look)


def check_all(configs: Mapping[str, Config], folder: Path) -> None:
    """Raise a ValueError if a config makes no sense, or its run in a folder has another one."""
    for name, config in configs.items():
        config.check()
        check_same(folder / name, config)
    if len(titles := {score_of(config.data.noise).title for config in configs.values()}) > 1:
        both = " and ".join(sorted(titles))
        raise ValueError(f"runs of a sweep are judged by one score, and these by {both}")


def train_all(
    configs: Mapping[str, Config],
    folder: Path,
    options: engines.Options,
    look: Callable[[], None] = lambda: None,
) -> Mapping[str, str]:
    """Bring runs to their end, several at a time, and return why some of them failed, by name.

    What is finished already is left alone. Now and then there is time to ``look`` at the folders.
    """
    epochs = {name: config.trainer.epochs for name, config in configs.items()}
    progress = SweepProgress(epochs, folder)
    jobs = []
    for name in [name for name in epochs if name not in progress.done]:
        write_config(log_file(folder / name).with_suffix(".yaml"), configs[name])
        jobs.append(engines.Job(folder / name, epochs[name], Path.cwd()))
    with ExitStack() as stack:
        # SIGTERM, which schedulers send, stops the runs just as Ctrl-C does.
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        stack.callback(signal.signal, signal.SIGTERM, before)
        stack.enter_context(progress.shown())
        engine = engines.on_ray if options.engine == "ray" else engines.on_this_machine
        for event in stack.enter_context(closing(engine(jobs, options))) if jobs else ():
            if event is not None:
                progress.ended(*event)
            look()
    return progress.failed


def place(plan: SweepPlan, folder: Path) -> tuple[Cell, ...]:
    """Return the runs of a plan in a folder, those that learn the same under one name."""
    return plan.placed(lambda name: (folder / name / "config.yaml").exists())


def check_same(folder: Path, config: Config) -> None:
    """Raise a ValueError if a folder has a run that would learn something else than this one."""
    if not (folder / "config.yaml").exists():
        return
    existing, wanted = flat(read_config(folder / "config.yaml")), flat(config)
    for name in differing(existing, wanted):
        advice = f"remove the run, choose another --out, or give --{name} what it has"
        given = f"{name} {existing[name]!r} and this sweep {wanted[name]!r}"
        raise RunError(f"{folder} has {given}: {advice}")


def merged(folder: Path, plan: SweepPlan, placed: Sequence[Cell]) -> dict[str, Any] | None:
    """Return what sweep.json should say, its other seeds included; None if it says so already."""
    new, path = plan.document(placed), folder / "sweep.json"
    if not path.exists():
        return new
    try:
        old = read_json(path, "table", "scale", "seeds", "rows", "columns", "column_titles", "runs")
        both = {
            "seeds": sorted({*old["seeds"], *new["seeds"]}),
            "rows": list(dict.fromkeys((*old["rows"], *new["rows"]))),
            "columns": list(dict.fromkeys((*old["columns"], *new["columns"]))),
            "column_titles": old["column_titles"] | new["column_titles"],
            "runs": list({_spot(run): run for run in (*old["runs"], *new["runs"])}.values()),
        }
    except (DamagedFile, LookupError, TypeError) as error:
        damage = error if isinstance(error, DamagedFile) else f"{path} can't be read ({error!r})"
        advice = "remove it, and the same command writes it again"
        raise DamagedFile(f"{damage}: {advice}") from error
    for name in ("table", "scale"):
        if old[name] != new[name]:
            given = f"a sweep of {name} {old[name]!r}, not {new[name]!r}"
            raise ValueError(f"{folder} has {given}: choose another --out")
    return None if old == json.loads(json.dumps(new | both)) else new | both


def _spot(run: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return where the table has a run; the same run may be in several places."""
    return run["row"], run["column"], run["seed"]


def check_size(folder: Path, size: Sequence[int] | None) -> None:
    """Raise a ValueError if a run has examples of another size than budgets were computed for."""
    try:
        run_size = read_json(folder / "data.json", "size")["size"]
    except FileNotFoundError:
        return
    if size is not None and list(size) != run_size:
        other = f", or --data.image_size {size[-1]}" if size[0] == run_size[0] else ""
        given = f"examples of {tuple(size)}, and {folder} has some of {tuple(run_size)}"
        raise RunError(f"budgets of this table are for {given}: choose other data{other}")
