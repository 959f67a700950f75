"""Tables as sweeps, with their cells and settings: those of the paper, and grids in TOML files."""

import itertools
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from diffstride.lab.runs.config import Config
from diffstride.lab.runs.scores import ACCURACY
from diffstride.lab.sweeps import plan
from diffstride.lab.sweeps.plan import Cell, SweepPlan, as_words, dashed, label, with_model
from diffstride.lab.training import recipes

toml: Any = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

PAPER: dict[str, Any] = toml.loads(Path(__file__).with_name("paper.toml").read_text("utf-8"))
TABLES: dict[str, dict[str, Any]] = PAPER["tables"]
COST_ROWS: list[str] = TABLES["cost"]["rows"]
MEAN = f"Mean {ACCURACY.title}"
# What the file of a grid may have.
GRID_NAMES = ("recipe", "title", "seeds", "settings", "grid", "variants")


def plan_table(
    table: str, scale: str = "small", seeds: int | None = None, words: Sequence[str] = ()
) -> SweepPlan:
    """Return the plan of a table of the paper; arguments are those of ``plan_sweep``."""
    if seeds is not None and seeds < 1:
        raise ValueError(f"--seeds must be at least 1, got {seeds}")
    plan.check_number(1, seeds or 3, table)
    if table not in TABLES:
        raise ValueError(f"no table {table!r}: it is a TOML file or one of {', '.join(TABLES)}")
    entry = table_entry(table, scale)
    make_cells, varied = KINDS[entry["kind"]]
    config = plan.common_config(
        recipes.RECIPES[entry["recipe"]].config,
        entry.get("settings", {}) | (PAPER["small"][entry["small"]] if scale == "small" else {}),
        words,
        ("model.downsampling", *varied),
        f"diffstride sweep {table}",
    )
    entry = table_entry(table, scale, config)
    cells = tuple(make_cells(entry, config))
    columns = (*entry.get("methods", ()), *(cell.column for cell in cells))
    titles = {name: PAPER["columns"][name] for name in columns}
    if "average" in titles:
        titles["budget"] = "DiffStride at the pooling cost"
    rows = entry.get("rows") or (row for cell in cells for row in (*cell.tasks, cell.row))
    return SweepPlan(
        table,
        entry["title"],
        tuple(range(seeds or 3)),
        scale,
        tuple(dict.fromkeys(rows)),
        titles,
        cells,
        config,
        entry.get("paper", {}),
        {name: value for name, value in entry.items() if name.startswith("paper_")},
        tuple(entry["size"]) if "budget" in titles else None,
    )


def table_entry(table: str, scale: str, config: Config | None = None) -> dict[str, Any]:
    """Return what paper.toml says about a table at a scale, for images as large as in a config."""
    entry: dict[str, Any] = TABLES[table] | TABLES[table].get("at", {}).get(scale, {})
    if config is not None and (side := config.data.image_size):
        entry["size"] = [entry["size"][0], side, side]
    return entry


def facts(entry: Mapping[str, Any], config: Config) -> dict[str, Any]:
    """Return what a network has to fit: the size of an example, and the classes of its task(s).

    A task that the paper has not is taken to have ten. Heads are linear: how many classes there
    are hardly changes the cost.
    """
    classes: Any = range(entry.get("classes", 0))
    if not classes:
        names = [task.partition("=")[0] for task in config.data.task]
        classes = {n: range(PAPER["tasks"].get(n, {"classes": 10})["classes"]) for n in names}
    return {"classes": classes, "size": entry["size"]}


def _at_budget(config: Config, method: str, facts: Mapping[str, Any]) -> Config:
    """Return a config that learns strides at the cost of another method with its strides.

    At the paper's R, no stride makes a network as cheap as one with strided convolutions: maps keep
    2R samples an axis at least. So R is smaller here; and where even that is not enough, as for a
    network that is strided harder than its learnable form can be, the budget is somewhat more than
    the least that this can cost.
    """
    import torch

    from diffstride.analysis.budget import least_macs
    from diffstride.analysis.cost import cost
    from diffstride.lab.training.preparation import build_model

    learned = with_model(config, downsampling="diffstride", **PAPER["budget"]["model"])
    with torch.device("meta"):
        fixed = build_model(with_model(config, downsampling=method).model, facts)
        least = least_macs(build_model(learned.model, facts), facts["size"])
    macs = max(cost(fixed, facts["size"]).macs, round(PAPER["budget"]["margin"] * least))
    return replace(learned, macs_budget=macs / 1e6, spend=True)


