"""From a recipe to strides that were found and tried: the stages of a search, each of runs."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

from diffstride.analysis.timings import Timings
from diffstride.lab.runs.config import Config
from diffstride.lab.runs.config_file import flat
from diffstride.lab.runs.documents import RunError, read_rows
from diffstride.lab.runs.lock import locked
from diffstride.lab.runs.run_folder import Run
from diffstride.lab.runs.same_settings import differing
from diffstride.lab.runs.search_folder import (
    STAGES,
    Plan,
    Result,
    Search,
    Settings,
    write_document,
)
from diffstride.lab.search.configs import (
    fixed_config,
    held_out_config,
    held_out_data,
    on_the_test_set,
    penalty_config,
    searched,
    trial_epochs,
)
from diffstride.lab.search.searched_network import SearchedNetwork, Strides, learnable
from diffstride.lab.search.trials import learn_by_trials, loss, train_runs
from diffstride.lab.sweeps import engines
from diffstride.lab.training import runner
from diffstride.lab.training.preparation import prepare
from diffstride.lab.training.resampling import difference, scores_of_each
from diffstride.lab.training.run_timings import timings_of
from diffstride.lab.training.trained_run import load_model, load_prepared
from diffstride.layers.resizer import learned_strides
from diffstride.strides.trials import FEWEST

TRIALS = 12

# Called with a search that is finished, while no other process may write it.
Conclude = Callable[[Search], None]


class Options(NamedTuple):
    """What a search is told beside the settings of its runs."""

    whole_strides: bool = False
    trials: int = TRIALS
    engine: engines.Options = engines.Options()


def begin(config: Config, recipe: str, options: Options, conclude: Conclude) -> None:
    """Search the strides of a config, or go on with the search of this name, and conclude it.

    Raises:
        ValueError: if the search of this name has other settings, the budget can't be met, or
            another process searches; nothing is changed then, and no folder made.
    """
    config = searched(config)
    check(config, options)
    search = Search.of(config, recipe)
    with locked(search.folder):
        if search.search_file.exists() and search.has_begun:
            _check_same(search, config, options)
        else:
            if Run(search.folder).config_file.exists():
                raise RunError(f"{search.folder} has a run already: choose another --name")
            if not search.has_begun:  # what was measured may be of another network
                search.timings_file.unlink(missing_ok=True)
            with _nothing_left(search):
                write_document(search.search_file, _settings(search, config, recipe, options))
                _learn(search, options.engine)
        _finish(search, options.engine)
        conclude(search)


def go_on(folder: str | Path, conclude: Conclude) -> None:
    """Go on with the search in a folder from where it was, then conclude it."""
    search = Search.open(folder)
    check(search.settings.config, Options())
    with locked(search.folder):
        _finish(search, engines.Options())
        conclude(search)


def check(config: Config, options: Options) -> None:
    """Raise a ValueError if a config can't be searched; the message names the option."""
    options.engine.check()
    if options.trials < FEWEST:
        raise ValueError(f"--trials must be at least {FEWEST}, got {options.trials}")
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
        advice = "search with --trainer.devices 1 and as many --jobs as you like, then train what "
        advice += "was found: diffstride train SEARCH/found --trainer.devices N"
        raise ValueError(f"each run of a search has one process: {advice}")


def _settings(search: Search, config: Config, recipe: str, options: Options) -> Settings:
    """Return what is searched: the budget, and the beginning that was brought to it."""
    learner = learnable(config.model)
    free = replace(config, model=learner, macs_budget=None, stride_penalty=0.0)
    prepared = prepare(on_the_test_set(free))
    timings = timings_of(Run(search.folder), free, prepared.module)
    network = SearchedNetwork(config, prepared.facts, timings)
    beginning = network.strides
    unit: Literal["macs", "ms", "penalty"] = "macs"
    limit, trials = config.macs_budget, options.trials
    if config.ms_budget is not None:
        unit, limit = "ms", config.ms_budget
    elif config.stride_penalty:
        unit, limit, trials = "penalty", config.stride_penalty, 0
    elif limit is None:
        limit = network.cost(beginning, "macs")
    assert limit is not None
    if unit != "penalty":
        beginning = network.held(beginning, unit, limit)
    if timings is not None and not search.timings_file.exists():
        timings.save(search.timings_file)
    return Settings(
        recipe=recipe,
        whole_strides=options.whole_strides,
        unit=unit,
        limit=limit,
        beginning=network.option(beginning),
        trials=trials,
        trial_epochs=trial_epochs(config),
        config=config,
    )


def _check_same(search: Search, config: Config, options: Options) -> None:
    settings = search.settings
    existing = {"whole_strides": settings.whole_strides, **flat(settings.config)}
    wanted = {"whole_strides": options.whole_strides, **flat(config)}
    if settings.trials:
        existing["trials"], wanted["trials"] = settings.trials, options.trials
    if names := differing(existing, wanted):
        changes = (f"{name} {existing[name]!r} and not {wanted[name]!r}" for name in names)
        advice = "choose another --name, or remove it"
        raise RunError(f"{search.folder} has a search with {', '.join(changes)}: {advice}")


