"""A study of searches: does it matter where they begin, and what else finds as much for as much?

All networks of a study cost the same. First those with the strides of several beginnings are
trained, and on a part of the training set those with strides at random, and the trials of a search.
Then, on all training data, those that came out best, and those that learn their strides while they
train, from every beginning.
"""

import math
import re
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

from diffstride.analysis.budget import Budget
from diffstride.lab.runs.config import Config
from diffstride.lab.runs.run_folder import Run
from diffstride.lab.runs.search_folder import STAGES, Settings
from diffstride.lab.search.searched_network import SearchedNetwork, Strides, learnable
from diffstride.lab.search.stages import (
    check,
    fixed_config,
    held_out_data,
    learning_config,
    on_the_test_set,
    searched,
)
from diffstride.lab.sweeps.plan import Cell, SweepPlan, check_number, common_config
from diffstride.lab.sweeps.sweep import place
from diffstride.lab.sweeps.tables import toml
from diffstride.lab.training import recipes
from diffstride.lab.training.preparation import prepare
from diffstride.lab.training.trained_run import load_model
from diffstride.layers.resizer import learned_strides
from diffstride.strides.space import StrideSpace

BUILT_IN = Path(__file__).with_name("search.toml")
NAMES = ("recipe", "title", "seeds", "settings", "beginnings", "random", "learned")
FEW = 2
"""How many random strides cost at least as much to compare as a search takes."""
OTHER_SEED = 100
"""What is added to a seed for another training with the same strides."""
OWN_ROWS = ("search", "search again", "search, another seed", f"best of {FEW} random")
COLUMNS = {
    "fixed": "fixed",
    "gradient": "learned while training",
    "held_out": "on the held-out part",
    "trials": "trials of the search",
}


@dataclass(frozen=True)
class StudyPlan(SweepPlan):
    """A table whose runs are known one by one, because strides differ from seed to seed."""

    every: tuple[Cell, ...] = ()

    @cached_property
    def runs(self) -> tuple[Cell, ...]:
        return self.every


