"""How long a network takes on this machine, as a table from which any strides can be told."""

import json
import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from diffstride import files
from diffstride.analysis.cost_model import CostModel
from diffstride.analysis.restoring import copied, unwrapped
from diffstride.analysis.timing_fit import (
    Rates,
    amounts,
    errors_unseen,
    fit_rates,
    kind_of,
    work_by_kind,
)
from diffstride.analysis.timing_runs import (
    Progress,
    least_times,
    machine_name,
    random_settings,
    set_strides,
    shown_on_terminal,
    step_of,
    using_threads,
)
from diffstride.analysis.uses import AnyAmount, Use
from diffstride.text import aligned

_FORMAT = 1
_FEWEST = 8
_SEED = 0


@dataclass(frozen=True, eq=False)
class Timings:
    """What each kind of layer and operation of a network takes, in milliseconds of a batch.

    :meth:`measure` runs the network at many strides and finds the rates at which its layers and
    operations add up to what it took. Every kind (of layer, channels and kernel) takes so much for
    a multiply-accumulate, for a number that it reads or writes, and for a call; with these, any
    strides and sizes can be told, and how their time changes. What is measured is what really
    runs: convolutions and downsampling in their cheapest order, with everything around them.

    Timings are a unit: of ``cost(model, size, timings=...)``, which then has ``ms``, of
    ``Budget(model, size, ms=..., timings=...)``, and of ``CostModel.value`` and ``gradient``.

    >>> from diffstride import DiffStride2d, cost
    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), DiffStride2d(2.0), nn.ReLU())
    >>> timings = Timings.measure(model, (3, 16, 16), batch=2, seconds=0)
    >>> cost(model, (3, 16, 16), timings).ms > 0
    True
    """

    rates: dict[str, Rates]
    """By kind, milliseconds for a multiply-accumulate and a number of one example, and a call."""
    batch: int
    training: bool
    """Whether a step of training was measured, or a forward pass."""
    machine: str
    threads: int
    torch: str
    diffstride: str
    error: float
    """By which part times were missed that the table was not made from, on average."""
    worst: float
    """The same, of the time that was missed most."""

    @classmethod
    def measure(
        cls,
        model: nn.Module,
        input_size: Sequence[int],
        *,
        batch: int = 32,
        training: bool = False,
        threads: int | None = None,
        settings: int = 24,
        seconds: float = 20.0,
        progress: Progress | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> "Timings":
        """Run a copy of a network at many strides, and return what its layers take.

        Args:
            model: the network, on the device where it is measured. It is left as it is.
            input_size: of one example, (channels, *spatial).
            batch: how many examples are run at once.
            training: False measures a forward pass in eval mode; True a step of training: forward,
                backward and SGD.
            threads: how many torch may use meanwhile; as many as now unless given.
            settings: at how many strides; the more, the nearer to the truth.
            seconds: how long to go on. Every setting is run three times at least, also if that
                takes longer.
            progress: is told the part that is done; unless given, a terminal shows it.
            clock: tells the time in seconds.

        Raises:
            ValueError: if the network has no learnable stride, or can't be run at enough strides.
        """
        for name, number, least in (("batch", batch, 1), ("settings", settings, _FEWEST)):
            if number < least:
                raise ValueError(f"{name} must be at least {least}, got {number}")
        model = copied(unwrapped(model))
        costs = CostModel(model, input_size)
        if not any(layer.stride.requires_grad for layer in costs.layers.values()):
            raise ValueError(
                "the model has no learnable stride, so that there are no different strides to "
                "time: give a model with a DiffStride layer, or convert(model, example)"
            )
        like = next(model.parameters())
        threads = threads or torch.get_num_threads()
        devices = [like.device] if like.device.type == "cuda" else []
        with using_threads(threads), torch.random.fork_rng(devices):
            x = torch.randn(batch, *input_size, device=like.device, dtype=like.dtype)
            step = step_of(model, x, training)
            possible, works, reason = [], [], None
            for strides in random_settings(costs.layers, settings, _SEED):
                set_strides(costs.layers, strides)
                try:
                    step()
                    works.append(work_by_kind(*costs.uses_at(costs.given())))
                    possible.append(strides)
                except (ValueError, RuntimeError) as error:  # a map that is too small, mostly
                    reason = error
            if len(possible) < _FEWEST:
                raise ValueError(
                    f"the network runs at {len(possible)} of {settings} settings of strides, and "
                    f"{_FEWEST} are needed: give a larger input_size or a smaller max_stride"
                ) from reason
            show = progress or shown_on_terminal()
            measured = least_times(costs.layers, possible, step, seconds, clock, show)
        errors = [abs(error) for error in errors_unseen(works, measured)]
        return cls(
            rates=fit_rates(works, measured),
            batch=batch,
            training=training,
            machine=machine_name(like.device),
            threads=threads,
            error=sum(errors) / len(errors),
            worst=max(errors),
            **_versions(),
        )

    def __call__(self, use: Use) -> list[AnyAmount]:
        """Return what one use takes, in milliseconds: timings are a unit of cost models."""
        kind = kind_of(use)
        if kind not in self.rates:
            if not use.is_counted:
                return []  # an operation that is not there at other strides
            raise ValueError(
                f"timings have nothing on {kind!r} ({use.name or 'the model'}): they were measured "
                f"with another network. Measure this one with Timings.measure(model, input_size)"
            )
        charged = zip(amounts(use), self.rates[kind], strict=True)
        return [amount.times(rate) for some, rate in charged if rate for amount in some]

    def __str__(self) -> str:
        lines = [("kind", "ms per M MACs", "ms per M numbers", "ms per call")]
        for kind, (mac, number, call) in self.rates.items():
            lines.append((kind, f"{1e6 * mac:.3g}", f"{1e6 * number:.3g}", f"{call:.3g}"))
        what = "a step of training" if self.training else "a forward pass"
        last = (
            f"{what} of a batch of {self.batch}, by the work of one example; {self.machine}, "
            f"{self.threads} threads, torch {self.torch}; strides it was not made from were missed "
            f"by {self.error:.0%} on average, {self.worst:.0%} at most"
        )
        return "\n".join([*aligned(lines), last])

    def save(self, path: str | Path) -> None:
        """Write the table to a JSON file, atomically."""
        content = {"format": _FORMAT, **asdict(self)}
        rows = [{"kind": kind, "rates": list(rates)} for kind, rates in self.rates.items()]
        files.write(Path(path), json.dumps(content | {"rates": rows}, indent=1) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> "Timings":
        """Read a table that :meth:`save` has written.

        It may be of another machine, such as the one where a network will be used: a warning says
        so, also if threads or torch are others than here.

        Raises:
            ValueError: if the file is damaged, or no such table.
        """
        try:
            content = json.loads(Path(path).read_text())
            found = _checked(content)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{path} has no timings that can be read: {error!r}. Measure them again with "
                f"Timings.measure(model, input_size), and save them"
            ) from error
        timings = cls(**found)
        here = {"threads": torch.get_num_threads(), "torch": _versions()["torch"]}
        if timings.machine != (name := _nearest_name(timings.machine)):
            here["machine"] = name
        others = [
            f"{key} {getattr(timings, key)} and not {value}"
            for key, value in here.items()
            if getattr(timings, key) != value
        ]
        if others:
            warnings.warn(
                f"{path} was measured elsewhere or otherwise: {', '.join(others)}. It tells how "
                f"long a network takes there",
                stacklevel=2,
            )
        return timings


def _versions() -> dict[str, str]:
    from diffstride import __version__

    return {"torch": torch.__version__, "diffstride": __version__}


def _nearest_name(machine: str) -> str:
    """Return the device here that has this name, or else what the processor is called."""
    names = [machine_name(torch.device("cpu"))]
    names += [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        names.append(machine_name(torch.device("mps")))
    return machine if machine in names else names[0]


def _checked(content: Any) -> dict[str, Any]:
    """Return what a file says, if it is what a table consists of; otherwise raise an error."""
    if content["format"] != _FORMAT:
        raise ValueError(f"its format is {content['format']!r}, and {_FORMAT} is expected")
    found = {
        **{name: str(content[name]) for name in ("machine", "torch", "diffstride")},
        **{name: int(content[name]) for name in ("batch", "threads")},
        **{name: float(content[name]) for name in ("error", "worst")},
        "training": bool(content["training"]),
    }
    rates = {}
    for row in content["rates"]:
        mac, number, call = (float(rate) for rate in row["rates"])
        if not all(math.isfinite(rate) and rate >= 0 for rate in (mac, number, call)):
            raise ValueError(f"the rates of {row['kind']!r} must be finite and at least 0")
        rates[str(row["kind"])] = mac, number, call
    if not rates:
        raise ValueError("it has no rates")
    return {**found, "rates": rates}