@contextmanager
def _nothing_left(search: Search) -> Iterator[None]:
    """Leave the folder as it was before, if a search fails before it has finished an epoch."""
    before, had_begun = set(search.folder.iterdir()), search.has_begun
    try:
        yield
    except Exception:
        if not search.has_begun:
            for path in set(search.folder.iterdir()) - before:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        elif had_begun:  # its runs may be of another search
            search.search_file.unlink(missing_ok=True)
        raise


def _finish(search: Search, engine: engines.Options) -> None:
    """Bring every stage to its end that is not there, and compare what came out."""
    if search.plan_file.exists() and search.result_file.exists():
        return
    if not search.plan_file.exists():
        write_document(search.plan_file, _plan(search, engine))
    settings, plan = search.settings, search.plan
    configs = {
        name: fixed_config(settings.config, network.strides)
        for name, network in (("begin", plan.begin), ("found", plan.found))
    }
    what = f"fixed strides from scratch, {_cost(plan.found.macs / 1e6, plan.found.ms)}"
    is_same = plan.found.strides == plan.begin.strides
    if is_same:  # which would come to the same numbers
        del configs["found"]
    train_runs(search, ".", configs, what, engine)
    if is_same and not search.runs("found"):
        copy = search.folder / ".found.part"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(search.folder / "begin", copy)
        copy.rename(search.folder / "found")
    if not search.result_file.exists():
        write_document(search.result_file, _compared(search))


def _learn(search: Search, engine: engines.Options) -> Strides:
    """Bring the stage of learning to its end, and return the strides that came out."""
    settings = search.settings
    if settings.unit != "penalty":
        return learn_by_trials(search, _network(search), engine)
    config = penalty_config(settings.config, settings.beginning)
    what = f"strides are learned with a penalty of {settings.limit:g} on their cost"
    train_runs(search, "learn", {"penalty": config}, what, engine)
    layers = learned_strides(load_model(Run(search.folder / "learn/penalty"))).values()
    return tuple(stride for layer in layers for stride in layer.strides)


def _plan(search: Search, engine: engines.Options) -> Plan:
    """Return both networks: the beginning's, and what was found if that is better."""
    settings, learned = search.settings, _learn(search, engine)
    network = _network(search)
    losses: tuple[float, float] | None = None
    of_recipe, found = network.strides, network.shortened(learned)
    if settings.unit == "penalty":
        # What a penalty makes has no budget but its own cost; the beginning is brought to that.
        if settings.whole_strides:
            found = network.whole(found, "macs", network.cost(found, "macs"))
        beginning = _beginning(network, of_recipe, "macs", network.cost(found, "macs"), settings)
    else:
        beginning = _beginning(network, of_recipe, settings.unit, settings.limit, settings)
        losses = _compare(search, found, beginning, engine)
        if losses[0] <= losses[1]:
            found = beginning
    unit = "ms" if settings.unit == "ms" else "macs"
    return Plan(
        learned=learned,
        losses=losses,
        begin=network.network(beginning, unit),
        found=network.network(found, unit),
        code=network.code(found),
    )


def _beginning(
    network: SearchedNetwork, strides: Strides, unit: str, limit: float, settings: Settings
) -> Strides:
    held = network.held(strides, unit, limit)
    return network.whole(held, unit, limit) if settings.whole_strides else held


def _compare(
    search: Search, found: Strides, beginning: Strides, engine: engines.Options
) -> tuple[float, float]:
    """Return the losses on held-out examples at both strides, after trainings of full length."""
    settings = search.settings
    both = {"begin": beginning, "found": found}
    configs = {name: held_out_config(settings.config, s) for name, s in both.items()}
    what = "the best strides and the beginning's, on examples that are held out"
    train_runs(search, "compare", configs, what, engine)
    begin, better = (loss(Run(search.folder / "compare" / name)) for name in both)
    return begin, better


def _network(search: Search) -> SearchedNetwork:
    """Return the network of a search; it knows its data from the runs that are there."""
    settings = search.settings
    known = [run for stage in STAGES for run in search.runs(stage)]
    free = replace(settings.config, macs_budget=None, ms_budget=None, stride_penalty=0.0)
    facts = known[0].data if known else prepare(on_the_test_set(free)).facts
    timings = Timings.load(search.timings_file) if settings.unit == "ms" else None
    return SearchedNetwork(settings.config, facts, timings)


def _compared(search: Search) -> Result:
    """Return the scores of both networks with fixed strides on the test set."""
    scores = []
    for name in ("begin", "found"):
        _, prepared = load_prepared(search.stage(name).folder)
        scores.append(scores_of_each(prepared.module, prepared.test))
    better = difference(*scores)
    seconds = (
        sum(float(row["seconds"]) for r in runs for row in read_rows(r.times_file, "seconds"))
        for runs in map(search.runs, STAGES)
    )
    examples = sum(map(len, scores[0].values()))
    rounded = tuple(round(s, 1) for s in seconds)
    if search.plan.found == search.plan.begin:  # one is a copy of the other
        rounded = (*rounded[:-1], 0.0)
    return Result(*better.scores, better.mean, better.low, better.high, examples, rounded)


def _cost(mmacs: float, ms: float | None) -> str:
    return f"{mmacs:.4g} million MACs" + ("" if ms is None else f", {ms:.4g} ms a batch")
