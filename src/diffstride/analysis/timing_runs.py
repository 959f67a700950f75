"""Runs a network at many strides, and takes the time."""

import math
import platform
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from diffstride.analysis.observing import tensors_in
from diffstride.layers.diffstride import DiffStrideNd

Strides = dict[str, tuple[float, ...]]
Progress = Callable[[float], None]
"""Called with the part that is done, from 0 to 1."""

ROUNDS = 3
"""How often each setting is timed at least."""
_REPEATED = 3
"""How often in a row: the first time after strides have changed takes longer."""
_LONG = 0.2
"""Seconds of a step after which it is not repeated at once: it hardly takes longer then."""
_SPREAD = 0.4
"""By how much of its range a stride differs from the others of its setting."""
_SILENT = 3.0
"""Seconds for which nothing is shown."""


def random_settings(layers: Mapping[str, DiffStrideNd], count: int, seed: int) -> list[Strides]:
    """Return strides for all layers, from small ones to large ones, each somewhat by itself.

    A stride is drawn from 1 to its square, or to 2 if that is more, as far as the layer allows.
    """
    draw = random.Random(seed)
    levels = [(i + 0.5) / count for i in range(count)]
    draw.shuffle(levels)
    found = []
    for level in levels:
        setting: Strides = {}
        for name, layer in layers.items():
            now = layer.strides
            drawn = []
            for stride in now:
                part = min(1.0, max(0.0, level + draw.uniform(-_SPREAD, _SPREAD)))
                drawn.append(math.exp(part * math.log(max(2.0, stride**2))))
            inside = layer.in_range(drawn[:1] if layer.shared else drawn)
            setting[name] = inside if layer.stride.requires_grad else now
        found.append(setting)
    return found


def step_of(model: nn.Module, x: Tensor, training: bool) -> Callable[[], None]:
    """Return what is timed: a forward pass in eval mode, or a step of training.

    A step has the forward and backward pass, and SGD with momentum at a learning rate of 0.
    """
    model.train(training)
    if not training:

        def answer() -> None:
            with torch.inference_mode():
                model(x)
            _wait(x.device)

        return answer
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimiser = torch.optim.SGD(parameters, lr=0.0, momentum=0.9)

    def step() -> None:
        with torch.enable_grad():
            optimiser.zero_grad()
            made = [y.float().mean() for y in tensors_in(model(x)) if y.requires_grad]
            torch.stack(made).sum().backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        _wait(x.device)

    return step


def least_times(
    layers: Mapping[str, DiffStrideNd],
    settings: Sequence[Strides],
    step: Callable[[], None],
    seconds: float,
    clock: Callable[[], float],
    progress: Progress,
) -> list[float]:
    """Return the least milliseconds that a step takes at each setting.

    Settings take turns until the seconds have passed. The least is what the machine needs when
    nothing else disturbs it, so that a table does not depend on what ran beside.
    """
    found = [math.inf] * len(settings)
    start, rounds, visits = clock(), 0, 0
    while rounds < ROUNDS or clock() - start < seconds:
        for i, setting in enumerate(settings):
            set_strides(layers, setting)
            for _ in range(_REPEATED):
                before = clock()
                step()
                took = clock() - before
                found[i] = min(found[i], 1e3 * took)
                if took > _LONG:
                    break
            visits += 1
            passed = (clock() - start) / seconds if seconds else 1.0
            progress(min(1.0, passed, visits / (ROUNDS * len(settings))))
            if rounds >= ROUNDS and clock() - start >= seconds:
                break
        rounds += 1
    return found


@torch.no_grad()
def set_strides(layers: Mapping[str, DiffStrideNd], setting: Strides) -> None:
    """Give every layer the strides of a setting."""
    for name, layer in layers.items():
        numbers = setting[name][: layer.stride.numel()]
        layer.stride.copy_(torch.tensor(numbers, dtype=torch.float64, device="cpu"))


@contextmanager
def using_threads(threads: int) -> Iterator[None]:
    """Have torch use so many threads for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def machine_name(device: torch.device) -> str:
    """Return what a device is called."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    return name if device.type == "cpu" else f"{device.type} of {name}"


def shown_on_terminal() -> Progress:
    """Return a progress that is a line on a terminal, once it has taken some seconds."""
    start = time.monotonic()
    shown = False

    def show(part: float) -> None:
        nonlocal shown
        if not sys.stderr.isatty() or (not shown and time.monotonic() - start < _SILENT):
            return
        shown = True
        end = "\n" if part >= 1 else ""
        print(f"\rmeasuring how long strides take: {part:4.0%}", end=end, file=sys.stderr)

    return show


def _wait(device: torch.device) -> None:
    """Wait until a device has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
