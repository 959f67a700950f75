"""How a search learns: short trainings at strides of one cost, compared on held-out examples."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from diffstride.lab.runs.config import Config
from diffstride.lab.runs.config_file import flat
from diffstride.lab.runs.documents import RunError
from diffstride.lab.runs.run_folder import Run
from diffstride.lab.runs.same_settings import differing
from diffstride.lab.runs.search_folder import STAGES, Search
from diffstride.lab.runs.waiting import say
from diffstride.lab.search.configs import trial_config
from diffstride.lab.search.searched_network import SearchedNetwork, Strides
from diffstride.lab.sweeps import engines
from diffstride.lab.sweeps.sweep import train_all
from diffstride.lab.training.callbacks import AFTER_DIVERGENCE
from diffstride.strides.space import Point
from diffstride.strides.trials import StrideTrials, best


class Trials:
    """The trials of a network within a budget: strides, with the losses they came to so far."""

    def __init__(
        self, network: SearchedNetwork, unit: str, limit: float, number: int, seed: int, whole: bool
    ) -> None:
        self.network, self.unit, self.limit, self.whole = network, unit, limit, whole
        self.space = network.space(unit, limit)
        self.chooser = StrideTrials(self.space, number, seed=seed)
        self.strides: list[Strides] = []
        self.losses: list[float] = []

    def next(self) -> list[Strides]:
        """Return the strides of the next wave, from all losses; none after the last."""
        found = [self.network.at(self.space, p) for p in self.chooser.next(*self._known())]
        if self.whole:
            found = [self.network.whole(x, self.unit, self.limit) for x in found]
        self.strides += found
        return found

    @property
    def best(self) -> Strides:
        return self.strides[best(*self._known())]

    def _known(self) -> tuple[list[Point], list[float]]:
        shared = map(self.network.option, self.strides)
        return [tuple(map(math.log, strides)) for strides in shared], self.losses


def learn_by_trials(search: Search, network: SearchedNetwork, engine: engines.Options) -> Strides:
    """Bring all trials to their end, and return the strides that were best."""
    settings, config = search.settings, search.settings.config
    told = (settings.unit, settings.limit, settings.trials, config.seed, settings.whole_strides)
    trials, names = Trials(network, *told), dict[Strides, str]()
    epochs = f"{settings.trial_epochs} epoch{'s' * (settings.trial_epochs > 1)}"
    while wave := trials.next():
        for strides in wave:  # sizes are whole: some of them may be one network
            names.setdefault(strides, f"{len(names) + 1:03}")
        new = {names[s]: trial_config(config, s, settings.trial_epochs) for s in wave}
        number = f"{len(trials.losses) + 1} to {len(trials.strides)} of {settings.trials}"
        what = f"trials {number}, {epochs} each"
        train_runs(search, "learn", new, what, engine, may_diverge=True)
        runs = [Run(search.folder / "learn" / names[strides]) for strides in wave]
        finished = [run.is_finished(settings.trial_epochs) for run in runs]
        losses = zip(runs, finished, strict=True)
        trials.losses += [loss(run) if is_there else math.inf for run, is_there in losses]
    return trials.best


def train_runs(
    search: Search,
    stage: str,
    configs: Mapping[str, Config],
    what: str,
    engine: engines.Options,
    may_diverge: bool = False,
) -> None:
    """Bring runs of a stage to their end, several at a time; a RunError if one fails.

    One that diverges may stay as it is, and then is not tried again: decisions that follow from it
    must not change when a search goes on.
    """
    out = search.folder / stage
    named = {name: replace(c, name=name, out=str(out)) for name, c in configs.items()}
    for name, config in named.items():
        config.check()
        _check_run(Run(out / name), config)
    if may_diverge:
        named = {name: config for name, config in named.items() if not _has_diverged(out / name)}
    if all(Run(out / name).is_finished(c.trainer.epochs) for name, c in named.items()):
        return
    say(f"{stage if stage in STAGES else ', '.join(named)}: {what}")
    for name, error in train_all(named, out.absolute(), engine).items():
        if not (may_diverge and AFTER_DIVERGENCE in error):
            raise RunError(f"{out / name} failed: {error}")
        say(f"{name} counts as bad as the worst of those that did not diverge")


def _has_diverged(folder: Path) -> bool:
    return AFTER_DIVERGENCE in engines.last_line(folder)


def _check_run(run: Run, config: Config) -> None:
    """Raise a RunError if there is a run that is not of this search."""
    if run.config_file.exists():
        existing, wanted = flat(run.config), flat(config)
        for setting in differing(existing, wanted):
            wrong = f"has {setting} {existing[setting]!r}, and this search {wanted[setting]!r}"
            raise RunError(f"{run.folder} {wrong}: remove it, or choose another --name")


def loss(run: Run) -> float:
    """Return the loss of a run on what it is judged on, after its last epoch."""
    return float(run.metrics("test_loss")[-1]["test_loss"])