class Study:
    """What the file of a study says: a TOML file with beginnings.

    Each beginning is a list with a number for every site and axis: which part it has in what is
    downsampled. Strides are those at which the network costs ``macs_budget``, or what it costs with
    the strides of the recipe. ``learned`` names the beginnings from which strides are learned while
    a network trains: all unless given.
    """

    def __init__(self, path: Path, seeds: int | None, words: Sequence[str]) -> None:
        self.path, content = path, _read(path)
        found = recipes.find(content.get("recipe", "digits"))
        if found is None:
            raise ValueError(f"{path}: no recipe {content['recipe']!r}, nor such a file")
        self.recipe, recipe = found
        self.title = content.get("title", path.stem)
        self.seeds = tuple(content.get("seeds", [0, 1, 2]) if seeds is None else range(seeds))
        if seeds is not None and seeds < 1:
            raise ValueError(f"--seeds must be at least 1, got {seeds}")
        self.random = content.get("random", 8)
        varied = ("model.downsampling", "model.strides", "data.held_out", "optim.strides_by")
        settings, program = content.get("settings", {}), f"diffstride sweep {path}"
        shown = [name for name in varied if name not in settings]
        self.config = searched(common_config(recipe, settings, words, shown, program))
        check(self.config)
        if self.config.ms_budget is not None or self.config.stride_penalty:
            raise ValueError(f"{path}: a study has no budget but macs_budget")
        self.beginnings: dict[str, list[float]] = content["beginnings"]
        self.learned: list[str] = content.get("learned", list(self.beginnings))
        check_number(2 * len(self.beginnings) + self.random + 5, len(self.seeds), str(path))

    @cached_property
    def network(self) -> SearchedNetwork:
        free = replace(self.config, macs_budget=None, model=learnable(self.config.model))
        return SearchedNetwork(self.config, prepare(on_the_test_set(free)).facts)

    @cached_property
    def macs(self) -> float:
        """What every network costs, in millions."""
        network = self.network
        return self.config.macs_budget or network.cost(network.strides, "macs")

    @cached_property
    def space(self) -> StrideSpace:
        budget = Budget(self.network.model, self.network.size, macs=1e6 * self.macs)
        return StrideSpace(budget)

    def _strides(self, point: Sequence[float]) -> Strides:
        self.space.write(point)  # which rounds, as the network itself does
        return self.network.shortened(self.network.strides)

    def _random(self, seed: int, number: int) -> Strides:
        return self._strides(self.space.random(Random(f"{seed} random {number}")))

    def _starts(self) -> dict[str, Strides]:
        return {n: self._strides(self.space.towards(v)) for n, v in self.beginnings.items()}

    def _plan(self, cells: Sequence[Cell]) -> StudyPlan:
        return StudyPlan(
            self.path.stem,
            self.title,
            self.seeds,
            "own",
            tuple(dict.fromkeys(cell.row for cell in cells)),
            {name: title for name, title in COLUMNS.items() if name in {c.column for c in cells}},
            tuple(cells),
            self.config,
            every=tuple(cells),
        )

    @cached_property
    def first(self) -> StudyPlan:
        """The runs that depend on no others."""
        if wrong := {k for k, v in self.beginnings.items() if len(v) != len(self.space)}:
            wanted = f"{len(self.space)} numbers, one for each site and axis of the network"
            raise ValueError(f"{self.path}: {min(wrong)!r} must have {wanted}")
        starts, cells = self._starts(), []
        for seed in self.seeds:
            config = replace(self.config, seed=seed, macs_budget=None)
            for row, strides in starts.items():
                cells.append(_cell(row, "fixed", fixed_config(config, strides)))
            some = next(iter(starts.values()))
            some = self.network.option(some)
            settings = Settings(self.recipe, False, "macs", self.macs, some, STAGES, config)
            cells.append(_cell("search", "trials", learning_config(settings, self.path)))
            for number in range(self.random):
                random = fixed_config(config, self._random(seed, number))
                random = replace(random, data=held_out_data(config.data))
                cells.append(_cell(f"random {number + 1}", "held_out", random))
        return self._plan(cells)

    def second(self, folder: Path) -> StudyPlan:
        """Return the runs at strides that came out best in the first, and those that learn some."""
        placed = {
            a.name: b for a, b in zip(self.first.runs, place(self.first, folder), strict=True)
        }

        def run(row: str, column: str, seed: int) -> Run:
            return Run.open(folder / placed[_name(row, column, seed)].name)

        def score(seed: int, number: int) -> float:
            metrics = run(f"random {number + 1}", "held_out", seed).metrics()
            return float(metrics[-1]["test_accuracy"])

        starts, cells = self._starts(), []
        for seed in self.seeds:
            config = replace(self.config, seed=seed, macs_budget=None)
            layers = learned_strides(load_model(run("search", "trials", seed)))
            found = tuple(stride for layer in layers.values() for stride in layer.strides)
            found = self.network.shortened(found)
            cells.append(_cell("search", "fixed", fixed_config(config, found)))
            other = replace(config, seed=seed + OTHER_SEED)
            again = _cell("search, another seed", "fixed", fixed_config(other, found))
            cells.append(replace(again, name=_name("search again", "fixed", seed)))
            scores = [score(seed, number) for number in range(self.random)]
            for many in sorted({FEW, self.random} if self.random else ()):
                best = max(range(many), key=lambda i: scores[i])
                strides = self._random(seed, best)
                cells.append(
                    _cell(f"best of {many} random", "fixed", fixed_config(config, strides))
                )
            for row in self.learned:
                strides = starts[row]
                learned = fixed_config(config, strides)
                learned = replace(learned, macs_budget=self.macs, spend=True)
                model = learnable(config.model, self.network.option(strides))
                optim = replace(config.optim, strides_by="gradient")
                cells.append(_cell(row, "gradient", replace(learned, model=model, optim=optim)))
        return self._plan(cells)


