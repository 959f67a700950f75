"""What each table of the paper is: a list of runs."""

import itertools
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from diffstride.lab.runs.config import Config
from diffstride.lab.sweeps.plan import (
    Plan,
    Planned,
    as_words,
    by_seed,
    check_number,
    check_varied,
    label,
    with_model,
)
from diffstride.lab.training import recipes

toml: Any = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

PAPER: dict[str, Any] = toml.loads(Path(__file__).with_name("paper.toml").read_text("utf-8"))
TABLES: dict[str, dict[str, Any]] = PAPER["tables"]
MEAN = "Mean accuracy"
COST_ROWS = (
    "Training: time per step",
    "Training: peak memory",
    "Inference: time per step",
    "Inference: peak memory",
)


def plan(
    table: str, scale: str = "small", seeds: int | None = None, words: Sequence[str] = ()
) -> Plan:
    """The runs of a table of the paper.

    Args:
        table: a key of ``TABLES``.
        scale: ``"paper"`` for the recipe as it is, ``"small"`` for a machine without a GPU.
        seeds: how many, from 0; 3 unless given.
        words: other options of ``diffstride train``, for all runs.

    Raises:
        ValueError: for a table that there is not, or an option that the table itself varies.
    """
    if seeds is not None and seeds < 1:
        raise ValueError(f"--seeds must be at least 1, got {seeds}")
    check_number(1, seeds or 3, table)
    program = f"diffstride sweep {table}"
    if table not in TABLES:
        raise ValueError(f"no table {table!r}: it is a TOML file or one of {', '.join(TABLES)}")
    told = TABLES[table] | TABLES[table].get("at", {}).get(scale, {})
    settings = told.get("settings", {}) | (
        PAPER["small"][told["small"]] if scale == "small" else {}
    )
    given = recipes.override(recipes.RECIPES[told["recipe"]].config, as_words(settings), program)
    config = recipes.override(given, words, program)
    varied = {
        "regularisation": (
            "model.downsampling",
            "model.strides",
            "stride_penalty",
            "macs_budget",
        ),
        "shared_stride": ("model.downsampling", "model.shared_stride"),
        "strides": ("model.downsampling", "model.strides", "macs_budget"),
    }.get(told["kind"], ("model.downsampling", "macs_budget"))
    check_varied(given, config, (*varied, "seed", "name", "out"), program)
    if (side := config.data.image_size) and "size" in told:
        told = told | {"size": [told["size"][0], side, side]}
    numbers = tuple(range(3 if seeds is None else seeds))
    make = {"strides": _strides, "regularisation": _regularisation, "cost": _cost}
    rows, runs, columns = make.get(told["kind"], _sound)(told, config, numbers)
    titles = {name: PAPER["columns"][name] for name in columns}
    if "average" in titles:
        titles["budget"] = "DiffStride at the pooling cost"
    return Plan(
        table,
        told["title"],
        scale,
        numbers,
        tuple(rows),
        titles,
        tuple(runs),
        config,
        told.get("paper", {}),
        {name: value for name, value in told.items() if name.startswith("paper_")},
        tuple(told["size"]) if "budget" in titles else None,
    )


def at_budget(config: Config, method: str, classes: Any, size: Sequence[int]) -> Config:
    """Strides that are learned at the cost of another method with its strides.

    At the paper's R, no stride makes a network as cheap as one with strided convolutions: maps keep
    2R samples an axis at least. So R is smaller here; and where even that is not enough, as for a
    network that is strided harder than its learnable form can be, the budget is somewhat more than
    the least that this can cost.
    """
    import torch

    from diffstride.analysis.budget import least_macs
    from diffstride.analysis.cost import cost
    from diffstride.lab.training.preparation import build_model

    told = PAPER["budget"]
    facts = {"classes": classes, "size": size}
    own = with_model(config, downsampling="diffstride", **told["model"])
    with torch.device("meta"):
        other = build_model(with_model(config, downsampling=method).model, facts)
        least = least_macs(build_model(own.model, facts), size)
    macs = max(cost(other, size).macs, round(told["margin"] * least))
    return replace(own, macs_budget=macs / 1e6)


Made = tuple[list[str], list[Planned], list[str]]
"""Rows, runs and columns."""


