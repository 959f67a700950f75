"""The time and the memory that steps take, measured side by side; benchmarks measure so too."""

import gc
import statistics
import timeit
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.benchmark import timer  # waits for the GPU, if there is one


def interleaved(sides: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
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
            times[name].append(timeit.timeit(run, timer=timer, number=1))
    return {name: statistics.median(values) for name, values in times.items()}


def peak_bytes(step: Callable[[], object], device: torch.device) -> int:
    """Return the most bytes of tensors that a step holds at once, beyond those there before."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        return int(torch.cuda.max_memory_allocated() - before)
    counter = PeakBytes()
    with counter:
        step()
    return counter.peak


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