def _by_method(entry: Mapping[str, Any], config: Config) -> Iterator[tuple[str, Config]]:
    """Yield a config for each method, and one for strides learned at the first method's cost."""
    for method in entry["methods"]:
        yield method, with_model(config, downsampling=method)
    yield "budget", _at_budget(config, entry["methods"][0], facts(entry, config))


def _with_strides(config: Config, strides: Iterable[float], **settings: Any) -> Config:
    return with_model(config, strides=tuple(map(float, strides)), **settings)


def _strides(entry: Mapping[str, Any], config: Config) -> Iterator[Cell]:
    """Yield a cell for every setting of strides with every method."""
    for strides in entry["strides"]:
        for method, cell_config in _by_method(entry, _with_strides(config, strides)):
            yield Cell(f"{method}-{dashed(strides)}", label(strides), method, cell_config)


def _sound(entry: Mapping[str, Any], config: Config) -> Iterator[Cell]:
    """Yield cells for one network for each task with every method, and for one for all tasks."""
    tasks = {task.partition("=")[0]: task for task in config.data.task}
    if not tasks or config.data.path is not None:
        needed = "--data.task NAME=PATH or NAME=PATH:LABEL for each task"
        names = ", ".join(PAPER["tasks"])
        raise ValueError(f"tables of sound need {needed}; the paper's are named {names}")
    titles = {name: PAPER["tasks"].get(name, {"title": name})["title"] for name in tasks}
    metrics = {title: f"{ACCURACY.column}_{name}" for name, title in titles.items()}
    if entry["kind"] == "shared_stride":
        different = with_model(config, downsampling="diffstride")
        yield Cell("shared", MEAN, "shared", with_model(different, shared_stride=True), metrics)
        yield Cell("different", MEAN, "different", different, metrics)
        return
    for name, task in tasks.items():
        of_task = replace(config, data=replace(config.data, task=(task,)))
        for method, cell_config in _by_method(entry, of_task):
            yield Cell(f"{method}-{name}", titles[name], method, cell_config)
    for method, cell_config in _by_method(entry, config):
        yield Cell(f"multi_{method}", MEAN, f"multi_{method}", cell_config, metrics)


def _regularisation(entry: Mapping[str, Any], config: Config) -> Iterator[Cell]:
    """Yield cells for strides learned with more and more weight on cost, and set by hand."""
    learned = _with_strides(config, entry["initial"], downsampling="diffstride")
    for weight in entry["lambdas"]:
        name, row = f"diffstride-lambda{weight:g}", f"λ = {weight:g}"
        yield Cell(name, row, "diffstride", replace(learned, stride_penalty=weight))
    for strides in entry["strides"]:
        fixed = _with_strides(config, strides, downsampling="strided")
        cost = penalty(strides, len(entry["initial"]))
        yield Cell(f"strided-{dashed(strides)}", label(strides), "strided", fixed, penalty=cost)


BUDGET = ("macs_budget", "ms_budget", "spend")
KINDS: dict[str, tuple[Callable[[dict[str, Any], Config], Iterable[Cell]], tuple[str, ...]]] = {
    "strides": (_strides, ("model.strides", *BUDGET)),
    "audio": (_sound, BUDGET),
    "shared_stride": (_sound, ("model.shared_stride",)),
    "regularisation": (_regularisation, ("model.strides", "stride_penalty", *BUDGET)),
    "cost": (lambda entry, config: (), BUDGET),  # measured, not trained
}
"""By the kind of a table, what makes its cells, and the options it varies besides the method."""


def penalty(strides: Sequence[float], sites: int) -> float:
    """Return the paper's regulariser for fixed strides, one for each site or for each axis too.

    >>> penalty([2, 2, 2], 3)
    0.328125
    """
    import torch

    from diffstride.analysis.training import stride_penalty
    from diffstride.layers import DiffStride2d

    axes = torch.tensor(strides, dtype=torch.float64).reshape(sites, -1).expand(-1, 2)
    return stride_penalty([DiffStride2d(site, dtype=axes.dtype) for site in axes.tolist()]).item()