def _strides(told: Mapping[str, Any], config: Config, seeds: Sequence[int]) -> Made:
    """Every setting of strides with every method, and learned ones at the first method's cost."""
    columns = [*told["methods"], "budget"]
    runs = []
    for strides in told["strides"]:
        own = with_model(config, strides=tuple(map(float, strides)))
        for column in columns:
            if column == "budget":
                made = at_budget(own, columns[0], range(told["classes"]), told["size"])
            else:
                made = with_model(own, downsampling=column)
            for seed in seeds:
                name = f"{column}-{'-'.join(f'{s:g}' for s in strides)}-s{seed}"
                runs.append(Planned(name, label(strides), column, seed, replace(made, seed=seed)))
    return [label(strides) for strides in told["strides"]], by_seed(runs), columns


def _sound(told: Mapping[str, Any], config: Config, seeds: Sequence[int]) -> Made:
    """One network a task with every method, and one for all of them."""
    tasks = {text.partition("=")[0]: text for text in config.data.task}
    known = PAPER["tasks"]
    if not tasks or config.data.path is not None:
        raise ValueError(
            f"tables of sound need --data.task NAME=PATH or NAME=PATH:LABEL for each task; the "
            f"paper's are named {', '.join(known)}"
        )
    titles = {name: known[name]["title"] if name in known else name for name in tasks}
    metrics = {title: f"test_accuracy_{name}" for name, title in titles.items()}
    rows = [*titles.values(), MEAN]
    if told["kind"] == "shared_stride":
        own = with_model(config, downsampling="diffstride")
        kinds = {"shared": with_model(own, shared_stride=True), "different": own}
        runs = [
            Planned(f"{column}-s{seed}", MEAN, column, seed, replace(made, seed=seed), metrics)
            for column, made in kinds.items()
            for seed in seeds
        ]
        return rows, by_seed(runs), list(kinds)
    methods = [*told["methods"], "budget"]
    # Heads are linear: how many classes a task of another name has hardly changes the cost.
    classes = {name: range(known[name]["classes"] if name in known else 10) for name in tasks}
    runs = []
    for several in (False, True):
        for some in [dict(tasks)] if several else [{name: tasks[name]} for name in tasks]:
            own = replace(config, data=replace(config.data, task=tuple(some.values())))
            heads = {name: classes[name] for name in some}
            made = {name: with_model(own, downsampling=name) for name in told["methods"]}
            made["budget"] = at_budget(own, methods[0], heads, told["size"])
            row = MEAN if several else titles[next(iter(some))]
            for method, seed in itertools.product(methods, seeds):
                column = f"multi_{method}" if several else method
                name = f"{column}-s{seed}" if several else f"{column}-{next(iter(some))}-s{seed}"
                chosen = replace(made[method], seed=seed)
                runs.append(Planned(name, row, column, seed, chosen, metrics if several else {}))
    return rows, by_seed(runs), [*methods, *(f"multi_{method}" for method in methods)]


def _regularisation(told: Mapping[str, Any], config: Config, seeds: Sequence[int]) -> Made:
    """Learned strides with more and more weight on what they cost; strides chosen by hand."""
    sites = len(told["initial"])
    runs, rows = [], []
    for weight in told["lambdas"]:
        initial = tuple(map(float, told["initial"]))
        own = replace(
            with_model(config, downsampling="diffstride", strides=initial), stride_penalty=weight
        )
        rows.append(f"λ = {weight:g}")
        for seed in seeds:
            name = f"diffstride-lambda{weight:g}-s{seed}"
            runs.append(Planned(name, rows[-1], "diffstride", seed, replace(own, seed=seed)))
    for strides in told["strides"]:
        own = with_model(config, downsampling="strided", strides=tuple(map(float, strides)))
        rows.append(label(strides))
        cost = penalty(strides, sites)
        for seed in seeds:
            name = f"strided-{'-'.join(f'{s:g}' for s in strides)}-s{seed}"
            made = replace(own, seed=seed)
            runs.append(Planned(name, rows[-1], "strided", seed, made, penalty=cost))
    return rows, by_seed(runs), ["strided", "diffstride"]


def penalty(strides: Sequence[float], sites: int) -> float:
    """The paper's regulariser of fixed strides, one a site or one a site and axis.

    >>> penalty([2, 2, 2], 3)
    0.328125
    """
    axes = len(strides) // sites
    total, area = 0.0, 1.0
    for i in range(sites):
        for axis in range(2):
            area /= strides[i * axes + axis % axes]
        total += area
    return total


def _cost(told: Mapping[str, Any], config: Config, seeds: Sequence[int]) -> Made:
    """Measured, not trained."""
    return list(COST_ROWS), [], list(told["methods"])
