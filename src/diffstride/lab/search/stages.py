"""From a recipe to strides that were found and tried: the stages of a search, each a run."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from diffstride.analysis.timings import Timings
from diffstride.lab.runs.config import Config
from diffstride.lab.runs.config_file import flat
from diffstride.lab.runs.data_config import DataConfig
from diffstride.lab.runs.documents import RunError, read_rows
from diffstride.lab.runs.lock import locked
from diffstride.lab.runs.run_folder import Run
from diffstride.lab.runs.same_settings import APART, differing
from diffstride.lab.runs.search_folder import (
    STAGES,
    Plan,
    Result,
    Search,
    Settings,
    write_document,
)
from diffstride.lab.runs.waiting import say
from diffstride.lab.search.searched_network import SearchedNetwork, fixed, learnable
from diffstride.lab.training import runner
from diffstride.lab.training.preparation import prepare
from diffstride.lab.training.resampling import answers, difference
from diffstride.lab.training.run_timings import timings_of
from diffstride.lab.training.trained_run import load_model, load_prepared
from diffstride.layers.resizer import learned_strides

HELD_OUT = 0.25
"""The part of the training set on which strides are compared, unless the config says another."""

# Called with a search that is finished, while no other process may write it.
Conclude = Callable[[Search], None]


def begin(config: Config, recipe: str, whole_strides: bool, conclude: Conclude) -> None:
    """Search the strides of a config, or go on with the search of this name, and conclude it.

    Raises:
        ValueError: if the search of this name has other settings, the budget can't be met, or
            another process searches; nothing is changed then, and no folder made.
    """
    config = searched(config)
    check(config)
    search = Search.of(config, recipe)
    with locked(search.folder):
        if search.search_file.exists() and search.has_begun:
            _check_same(search, config, whole_strides)
        else:
            if Run(search.folder).config_file.exists():
                raise RunError(f"{search.folder} has a run already: choose another --name")
            if not search.has_begun:  # what was measured may be of another network
                search.timings_file.unlink(missing_ok=True)
            with _nothing_left(search):
                settings = _settings(search, config, recipe, whole_strides)
                _check_stage(search, "learn", learning_config(settings, search.timings_file))
                write_document(search.search_file, settings)
                _learn(search)
        _finish(search)
        conclude(search)


def go_on(folder: str | Path, conclude: Conclude) -> None:
    """Go on with the search in a folder from where it was, then conclude it."""
    search = Search.open(folder)
    check(search.settings.config)
    with locked(search.folder):
        _finish(search)
        conclude(search)


def searched(config: Config) -> Config:
    """Return a config without what a search decides itself: it spends its budget, and tries."""
    by = config.optim.strides_by
    optim = replace(config.optim, strides_by="with_weights" if by == "trials" else by)
    return replace(config, spend=False, optim=optim)


def check(config: Config) -> None:
    """Raise a ValueError if a config can't be searched; the message names the option."""
    replace(config, data=held_out_data(config.data)).check()
    budgets = ("macs_budget", "ms_budget", "stride_penalty")
    given = [f"--{name}" for name in budgets if getattr(config, name)]
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)} were both given: a search has one budget")
    if config.model.size_multiple > 1:
        wrong = "--model.size_multiple is for strides that are learned, and those found are fixed"
        raise ValueError(f"{wrong}: leave it at 1")
    processes = config.trainer.devices * config.trainer.num_nodes
    if processes > 1 or not runner.is_first_process() or int(os.environ.get("WORLD_SIZE", 1)) > 1:
        advice = "search with --trainer.devices 1, then train what was found with as many as you "
        advice += "like: diffstride train SEARCH/found --trainer.devices N"
        raise ValueError(f"a search runs in one process: {advice}")


def learning_config(settings: Settings, timings: Path) -> Config:
    """Return the settings of the stage in which strides are learned, within the budget.

    They are found by trials, on a part of the training set that is held out. Only with a penalty,
    which knows no budget to try strides within, do they follow the gradient of their windows.
    """
    config = settings.config
    free = replace(config, macs_budget=None, ms_budget=None, timings=None, stride_penalty=0.0)
    model = learnable(config.model, settings.beginning)
    if settings.unit == "penalty":
        return replace(on_the_test_set(free), model=model, stride_penalty=settings.limit)
    data = held_out_data(config.data)
    free = replace(free, data=data, optim=replace(config.optim, strides_by="trials"), spend=True)
    free = replace(free, model=replace(model, smoothness=0.0, smoothness_end=None))
    if settings.unit == "ms":
        return replace(free, ms_budget=settings.limit, timings=str(timings))
    return replace(free, macs_budget=settings.limit)


def fixed_config(config: Config, strides: tuple[float, ...]) -> Config:
    """Return the settings of a stage in which a network with fixed strides learns from scratch."""
    free = replace(config, macs_budget=None, ms_budget=None, timings=None, stride_penalty=0.0)
    return replace(on_the_test_set(free), model=fixed(config.model, strides))


def held_out_data(data: DataConfig) -> DataConfig:
    """Return settings of data with a part of the training set to compare strides on."""
    return replace(data, held_out=HELD_OUT if data.held_out is None else data.held_out)


def on_the_test_set(config: Config) -> Config:
    """Return a config that trains on all training examples, and is judged on the test set."""
    data = replace(config.data, held_out=None)
    if data.test_fraction is None:  # there is nothing left that a group could be kept out of
        data = replace(data, group=None)
    return replace(config, data=data)


