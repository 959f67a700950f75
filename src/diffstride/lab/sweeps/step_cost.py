"""The time and the memory of a step: the paper's table of them, and how benchmarks measure too."""

import gc
import json
import statistics
import timeit
import weakref
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.benchmark import timer  # waits for the GPU, if there is one

from diffstride.analysis.cost import cost
from diffstride.analysis.training import parameter_groups
from diffstride.lab.runs.config import Config
from diffstride.lab.runs.documents import RunError, read_json, write_json
from diffstride.lab.sweeps.plan import SweepPlan, with_model
from diffstride.lab.sweeps.tables import COST_ROWS, PAPER, TABLES
from diffstride.lab.training.environment import describe_environment
from diffstride.lab.training.learner import OPTIMISERS, Learner
from diffstride.lab.training.preparation import Facts, build_model

ROUNDS = 7
STEPS, ENOUGH = 3, 0.5  # that are timed for a forecast, or fewer if they take so many seconds
MACS_AT_ONCE = 2 * 10**9  # of a step that is timed: a few tenths of a second on a core


def measure_costs(plan: SweepPlan, folder: Path) -> None:
    """Measure the network for all tasks of sound with each method; once is enough."""
    path = folder / "measured.json"
    config, size = plan.config, TABLES[plan.table]["size"]
    settings = {"batches": config.data.batch_size, "model": asdict(config.model)}
    settings = json.loads(json.dumps(settings))  # tuples to lists
    if path.exists():
        if read_json(path).get("settings") != settings:
            advice = "remove it, or choose another --out"
            raise RunError(f"{path} was measured with other settings: {advice}")
        return
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    classes = {name: range(task["classes"]) for name, task in PAPER["tasks"].items()}
    facts = {"classes": classes, "size": size}
    torch.manual_seed(0)
    x = torch.randn(config.data.batch_size, *size, device=device)
    models = {
        column: build_model(with_model(config, downsampling=column).model, facts).to(device)
        for column in plan.columns
    }
    values: dict[str, dict[str, float]] = {}
    for training, rows in ((True, COST_ROWS[:2]), (False, COST_ROWS[2:])):
        steps = {column: partial(_step, model, x, training) for column, model in models.items()}
        values[rows[0]] = interleaved(steps, ROUNDS)
        values[rows[1]] = {c: float(peak_bytes(step, device)) for c, step in steps.items()}
    machine = describe_environment(config.seed)
    conditions = (
        f"batches of {len(x)}, width {config.model.width:g}, R = {config.model.smoothness:g}; "
        f"medians of {ROUNDS} rounds on {', '.join(machine['gpus']) or 'a CPU'}, "
        f"{machine['threads']} threads, torch {machine['torch']}; memory is of tensors"
    )
    content = {"conditions": conditions, "values": values, "environment": machine}
    write_json(path, content | {"settings": settings})


def step_seconds(config: Config, facts: Facts) -> float:
    """Return what a step of training takes on one core of this machine, with random inputs.

    The facts are the size of an example and the classes. What is left out is the making of batches
    and what a spectrogram takes. Of large networks, a few examples stand for a batch.
    """
    size, threads = tuple(facts["size"]), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng():
            torch.manual_seed(config.seed)
            module = Learner(build_model(config.model, facts), config, size)
            if config.macs_budget is not None:
                module.keep_budget()
            batch = config.data.batch_size
            macs = max(1, 3 * cost(module.model, size).macs)
            few = min(batch, max(2, MACS_AT_ONCE // macs))
            x = torch.randn(few, *size)
            optim = config.optim
            groups = parameter_groups(module.model, optim.lr, optim.weight_decay)
            optimiser = OPTIMISERS[optim.name](groups)

            def step() -> None:
                _step(module.model, x, training=True)
                optimiser.step()
                if config.macs_budget is not None:
                    module.keep_budget()

            step()
            times: list[float] = []
            while len(times) < STEPS and sum(times) < ENOUGH:
                times.append(timeit.timeit(step, number=1))
    finally:
        torch.set_num_threads(threads)
    return min(times) * batch / few


def example_macs(config: Config, facts: Facts) -> int:
    """Return the multiply-accumulates of a network for one example, as it is at first."""
    return cost(build_model(config.model, facts), facts["size"]).macs


def _step(model: nn.Module, x: Tensor, training: bool) -> None:
    """Do the forward and backward pass for a batch, or the forward pass alone."""
    model.train(training)
    if training:
        model.zero_grad()
    with torch.inference_mode(not training):
        scores = model(x)
    if training:
        labels = torch.zeros(len(x), dtype=torch.long, device=x.device)
        tasks = scores.values() if isinstance(scores, dict) else [scores]
        # Of a network that makes images, the square of what it makes takes as long as any loss.
        losses = [F.cross_entropy(x, labels) if x.ndim == 2 else x.square().mean() for x in tasks]
        torch.stack(losses).sum().backward()  # type: ignore[no-untyped-call]


def interleaved(
    sides: Mapping[str, Callable[[], object]], rounds: int, clock: Callable[[], float] = timer
) -> dict[str, float]:
    """Return the median time of each side in seconds; the sides take turns, after a warm-up of two.

    Another side begins each round, so that none always follows the one that leaves the cache and
    the heap in disorder.
    """
    for run in sides.values():
        run()
        run()
    times: dict[str, list[float]] = {name: [] for name in sides}
    gc.collect()
    for turn in range(rounds):
        first = turn % len(sides)
        for name, run in [*sides.items()][first:] + [*sides.items()][:first]:
            times[name].append(timeit.timeit(run, timer=clock, number=1))
    return {name: statistics.median(values) for name, values in times.items()}


def peak_bytes(step: Callable[[], object], device: torch.device) -> int:
    """Return the most bytes of tensors that a step holds at once, beyond those there before."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        return int(torch.cuda.max_memory_allocated() - before)
    with PeakBytes() as counter:
        step()
    return int(counter.peak)


class PeakBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of the storages that operations make, for as long as they live."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.alive = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        given = {id(storage) for storage in _storages((args, kwargs))}
        results = operation(*args, **(kwargs or {}))
        for storage in _storages(results):
            key, size = id(storage), storage.nbytes()
            if key not in given and key not in self._known:
                self._known.add(key)
                self.alive += size
                weakref.finalize(storage, self._forget, key, size)
        self.peak = max(self.peak, self.alive)
        return results

    def _forget(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.alive -= size


def _storages(values: Any) -> list[Any]:
    return [leaf.untyped_storage() for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]