def find(table: str) -> Path | None:
    """Return the file of a study: the built-in one, or one of one's own; None for other tables."""
    if table == BUILT_IN.stem:
        return BUILT_IN
    path = Path(table).expanduser()
    if path.suffix != ".toml" or not path.is_file():
        return None
    try:
        return path if "beginnings" in toml.loads(path.read_text("utf-8")) else None
    except (ValueError, RecursionError):  # which reading it as a grid says
        return None


def folder_and_plans(
    path: Path, args: Namespace, words: Sequence[str]
) -> tuple[str, Iterator[SweepPlan]]:
    """Return where the runs of a study are, and its two plans: the second follows from the first.

    The arguments are those of `diffstride sweep`, and its other words.
    """
    if args.dry_run:
        raise ValueError("--dry_run is not for a study: its first runs tell what its last ones are")
    study = Study(path, args.seeds, words)
    folder = Path(args.out or f"runs/{study.path.stem}").expanduser()

    def plans() -> Iterator[SweepPlan]:
        yield study.first
        yield study.second(folder)

    return str(folder), plans()


def _cell(row: str, column: str, config: Config) -> Cell:
    return Cell(_name(row, column, config.seed), row, column, config)


def _name(row: str, column: str, seed: int) -> str:
    return re.sub(r"[^\w.+-]+", "_", f"{column}-{row}-s{seed}")


def _read(path: Path) -> dict[str, Any]:
    """Return the content of a file, if all in it has the form it must have."""
    content: dict[str, Any] = toml.loads(path.read_text("utf-8"))
    if unknown := sorted(set(content) - set(NAMES)):
        raise ValueError(f"{path} has {', '.join(unknown)}; it may have {', '.join(NAMES)}")
    for name in ("recipe", "title"):
        if not isinstance(text := content.get(name, ""), str):
            raise ValueError(f"{path}: {name} must be a text, got {text!r}")
    for name in ("settings", "beginnings"):
        if not isinstance(table := content.get(name, {}), dict):
            raise ValueError(f"{path}: [{name}] must be a table, got {table!r}")
    random, seeds = content.get("random", 8), content.get("seeds", [0])
    if not (type(random) is int and (random == 0 or random >= FEW)):
        wanted = f"a whole number, 0 or at least {FEW}"
        raise ValueError(f"{path}: random must be {wanted}, got {random!r}")
    whole = isinstance(seeds, list) and all(type(n) is int and n >= 0 for n in seeds)
    if not (whole and seeds and len(set(seeds)) == len(seeds)):
        wanted = "one whole number at least, none of them twice, such as [0, 1]"
        raise ValueError(f"{path}: seeds must be {wanted}, got {seeds!r}")
    _check_beginnings(path, content["beginnings"], (*OWN_ROWS, f"best of {random} random"))
    learned = content.get("learned", [])
    if not (isinstance(learned, list) and all(name in content["beginnings"] for name in learned)):
        raise ValueError(f"{path}: learned must be a list of beginnings, got {learned!r}")
    return content


def _check_beginnings(path: Path, beginnings: Mapping[str, Any], taken: Sequence[str]) -> None:
    if not beginnings:
        raise ValueError(f"{path}: [beginnings] must have one at least")
    for name, parts in beginnings.items():
        numbers = isinstance(parts, list) and all(type(x) in (int, float) for x in parts)
        if not (numbers and parts and all(0 <= x < math.inf for x in parts) and any(parts)):
            wanted = (
                "a list of numbers from 0 on, one for each site and axis, and not all of them 0"
            )
            raise ValueError(f"{path}: the beginning {name!r} must be {wanted}, got {parts!r}")
    names = Counter(_name(row, "fixed", 0) for row in {*beginnings, *taken})
    for row in beginnings:
        if row in taken or names[_name(row, "fixed", 0)] > 1:
            wrong = "has the name of another row, or one that makes the same folder"
            raise ValueError(f"{path}: the beginning {row!r} {wrong}: give it another")
