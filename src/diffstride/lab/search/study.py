"""A study of searches: does it matter where they begin, and what else finds as much for as much?

All networks of a study cost the same. Those with the strides of several beginnings are trained, and
on a part of the training set those with strides at random, and the trials of a search, wave by
wave. Then, on all training data, those that came out best, and those that learn their strides while
they train.
"""

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from random import Random

from diffstride.lab.runs.config import Config
from diffstride.lab.runs.run_folder import Run
from diffstride.lab.search.configs import (
    fixed_config,
    held_out_config,
    on_the_test_set,
    searched,
    trial_config,
    trial_epochs,
)
from diffstride.lab.search.searched_network import SearchedNetwork, Strides, learnable
from diffstride.lab.search.stages import TRIALS, Options, check
from diffstride.lab.search.study_file import AGAIN, TRIED, read_study, run_name
from diffstride.lab.search.trials import Trials, loss
from diffstride.lab.sweeps.plan import Cell, SweepPlan, check_number, common_config
from diffstride.lab.sweeps.sweep import place
from diffstride.lab.sweeps.tables import toml
from diffstride.lab.training import recipes
from diffstride.lab.training.preparation import prepare
from diffstride.strides.space import StrideSpace

BUILT_IN = Path(__file__).with_name("search.toml")
OTHER_SEED = 100
"""What is added to a seed for another training with the same strides."""
COLUMNS = {
    "fixed": "fixed",
    "search": "a search from there",
    "gradient": "learned while training",
    "held_out": "on the held-out part",
    "trials": "trials, short",
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
    the strides of the recipe. ``random`` says how many random strides are compared, ``trials`` how
    many trials a search has, and ``learned`` names the beginnings from which strides are learned
    while a network trains: all unless given.
    """

    def __init__(self, path: Path, seeds: int | None, words: Sequence[str]) -> None:
        self.path, content = path, read_study(path)
        found = recipes.find(content.get("recipe", "digits"))
        if found is None:
            raise ValueError(f"{path}: no recipe {content['recipe']!r}, nor such a file")
        self.recipe, recipe = found
        self.title = content.get("title", path.stem)
        self.seeds = tuple(content.get("seeds", [0, 1, 2]) if seeds is None else range(seeds))
        if seeds is not None and seeds < 1:
            raise ValueError(f"--seeds must be at least 1, got {seeds}")
        self.random, self.trials = content.get("random", 8), content.get("trials", TRIALS)
        varied = ("model.downsampling", "model.strides", "data.held_out", "optim.strides_by")
        settings, program = content.get("settings", {}), f"diffstride sweep {path}"
        shown = [name for name in varied if name not in settings]
        self.config = searched(common_config(recipe, settings, words, shown, program))
        check(self.config, Options(trials=self.trials))
        if self.config.ms_budget is not None or self.config.stride_penalty:
            raise ValueError(f"{path}: a study has no budget but macs_budget")
        self.beginnings: dict[str, list[float]] = content["beginnings"]
        self.learned: list[str] = content.get("learned", list(self.beginnings))
        each = 4 * len(self.beginnings) + self.random + self.trials + 5
        check_number(each, len(self.seeds), str(path))

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
        return self.network.space("macs", self.macs)

    def _random(self, seed: int, number: int) -> Strides:
        point = self.space.random(Random(f"{seed} random {number}"))
        return self.network.at(self.space, point)

    @cached_property
    def _starts(self) -> dict[str, Strides]:
        space = self.space
        return {n: self.network.at(space, space.towards(v)) for n, v in self.beginnings.items()}

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

    def plans(self, folder: Path) -> Iterator[StudyPlan]:
        """Yield the runs that depend on no others, then those that follow from these, and so on.

        When the next ones are asked for, those before must be finished in the folder.
        """
        if wrong := {k for k, v in self.beginnings.items() if len(v) != len(self.space)}:
            wanted = f"{len(self.space)} numbers, one for each site and axis of the network"
            raise ValueError(f"{self.path}: {min(wrong)!r} must have {wanted}")
        cells = list(self._first())
        trials = {seed: self._trials(seed) for seed in self.seeds}
        while waves := {seed: wave for seed in self.seeds if (wave := trials[seed].next())}:
            new = [
                _cell(f"trial {number}", "trials", self._trial(seed, strides))
                for seed, wave in waves.items()
                for number, strides in enumerate(wave, len(trials[seed].losses) + 1)
            ]
            cells += new
            yield self._plan(cells)
            done = self._places(cells, folder)
            for cell in new:
                trials[cell.seed].losses.append(loss(done[cell.name]))
        for seed in self.seeds:
            compared = held_out_config(self._config(seed), trials[seed].best)
            cells.append(_cell(TRIED, "held_out", compared))
        yield self._plan(cells)
        done = self._places(cells, folder)
        for seed in self.seeds:
            cells += self._last(seed, trials[seed].best, done)
        yield self._plan(cells)

    def _config(self, seed: int) -> Config:
        return replace(self.config, seed=seed, macs_budget=None)

    def _trials(self, seed: int) -> Trials:
        # With a network of its own, as the strides that it has are changed.
        network = SearchedNetwork(self.config, self.network.facts)
        return Trials(network, "macs", self.macs, self.trials, seed, whole=False)

    def _trial(self, seed: int, strides: Strides) -> Config:
        return trial_config(self._config(seed), strides, trial_epochs(self.config))

    def _places(self, cells: Sequence[Cell], folder: Path) -> dict[str, Run]:
        """Return the run of each cell, by the name of the cell."""
        placed = place(self._plan(cells), folder)
        return {a.name: Run.open(folder / b.name) for a, b in zip(cells, placed, strict=True)}

    def _first(self) -> Iterator[Cell]:
        """Yield the runs that depend on no others, but for trials."""
        for seed in self.seeds:
            config = self._config(seed)
            for row, strides in self._starts.items():
                yield _cell(row, "fixed", fixed_config(config, strides))
                yield _cell(row, "held_out", held_out_config(config, strides))
            for number in range(self.random):
                strides = self._random(seed, number)
                yield _cell(f"random {number + 1}", "held_out", held_out_config(config, strides))

    def _last(self, seed: int, tried: Strides, done: Mapping[str, Run]) -> Iterator[Cell]:
        """Yield the runs on all training data at what came out best, and those that learn."""
        config = self._config(seed)

        def held_out(row: str) -> float:
            return loss(done[run_name(row, "held_out", seed)])

        yield _cell(TRIED, "fixed", fixed_config(config, tried))
        again = _cell(AGAIN, "fixed", fixed_config(replace(config, seed=seed + OTHER_SEED), tried))
        yield replace(again, name=run_name(AGAIN, "fixed", seed))
        for row, strides in self._starts.items():
            found = strides if held_out(row) <= held_out(TRIED) else tried
            yield _cell(row, "search", fixed_config(config, found))
        for many in sorted({self.random // 2, self.random} - {0, 1}):
            best = min(range(many), key=lambda i: held_out(f"random {i + 1}"))
            strides = self._random(seed, best)
            yield _cell(f"best of {many} random", "fixed", fixed_config(config, strides))
        for row in self.learned:
            learned = fixed_config(config, self._starts[row])
            learned = replace(learned, macs_budget=self.macs, spend=True)
            model = learnable(config.model, self.network.option(self._starts[row]))
            optim = replace(config.optim, strides_by="gradient")
            yield _cell(row, "gradient", replace(learned, model=model, optim=optim))


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
    """Return where the runs of a study are, and its plans, each of which follows from those before.

    The arguments are those of `diffstride sweep`, and its other words.
    """
    if args.dry_run:
        raise ValueError("--dry_run is not for a study: its first runs tell what its last ones are")
    study = Study(path, args.seeds, words)
    folder = Path(args.out or f"runs/{study.path.stem}").expanduser()

    return str(folder), study.plans(folder)


def _cell(row: str, column: str, config: Config) -> Cell:
    return Cell(run_name(row, column, config.seed), row, column, config)