def _settings(search: Search, config: Config, recipe: str, whole_strides: bool) -> Settings:
    """Return what is searched: the budget, and the beginning that was brought to it."""
    learner = learnable(config.model)
    free = replace(config, model=learner, macs_budget=None, stride_penalty=0.0)
    prepared = prepare(on_the_test_set(free))
    timings = timings_of(Run(search.folder), free, prepared.module)
    network = SearchedNetwork(config, prepared.facts, timings)
    beginning = network.strides
    unit, limit = "macs", config.macs_budget
    if config.ms_budget is not None:
        unit, limit = "ms", config.ms_budget
    elif config.stride_penalty:
        unit, limit = "penalty", config.stride_penalty
    elif limit is None:
        limit = network.cost(beginning, "macs")
    assert limit is not None
    if unit != "penalty":
        beginning = network.held(beginning, unit, limit)
    if timings is not None and not search.timings_file.exists():
        timings.save(search.timings_file)
    option = network.option(beginning)
    return Settings(recipe, whole_strides, unit, limit, option, STAGES, config)  # type: ignore[arg-type]


def _check_same(search: Search, config: Config, whole_strides: bool) -> None:
    settings = search.settings
    existing = {"whole_strides": settings.whole_strides, **flat(settings.config)}
    wanted = {"whole_strides": whole_strides, **flat(config)}
    if names := differing(existing, wanted):
        changes = (f"{name} {existing[name]!r} and not {wanted[name]!r}" for name in names)
        advice = "choose another --name, or remove it"
        raise RunError(f"{search.folder} has a search with {', '.join(changes)}: {advice}")


@contextmanager
def _nothing_left(search: Search) -> Iterator[None]:
    """Leave the folder as it was before, if a search fails before it has finished an epoch."""
    before = set(search.folder.iterdir())
    try:
        yield
    except Exception:
        if not search.has_begun:
            for path in set(search.folder.iterdir()) - before:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        raise


def _finish(search: Search) -> None:
    """Bring every stage to its end that is not there, and compare what came out."""
    if search.plan_file.exists() and search.result_file.exists():
        return
    _learn(search)
    if not search.plan_file.exists():
        write_document(search.plan_file, _plan(search))
    settings, plan = search.settings, search.plan
    for name, network in (("begin", plan.begin), ("found", plan.found)):
        what = f"{_cost(network.macs / 1e6, network.ms)}, strides {_text(network.strides)}"
        config = fixed_config(settings.config, network.strides)
        _train(search, name, config, f"fixed strides from scratch, {what}")
    if not search.result_file.exists():
        write_document(search.result_file, _compared(search))


def _learn(search: Search) -> None:
    settings = search.settings
    within = f"with a penalty of {settings.limit:g} on their cost"
    if settings.unit != "penalty":
        unit = "ms a batch" if settings.unit == "ms" else "million MACs an example"
        within = f"within {settings.limit:.4g} {unit}"
    config = learning_config(settings, search.timings_file)
    _train(search, "learn", config, f"strides are learned {within}")


def _train(search: Search, name: str, config: Config, what: str) -> None:
    """Bring the run of a stage to its end, if it is not there."""
    run, has_begun = search.stage(name), _check_stage(search, name, config)
    if has_begun and run.is_finished(config.trainer.epochs):
        return
    say(f"{STAGES.index(name) + 1} of {len(STAGES)}, {name}: {what}")
    if has_begun:
        runner.resume(run.folder)
    else:
        runner.train(replace(config, name=name, out=str(search.folder)), name)


def _check_stage(search: Search, name: str, config: Config) -> bool:
    """Return whether the run of a stage has begun; a RunError if it is not of this search."""
    run = search.stage(name)
    if not run.config_file.exists():
        return False
    existing, wanted = flat(run.config), flat(config)
    for setting in differing(existing, wanted, (*APART, "timings")):
        wrong = f"has {setting} {existing[setting]!r}, and this search {wanted[setting]!r}"
        raise RunError(f"{run.folder} {wrong}: remove it, or choose another --name")
    return True


def _plan(search: Search) -> Plan:
    """Return what the stage of learning found, brought to the budget, and the beginning's."""
    settings, run = search.settings, search.stage("learn")
    timings = Timings.load(search.timings_file) if settings.unit == "ms" else None
    network = SearchedNetwork(settings.config, run.data, timings)
    of_recipe, layers = network.strides, learned_strides(load_model(run)).values()
    learned = tuple(stride for layer in layers for stride in layer.strides)
    unit = "ms" if settings.unit == "ms" else "macs"
    # What a penalty makes has no budget but its own cost; the beginning is brought to that.
    has_budget, found = settings.unit != "penalty", network.shortened(learned)
    if settings.whole_strides:
        most = settings.limit if has_budget else network.cost(found, unit)
        found = network.whole(found, unit, most)
    limit = settings.limit if has_budget else network.cost(found, unit)
    beginning = network.held(of_recipe, unit, limit)
    if settings.whole_strides:
        beginning = network.whole(beginning, unit, limit)
    made = [network.network(strides, unit) for strides in (beginning, found)]
    return Plan(learned, made[0], made[1], network.code(found))


def _compared(search: Search) -> Result:
    """Return how often both networks with fixed strides are right on the test set."""
    right = []
    for name in ("begin", "found"):
        _, prepared = load_prepared(search.stage(name).folder)
        right.append(answers(prepared.module, prepared.test))
    better = difference(*right)
    seconds = (
        sum(float(row["seconds"]) for row in read_rows(run.times_file, "seconds"))
        for run in map(search.stage, STAGES)
    )
    examples = sum(map(len, right[0].values()))
    rounded = tuple(round(s, 1) for s in seconds)
    return Result(*better.accuracies, better.mean, better.low, better.high, examples, rounded)


def _cost(mmacs: float, ms: float | None) -> str:
    return f"{mmacs:.4g} million MACs" + ("" if ms is None else f", {ms:.4g} ms a batch")


def _text(strides: tuple[float, ...]) -> str:
    return " ".join(f"{stride:g}" for stride in strides)