def plan_grid(path: Path, seeds: int | None = None, words: Sequence[str] = ()) -> SweepPlan:
    """Return the plan of a grid: methods of downsampling are columns, other settings make rows.

    ``path`` is a TOML file with ``recipe``, ``seeds``, ``[settings]`` and ``[grid]``; each of its
    ``[[variants]]`` has a ``title`` and settings that go together.
    """
    program = f"diffstride sweep {path}"
    content = _read_grid(path)
    recipe = recipes.find(content.get("recipe", "digits"))
    if recipe is None:
        raise ValueError(f"{path}: no recipe {content['recipe']!r}, nor such a file")
    grid, numbers = content.get("grid", {}), content.get("seeds", [0, 1, 2])
    if seeds is not None:
        numbers = list(range(min(seeds, plan.MOST_RUNS)))
    if not (isinstance(numbers, list) and numbers and all(type(n) is int for n in numbers)):
        raise ValueError(f"{path}: seeds must be one at least, such as [0, 1], got {numbers!r}")
    variants = content.get("variants") or [{}]
    combinations = len(variants) * math.prod(len(values) for values in grid.values())
    plan.check_number(combinations, seeds or len(numbers), str(path))
    varied = {*grid, *(name for variant in variants for name in variant)}
    config = plan.common_config(recipe[1], content.get("settings", {}), words, varied, program)
    cells = []
    for variant, *values in itertools.product(variants, *grid.values()):
        chosen = dict(zip(grid, values, strict=True))
        together = {name: value for name, value in variant.items() if name != "title"}
        cell_config = recipes.override(config, as_words(chosen | together), program)
        column = cell_config.model.downsampling
        chosen.pop("model.downsampling", None)
        title = [_titles("", variant["title"])] if variant else []
        own = map(_titles, chosen, chosen.values())
        titles, names = zip(("", column), *title, *own, strict=True)
        row = ", ".join(titles[1:]) or "all"
        cells.append(Cell("-".join(names), row, column, cell_config))
    sweep = SweepPlan(
        path.stem,
        content.get("title", path.stem),
        tuple(numbers),
        "own",
        tuple(dict.fromkeys(cell.row for cell in cells)),
        {cell.column: PAPER["columns"].get(cell.column, cell.column) for cell in cells},
        tuple(cells),
        config,
    )
    name, number = Counter(run.name for run in sweep.runs).most_common(1)[0]
    if number > 1:
        raise ValueError(f"{path}: two combinations of the grid would be named {name}")
    return sweep


def _titles(name: str, value: Any) -> tuple[str, str]:
    """Return a setting as the title of a row has it, and as the name of a folder has it."""
    if name == "model.strides":
        return label(value), dashed(value)
    option = name.rpartition(".")[2]
    return f"{option} {value}".strip(), re.sub(r"[^\w.+-]+", "_", f"{option}{value}")


def _read_grid(path: Path) -> dict[str, Any]:
    """Return the content of a file, if all in it has the form it must have."""
    try:
        content: dict[str, Any] = toml.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} can't be read as TOML: {error}") from error
    if unknown := sorted(set(content) - set(GRID_NAMES)):
        raise ValueError(f"{path} has {', '.join(unknown)}; it may have {', '.join(GRID_NAMES)}")
    for name in ("grid", "settings"):
        if not isinstance(table := content.get(name, {}), dict):
            raise ValueError(f"{path}: [{name}] must be a table of options, got {table!r}")
    variants = content.get("variants", [{"title": ""}])
    if not (isinstance(variants, list) and all(isinstance(v, dict) for v in variants)):
        raise ValueError(f"{path}: [[variants]] must be tables of options, got {variants!r}")
    if not all(isinstance(variant.get("title"), str) for variant in variants):
        raise ValueError(f"{path}: each of [[variants]] must have a title for its row")
    if not all(variant["title"].strip() for variant in content.get("variants", [])):
        raise ValueError(f"{path}: the title of a variant must not be empty")
    if both := sorted(set(content.get("grid", {})) & set(itertools.chain(*variants))):
        raise ValueError(f"{path}: {both[0]} is in [grid] and in [[variants]]: leave it in one")
    for name in itertools.chain(content.get("grid", {}), *variants):
        if name in ("seed", "name", "out"):
            raise ValueError(f"{path}: {name} is chosen for each run; seeds = [0, 1] is for seeds")
    for name, values in content.get("grid", {}).items():
        if not (isinstance(values, list) and values):
            raise ValueError(f"{path}: {name} must be a list of what to try, got {values!r}")
        if name == "model.strides" and not all(isinstance(value, list) for value in values):
            raise ValueError(f"{path}: {name} must be a list of lists, got {values!r}")
    return content
