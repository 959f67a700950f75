"""Time and memory of a step, side by side."""

import json
import statistics
import time
import weakref
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from diffstride.files import write
from diffstride.lab.runs.documents import RunError, read_json
from diffstride.lab.sweeps.paper_tables import COST_ROWS, PAPER, TABLES
from diffstride.lab.sweeps.plan import Plan, with_model
from diffstride.lab.training.environment import describe_environment
from diffstride.lab.training.preparation import build_model

ROUNDS = 7


def measure(plan: Plan, folder: Path) -> None:
    """Measure the network for all tasks of sound with each method; write measured.json.

    A measurement that is there already is not repeated.

    Raises:
        RunError: if it is one of other settings.
    """
    path = folder / "measured.json"
    config, size = plan.config, TABLES[plan.table]["size"]
    settings = {"batches": config.data.batch_size, "model": asdict(config.model)}
    settings = json.loads(json.dumps(settings))  # tuples to lists
    if path.exists():
        if read_json(path).get("settings") != settings:
            raise RunError(
                f"{path} was measured with other settings: remove it, or choose another --out"
            )
        return
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    classes = {name: range(task["classes"]) for name, task in PAPER["tasks"].items()}
    torch.manual_seed(0)
    x = torch.randn(config.data.batch_size, *size, device=device)
    models = {
        column: build_model(
            with_model(config, downsampling=column).model, {"classes": classes, "size": size}
        )
        for column in plan.columns
    }
    models = {column: model.to(device) for column, model in models.items()}
    values: dict[str, dict[str, float]] = {row: {} for row in COST_ROWS}
    for training in (True, False):
        steps = {column: step(model, x, training) for column, model in models.items()}
        times = seconds(steps)
        time_row, memory_row = COST_ROWS[:2] if training else COST_ROWS[2:]
        for column, act in steps.items():
            values[time_row][column] = times[column]
            values[memory_row][column] = float(peak(act, device))
    where = describe_environment(config)
    conditions = (
        f"batches of {len(x)}, width {config.model.width:g}, R = {config.model.smoothness:g}; "
        f"medians of {ROUNDS} rounds on {', '.join(where['gpus']) or 'a CPU'}, "
        f"{where['threads']} threads, torch {where['torch']}; memory is of tensors"
    )
    told = {
        "conditions": conditions,
        "values": values,
        "environment": where,
        "settings": settings,
    }
    write(path, json.dumps(told, indent=1) + "\n")


def step(model: nn.Module, x: Tensor, training: bool) -> Callable[[], None]:
    """Forward and backward pass for a batch of all tasks, or the forward pass alone."""
    if not training:

        @torch.inference_mode()
        def forward() -> None:
            model.eval()
            model(x)

        return forward

    def both() -> None:
        model.train()
        model.zero_grad()
        scores = model(x)
        labels = torch.zeros(len(x), dtype=torch.long, device=x.device)
        loss = torch.stack([F.cross_entropy(each, labels) for each in scores.values()]).sum()
        loss.backward()  # type: ignore[no-untyped-call]

    return both


def seconds(steps: dict[str, Callable[[], None]]) -> dict[str, float]:
    """The median time of each, taken in turns so that all see the same machine."""
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for i in range(ROUNDS + 1):
        for name, act in steps.items():
            _synchronise()
            began = time.perf_counter()
            act()
            _synchronise()
            if i:  # the first is to warm up
                taken[name].append(time.perf_counter() - began)
    return {name: statistics.median(times) for name, times in taken.items()}


def _synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def peak(act: Callable[[], None], device: torch.device) -> int:
    """The most bytes of tensors that a step holds at once, beyond those that were there before."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        act()
        return int(torch.cuda.max_memory_allocated() - before)
    counter = _Alive()
    with counter:
        act()
    return counter.peak


class _Alive(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of the storages that operations make, for as long as they live."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.alive = self.peak = 0
        self.known: set[int] = set()

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        given = {id(storage) for storage in _storages((args, kwargs))}
        results = operation(*args, **(kwargs or {}))
        for storage in _storages(results):
            key, size = id(storage), storage.nbytes()
            if key not in given and key not in self.known:
                self.known.add(key)
                self.alive += size
                weakref.finalize(storage, self._gone, key, size)
        self.peak = max(self.peak, self.alive)
        return results

    def _gone(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.alive -= size


def _storages(values: Any) -> list[Any]:
    return [leaf.untyped_storage() for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]
